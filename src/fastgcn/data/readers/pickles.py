"""Pickles of arrays, CSR matrices and dictionaries of lists, read without running them.

A pickle is a program that names functions and calls them. `read_record` runs it on a machine of
its own that knows few opcodes and calls nothing. Every name that a Planetoid file needs stands
for an inert record of its arguments; any other name is refused. `array`, `matrix` and
`adjacency_lists` take the numbers out of the record and check them.

Reading takes memory and time in proportion to the file: numbers have at most 64 bits; only
numbers and text are keys of a dictionary, so that nothing nested is ever hashed; and no function
here follows a record to an arbitrary depth.
"""

import math
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import AnyArray
from fastgcn.data.readers.npz import checked_sparse
from fastgcn.data.readers.parts import read_bytes
from fastgcn.errors import FormatError, UnsafeFileError


class _Record:
    """The arguments of a call that was not made, and the state set afterwards."""

    __slots__ = ("args", "state")

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.args = args
        self.state: Any = None


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


# Names as Python 2 wrote them, and as Python 3 with numpy 1 or 2 writes the same objects.
_STAND_INS: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Word,
    ("numpy", "dtype"): _Dtype,
    ("scipy.sparse.csr", "csr_matrix"): _Matrix,
    ("scipy.sparse._csr", "csr_matrix"): _Matrix,
    ("_codecs", "encode"): _Bytes,
    ("collections", "defaultdict"): dict,
    ("__builtin__", "list"): _Word,
    ("builtins", "list"): _Word,
}

_NUMBERS = frozenset(["INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"])
_PLAIN = frozenset(
    [
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "FLOAT",
        "BINFLOAT",
    ]
)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_PUTS = frozenset(["PUT", "BINPUT", "LONG_BINPUT"])
_GETS = frozenset(["GET", "BINGET", "LONG_BINGET"])
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def read_record(path: Path) -> Any:
    """The content of a pickle as numbers, text, lists, tuples, dictionaries and inert records."""
    content = read_bytes(path)
    try:
        return _Machine(path).run(content)
    except UnsafeFileError:
        raise
    except Exception as error:
        # pickletools raises many kinds of exceptions; all of them mean damage.
        reason = str(error) or type(error).__name__
        raise FormatError(f"{path} is damaged or not a pickle: {reason}") from None


