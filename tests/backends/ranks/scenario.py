"""Run by three ranks: two of them check everything, then all three check a part of it.

`python -m torch.distributed.run --nproc-per-node 3 -m tests.backends.ranks.scenario FOLDER PORT`
writes `two.json` and `three.json` to FOLDER; PORT is a free one, for the group of two.
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

from fastgcn import Graph, Run, TrainConfig, cli, embed, evaluate, fit, load, predict
from fastgcn.backends.ranks.process_group import ProcessGroup
from fastgcn.backends.ranks.shard import Shard
from fastgcn.cli.data import open_data
from fastgcn.data.shards import shard
from fastgcn.data.store import save
from fastgcn.errors import ElsewhereError, FastGCNError
from fastgcn.infer.predict import embed_parts, predict_parts, with_own_ids
from fastgcn.model import as_gcn
from fastgcn.train.loop import resume
from tests.backends.ranks.compared import CASES, WITH_THREE, check_cases
from tests.communities import communities, few_to_train_on, quick

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


def named(seed: int = 0) -> Graph:
    """A graph whose nodes have names that are not their numbers."""
    return communities(seed=seed, node_ids=[f"n-{7 * i % 60} é" for i in range(60)])


def prepared_parts(group: ProcessGroup, folder: Path) -> None:
    """Folders of shards, good ones and others."""

    def prepare() -> None:
        if not group.is_main:
            return
        shard(named(), 2, folder / "good")
        shard(named(), 5, folder / "five-parts")
        shard(named(), 1, folder / "one-part")
        for name, other in (
            ("mixed", communities(seed=1, name="other")),
            ("otherwise-cut", named()),
        ):
            shard(other, 2, folder / "other", by="nodes", force=True)
            shutil.copytree(folder / "good", folder / name)
            shutil.rmtree(folder / name / "part-1")
            shutil.copytree(folder / "other" / "part-1", folder / name / "part-1")
            shutil.copytree(folder / name / "part-1", folder / f"{name}-1" / "part-1")
            shutil.copytree(folder / name / "part-0", folder / f"{name}-0" / "part-0")
        shutil.copytree(folder / "good", folder / "missing")
        shutil.rmtree(folder / "missing" / "part-1")
        shutil.copytree(folder / "good", folder / "only-here-0")

    group.on_all("shards", prepare)


def open_all(group: ProcessGroup, folder: Path, name: str, *, own: bool = False) -> Shard:
    """This rank's shard of a folder of shards; with `own`, each rank has its own folder."""
    where = folder / (f"{name}-{group.rank}" if own else name)
    shard = open_data(group, str(where), lambda: load(where))[1]
    assert shard is not None
    return shard


def refused_parts(group: ProcessGroup, folder: Path) -> dict[str, str]:
    """What ranks say of folders of shards that are not right."""
    prepared_parts(group, folder)
    together = {
        name: refusal(lambda name=name: open_all(group, folder, name))  # type: ignore[misc]
        for name in ("good", "five-parts", "missing", "one-part", "mixed", "otherwise-cut")
    }
    apart = {
        f"{name} apart": refusal(lambda name=name: open_all(group, folder, name, own=True))  # type: ignore[misc]
        for name in ("mixed", "otherwise-cut", "only-here")
    }
    return together | apart


def refused_settings(shard: Shard) -> str:
    """What ranks with different seeds say."""
    config = quick(seed=shard.group.rank)
    return refusal(lambda: fit(shard.graph, config, shard=shard))


def from_parts(group: ProcessGroup, folder: Path, name: str) -> dict[str, Any]:
    """A run on shards: its metrics, what the first rank gathers of predictions and of hidden
    rows, and a refusal."""
    shard = open_all(group, folder, name)
    run = fit(shard.graph, quick(), shard=shard)
    own = shard.parse_nodes("test")
    pieces = list(with_own_ids(shard, predict_parts(run, shard, own)))
    hidden = list(with_own_ids(shard, embed_parts(run, shard, own)))
    inputs = list(with_own_ids(shard, embed_parts(run, shard, own, layer=0), ids=False))
    scores = evaluate(run, shard, "test")
    assert scores.micro_f1 == run.metrics["test_micro_f1"]
    assert scores.n_nodes == len(shard.graph.split.test)
    return {
        "metrics": run.metrics,
        "ids": [name for ids, _ in pieces for name in ids],
        "probabilities": [row.tolist() for _, rows in pieces for row in rows],
        "hidden": [row.tolist() for _, rows in hidden for row in rows],
        "features": [row.tolist() for _, rows in inputs for row in rows],
        "samples refused": refusal(lambda: predict(run, shard, own, samples=5)),
        "layer refused": refusal(lambda: embed(run, shard, own, layer=9)),
        "nothing asked": refusal(lambda: predict(run, shard, [])),
        "ids refused": refusal(lambda: shard.parse_nodes("3")),
    }


