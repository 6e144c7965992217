"""The parser of `.npy` headers: it reads what numpy writes, and refuses everything else."""

import contextlib
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fastgcn.npy import map_npy, read_header, read_npy


def header(text: bytes, version: bytes = b"\x01\x00") -> bytes:
    """A file of only a header, padded as numpy pads it."""
    width = 2 if version == b"\x01\x00" else 4
    text += b" " * (-(len(text) + 9 + width) % 64) + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(width, "little") + text


GOOD = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }"


@given(
    arrays.arrays(
        st.one_of(
            arrays.integer_dtypes(),
            arrays.floating_dtypes(sizes=(16, 32, 64)),
            arrays.boolean_dtypes(),
            arrays.unicode_string_dtypes(),
        ),
        arrays.array_shapes(min_dims=0, min_side=0),
    ),
    st.sampled_from("CF"),
)
def test_it_reads_what_numpy_writes(array: Any, order: Any) -> None:
    file = io.BytesIO()
    np.save(file, np.asarray(array, order=order))
    file.seek(0)
    found = read_npy(file, len(file.getvalue()))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_it_maps_what_numpy_writes(tmp_path: Path, version: tuple[int, int]) -> None:
    array = np.arange(6, dtype=np.int64).reshape(3, 2)
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, array, version=version)
    mapped = map_npy(tmp_path / "a.npy", strict=True)
    np.testing.assert_array_equal(mapped, array)
    assert isinstance(mapped, np.memmap)
    assert str(mapped.filename) == str(tmp_path / "a.npy")
    assert not mapped.flags.writeable


def test_a_header_of_python_2_and_one_in_another_order_are_read() -> None:
    text = b"{'shape': (3L, 2L), 'fortran_order': True, 'descr': '>i8'}"
    found = read_header(io.BytesIO(header(text)))
    assert (found.shape, found.fortran, found.dtype.str) == ((3, 2), True, ">i8")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "ends within its header"),
        (b"text of some length", "does not begin like"),
        (b"PK\x03\x04" + bytes(20), "does not begin like"),
        (b"\x93NUMPY\x04\x00" + bytes(20), "format version is 4.0"),
        (b"\x93NUMPY\x01\x00\xff\xff{", "header has 65,535 bytes"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "header has 4,294,967,295 bytes"),
        (header(GOOD)[:40], "ends within its header"),
        (header(b""), "must have descr"),
        (header(b"{}"), "must have descr"),
        (header(GOOD[:-1]), "must have descr"),
        (header(GOOD + b"+1"), "must have descr"),
        (header(GOOD.replace(b"'descr'", b"'shape'")), "must have descr"),
        (header(GOOD.replace(b"(3, 2)", b"3")), "must have descr"),
        (header(GOOD.replace(b"(3, 2)", b"(3, -2)")), "must have descr"),
        (header(GOOD.replace(b"(3, 2)", b"(3 2)")), "no valid shape"),
        (header(GOOD.replace(b"(3, 2)", b"(,)")), "no valid shape"),
        (header(GOOD.replace(b"(3, 2)", b"(" + b"9" * 20 + b",)")), "no valid shape"),
        (header(GOOD.replace(b"(3, 2)", b"(1" + b",1" * 40 + b")")), "no valid shape"),
        (header(GOOD.replace(b"(3, 2)", b"(4294967296, 4294967296)")), "nothing can hold"),
        (header(GOOD.replace(b"(3, 2)", b"(0, 9223372036854775807)")), "nothing can hold"),
        (header(GOOD.replace(b"False", b"0")), "must have descr"),
        (header(GOOD.replace(b"'<f4'", b"[('a', '<f4')]")), "must have descr"),
        (header(GOOD.replace(b"<f4", b"|O")), "run any code"),
        (header(GOOD.replace(b"<f4", b"<f3")), "type '<f3' is not read"),
        (header(GOOD.replace(b"<f4", b"<M8[ns]")), "is not read"),
        (header(GOOD.replace(b"<f4", b"|V8")), "is not read"),
        (header(GOOD.replace(b"<f4", b"<U99999999")), "is not read"),
        (header(GOOD.replace(b"<f4", b"(2,)f4")), "is not read"),
        (header(b"(" * 4000), "must have descr"),
        (header(b"{'descr': " + b"'" * 8000), "must have descr"),
        (header(GOOD), "bytes, but its header says"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises(ValueError, match=says):
        map_npy(tmp_path / "a.npy")
    with pytest.raises(ValueError, match=says):
        read_npy(io.BytesIO(data), len(data))


@given(st.binary(max_size=200), st.integers(0, 200))
def test_no_bytes_raise_anything_else(junk: bytes, place: int) -> None:
    data = bytearray(header(GOOD) + bytes(24))
    data[place : place + len(junk)] = junk
    with contextlib.suppress(ValueError):
        read_npy(io.BytesIO(data), len(data))


@pytest.mark.parametrize(
    "array",
    [np.asfortranarray(np.eye(3)), np.arange(3, dtype=">i8")],
    ids=["Fortran order", "big-endian"],
)
def test_what_this_package_does_not_write_is_refused_if_strict(
    tmp_path: Path, array: np.ndarray[Any, Any]
) -> None:
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(map_npy(tmp_path / "a.npy"), array)
    with pytest.raises(ValueError, match="not one that fastgcn writes"):
        map_npy(tmp_path / "a.npy", strict=True)


def test_bytes_behind_the_array_are_refused_if_strict(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    with (tmp_path / "a.npy").open("ab") as file:
        file.write(b"more")
    assert map_npy(tmp_path / "a.npy").tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="cut off or changed"):
        map_npy(tmp_path / "a.npy", strict=True)


def test_a_pipe_a_device_and_a_folder_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path / "folder"):
        with pytest.raises(ValueError, match="not a regular file"):
            map_npy(path)


def test_a_header_that_is_not_aligned_gives_an_aligned_array(tmp_path: Path) -> None:
    text = b"{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}\n"
    start = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    (tmp_path / "a.npy").write_bytes(start + np.array([5, 6]).tobytes())
    found = map_npy(tmp_path / "a.npy")
    assert found.flags.aligned
    assert found.tolist() == [5, 6]
