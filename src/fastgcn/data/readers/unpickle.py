"""Reading Planetoid's Python-2 pickles without running anything that they ask for.

A pickle is a program that names functions and calls them. Here, every name that a Planetoid
file needs stands for an inert class that only records what it was called with; any other name
is refused. The result is a record of the file, from which `array`, `matrix` and
`adjacency_lists` take the numbers and check them.
"""

import io
import math
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import AnyArray
from fastgcn.data.readers.parts import checked_sparse
from fastgcn.errors import FormatError, UnsafeFileError


class _Record:
    """Records the arguments of a call and the state set afterwards.

    A pickle may set the state of any object, so every stand-in keeps it here and nowhere else.
    """

    __slots__ = ("args", "state")

    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any) -> "_Record":
        record = super().__new__(cls)
        record.args, record.state = args, None
        return record

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Array(_Record):
    """`_reconstruct(ndarray, (0,), b'b')`; the state holds the shape, the dtype and the bytes."""


class _Dtype(_Record):
    """`dtype('f4', False, True)`; the state begins with a version and the byte order."""


class _Matrix(_Record):
    """`csr_matrix()`; the state is the matrix's dictionary."""


class _Bytes(_Record):
    """`encode(text, 'latin1')`: how Python 3 writes bytes for Python 2."""


class _Word(_Record):
    """A class that is only mentioned: `ndarray`, and the `list` of a `defaultdict(list)`."""


class _Dictionary(dict[Any, Any]):
    """`defaultdict(list)`, without the default."""

    def __init__(self, *_: Any) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> NoReturn:
        raise TypeError("a dictionary has no state")


# Names as Python 2 wrote them, and as Python 3 with numpy 1 or 2 writes the same objects.
_STAND_INS: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Word,
    ("numpy", "dtype"): _Dtype,
    ("scipy.sparse.csr", "csr_matrix"): _Matrix,
    ("scipy.sparse._csr", "csr_matrix"): _Matrix,
    ("_codecs", "encode"): _Bytes,
    ("collections", "defaultdict"): _Dictionary,
    ("__builtin__", "list"): _Word,
    ("builtins", "list"): _Word,
}


class _InertUnpickler(pickle.Unpickler):
    def __init__(self, path: Path, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="latin1")
        self._path = path

    def find_class(self, module: str, name: str) -> type:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise UnsafeFileError(
                f"{self._path} asks for {module}.{name}, which no Planetoid file needs; it was "
                "refused and nothing was run: get the file from a source that you trust"
            ) from None


def read_record(path: Path) -> Any:
    """The content of a pickle as numbers, text, lists, dictionaries and inert records."""
    content = path.read_bytes()
    try:
        _check_opcodes(content)
        return _InertUnpickler(path, content).load()
    except UnsafeFileError:
        raise
    except Exception as error:
        # A damaged pickle can raise any exception; all of them mean damage.
        reason = str(error) or type(error).__name__
        raise FormatError(f"{path} is damaged or not a pickle: {reason}") from None


def _check_opcodes(content: bytes) -> None:
    """Check that every opcode is known and has its argument, and that no memo number is too large.

    The unpickler allocates a memo as long as the largest number that an object is stored under;
    a damaged number would make it allocate all memory.
    """
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and (argument or 0) > len(content):
            raise ValueError(f"an object is remembered under the number {argument}")


def array(record: Any, path: Path) -> AnyArray:
    """The numbers of a recorded numpy array."""
    try:
        if not isinstance(record, _Array):
            raise TypeError(f"it holds a {_kind(record)}")
        _, shape, dtype, fortran, content = record.state
        values = np.frombuffer(_raw(content), _dtype(dtype))
        shape = tuple(int(size) for size in shape)
        if math.prod(shape) != len(values) or min(shape, default=0) < 0:
            raise ValueError(f"{len(values)} numbers do not make an array of shape {shape}")
        return values.reshape(shape, order="F" if fortran else "C")
    except (TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{path} must hold an array of numbers: {error}") from None


def _raw(content: Any) -> bytes:
    """The bytes of an array; unpickling as latin1 turned them into text."""
    if isinstance(content, _Bytes):
        content = content.args[0]
    return content.encode("latin1") if isinstance(content, str) else bytes(content)


def _dtype(record: Any) -> np.dtype[Any]:
    code, order = record.args[0], record.state[1]
    # Numbers only. Above all no `O`: its bytes would be used as addresses.
    if not re.fullmatch(r"[iufb][1248]", code) or order not in ("<", ">", "|", "="):
        raise ValueError(f"its dtype is {order}{code}")
    dtype: np.dtype[Any] = np.dtype(order + code)
    return dtype


def matrix(record: Any, path: Path) -> csr_array:
    """The numbers of a recorded CSR matrix; its other attributes are ignored."""
    state = record.state if isinstance(record, _Matrix) else None
    if not isinstance(state, dict) or not {"_shape", "data", "indices", "indptr"} <= state.keys():
        raise FormatError(f"{path} must hold a CSR matrix, got a {_kind(record)} that is not whole")
    parts = {name: array(state[name], path) for name in ("data", "indices", "indptr")}
    return checked_sparse(path, "csr", np.asarray(state["_shape"]), parts)


def adjacency_lists(record: Any, path: Path) -> dict[int, list[int]]:
    """A dictionary from each node to the list of its neighbours, numbered from 0."""
    if not isinstance(record, dict):
        raise FormatError(f"{path} must hold a dictionary of lists, got a {_kind(record)}")
    for node, neighbours in record.items():
        if not isinstance(neighbours, list):
            raise FormatError(f"{path} must hold a list for each node, not so for {node!r}")
        for end in (node, *neighbours):
            if not (isinstance(end, int) and end >= 0):
                raise FormatError(f"{path} must name nodes by numbers from 0, got {end!r}")
    return record


def _kind(record: Any) -> str:
    return type(record).__name__.removeprefix("_").lower()
