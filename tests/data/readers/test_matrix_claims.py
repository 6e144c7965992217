"""Files that claim more than they hold: refused before memory or time is spent on the claim."""

import json
import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, save_npz

from fastgcn.data.readers import parts
from fastgcn.data.readers.matrices import GNN_BENCHMARK, GRAPHSAINT, NPZ_FOLDER, REDDIT_DGL
from fastgcn.data.readers.npz import read_npy, read_npz, read_sparse
from fastgcn.errors import FormatError, MissingFileError
from tests.data.readers.matrix_files import write_benchmark, write_dgl, write_saint
from tests.data.readers.test_matrix_damage import resave
from tests.data.readers.toy import assert_same, toy, write_trio


def member(array: Any) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive(path: Path, method: int = zipfile.ZIP_DEFLATED, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_methods_that_decompress_without_bound_are_refused(tmp_path: Path, method: int) -> None:
    file = archive(tmp_path / "a.npz", method, x=member(np.zeros(3)))
    with pytest.raises(FormatError, match=r"a.npz .*x.npy is compressed in a way"):
        read_npz(file, ["x"])


def test_bytes_behind_an_array_are_refused(tmp_path: Path) -> None:
    file = archive(tmp_path / "a.npz", x=member(np.zeros(3)) + b"more")
    with pytest.raises(FormatError, match="it has bytes behind the array"):
        read_npz(file, ["x"])


def test_a_wrong_checksum_is_seen(tmp_path: Path) -> None:
    file = archive(tmp_path / "a.npz", zipfile.ZIP_STORED, x=member(np.zeros(3)))
    content = file.read_bytes()
    file.write_bytes(content.replace(bytes(24), b"\1" * 24))
    with pytest.raises(FormatError, match="Bad CRC-32"):
        read_npz(file, ["x"])


def test_what_does_not_fit_in_memory_is_not_decompressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = archive(tmp_path / "a.npz", x=member(np.zeros(10**6)))
    monkeypatch.setattr(parts, "available_memory", lambda: 10**7)
    with pytest.raises(FormatError, match=r"a.npz takes about 16 MB of memory .* only 10 MB"):
        read_npz(file, ["x"])


def test_a_long_name_of_a_layout_is_not_read(tmp_path: Path) -> None:
    file = archive(tmp_path / "adj.npz", format=member(np.zeros(10**7, "S1")), shape=member([2, 2]))
    with pytest.raises(FormatError, match=r"format.npy has 10,000,128 bytes, at most 4,096"):
        read_sparse(file)


BOMB = """
import resource, sys
from pathlib import Path
from fastgcn.data.readers.npz import read_npz
from fastgcn.errors import FormatError
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
try:
    read_npz(Path(sys.argv[1]), ["x"])
except FormatError as error:
    print(error)
print(peak() - before)
"""


def test_a_header_that_claims_much_takes_no_memory(tmp_path: Path) -> None:
    """The member is zeros, in a thousandth of their size, and fewer than its header says."""
    header = member(np.zeros(0, np.uint8)).replace(b"(0,), }" + b" " * 10, b"(99000000000,), }")
    file = archive(tmp_path / "a.npz", x=header + bytes(200 << 20))
    done = subprocess.run(
        [sys.executable, "-c", BOMB, file], capture_output=True, text=True, check=True, timeout=100
    )
    message, megabytes = done.stdout.splitlines()
    assert "bytes, but its header says 99,000,000,128" in message
    assert int(megabytes) < 100


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("code", [0x110000, 0xFFFFFFFF, 0xD800])
def test_text_that_is_not_unicode(tmp_path: Path, code: int, order: str) -> None:
    names = np.array([[97], [98], [code]], f"{order}u4").view(f"{order}U1").reshape(3)
    file = write_benchmark(tmp_path, toy(), class_names=names)
    with pytest.raises(FormatError, match="class_names.npy: it has text that is not Unicode"):
        GNN_BENCHMARK.read(file)


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble, ">f4", ">i2", np.uint64, bool])
def test_every_type_of_values_is_read(tmp_path: Path, dtype: Any) -> None:
    ones = toy(features=np.asarray(toy().features, np.int64) % 2)
    write_trio(tmp_path, ones)
    arrays = dict(np.load(tmp_path / "features.npz"))
    if dtype is np.longdouble:  # not portable, so numpy's files of it are refused
        resave(tmp_path, "features.npz", data=arrays["data"].astype(dtype))
        with pytest.raises(FormatError, match="type '<f16' is not read"):
            NPZ_FOLDER.read(tmp_path)
        return
    resave(tmp_path, "features.npz", data=arrays["data"].astype(dtype))
    resave(tmp_path, "adj.npz", data=np.load(tmp_path / "adj.npz")["data"].astype(dtype))
    assert_same(NPZ_FOLDER.read(tmp_path), ones)


@pytest.mark.parametrize("dtype", [">i8", np.uint64, np.int16])
def test_every_type_of_indices_is_read(tmp_path: Path, dtype: Any) -> None:
    write_trio(tmp_path, toy())
    arrays = dict(np.load(tmp_path / "adj.npz"))
    changed = {name: arrays[name].astype(dtype) for name in ("indices", "indptr", "shape")}
    resave(tmp_path, "adj.npz", **changed)
    assert_same(NPZ_FOLDER.read(tmp_path), toy())


