"""The parts of every reader: `Reader`, functions that read and check files, and `build`.

Every function that reads a file names it in its errors, and none of them unpickles.
"""

import inspect
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple
from zipfile import BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from scipy.sparse import coo_array, csc_array, csr_array

from fastgcn.arrays import AnyArray, BoolArray, FloatArray, IntArray
from fastgcn.errors import FormatError, InputError, MissingFileError, nearest
from fastgcn.graph import checks
from fastgcn.graph.csr import csr_from_edges
from fastgcn.graph.graph import Graph
from fastgcn.memory import available_memory, shown_bytes
from fastgcn.progress import progress


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of one published format.

    Attributes:
        format: the name of the format, as `load(..., format=...)` takes it.
        expects: the files that the format consists of, for messages.
        matches: True if a path looks like this format. It checks only file names, and a few of
            them are enough, so that a folder that lacks a file is still recognised.
        read: makes the graph; takes the path, and the format's own options by keyword.
    """

    format: str
    expects: str
    matches: Callable[[Path], bool]
    read: Callable[..., Graph]


def check_options(
    function: Callable[..., Any], options: Mapping[str, Any], what: str, also: Iterable[str] = ()
) -> None:
    """Raise for an option that is no keyword of `function`; `also` lists the caller's options."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    listed = list(dict.fromkeys([*known, *also]))
    for option, value in options.items():
        if option not in known and option == "split":
            raise InputError(f"split must be 'random' for {what}, if given at all, got {value!r}")
        if option not in known:
            raise InputError(
                f"{what} has no option {option!r}{nearest(option, listed)} "
                f"(options are {', '.join(listed)})"
            )


def choice(value: str, allowed: Iterable[str], option: str) -> None:
    """Raise if a value is not allowed."""
    allowed = list(allowed)
    if value not in allowed:
        near = nearest(value, allowed) if isinstance(value, str) else ""
        raise InputError(f"{option} must be one of {', '.join(allowed)}, got {value!r}{near}")


# What zipfile, zlib and numpy raise on damaged files. MemoryError and OverflowError: a damaged
# header may claim an array of any size.
_UNREADABLE = (
    ValueError,
    TypeError,
    EOFError,
    OSError,
    BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    MemoryError,
    OverflowError,
)


def has_any(*names: str) -> Callable[[Path], bool]:
    """Makes the `matches` of a reader: True for a folder with any of these files."""
    return lambda folder: any((folder / name).is_file() for name in names)


def one_of(path: Path, found: list[str], wanted: str | None, option: str, expects: str) -> str:
    """The data set `wanted` of those `found` at a path; None is enough if there is only one."""
    if not found:
        raise MissingFileError(f"{path} has no files {expects}")
    if wanted is None and len(found) > 1:
        raise InputError(
            f"{path} holds several data sets: pass {option}= one of {', '.join(found)}"
        )
    if wanted is not None and wanted not in found:
        near = nearest(str(wanted), found)
        raise InputError(f"{path} holds {', '.join(found)}, not {option}={wanted!r}{near}")
    return wanted or found[0]


def need(folder: Path, *names: str) -> list[Path]:
    """The paths of these files in `folder`; raises if one is missing."""
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise MissingFileError(
            f"{folder} lacks {' and '.join(missing)}; "
            f"the data set consists of {', '.join(names)}: get the missing file as well"
        )
    return [folder / name for name in names]


def read_npz(path: Path, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Any]:
    """The named arrays of a `.npz` file.

    Optional arrays are left out if the file lacks them, or if they hold Python objects: reading
    these means unpickling, which can run any code.
    """
    required, optional = tuple(required), tuple(optional)
    try:
        with ZipFile(path) as archive:
            there = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            _has_all(path, required, there)
            wanted = list(required)
            wanted += [name for name in optional if name in there and _plain(archive, there[name])]
            arrays: dict[str, Any] = {}
            total = sum(there[name].file_size for name in wanted)
            with progress(f"Reading {path.name}", total, "bytes") as advance:
                for name in wanted:
                    arrays[name] = _read_member(archive, there[name], advance)
            return arrays
    except FormatError:
        raise
    except _UNREADABLE as error:
        raise FormatError(f"{path} cannot be read as a .npz file: {_reason(error)}") from None


