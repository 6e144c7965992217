"""Commands under torchrun: joining the other processes, and opening one's share of the data."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from fastgcn.distributed.launch import DEFAULT_TIMEOUT, launched
from fastgcn.errors import InputError

if TYPE_CHECKING:
    from fastgcn.data.parts import Part
    from fastgcn.distributed.share import Share
    from fastgcn.distributed.world import World
    from fastgcn.graph import Graph

T = TypeVar("T")

Timeout = Annotated[
    float, typer.Option(help="Under torchrun: seconds that a process waits for another.")
]


@contextmanager
def joined(timeout: float = DEFAULT_TIMEOUT) -> "Iterator[World | None]":
    """The processes that torchrun started, None where this one is alone; all but the first are
    silent."""
    if not launched():
        yield None
        return
    from fastgcn.distributed.world import World
    from fastgcn.progress import silent

    world = World.join(timeout)
    if not world.first:
        silent()
    yield world
    # Not after a failure: a process that still waits for us would never let go.
    world.leave()


def speaks(world: "World | None") -> bool:
    """Whether this process is the one that prints and writes."""
    return world is None or world.first


def jointly(world: "World | None", what: str, do: "Callable[[], T]") -> T:
    """`do()`; where several processes do it and it fails, one of them says why."""
    return do() if world is None else world.together(what, do)


def open_data(
    world: "World | None", data: str, load: "Callable[[], Graph]", *, resplit: bool = False
) -> "tuple[Graph, Share | None]":
    """A graph and, where several processes work on it, this one's share.

    `load` opens `data` where that is no folder of shards; `resplit` says that it changes the split.
    """
    from fastgcn.data.parts import is_sharded, open_parts

    folder = Path(data).expanduser()
    sharded = is_sharded(folder)
    if world is None:
        if sharded:
            raise InputError(
                f"{data} is a folder of shards, for several processes: torchrun "
                "--nproc-per-node PARTS -m fastgcn train ...; train on the store in one process"
            )
        return load(), None
    from fastgcn.distributed.share import Share

    # Machines may have different folders under one name, and all must take the same way.
    if not any(world.host.counts(sharded, "the data")):
        if world.size == 1:
            return load(), None
        # What must be fetched or generated first is, once.
        world.together("the data", lambda: load() if world.first else None)
        share = world.together("the data", lambda: Share.of_graph(load(), world))
        return share.graph, share

    def own_part() -> "Part":
        if resplit:
            raise InputError(
                f"{data} was sharded with its split; leave --split and --split-seed out"
            )
        return open_parts(folder, world.rank, world.size)

    part = world.together("the data", own_part)
    fingerprint, bounds = part.outline.stored_fingerprint, part.bounds.tolist()
    world.agree("data", {"fingerprint": fingerprint, "bounds": bounds})
    return part.outline, Share.of_part(part, world)


def run_folder(world: "World | None", asked: Path | None, name: str) -> tuple[Path, bool]:
    """The folder of a run, and whether to continue the run that is in it.

    That is so where these processes have been started in the place of ones that began it, and
    never for a run that was there before: torchrun's own store knows.
    """
    key = f"run of {name} in {asked}"

    def choose() -> tuple[str, bool]:
        begun = None if world is None else world.recall(key)
        if begun is not None and (Path(begun) / "config.json").exists():
            return begun, True
        numbered = (Path("runs") / f"{name}-{number}" for number in count(1))
        path = asked or next(path for path in numbered if not path.exists())
        if world is not None and not (path / "config.json").exists():
            world.remember(key, str(path))
        return str(path), False

    path, again = choose() if world is None else world.from_first("the run's folder", choose)
    return Path(path), again