def test_entries_behind_the_last_row_are_left_out(tmp_path: Path) -> None:
    """scipy leaves the rows of such entries uninitialised."""
    write_trio(tmp_path, toy())
    arrays = dict(np.load(tmp_path / "adj.npz"))
    more = {name: np.append(arrays[name], [1, 1]) for name in ("data", "indices")}
    resave(tmp_path, "adj.npz", **more)
    assert_same(NPZ_FOLDER.read(tmp_path), toy())


def test_any_number_of_nodes_may_be_claimed(tmp_path: Path) -> None:
    size = 1 << 40
    save_npz(write_dgl(tmp_path, toy()) / "reddit_graph.npz", coo_array((size, size)))
    with pytest.raises(FormatError, match=r"reddit_graph.npz takes about .* are free"):
        REDDIT_DGL.read(tmp_path)


def test_edges_that_do_not_fit_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small archive may hold any number of equal edges."""
    write_trio(tmp_path, toy())
    ones = np.ones(10**5, np.int8)
    indptr = np.array([0, 0, 10**5] + [10**5] * 6)
    resave(tmp_path, "adj.npz", data=ones, indices=np.zeros(10**5, np.int8), indptr=indptr)
    assert NPZ_FOLDER.read(tmp_path).cleaned.duplicates == 10**5 - 1
    monkeypatch.setattr(parts, "available_memory", lambda: 3 * 10**6)
    with pytest.raises(FormatError, match=r"adj.npz takes about 4 MB of memory .* only 3 MB"):
        NPZ_FOLDER.read(tmp_path)


def test_the_rows_of_features_are_compared_before_nodes_are_counted(tmp_path: Path) -> None:
    features = csc_array((1 << 40, 3), dtype=np.float32)  # its offsets are those of 3 columns
    save_npz(write_trio(tmp_path, toy()) / "features.npz", features)
    with pytest.raises(FormatError, match="features must have 8 rows, one per node, got 10995"):
        NPZ_FOLDER.read(tmp_path)


def test_labels_of_many_columns(tmp_path: Path) -> None:
    wide = csr_array((8, 1 << 60))
    named = {f"labels_{part}": getattr(wide, part) for part in ("data", "indices", "indptr")}
    file = write_benchmark(tmp_path, toy(), labels=None, labels_shape=wide.shape, **named)
    with pytest.raises(FormatError, match=r"toy_photo.npz takes about .* of memory"):
        GNN_BENCHMARK.read(file)


@pytest.mark.parametrize("label", [2**31 - 1, 2**62, 70_000])
def test_a_label_far_beyond_the_nodes_is_refused(tmp_path: Path, label: int) -> None:
    labels = np.array([0, 1, 2, label, 1, 2, 0, -1])  # node 3 is in the test part
    resave(write_trio(tmp_path, toy()), "labels_split.npz", labels=labels)
    with pytest.raises(FormatError, match=rf"class ids from 0, got {label} in a graph of 8 nodes"):
        NPZ_FOLDER.read(tmp_path)


@pytest.mark.parametrize("label", [np.uint64(2**64 - 1), np.inf, 1e300])
def test_a_label_beyond_64_bits_is_not_wrapped(tmp_path: Path, label: Any) -> None:
    labels = np.array([0, 1, 2, 1, 1, 2, 0, 0], np.asarray(label).dtype)
    labels[3] = label
    resave(write_trio(tmp_path, toy()), "labels_split.npz", labels=labels)
    with pytest.raises(FormatError, match="labels must be integers of 64 bits"):
        NPZ_FOLDER.read(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("role.json", '{"tr": [99999999999999999999], "va": [], "te": []}', "beyond 64 bits"),
        ("role.json", '{"tr": ' + "9" * 5000 + "}", "role.json cannot be read as JSON"),
        ("role.json", "[" * 10**5, "role.json cannot be read as JSON: it is nested too deeply"),
        ("class_map.json", '{"0": ' + "[" * 900 + "]" * 900 + "}", "class_map.json must"),
        ("class_map.json", '{"0": [' + "9" * 4000 + "]}", r"class_map.json must map .*\.\.\."),
        ("class_map.json", '{"0": [], "1": []}', "labels must have at least one column"),
        ("class_map.json", '{"' + "1" * 5000 + '": 0}', "which is not one of the 8 nodes"),
        ("class_map.json", '{"²": 0}', "which is not one of the 8 nodes"),
    ],
)
def test_json_that_is_deep_or_long(tmp_path: Path, file: str, content: str, message: str) -> None:
    (write_saint(tmp_path, toy()) / file).write_text(content)
    with pytest.raises(FormatError, match=message) as error:
        GRAPHSAINT.read(tmp_path)
    assert len(str(error.value)) < 1000


def test_json_that_does_not_fit_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "role.json"
    file.write_text(json.dumps({"tr": list(range(1000))}))
    monkeypatch.setattr(parts, "available_memory", lambda: 10_000)
    with pytest.raises(FormatError, match=r"role.json takes about .* only"):
        parts.read_json(file)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are of Unix")
def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    for name in ("adj_full.npz", "feats.npy", "role.json"):
        (write_saint(tmp_path, toy()) / name).unlink()
        os.mkfifo(tmp_path / name)
        with pytest.raises(MissingFileError, match=f"lacks {name}"):
            GRAPHSAINT.read(tmp_path)
        (tmp_path / name).unlink()
    os.mkfifo(tmp_path / "pipe")
    for read in (read_npy, parts.read_json, read_sparse):
        with pytest.raises(FormatError, match="it is not a regular file"):
            read(tmp_path / "pipe")
        with pytest.raises(FormatError, match="it is not a regular file"):
            read(Path("/dev/zero"))
