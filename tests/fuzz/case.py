"""A case: the files of a valid input, some of them changed; made from a number alone."""

import contextlib
import gzip
import io
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from random import Random

from tests.fuzz.mutate_arrays import mutate_npy, mutate_npz, mutate_safetensors
from tests.fuzz.mutate_bytes import Mutation, mutate_bytes, mutate_text
from tests.fuzz.mutate_json import mutate_json, mutate_json_lines
from tests.fuzz.mutate_pickle import mutate_pickle
from tests.fuzz.mutate_tables import mutate_parquet


class Odd(Enum):
    """What can lie in a file's place."""

    MISSING = "missing"
    FOLDER = "folder"
    FIFO = "fifo"
    LOOP = "loop"
    ENDLESS = "endless"


Content = bytes | Odd
Tree = Mapping[str, bytes]
"""The files of an input, by their path below its folder."""

Changes = dict[str, Content]


def read_tree(folder: Path) -> dict[str, bytes]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def mutate_gzip(data: bytes, rng: Random, other: bytes = b"") -> bytes:
    """Of the text inside, or of the compressed bytes."""
    if rng.random() < 0.25:
        return mutate_bytes(data, rng, other)
    try:
        text, more = gzip.decompress(data), gzip.decompress(other)
    except (OSError, EOFError, ValueError):
        return mutate_bytes(data, rng, other)
    except Exception:  # zlib.error
        return mutate_bytes(data, rng, other)
    return gzip.compress(mutate_text(text, rng, more), 1, mtime=0)


_BY_ENDING: dict[str, Mutation] = {
    ".npy": mutate_npy,
    ".npz": mutate_npz,
    ".json": mutate_json,
    ".jsonl": mutate_json_lines,
    ".safetensors": mutate_safetensors,
    ".parquet": mutate_parquet,
    ".csv": mutate_text,
    ".tsv": mutate_text,
    ".toml": mutate_text,
    ".txt": mutate_text,
    ".index": mutate_text,
    ".gz": mutate_gzip,
}


def mutation_of(name: str) -> Mutation:
    """The mutation that knows a file's format, by the file's name."""
    if name.rpartition("/")[2].startswith("ind.") and not name.endswith(".index"):
        return mutate_pickle
    return _BY_ENDING.get(name[name.rfind(".") :], mutate_bytes)


Repair = Callable[[Tree, dict[str, bytes]], None]
"""Takes a valid input and its changed files; makes sums and sizes agree with the files again, so
that deeper checks are reached."""


def mutate_tree(tree: Tree, rng: Random, repair: Repair | None = None) -> Changes:
    """What to change in an input: one file as a rule, sometimes several, sometimes twice."""
    changed: dict[str, bytes] = {}
    names = list(tree)
    kind = rng.random()
    name = rng.choice(names)
    if kind < 0.004 and not name.endswith(".txt"):  # those are texts of the command line
        return {name: rng.choice(list(Odd))}
    if kind < 0.02:
        one, two = rng.choice(names), rng.choice(names)
        return {one: tree[two], two: tree[one]}
    while True:
        name = rng.choice(names)
        other = tree[rng.choice(names)] if rng.random() < 0.3 else tree[name]
        changed[name] = mutation_of(name)(changed.get(name, tree[name]), rng, other)
        if rng.random() < 0.75:
            break
    if repair is not None and rng.random() < 0.6:
        repair(tree, changed)
    return dict(changed)


@dataclass(frozen=True, slots=True)
class Placed:
    """A valid input on disk, in which single files are replaced and put back."""

    folder: Path
    tree: Tree

    @classmethod
    def at(cls, folder: Path, tree: Tree) -> "Placed":
        placed = cls(folder, tree)
        placed.restore_all()
        return placed

    def apply(self, changes: Changes) -> None:
        for name, content in changes.items():
            path = self.folder / name
            _remove(path)
            _put(path, content)

    def restore(self, changes: Changes) -> None:
        for name in changes:
            path = self.folder / name
            _remove(path)
            if name in self.tree:
                path.write_bytes(self.tree[name])

    def restore_all(self) -> None:
        """For inputs that the action itself writes to."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name, data in self.tree.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def _remove(path: Path) -> None:
    """A new file gets a new inode, so that an array that is still mapped keeps its content."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()


def _put(path: Path, content: Content) -> None:
    match content:
        case bytes():
            path.write_bytes(content)
        case Odd.FOLDER:
            path.mkdir()
        case Odd.FIFO:
            os.mkfifo(path)
        case Odd.LOOP:
            path.symlink_to(path.name)
        case Odd.ENDLESS:
            path.symlink_to("/dev/zero")


def save_found(path: Path, tree: Tree, changes: Changes, about: Mapping[str, object]) -> None:
    """Keep a case as a file: the whole input, because valid inputs change with the code."""
    whole: dict[str, Content] = {**tree, **changes}
    odd = {name: content.value for name, content in whole.items() if isinstance(content, Odd)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("about.json"), json.dumps({**about, "odd": odd}, indent=1))
        for name, content in sorted(whole.items()):
            if isinstance(content, bytes):
                archive.writestr(zipfile.ZipInfo(f"files/{name}"), content, zipfile.ZIP_DEFLATED)


def load_found(path: Path) -> tuple[dict[str, object], dict[str, bytes], Changes]:
    """What `save_found` wrote: what is known about the case, its files, and what is no file."""
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive:
        about = json.loads(archive.read("about.json"))
        names = [name for name in archive.namelist() if name.startswith("files/")]
        files = {name.removeprefix("files/"): archive.read(name) for name in names}
    odd: Changes = {name: Odd(kind) for name, kind in about["odd"].items()}
    return about, files, odd
