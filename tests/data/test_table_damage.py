"""Tables of odd types, damaged text, pipes, and tables that do not fit in memory."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from fastgcn.data.load import load
from fastgcn.data.tables import files, read_tables
from fastgcn.errors import FastGCNError, FormatError, InputError
from tests.tables import read_csv

NOT_UTF8 = pa.Array.from_buffers(pa.string(), 4, pa.array([b"\xff", b"b", b"x", b"c"]).buffers())
COLUMNS = {
    "float16": pa.array(np.arange(4, dtype=np.float16)),
    "uint64": pa.array([0, 1, 2**64 - 1, 3], pa.uint64()),
    "infinite": pa.array([1.0, np.inf, 0.0, 2.0]),
    "not UTF-8": NOT_UTF8,
    "bytes": pa.array([b"\xff", b"b", b"", b"c"]),
    "null": pa.nulls(4),
    "lists": pa.array([[1, 2], [], None, [3]]),
    "lists of text": pa.array([["a"], ["b", None], None, [""]]),
    "lists of lists": pa.array([[[1]], [], None, [[2]]]),
    "lists of float16": pa.array([[np.float16(1)]] * 4, pa.list_(pa.float16())),
    "empty lists": pa.array([[], [], [], []], pa.list_(pa.float32())),
    "structures": pa.array([{"a": 1}] * 4),
    "maps": pa.array([[("k", 1)]] * 4, pa.map_(pa.string(), pa.int64())),
    "categories": pa.array(["a", "b", None, "a"]).dictionary_encode(),
}


@pytest.mark.parametrize("role", ["id", "label", "split", "x", "source", "weight"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_every_type_is_read_or_refused(tmp_path: Path, kind: str, role: str) -> None:
    nodes: dict[str, Any] = {"id": [0, 1, 2, 3], "x": [1.0, 2.0, 3.0, 4.0]}
    edges: dict[str, Any] = {"source": [0, 1, 2, 3], "target": [1, 2, 3, 0]}
    (edges if role in ("source", "weight") else nodes)[role] = COLUMNS[kind]
    pa.parquet.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    pa.parquet.write_table(pa.table(edges), tmp_path / "edges.parquet")
    said = ""
    try:
        load(tmp_path)
    except FastGCNError as error:
        said = str(error)
    assert len(said) < 600
    assert "kernel" not in said, "the sentence is Arrow's"


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """Arrow writes and reads it; it would fail when a message shows it."""
    pa.parquet.write_table(pa.table({"id": NOT_UTF8, "x": [1.0] * 4}), tmp_path / "nodes.parquet")
    pa.parquet.write_table(pa.table({"source": ["b"], "target": ["x"]}), tmp_path / "edges.parquet")
    with pytest.raises(FormatError, match=r"nodes.parquet must be UTF-8 text, but is not"):
        load(tmp_path)


EDGES_TEXT = "source,target\n0,1\n"


def test_what_does_not_fit_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "available_memory", lambda: 10_000)
    with pytest.raises(InputError, match=r"column 'id' of .* takes more than .*half of the memory"):
        read_csv(tmp_path, "id,x\n" + "".join(f"{i},1\n" for i in range(1000)), EDGES_TEXT)


def test_many_columns(tmp_path: Path) -> None:
    header = "id," + ",".join(f"{i:x}" for i in range(70_000))
    with pytest.raises(FormatError, match="has more than 65,536 columns; store .* as Parquet"):
        read_csv(tmp_path, f"{header}\n", EDGES_TEXT)


def test_a_long_value_is_cut_in_the_message(tmp_path: Path) -> None:
    rows = "".join(f"{i},1\n" for i in range(300_000))  # more than the block that types are from
    with pytest.raises(FormatError, match="has 'zzz.* in column 'x', where a number") as error:
        read_csv(tmp_path, f"id,x\n{rows}a,{'z' * 10**5}\n", EDGES_TEXT)
    assert len(str(error.value)) < 1000


def test_the_column_that_comes_twice_is_found_at_once(tmp_path: Path) -> None:
    header = "id," + ",".join(f"{i:x}" for i in range(30_000)) + ",id"
    with pytest.raises(FormatError, match="must name each column once, but has 'id' twice"):
        read_csv(tmp_path, f"{header}\n1{',1' * 30_001}\n", EDGES_TEXT)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are of Unix")
def test_pipes_and_devices_do_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "nodes.csv")
    with pytest.raises(InputError, match=r"nodes.csv must be a file, but is a pipe or a device"):
        read_tables(tmp_path / "nodes.csv", tmp_path / "nodes.csv")
    for path in (tmp_path / "nodes.csv", Path("/dev/zero")):
        with pytest.raises(FormatError, match="is a pipe or a device; pass a file or a folder"):
            load(path)


ABANDON = """
import sys
from pathlib import Path
import pyarrow as pa
from fastgcn.data.tables.files import TableFile
table = TableFile(Path(sys.argv[1]))
kept = []
try:
    with table.batches({"id": pa.string()}) as batches:
        for batch in batches:
            raise ValueError
except ValueError as error:
    kept.append(error)
left = table.batches({"id": pa.string()})
next(left.__enter__())
sys.exit(7)
"""


def test_a_reader_that_is_left_does_not_abort_at_exit(tmp_path: Path) -> None:
    """Arrow's thread still reads while the interpreter ends: 1 of 8 runs aborted."""
    table = tmp_path / "nodes.csv"
    row = "," + ",".join(["0.123456"] * 20) + "\n"
    header = "id," + ",".join(f"f{i}" for i in range(20)) + "\n"
    table.write_text(header + "".join(f"{i}{row}" for i in range(100_000)))
    for _ in range(5):
        command = [sys.executable, "-c", ABANDON, str(table)]
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (7, b"")
