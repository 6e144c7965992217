"""Run by three ranks: two of them check everything, then all three check a part of it.

`python -m torch.distributed.run --nproc-per-node 3 -m tests.distributed.scenario FOLDER PORT`
writes `two.json` and `three.json` to FOLDER; PORT is a free one, for the world of two.
"""

import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import torch

from fastgcn import Run, TrainConfig, cli, fit
from fastgcn.data.parts import open_part
from fastgcn.data.shard import shard
from fastgcn.data.store import save
from fastgcn.distributed.judge import predicted_parts
from fastgcn.distributed.share import Share
from fastgcn.distributed.world import World
from fastgcn.errors import ElsewhereError, FastGCNError
from fastgcn.train import resume
from tests.communities import communities, few_to_train_on, quick
from tests.distributed.compared import CASES, WITH_THREE, check_cases

SEEDS = range(6)


def interrupted() -> TrainConfig:
    """Settings of the run that two ranks begin and others continue."""
    return quick(epochs=4, hidden=(8, 8), self_term="exact", early_stopping="none")


def with_dropout(seed: int) -> TrainConfig:
    """Settings with which ranks draw what one process does not."""
    return quick(epochs=12, dropout=0.3, learning_rate=0.03, seed=seed, early_stopping="none")


def refusal(do: Callable[[], Any]) -> str:
    """The sentence that refuses it; other ranks only know that one was said."""
    try:
        do()
    except ElsewhereError as error:
        return str(error)
    except FastGCNError as error:
        return str(error)
    return ""


def refused_parts(world: World, folder: Path) -> dict[str, str]:
    """What ranks say of a folder of shards that is not right."""
    good, other = folder / "good", folder / "other"

    def prepare() -> None:
        if world.first:
            shard(communities(), 2, good)
            shard(communities(seed=1), 2, other)
            shutil.copytree(good, folder / "mixed")
            shutil.rmtree(folder / "mixed" / "part-1")
            shutil.copytree(other / "part-1", folder / "mixed" / "part-1")
            shutil.copytree(good, folder / "missing")
            shutil.rmtree(folder / "missing" / "part-1")
            shard(communities(), 3, folder / "three-parts")

    def open_all(name: str) -> None:
        part = world.together("data", lambda: open_part(folder / name, world.rank, world.size))
        world.agree("data", part.outline.stored_fingerprint)

    world.together("shards", prepare)
    return {
        name: refusal(lambda name=name: open_all(name))  # type: ignore[misc]
        for name in ("good", "mixed", "missing", "three-parts")
    }


def refused_settings(share: Share) -> str:
    """What ranks with different seeds say."""
    config = quick(seed=share.world.rank)
    return refusal(lambda: fit(share.graph, config, share=share))


def from_parts(world: World, folder: Path) -> dict[str, Any]:
    """A run on shards: its metrics, what the first rank gathers of predictions, and a refusal."""
    share = Share.of_part(open_part(folder / "good", world.rank, world.size), world)
    run = fit(share.graph, quick(), share=share)
    pieces = list(predicted_parts(run.model, share, share.nodes("test")))
    return {
        "metrics": run.metrics,
        "ids": [int(i) for ids, _ in pieces for i in ids],
        "probabilities": [row.tolist() for _, rows in pieces for row in rows],
        "ids refused": refusal(lambda: share.nodes("3")),
    }


def rare_validation(world: World) -> list[int]:
    """The epochs that are validated where that is more work than training."""
    share = Share.of_graph(few_to_train_on(), world)
    run = fit(share.graph, quick(hidden=512, samples=10, epochs=4), share=share)
    return [record["epoch"] for record in run.history if "val_loss" in record]


def two(world: World, folder: Path) -> dict[str, Any]:
    graph = communities()
    share = Share.of_graph(graph, world)
    run = fit(graph, interrupted().replace(epochs=2), run_dir=folder / "begun", share=share)
    larger = communities(n=150)
    own = Share.of_graph(larger, world)
    scores = [fit(larger, with_dropout(seed), share=own).metrics["test_micro_f1"] for seed in SEEDS]
    return {
        "cases": check_cases(world, CASES),
        "epochs": len(run.history),
        "refused parts": refused_parts(world, folder),
        "refused settings": refused_settings(share),
        "from parts": from_parts(world, folder),
        "scores": scores,
        "validated": rare_validation(world),
    }


def three(world: World, folder: Path) -> dict[str, Any]:
    if world.first:
        save(communities(), folder / "store")
    continue_to(folder / "begun", folder / "continued", interrupted(), world)
    graph = communities()
    run: Run = resume(folder / "continued", graph, share=Share.of_graph(graph, world))
    return {
        "cases": check_cases(world, WITH_THREE),
        "history": run.history,
        "weights": {name: t.tolist() for name, t in run.model.state_dict().items()},
    }


def continue_to(begun: Path, out: Path, config: TrainConfig, world: World | None = None) -> None:
    """A copy of a finished run as it was before its last epochs were asked for."""

    def copy() -> None:
        if world is not None and not world.first:
            return
        shutil.copytree(begun, out)
        (out / "result.json").unlink()
        about = json.loads((out / "config.json").read_text())
        about["config"] = config.to_dict()
        (out / "config.json").write_text(json.dumps(about))

    copy() if world is None else world.together("the run", copy)


def command(*words: object) -> str:
    """What `fastgcn WORDS` prints on this rank."""
    sys.argv = ["fastgcn", *map(str, words)]
    with redirect_stdout(io.StringIO()) as out, suppress(SystemExit):
        cli.main()
    return out.getvalue()


def commands(folder: Path) -> None:
    """Three ranks evaluate the run that they continued, and predict with it."""
    run, store = folder / "continued", folder / "store"
    scores = command("evaluate", run, store, "--json")
    written = command("predict", run, store, "--nodes", "test", "--out", folder / "p.csv", "--json")
    if os.environ["RANK"] == "0":
        found = {"evaluate": json.loads(scores), "predict": json.loads(written)}
        (folder / "commands.json").write_text(json.dumps(found))
    else:
        assert scores == written == ""


def main() -> None:
    torch.set_num_threads(1)
    folder, port = Path(sys.argv[1]), sys.argv[2]
    env = dict(os.environ)
    if int(env["RANK"]) < 2:
        # A world of our own: torchrun's has three ranks, and its agent keeps the store.
        os.environ |= {
            "WORLD_SIZE": "2", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "False",
        }  # fmt: skip
        _play(two, folder)
        os.environ |= env
    _play(three, folder)
    commands(folder)


def _play(scene: Callable[[World, Path], dict[str, Any]], folder: Path) -> None:
    world = World.join(timeout=120)
    found = scene(world, folder)
    if world.first:
        (folder / f"{scene.__name__}.json").write_text(json.dumps(found))
    world.leave()


if __name__ == "__main__":
    main()
