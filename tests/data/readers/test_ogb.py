"""OGB's gzipped CSV files."""

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest

from fastgcn import Graph
from fastgcn.data.readers.ogb import OGB
from fastgcn.errors import FastGCNError, FormatError, InputError, MissingFileError
from tests.data.readers.toy import SOURCE, TARGET, assert_same, multilabel, toy
from tests.strategies import split_of


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text.encode()))


def table(rows: object) -> str:
    return "".join(",".join(map(str, np.atleast_1d(row))) + "\n" for row in np.asarray(rows))


def write(folder: Path, graph: Graph, scheme: str = "time") -> Path:
    raw = folder / "raw"
    assert graph.labels is not None
    labels = graph.labels
    if labels.ndim == 1:
        put(raw / "node-label.csv.gz", table(np.where(labels < 0, np.nan, labels)))
    else:
        put(raw / "node-label.csv.gz", table(labels.astype(int)))
    put(raw / "edge.csv.gz", table(np.c_[SOURCE, TARGET]))
    put(raw / "node-feat.csv.gz", table(graph.features))
    put(raw / "num-node-list.csv.gz", "8\n")
    put(raw / "num-edge-list.csv.gz", "8\n")
    for part, ids in graph.split.items():
        part = {"val": "valid"}.get(part, part)
        put(folder / "split" / scheme / f"{part}.csv.gz", table(ids))
    return folder


@pytest.mark.parametrize("graph", [toy(), multilabel()])
def test_reads_back_what_was_written(tmp_path: Path, graph: Graph) -> None:
    read = OGB.read(write(tmp_path / "ogbn_toy", graph))
    assert_same(read, graph)
    assert read.name == "ogbn_toy"


def test_direction_can_be_kept(tmp_path: Path) -> None:
    write(tmp_path, toy())
    assert_same(OGB.read(tmp_path, directed=True), toy(directed=True))
    assert_same(OGB.read(tmp_path, directed=None), toy(directed=True))


def test_the_raw_folder_itself_and_files_without_folders(tmp_path: Path) -> None:
    write(tmp_path / "one", toy())
    raw = OGB.read(tmp_path / "one" / "raw")
    assert_same(raw, toy())
    assert raw.name == "one"
    flat = tmp_path / "flat"
    shutil.copytree(tmp_path / "one" / "raw", flat)
    assert_same(OGB.read(flat), toy(split=split_of()))
    shutil.copytree(tmp_path / "one" / "split" / "time", flat, dirs_exist_ok=True)
    assert_same(OGB.read(flat), toy())


def test_empty_parts_and_no_edges(tmp_path: Path) -> None:
    write(tmp_path, toy())
    put(tmp_path / "raw" / "edge.csv.gz", "")
    put(tmp_path / "raw" / "num-edge-list.csv.gz", "0\n")
    put(tmp_path / "split" / "time" / "valid.csv.gz", "")
    graph = OGB.read(tmp_path)
    assert graph.n_edges == 0
    assert len(graph.split.val) == 0


def test_several_schemes_are_asked_by_name(tmp_path: Path) -> None:
    write(tmp_path, toy(split=split_of(test=[0])), "sales")
    write(tmp_path, toy())
    with pytest.raises(InputError, match="pass split= one of sales, time"):
        OGB.read(tmp_path)
    with pytest.raises(InputError, match="sales, time, got 'tme'"):
        OGB.read(tmp_path, split="tme")
    assert_same(OGB.read(tmp_path, split="time"), toy())


def test_data_without_features(tmp_path: Path) -> None:
    (write(tmp_path, toy()) / "raw" / "node-feat.csv.gz").unlink()
    with pytest.raises(MissingFileError, match=r"node-feat.csv.gz is missing; .*'identity'"):
        OGB.read(tmp_path)
    assert_same(OGB.read(tmp_path, features="identity"), toy(features=np.eye(8)))
    with pytest.raises(InputError, match="features must be one of identity, got 'zeros'"):
        OGB.read(tmp_path, features="zeros")