class _Machine:
    """Runs the opcodes of a pickle on a stack, without a call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._actions: dict[str, Callable[[Any], None]] = {
            "PROTO": lambda _: None,
            "FRAME": lambda _: None,
            "MARK": lambda _: self._marks.append(len(self._stack)),
            "POP": lambda _: self._discard(),
            "MEMOIZE": lambda _: self._memo.__setitem__(len(self._memo), self._top()),
            "EMPTY_LIST": lambda _: self._stack.append([]),
            "EMPTY_DICT": lambda _: self._stack.append({}),
            "LIST": lambda _: self._stack.append(self._since_mark()),
            "TUPLE": lambda _: self._stack.append(tuple(self._since_mark())),
            "DICT": lambda _: self._stack.append(_with_items({}, self._since_mark())),
            "APPEND": lambda _: self._extend([self._pop()]),
            "APPENDS": lambda _: self._extend(self._since_mark()),
            "SETITEM": lambda _: self._set_items([self._pop(), self._pop()][::-1]),
            "SETITEMS": lambda _: self._set_items(self._since_mark()),
            "GLOBAL": lambda name: self._stack.append(self._class(*name.split(" ", 1))),
            "STACK_GLOBAL": self._stack_global,
            "INST": lambda name: self._stack.append(
                _made(self._class(*name.split(" ", 1)), tuple(self._since_mark()))
            ),
            "REDUCE": self._call,
            "NEWOBJ": self._call,
            "BUILD": self._build,
        }

    def run(self, content: bytes) -> Any:
        stack, memo = self._stack, self._memo
        for opcode, argument, _ in pickletools.genops(content):
            name = opcode.name
            if name in _NUMBERS:
                stack.append(_number(argument))
            elif name in _PUTS:
                memo[_number(argument)] = self._top()
            elif name in _GETS:
                stack.append(memo[_number(argument)])
            elif name in _PLAIN:
                stack.append(argument)
            elif name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            elif name in _TUPLES:
                stack.append(tuple([self._pop() for _ in range(_TUPLES[name])][::-1]))
            elif name in self._actions:
                self._actions[name](argument)
            elif name == "STOP":
                return self._pop()
            else:
                raise ValueError(f"no such file uses the opcode {name}")
        raise ValueError("it does not end")

    def _top(self) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise ValueError("it uses an object that it has not made")
        return self._stack[-1]

    def _pop(self) -> Any:
        self._top()
        return self._stack.pop()

    def _discard(self) -> None:
        self._pop()

    def _since_mark(self) -> list[Any]:
        if not self._marks:
            raise ValueError("it ends a list that it has not begun")
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _extend(self, items: list[Any]) -> None:
        if type(self._top()) is not list:
            raise ValueError("it appends to what is not a list")
        self._top().extend(items)

    def _set_items(self, items: list[Any]) -> None:
        if type(self._top()) is not dict:
            raise ValueError("it sets an item of what is not a dictionary")
        _with_items(self._top(), items)

    def _class(self, module: str, name: str) -> type:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise UnsafeFileError(
                f"{self._path} asks for {module}.{name}, which no Planetoid file needs; it was "
                "refused and nothing was run: get the file from a source that you trust"
            ) from None

    def _stack_global(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise ValueError("it names a class by what is not text")
        self._stack.append(self._class(module, name))

    def _call(self, _: Any) -> None:
        args, made = self._pop(), self._pop()
        if not isinstance(args, tuple) or not isinstance(made, type):
            raise ValueError("it calls what is not a class")
        self._stack.append(_made(made, args))

    def _build(self, _: Any) -> None:
        state, record = self._pop(), self._top()
        if not isinstance(record, _Record):
            raise ValueError("it sets the state of an object that has none")
        record.state = state


def _made(made: type, args: tuple[Any, ...]) -> Any:
    """The record of a call; a `defaultdict` is a dictionary without the default."""
    return {} if made is dict else made(args)


def _number(value: Any) -> int:
    if not isinstance(value, int) or not -(2**63) <= value < 2**64:
        raise ValueError("it holds a number of more than 64 bits")
    return value


def _with_items(target: dict[Any, Any], items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise ValueError("it sets a key without a value")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, int | str):
            raise ValueError(f"the key of a dictionary must be a number or text, got {_kind(key)}")
        target[key] = value
    return target


def array(record: Any, path: Path) -> AnyArray:
    """The numbers of a recorded numpy array."""
    try:
        if not isinstance(record, _Array):
            raise TypeError(f"it holds {_kind(record)}")
        _, shape, dtype, fortran, content = record.state
        values = np.frombuffer(_raw(content), _dtype(dtype))
        if not _is_shape(shape) or math.prod(shape) != len(values):
            shown = shape if _is_shape(shape) else "that is none"
            raise ValueError(f"{len(values)} numbers do not make an array of shape {shown}")
        return values.reshape(shape, order="F" if fortran else "C")
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FormatError(f"{path} must hold an array of numbers: {error}") from None


def _is_shape(shape: Any) -> bool:
    return (
        isinstance(shape, tuple)
        and len(shape) <= 4
        and all(type(size) is int and 0 <= size < 2**63 for size in shape)
    )


def _raw(content: Any) -> bytes:
    """The bytes of an array; reading the pickle as latin1 turned them into text."""
    if isinstance(content, _Bytes):
        content = content.args[0] if content.args else None
    if isinstance(content, str):
        return content.encode("latin1")
    if not isinstance(content, bytes):
        raise TypeError(f"its content is {_kind(content)}")
    return content


def _dtype(record: Any) -> np.dtype[Any]:
    code, order = (record.args[:1], record.state[1:2]) if isinstance(record, _Dtype) else ((), ())
    # Only numbers. The bytes of dtype `O` would be used as addresses.
    if code == () or not isinstance(code[0], str) or order not in (("<",), (">",), ("|",), ("=",)):
        raise ValueError("its dtype is none")
    if not re.fullmatch(r"[iufb][1248]", code[0]):
        raise ValueError(f"its dtype is {order[0]}{code[0][:8]}")
    dtype: np.dtype[Any] = np.dtype(order[0] + code[0])
    return dtype


def matrix(record: Any, path: Path) -> csr_array:
    """The numbers of a recorded CSR matrix; its other attributes are ignored."""
    state = record.state if isinstance(record, _Matrix) else None
    if not isinstance(state, dict) or not {"_shape", "data", "indices", "indptr"} <= state.keys():
        raise FormatError(f"{path} must hold a complete CSR matrix, got {_kind(record)}")
    shape = state["_shape"]
    if not _is_shape(shape) or len(shape) != 2:
        raise FormatError(f"{path}: a sparse matrix's shape must be two integers")
    parts = {name: array(state[name], path) for name in ("data", "indices", "indptr")}
    return checked_sparse(path, "csr", shape, parts)


def adjacency_lists(record: Any, path: Path) -> dict[int, list[int]]:
    """A dictionary from each node to the list of its neighbours, numbered from 0."""
    if not isinstance(record, dict):
        raise FormatError(f"{path} must hold a dictionary of lists, got {_kind(record)}")
    total, most = 0, path.stat().st_size
    for node, neighbours in record.items():
        if not isinstance(neighbours, list):
            raise FormatError(f"{path} must hold a list for each node, but not for {_shown(node)}")
        # A list may be named several times, and would be read as often.
        total += len(neighbours)
        if total > most:
            raise FormatError(f"{path} must list each neighbour by itself, but repeats whole lists")
        for end in (node, *neighbours):
            if type(end) is not int or not 0 <= end < 2**63:
                raise FormatError(f"{path} must name nodes by numbers from 0, got {_shown(end)}")
    return record


def _shown(value: Any) -> str:
    """A value in a message; only its kind if it may be long or nested."""
    short = isinstance(value, int) or (isinstance(value, str) and len(value) <= 60)
    return repr(value) if short else _kind(value)


def _kind(record: Any) -> str:
    name = type(record).__name__.removeprefix("_").lower()
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
