"""The parsers that read bytes, for Atheris: `python -m tests.fuzz.parsers NAME -runs=100000`.

Atheris is guided by coverage: it keeps an input that reaches new code and changes it further. What
follows the name goes to libFuzzer (`-runs`, `-max_total_time`, `-seed`, folders of inputs). An
input that is neither read nor refused in one sentence stops it and is written to `crash-...`.
"""

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

Parser = Callable[[bytes], object]


def _header(data: bytes) -> object:
    from fastgcn.npy import read_npy

    with contextlib.suppress(ValueError):
        return read_npy(io.BytesIO(data), len(data))
    return None


def _json(data: bytes) -> object:
    from fastgcn.files import parse_json

    with contextlib.suppress(ValueError):
        return parse_json(data)
    return None


def _pickle(data: bytes) -> object:
    from fastgcn.data.readers import pickles

    with _file("ind.toy.allx", data) as path:
        record = pickles.read_record(path)
        for take in (pickles.array, pickles.matrix, pickles.adjacency_lists):
            with refused():
                take(record, path)
    return None


def _npz(data: bytes) -> object:
    from fastgcn.data.readers.npz import read_npz, read_sparse

    with _file("adj.npz", data) as path:
        with refused():
            read_npz(path, ("data",), ("labels",))
        return read_sparse(path)


def _manifest(data: bytes) -> object:
    from fastgcn.data.store import read_manifest

    with _file("graph.json", data) as path:
        return read_manifest(path.parent)


def _toml(data: bytes) -> object:
    from fastgcn.config import TrainConfig
    from fastgcn.settings import read_toml

    with _file("settings.toml", data) as path:
        return TrainConfig.from_dict(read_toml(path))


def _assignment(data: bytes) -> object:
    from fastgcn.settings import read_assignments

    return read_assignments([data.decode(errors="surrogateescape")])


def _table(data: bytes) -> object:
    from fastgcn.data.tables.files import TableFile

    with _file("nodes.csv", data) as path:
        return TableFile(path)


def _nodes(data: bytes) -> object:
    from fastgcn.graph.graph import parse_nodes
    from tests.data.readers.toy import toy

    return parse_nodes(toy(), data.decode(errors="surrogateescape"))


# Each with the name of a target and the ending of the files that it begins with.
PARSERS: dict[str, tuple[Parser, str, str]] = {
    "npy": (_header, "store", ".npy"),
    "json": (_json, "store", ".json"),
    "manifest": (_manifest, "store", "graph.json"),
    "pickle": (_pickle, "planetoid", "x"),
    "npz": (_npz, "npz", ".npz"),
    "toml": (_toml, "settings", ".toml"),
    "assignment": (_assignment, "settings", ".txt"),
    "table": (_table, "csv", ".csv"),
    "nodes": (_nodes, "nodes", ".txt"),
}


# Atheris rewrites what it follows, and numba cannot compile that: no kernels.
_FOLLOWED = (
    "fastgcn.npy",
    "fastgcn.files",
    "fastgcn.settings",
    "fastgcn.config",
    "fastgcn.data.readers",
    "fastgcn.data.store",
    "fastgcn.data.tables",
)


def refused() -> Any:
    """Let our own errors pass: they are the right answer."""
    from fastgcn.errors import FastGCNError

    return contextlib.suppress(FastGCNError)


@contextlib.contextmanager
def _file(name: str, data: bytes) -> Iterator[Path]:
    path = Path(tempfile.gettempdir(), f"fastgcn-parser-{os.getpid()}", name)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    yield path


def seeds(name: str) -> list[bytes]:
    """Valid inputs of a parser."""
    from tests.fuzz.corpus import corpus

    _, target, ending = PARSERS[name]
    return [
        data
        for tree in corpus(target).values()
        for file, data in tree.items()
        if file.endswith(ending)
    ]


def main() -> None:
    import atheris

    name, arguments = sys.argv[1], sys.argv[2:]
    parse = PARSERS[name][0]
    with atheris.instrument_imports(include=list(_FOLLOWED)):
        for module in _FOLLOWED:
            import_module(module)
    with tempfile.TemporaryDirectory(prefix="fuzz-seeds-") as folder:
        for number, data in enumerate(seeds(name)):
            Path(folder, str(number)).write_bytes(data)

        def one(data: bytes) -> None:
            with refused():
                parse(data)

        atheris.Setup([sys.argv[0], *arguments, folder], one)
        atheris.Fuzz()


if __name__ == "__main__":
    if Path("/dev/shm").is_dir():
        os.environ["TMPDIR"] = "/dev/shm"
    main()