def _plain(archive: ZipFile, member: ZipInfo) -> bool:
    """True if the array holds no Python objects, by the type at the start of its header."""
    with archive.open(member) as file:
        return b"'descr': '|O'" not in file.read(64)


def _read_member(archive: ZipFile, member: ZipInfo, advance: Callable[[int], None]) -> AnyArray:
    with archive.open(member) as file:
        try:
            array: AnyArray = npy.read_array(_Counted(file, advance), allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"{member.filename}: {error}") from None
    return array


class _Counted:
    """A file that reports the bytes read from it."""

    def __init__(self, file: IO[bytes], advance: Callable[[int], None]) -> None:
        self._file, self._advance = file, advance

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._advance(len(data))
        return data


def _has_all(path: Path, required: Iterable[str], there: Iterable[str]) -> None:
    missing = [name for name in required if name not in there]
    if missing:
        raise FormatError(
            f"{path} lacks the array {missing[0]!r}; it has {', '.join(sorted(there)) or 'none'}"
        )


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def read_npy(path: Path) -> AnyArray:
    """The array of a `.npy` file, memory-mapped, because features may be larger than memory."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except _UNREADABLE as error:
        raise FormatError(f"{path} cannot be read as a .npy file: {_reason(error)}") from None
    if not isinstance(array, np.ndarray):
        raise FormatError(f"{path} must be a .npy file, but is a .npz archive")
    return array


def read_sparse(path: Path) -> csr_array | csc_array | coo_array:
    """The matrix that `scipy.sparse.save_npz` wrote, in the same layout."""
    head = read_npz(path, ("format", "shape"))
    # Bytes today, UTF-32 text from scipy before 1.0: the same letters, with zeros between.
    layout = head["format"].tobytes().decode("latin1").replace("\0", "")
    parts = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}
    if layout not in parts:
        raise FormatError(
            f"{path} holds a sparse matrix in layout {layout!r}, expected csr, csc or coo; "
            "save it again after .tocsr()"
        )
    arrays = read_npz(path, ("data", *parts[layout]))
    return checked_sparse(path, layout, sizes_of(head["shape"], path), arrays)


def sizes_of(shape: AnyArray, path: Path) -> tuple[int, int]:
    """The numbers of rows and columns from a stored shape."""
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise FormatError(f"{path}: a sparse matrix's shape must be two integers, got {shape}")
    return int(shape[0]), int(shape[1])


def checked_sparse(
    path: Path, layout: str, sizes: tuple[int, int], parts: Mapping[str, AnyArray]
) -> csr_array | csc_array | coo_array:
    """A matrix whose offsets and indices are known to be in range.

    scipy's compiled loops read wherever these point. Its own check takes differences of offsets,
    which wrap around for the largest 64-bit numbers, so it is not relied on.
    """
    for name, array in parts.items():
        kinds = "fiub" if name == "data" else "iu"
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise FormatError(
                f"{path}: the sparse matrix's {name} must be a 1-D array of "
                f"{'numbers' if name == 'data' else 'integers'}, "
                f"got {array.dtype} of shape {array.shape}"
            )
    try:
        if layout == "coo":
            _must_lie_below(parts["row"], sizes[0], "a row")
            _must_lie_below(parts["col"], sizes[1], "a column")
            return coo_array((parts["data"], (parts["row"], parts["col"])), shape=sizes)
        major, minor = sizes if layout == "csr" else sizes[::-1]
        _check_offsets(parts["indptr"], major, min(len(parts["indices"]), len(parts["data"])))
        _must_lie_below(parts["indices"], minor, "an index")
        kind = csr_array if layout == "csr" else csc_array
        matrix = kind((parts["data"], parts["indices"], parts["indptr"]), shape=sizes)
        matrix.check_format(full_check=True)
    except (ValueError, IndexError, OverflowError) as error:
        raise FormatError(f"{path} holds a damaged sparse matrix: {error}") from None
    return matrix


def _check_offsets(offsets: AnyArray, rows: int, entries: int) -> None:
    """Check that the offsets of `rows` rows begin with 0, do not decrease and fit the entries."""
    if len(offsets) != rows + 1:
        raise ValueError(f"{rows} rows need {rows + 1} offsets, got {len(offsets)}")
    if int(offsets[0]) != 0 or bool(np.any(offsets[1:] < offsets[:-1])):
        raise ValueError("its row offsets must begin with 0 and must not decrease")
    if int(offsets[-1]) > entries:
        raise ValueError(f"its last row offset is {offsets[-1]}, but it has {entries} entries")


def _must_lie_below(ids: AnyArray, n: int, what: str) -> None:
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= n):
        worst = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise ValueError(f"{what} must lie in 0..{n - 1}, got {worst}")


def read_bytes(path: Path) -> bytes:
    """The content of a file, unless memory has no room for it."""
    size, free = path.stat().st_size, available_memory()
    if size > free:
        raise FormatError(
            f"{path} has {shown_bytes(size)}, but only {shown_bytes(free)} of memory are free"
        )
    return path.read_bytes()


def read_json(path: Path) -> dict[str, Any]:
    """The object (a dict) that a JSON file holds."""
    try:
        value = json.loads(read_bytes(path))
    except (ValueError, RecursionError, OSError) as error:
        raise FormatError(f"{path} cannot be read as JSON: {_reason(error)}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{path} must hold an object, got {type(value).__name__}")
    return value


class Edges(NamedTuple):
    """An edge list: (m,) ends and (m,) weights, None if every edge has weight one."""

    source: IntArray
    target: IntArray
    weights: FloatArray | None = None


def edges_of(matrix: Any, *, weighted: bool = True) -> Edges:
    """The stored entries of a sparse matrix; with `weighted`, their values unless all are one."""
    entries = matrix.tocoo()
    if weighted and not np.all(entries.data == 1):
        return Edges(entries.row, entries.col, entries.data)
    there = entries.data != 0
    return Edges(entries.row[there], entries.col[there])


def square(matrix: Any, path: Path) -> Any:
    """The adjacency matrix `matrix`; raises unless it is square."""
    if matrix.shape[0] != matrix.shape[1]:
        raise FormatError(f"{path} must hold a square adjacency matrix, got shape {matrix.shape}")
    return matrix


def build(
    path: Path,
    edges: Edges,
    *,
    n: int,
    directed: bool | None,
    features: Any,
    name: str | None,
    **fields: Any,
) -> Graph:
    """The checked graph.

    `directed=False` stores every edge both ways; None keeps the edges unchanged and checks if
    they are symmetric. `name` defaults to that of the file or folder at `path`.
    """
    with naming(path):
        if directed not in (None, True, False):
            raise InputError(f"directed must be True, False or None, got {directed!r}")
        source, target, weights = checks.edge_arrays(*edges, n)
        csr, cleaned = csr_from_edges(source, target, weights, n, directed=directed is not False)
        return Graph(
            indptr=csr.indptr,
            indices=csr.indices,
            weights=csr.weights,
            features=features,
            directed=directed,
            name=name or default_name(path),
            cleaned=cleaned,
            **fields,
        )


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file or folder in front of the error messages of `Graph`'s checks."""
    try:
        yield
    except FormatError:
        raise
    except InputError as error:
        raise FormatError(f"{path}: {error}") from None