def rare_validation(group: ProcessGroup) -> list[int]:
    """The epochs that are validated where that is more work than training."""
    shard = Shard.of_graph(few_to_train_on(), group)
    run = fit(shard.graph, quick(hidden=512, samples=10, epochs=4), shard=shard)
    return [record["epoch"] for record in run.history if "val_loss" in record]


def diverging(shard: Shard, folder: Path) -> dict[str, str]:
    """What ranks say that diverge in the first epoch, or in the second, or whose outputs do."""
    graph = shard.graph
    at_once, later = quick(learning_rate=1e30), quick(learning_rate=1e17, norm="layer", epochs=9)
    run = fit(graph, quick(epochs=1), shard=shard)
    with torch.no_grad():
        for layer in as_gcn(run.model).convolutions:
            layer.weight.fill_(3e38)
    return {
        "at once": refusal(lambda: fit(graph, at_once, run_dir=folder / "once", shard=shard)),
        "later": refusal(
            lambda: fit(
                graph, later.replace(batch_size=64), run_dir=folder / "stopped", shard=shard
            )
        ),
        "outputs": refusal(lambda: predict(run, shard)),
    }


def two(group: ProcessGroup, folder: Path) -> dict[str, Any]:
    graph = communities()
    shard = Shard.of_graph(graph, group)
    run = fit(graph, interrupted().replace(epochs=2), run_dir=folder / "begun", shard=shard)
    larger = communities(n=150)
    own = Shard.of_graph(larger, group)
    scores = [fit(larger, with_dropout(seed), shard=own).metrics["test_micro_f1"] for seed in SEEDS]
    return {
        "cases": check_cases(group, CASES),
        "epochs": len(run.history),
        "refused parts": refused_parts(group, folder),
        "refused settings": refused_settings(shard),
        "diverging": diverging(shard, folder),
        "from parts": from_parts(group, folder, "good"),
        "from five parts": from_parts(group, folder, "five-parts"),
        "scores": scores,
        "validated": rare_validation(group),
    }


def three(group: ProcessGroup, folder: Path) -> dict[str, Any]:
    if group.is_main:
        save(communities(), folder / "store")
    continue_to(folder / "begun", folder / "continued", interrupted(), group)
    graph = communities()
    run: Run = resume(folder / "continued", graph, shard=Shard.of_graph(graph, group))
    return {
        "cases": check_cases(group, WITH_THREE),
        "history": run.history,
        "weights": {name: t.tolist() for name, t in run.model.state_dict().items()},
    }


def continue_to(
    begun: Path, out: Path, config: TrainConfig, group: ProcessGroup | None = None
) -> None:
    """A copy of a finished run as it was before its last epochs were asked for."""

    def copy() -> None:
        if group is not None and not group.is_main:
            return
        shutil.copytree(begun, out)
        (out / "result.json").unlink()
        about = json.loads((out / "config.json").read_text())
        about["config"] = config.to_dict()
        (out / "config.json").write_text(json.dumps(about))

    copy() if group is None else group.on_all("the run", copy)


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
    for ending in ("npy", "csv"):
        out = folder / f"e.{ending}"
        command("embed", run, store, "--layer", 1, "--nodes", "test", "--out", out)
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
        # A group of our own: torchrun's has three ranks, and its agent keeps the store.
        os.environ |= {
            "WORLD_SIZE": "2", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "False",
        }  # fmt: skip
        _play(two, folder)
        os.environ |= env
    _play(three, folder)
    commands(folder)


def _play(scene: Callable[[ProcessGroup, Path], dict[str, Any]], folder: Path) -> None:
    group = ProcessGroup.join(timeout=120)
    found = scene(group, folder)
    if group.is_main:
        (folder / f"{scene.__name__}.json").write_text(json.dumps(found))
    group.close()


if __name__ == "__main__":
    main()