def test_numbers_are_parsed_as_numpy_parses_them(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
    put(write(tmp_path, toy()) / "raw" / "node-feat.csv.gz", table(values))
    assert_same(OGB.read(tmp_path), toy(features=values))


@pytest.mark.parametrize("file", ["edge", "node-label", "num-node-list", "num-edge-list"])
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    (write(tmp_path, toy()) / "raw" / f"{file}.csv.gz").unlink()
    with pytest.raises(MissingFileError, match=f"lacks {file}.csv.gz"):
        OGB.read(tmp_path)


def test_a_missing_part_of_the_split_is_named(tmp_path: Path) -> None:
    (write(tmp_path, toy()) / "split" / "time" / "valid.csv.gz").unlink()
    with pytest.raises(MissingFileError, match=r"lacks valid.csv.gz"):
        OGB.read(tmp_path)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("raw/edge", "0,1\n", "must have 8 rows, got 1"),
        ("raw/edge", "0,1\n" * 9, "must have 8 rows, got 9"),
        ("raw/edge", "0,1,2\n" * 8, "must have two columns, got 3"),
        ("raw/edge", "0,1\n" * 7 + "0\n", "not a table of numbers"),
        ("raw/edge", "0,1\n" * 7 + "0,\n", "a whole number in every field"),
        ("raw/edge", "0,1\n" * 7 + "0,1.5\n", "not a table of numbers"),
        ("raw/edge", "0,1\r2,3\n" + "0,1\n" * 6, "must have 3 columns in every row, got 2"),
        ("raw/edge", "0,8\n" * 8, "target must lie in 0..7"),
        ("raw/edge", "source,target\n" * 8, "not a table of numbers"),
        ("raw/node-feat", "1\n" * 7, "must have 8 rows, got 7"),
        ("raw/node-feat", "nan\n" * 8, "NaN|finite"),
        ("raw/node-feat", "abc\n" * 8, "not a table of numbers"),
        ("raw/node-label", "0.5\n" * 8, "labels must be integers"),
        ("raw/node-label", "0,2\n" * 8, "must be 0 or 1"),
        ("raw/num-node-list", "4\n4\n", "must hold one number"),
        ("raw/num-node-list", "-8\n", "must hold one number"),
        ("raw/num-node-list", "9000000000000000000\n", "do not fit in memory"),
        ("split/time/train", "1,2\n", "must have one column"),
        ("split/time/train", "1\n" * 9, "must have at most 8 rows, got 9 or more"),
        ("raw/node-feat", "1," * 70_000 + "1\n", "has more than 65,536 columns"),
        ("raw/node-feat", "1" * (5 << 20), "has a row of more than 4,194,304 bytes"),
        ("raw/node-label", "1e300\n" * 8, "labels must be integers of 64 bits"),
        ("raw/node-label", "1000000\n" * 8, "labels must be class ids from 0, got 1000000"),
        ("raw/num-edge-list", "9" * 30 + "\n", "not a table of numbers"),
        ("split/time/train", "7\n", "node 7 is in the train part of the split but has no label"),
    ],
)
def test_damage_is_named(tmp_path: Path, file: str, text: str, message: str) -> None:
    put(write(tmp_path, toy()) / f"{file}.csv.gz", text)
    with pytest.raises(FormatError, match=message) as error:
        OGB.read(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_every_cut_of_a_gzip_file_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, toy()) / "raw" / "node-feat.csv.gz"
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(FastGCNError, match=r"node-feat.csv.gz"):
            OGB.read(tmp_path)


def test_text_that_is_not_compressed(tmp_path: Path) -> None:
    (write(tmp_path, toy()) / "raw" / "edge.csv.gz").write_text("0,1\n")
    with pytest.raises(FormatError, match=r"edge.csv.gz cannot be read as a gzip file"):
        OGB.read(tmp_path)