def default_name(path: Path) -> str:
    path = path.resolve()
    return path.stem if path.is_file() else path.name


def identity(n: int) -> csr_array:
    """(n, n) one-hot features, for nodes that come without features."""
    return csr_array((np.ones(n, np.float32), np.arange(n), np.arange(n + 1)), shape=(n, n))


def labels_of(
    class_map: Mapping[str, Any], rows: Mapping[str, int], n: int, path: Path
) -> IntArray | BoolArray:
    """Labels from JSON: node key → class number, or → list of 0 and 1, one per class.

    `rows` gives the node of each key; nodes without an entry are unlabelled.
    """
    stranger = next((key for key in class_map if key not in rows), None)
    if stranger is not None:
        raise FormatError(f"{path} labels {stranger!r}, which is not one of the {n} nodes")
    try:
        values = np.array(list(class_map.values()))
    except ValueError:
        raise FormatError(f"{path} must give every node as many labels as the others") from None
    if values.size and (values.dtype.kind not in "iub" or values.ndim > 2):
        raise FormatError(
            f"{path} must map each node to a class number or a list of 0 and 1, "
            f"got {next(iter(class_map.values()))!r}"
        )
    ids = np.array([rows[key] for key in class_map], dtype=np.int64)
    if values.ndim == 2:
        several = np.zeros((n, values.shape[1]), np.int64)
        several[ids] = values
        return several
    one = np.full(n, -1, np.int64)
    one[ids] = values
    return one
