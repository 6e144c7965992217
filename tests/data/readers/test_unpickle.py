"""Pickles that ask for more than numbers are refused by name, and never run."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastgcn.data.readers import planetoid
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
        planetoid.read_record(file)
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
            planetoid.read_record(file)


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
        planetoid.array(planetoid.read_record(file), file)


def test_fortran_order_and_byte_order_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "ind.good.y"
    for values in (np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(6, dtype=">i4")):
        file.write_bytes(pickle.dumps(values, 2))
        np.testing.assert_array_equal(planetoid.array(planetoid.read_record(file), file), values)


def test_a_damaged_number_does_not_ask_for_all_memory(tmp_path: Path) -> None:
    file = tmp_path / "ind.bad.graph"
    file.write_bytes(b"\x80\x02}r\xff\xff\xff\xff.")
    with pytest.raises(FormatError, match="remembered under the number 4294967295"):
        planetoid.read_record(file)
