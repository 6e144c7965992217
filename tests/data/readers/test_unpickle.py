"""Pickles that ask for more than numbers are refused by name, and never run."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastgcn.data.readers import pickles
from fastgcn.errors import FormatError, UnsafeFileError
from tests.data.readers.python2_pickle import array_pickle

SHELL = os.system.__module__  # posix or nt


class Calls:
    """Pickles to a call of `function`."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


def attacks(mark: Path) -> dict[str, tuple[bytes, str]]:
    """Pickles that would create the file `mark`, and the name to be refused."""
    shell = Calls(os.system, f"touch {mark}")
    python = f"open({str(mark)!r}, 'w').close()"
    call = f"cos\nsystem\nS'touch {mark}'\n\x85R".encode("latin1")
    array = array_pickle(np.zeros(2))[:-2]  # without its last BUILD and STOP
    return {
        "a shell": (pickle.dumps(shell), f"{SHELL}.system"),
        "protocol 0": (pickle.dumps(shell, 0), f"{SHELL}.system"),
        "eval": (pickle.dumps(Calls(eval, python), 2), "__builtin__.eval"),
        "exec in a list": (pickle.dumps([[Calls(exec, python)]]), "builtins.exec"),
        "getattr": (
            pickle.dumps(Calls(getattr, Calls(__import__, "os"), "system")),
            "builtins.getattr",
        ),
        "in the state of an array": (
            array + b"0(" + call + b"tb.",
            "os.system",
        ),
        "in the state of a matrix": (
            b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81}U\x04data" + call + b"sb.",
            "os.system",
        ),
        "an instance opcode": (f"(S'touch {mark}'\nios\nsystem\n.".encode(), "os.system"),
        "an inner function": (b"\x80\x04\x8c\x05numpy\x8c\x08core.sys\x93.", "numpy.core.sys"),
        "numpy's own loader": (b"\x80\x02cnumpy\nload\n.", "numpy.load"),
    }


@pytest.mark.parametrize("kind", attacks(Path("mark")))
def test_code_is_refused_by_name_and_not_run(tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "mark"
    content, asked_for = attacks(mark)[kind]
    file = tmp_path / "ind.bad.x"
    file.write_bytes(content)
    with pytest.raises(UnsafeFileError) as error:
        pickles.read_record(file)
    assert f"{file} asks for {asked_for}," in str(error.value)
    assert not mark.exists()


def test_the_attacks_are_attacks(tmp_path: Path) -> None:
    """Else the test above could not fail."""
    mark = tmp_path / "mark"
    content, _ = attacks(mark)["a shell"]
    pickle.loads(content)  # noqa: S301
    assert mark.exists()


def test_stand_ins_cannot_be_changed_from_a_pickle(tmp_path: Path) -> None:
    """BUILD on a name itself would otherwise set attributes for every later file."""
    file = tmp_path / "ind.bad.x"
    for name in (b"numpy\nndarray", b"numpy\ndtype", b"collections\ndefaultdict"):
        file.write_bytes(b"\x80\x02c" + name + b"\nN}U\x08__call__K\x01s\x86b.")
        with pytest.raises(FormatError, match="is damaged"):
            pickles.read_record(file)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"U\x02f8", b"U\x02O8", "its dtype is <O8"),
        (b"U\x02f8", b"U\x02f3", "its dtype is <f3"),
        (b"J\x02\x00\x00\x00t", b"J\x03\x00\x00\x00t", "2 numbers do not make .* shape"),
        (b"J\x02\x00\x00\x00t", b"J\xfe\xff\xff\xfft", "do not make an array"),
        (b"\x10\x00\x00\x00" + bytes(16), b"\x0f\x00\x00\x00" + bytes(15), "multiple of"),
    ],
)
def test_arrays_that_are_none(tmp_path: Path, old: bytes, new: bytes, message: str) -> None:
    content = array_pickle(np.zeros(2))
    assert old in content
    file = tmp_path / "ind.bad.y"
    file.write_bytes(content.replace(old, new))
    with pytest.raises(FormatError, match=message):
        pickles.array(pickles.read_record(file), file)


