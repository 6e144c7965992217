"""Files that are no tables, options that are wrong, and what an import leaves behind."""

import gzip
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fastgcn.data.store import is_store, open_store
from fastgcn.data.tables import import_tables, read_tables
from fastgcn.data.tables.files import mask_of, values_of
from fastgcn.errors import FastGCNError, FormatError, InputError, MissingFileError
from fastgcn.memory import memory_bytes
from tests.tables import EDGES, NODES, read, read_csv, write


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"id": "ID"},
            r"nodes.parquet has no column 'ID' for node ids \(--id\); its columns are 'id', 'la",
        ),
        ({"label": "klass"}, "no column 'klass' for labels"),
        ({"label": "size,lable"}, "no column 'lable' for labels; .*; did you mean 'label'"),
        ({"split": "spilt"}, "no column 'spilt' for the split; .*; did you mean 'split'"),
        ({"source": "from"}, r"column 'from' for where edges start \(--source\); its"),
        ({"target": "targets"}, "no column 'targets' .*; did you mean 'target'"),
        ({"weight": "w"}, "no column 'w' for edge weights"),
        ({"memory": "much"}, "memory must be at least 1MB, such as 500MB or 2GB, got 'much'"),
        ({"memory": 10}, "memory must be at least 1MB"),
        ({"memory": "1.2.3GB"}, "memory must be at least 1MB"),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, NODES, **options)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GB", 10**9),
        ("1.5 gb", 1_500_000_000),
        ("500MB", 5 * 10**8),
        ("20000k", 2 * 10**7),
        ("2GiB", 2**31),
        (2_000_000, 2_000_000),
    ],
)
def test_memory_sizes(text: str | int, size: int) -> None:
    assert memory_bytes(text) == size


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("none.csv", None, MissingFileError, "there is no file .*none.csv"),
        ("e.csv", b"", FormatError, "e.csv is empty"),
        ("e.csv", b"source,target", FormatError, "e.csv is empty"),
        ("e.parquet", b"", FormatError, "e.parquet is empty"),
        ("e.parquet", b"source,target\n1,2\n", FormatError, "could not be read: Parquet magic"),
        ("e.txt", b"source,target\n1,2\n", FormatError, "must be a CSV or Parquet file and named"),
        ("e.parquet.gz", b"x", FormatError, "must be a CSV or Parquet file and named"),
        ("e", b"source,target\n1,2\n", FormatError, "must be a CSV or Parquet file and named"),
        ("e.csv", b"source,target\na,b\nc\n", FormatError, "Expected 2 columns, got 1"),
        ("e.csv", b"source,target\na,\xff\n", FormatError, "must be UTF-8 text"),
        ("e.csv", b"source,\xfftarget\na,b\n", FormatError, "must be UTF-8 text"),
        ("e.csv", b"source,target,source\na,b,c\n", FormatError, "has 'source' twice"),
        ("e.csv", b"source,target\na," + b"b" * 3_000_000, FormatError, "a row of more than"),
        ("e.csv.gz", b"source,target\na,b\n", FormatError, "could not be read: zlib"),
        (
            "e.csv.gz",
            gzip.compress(b"source,target\n" + b"a,b\n" * 9999, mtime=0)[:60],
            FormatError,
            "could not be read: Truncated",
        ),
        (
            "e.csv",
            b"a;b\n1;2\n",
            FormatError,
            "separate columns by commas, .* 'a;b', has semicolons",
        ),
    ],
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else None,
)
def test_bad_files(
    tmp_path: Path, name: str, content: bytes | None, error: type[FastGCNError], message: str
) -> None:
    nodes = write(tmp_path / "nodes.csv", NODES)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    before = set(tmp_path.iterdir())
    with pytest.raises(error, match=message):
        import_tables(nodes, tmp_path / name, tmp_path / "store")
    assert set(tmp_path.iterdir()) == before


def test_a_folder_and_a_table_without_rows(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a file, but is a folder"):
        read_tables(tmp_path, tmp_path)
    with pytest.raises(InputError, match="has no rows: a graph must have at least one node"):
        read_csv(tmp_path, "id,f\n")


def test_text_over_several_lines(tmp_path: Path) -> None:
    graph = read_csv(tmp_path, 'id,label,f\n"a\nb","x, y",1\nc,z,2\n', 'source,target\nc,"a\nb"\n')
    assert graph.node_ids is not None
    assert list(graph.node_ids) == ["a\nb", "c"]
    assert graph.class_names == ("x, y", "z")
    assert graph.n_edges == 1


def test_an_import_that_fails_leaves_nothing(tmp_path: Path) -> None:
    nodes = write(tmp_path / "nodes.csv", NODES)
    edges = write(tmp_path / "edges.csv", EDGES | {"weight": [1, 1, -1]})
    out = tmp_path / "stores" / "mine"
    with pytest.raises(InputError, match="none negative"):
        import_tables(nodes, edges, out)
    assert list(out.parent.iterdir()) == []
    write(edges, EDGES)
    import_tables(nodes, edges, out)
    assert open_store(out).name == "mine"
    with pytest.raises(InputError, match="exists already"):
        import_tables(nodes, edges, out)
    import_tables(nodes, edges, out, force=True, directed=True)
    assert open_store(out, verify=True).directed
    assert list(out.parent.iterdir()) == [out]


def test_a_full_disk(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 1000
    nodes = write(tmp_path / "n.parquet", {"id": np.arange(n), "f": np.ones(n)})
    ends = rng.integers(0, n, (2, 300_000))
    edges = write(tmp_path / "e.parquet", {"source": ends[0], "target": ends[1]})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(FastGCNError, match="could not write .*; free some space"):
            import_tables(nodes, edges, tmp_path / "store", memory="1MB")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert set(tmp_path.iterdir()) == {nodes, edges}
    import_tables(nodes, edges, tmp_path / "store", memory="1MB")
    assert is_store(tmp_path / "store")


@pytest.mark.parametrize(
    "kind", ["bool_", "int8", "uint16", "int32", "int64", "float32", "float64"]
)
@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.parametrize("missing", [None, -1])
def test_values_are_those_of_arrow(kind: str, gaps: float, missing: int | None) -> None:
    """Also of a part of a column, and of no rows."""
    rng = np.random.default_rng(0)
    given = pa.array(rng.integers(0, 2, 50), mask=rng.random(50) < gaps).cast(getattr(pa, kind)())
    missing = None if kind.startswith(("u", "b")) else missing
    for column in (given, given[3:41], given[9:9], given.take(pa.array([], pa.int64()))):
        whole = column if missing is None else column.fill_null(missing)
        expected = whole.to_numpy(zero_copy_only=False)
        if expected.dtype == object:
            expected = np.array([np.nan if each is None else each for each in expected], float)
        found = values_of(column, missing)
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


def test_a_mask_of_arrow() -> None:
    for length in (0, 1, 8, 13):
        flags = np.random.default_rng(length).random(length) < 0.5
        assert mask_of(flags).to_pylist() == flags.tolist()