def test_fortran_order_and_byte_order_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "ind.good.y"
    for values in (np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(6, dtype=">i4")):
        file.write_bytes(pickle.dumps(values, 2))
        np.testing.assert_array_equal(pickles.array(pickles.read_record(file), file), values)


def test_a_damaged_number_does_not_ask_for_all_memory(tmp_path: Path) -> None:
    file = tmp_path / "ind.bad.graph"
    file.write_bytes(b"\x80\x02}r\xff\xff\xff\xff.")  # remembered under 4,294,967,295
    assert pickles.read_record(file) == {}


def nested(opcode: bytes, depth: int) -> bytes:
    return b"\x80\x02" + b"K\x01" + opcode * depth


SHARED = b"\x80\x02](" + b"K\x01" * 1000 + b"eq\x010}("  # a list of 1,000, remembered as 1
HOSTILE = {
    "a nested tuple as a key": b"\x80\x02}" + nested(b"\x85", 10**6)[2:] + b"K\x01s.",
    "a tuple of twins as a key": b"\x80\x02}" + nested(b"2\x86", 60)[2:] + b"K\x01s.",
    "a tuple of remembered twins as a key": (
        b"\x80\x02}K\x01" + b"q\x01h\x01\x86" * 60 + b"K\x01s."
    ),
    "a nested list as a node": b"\x80\x02}K\x00](" + b"]" * 10**6 + b"a" * (10**6 - 1) + b"es.",
    "a nested list as all": b"\x80\x02" + b"]" * 10**6 + b"a" * (10**6 - 1) + b".",
    "a shared list": SHARED + b"".join(b"M" + i.to_bytes(2, "little") + b"h\x01"
                                       for i in range(60_000)) + b"u.",
    "a long number": b"\x80\x02}K\x00]\x8b" + (10**6).to_bytes(4, "little") + b"\x11" * 10**6
                     + b"as.",
    "a long number as text": b"}I0\n]L" + b"9" * 5000 + b"L\nas.",
    "a number of 65 bits": b"\x80\x02}\x8a\x09" + b"\x11" * 9 + b"]s.",
    "a mark that was not set": b"\x80\x02}u.",
    "an object that was not made": b"\x80\x02s.",
    "an item of a list": b"\x80\x02]K\x00K\x01s.",
    "nothing": b"\x80\x02}",
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_pickle_takes_the_process_down(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "ind.bad.graph"
    file.write_bytes(HOSTILE[kind])
    with pytest.raises(FormatError, match=r"ind.bad.graph"):
        pickles.adjacency_lists(pickles.read_record(file), file)


def test_an_array_is_made_of_bytes_that_are_there(tmp_path: Path) -> None:
    """numpy's content may not be a number: `bytes` of it would be that many zeros."""
    file = tmp_path / "ind.bad.y"
    whole = array_pickle(np.zeros(2, np.int8))
    start = whole.index(b"T\x02\x00\x00\x00\x00\x00tb")
    file.write_bytes(whole[:start] + b"J\xff\xff\xff\x7ftb.")
    with pytest.raises(FormatError, match="its content is an int"):
        pickles.array(pickles.read_record(file), file)


@pytest.mark.parametrize(
    "shape", [b"K\x02", b"(" + b"K\x02" * 10**5 + b"t", b"]\x85", b"U\x012\x85"]
)
def test_shapes_that_are_none(tmp_path: Path, shape: bytes) -> None:
    file = tmp_path / "ind.bad.y"
    whole = array_pickle(np.zeros(2))
    file.write_bytes(whole.replace(b"(J\x02\x00\x00\x00t", shape))
    with pytest.raises(FormatError, match="shape that is none"):
        pickles.array(pickles.read_record(file), file)
