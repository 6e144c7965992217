"""Damage to the formats made of numpy and scipy files: every kind is named, none escapes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import dia_array, save_npz

from fastgcn.data.readers.matrices import GNN_BENCHMARK, GRAPHSAINT, NPZ_FOLDER, REDDIT_DGL
from fastgcn.errors import FormatError, MissingFileError
from tests.data.readers.matrix_files import READS, write_benchmark, write_dgl, write_saint
from tests.data.readers.toy import adjacency, toy, write_trio

MISSING = [
    ("reddit-fastgcn", "reddit.npz"),
    ("reddit-fastgcn", "reddit_adj.npz"),
    ("reddit-dgl", "reddit_graph.npz"),
    ("graphsaint", "feats.npy"),
    ("graphsaint", "role.json"),
    ("npz", "features.npz"),
    ("npz", "adj.npz"),
]


@pytest.mark.parametrize(("kind", "file"), MISSING)
def test_a_missing_file_is_named(tmp_path: Path, kind: str, file: str) -> None:
    write, read = READS[kind]
    (write(tmp_path, toy()) / file).unlink()
    with pytest.raises(MissingFileError, match=f"lacks {file}"):
        read(tmp_path)


@pytest.mark.parametrize(("kind", "file"), [m for m in MISSING if m[1].endswith("z")])
def test_every_cut_of_a_zip_is_a_format_error(tmp_path: Path, kind: str, file: str) -> None:
    write, read = READS[kind]
    path = write(tmp_path, toy()) / file
    whole = path.read_bytes()
    for length in range(0, len(whole), max(1, len(whole) // 25)):
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError, match="cannot be read as a .npz file") as error:
            read(tmp_path)
        assert str(path) in str(error.value)


def test_flipped_bytes_never_escape_as_another_error(tmp_path: Path) -> None:
    file = write_benchmark(tmp_path, toy())
    whole = bytearray(file.read_bytes())
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.integers(0, len(whole), 150):
        damaged = whole.copy()
        damaged[place] ^= 1 << int(rng.integers(0, 8))
        file.write_bytes(damaged)
        try:
            GNN_BENCHMARK.read(file)
        except FormatError:
            refused += 1
    assert refused > 50


def resave(folder: Path, file: str, **changes: Any) -> None:
    arrays = dict(np.load(folder / file)) | changes
    np.savez(folder / file, **{k: v for k, v in arrays.items() if v is not None})


OBJECTS = np.array([{}, None], dtype=object)
BAD_ARRAYS: list[tuple[str, str, dict[str, Any], str]] = [
    ("reddit-fastgcn", "reddit.npz", {"y_val": None}, "lacks the array 'y_val'; it has feats,"),
    ("reddit-fastgcn", "reddit.npz", {"y_val": [1]}, "y_val and val_index must be equally long"),
    ("reddit-fastgcn", "reddit.npz", {"val_index": [8, 9]}, "split.val must lie in 0..7"),
    ("reddit-fastgcn", "reddit.npz", {"val_index": [0, 1]}, "node 0 is in both train and val"),
    ("reddit-fastgcn", "reddit.npz", {"feats": np.ones((3, 2))}, "features must have 8 rows"),
    ("reddit-fastgcn", "reddit.npz", {"feats": OBJECTS}, "it holds Python objects"),
    ("reddit-dgl", "reddit_data.npz", {"node_types": [1] * 7}, "must hold 8 times 1"),
    ("reddit-dgl", "reddit_data.npz", {"node_types": [4] * 8}, "got shape .* the types .4."),
    ("reddit-dgl", "reddit_data.npz", {"node_types": ["a"] * 8}, "must hold 8 times 1"),
    ("reddit-dgl", "reddit_data.npz", {"label": [0.5] * 8}, "labels must be integers"),
    ("reddit-dgl", "reddit_data.npz", {"feature": np.full((8, 1), np.nan)}, "NaN|finite"),
    ("npz", "labels_split.npz", {"labels": [0]}, r"labels must have shape \(8,\)"),
    ("npz", "labels_split.npz", {"train": [[0]]}, "split.train must be one-dimensional"),
    ("npz", "adj.npz", {"shape": [8, 9]}, "must hold a square adjacency matrix"),
    ("npz", "adj.npz", {"shape": [9, 9]}, "holds a damaged sparse matrix"),
    ("npz", "adj.npz", {"shape": 8}, "shape must be two integers"),
    ("npz", "adj.npz", {"shape": [-8, -8]}, "holds a damaged sparse matrix"),
    ("npz", "adj.npz", {"indices": [99] * 16}, "holds a damaged sparse matrix"),
    ("npz", "adj.npz", {"indices": [-1] * 16}, "holds a damaged sparse matrix"),
    ("npz", "adj.npz", {"indptr": [0, 9, 2, 3, 4, 5, 6, 7, 16]}, "holds a damaged sparse matrix"),
    ("npz", "adj.npz", {"indices": [0.5] * 16}, "indices must be a 1-D array of integers"),
    ("npz", "adj.npz", {"data": ["a"] * 16}, "data must be a 1-D array of numbers"),
    ("npz", "adj.npz", {"data": [-1.0] * 16}, "weight"),
    ("npz", "adj.npz", {"format": None}, "lacks the array 'format'"),
    ("npz", "adj.npz", {"format": "dok"}, "layout 'dok', expected csr, csc or coo"),
]


@pytest.mark.parametrize(("kind", "file", "changes", "message"), BAD_ARRAYS)
def test_bad_arrays_are_named(
    tmp_path: Path, kind: str, file: str, changes: dict[str, Any], message: str
) -> None:
    write, read = READS[kind]
    resave(write(tmp_path, toy()), file, **changes)
    with pytest.raises(FormatError, match=message) as error:
        read(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_a_layout_that_is_not_read(tmp_path: Path) -> None:
    save_npz(write_trio(tmp_path, toy()) / "features.npz", dia_array(np.eye(8)))
    with pytest.raises(FormatError, match=r"features.npz holds .* 'dia', .* after .tocsr"):
        NPZ_FOLDER.read(tmp_path)


def test_coo_indices_out_of_range(tmp_path: Path) -> None:
    resave(write_dgl(tmp_path, toy()), "reddit_graph.npz", row=np.full(16, 8))
    with pytest.raises(FormatError, match="holds a damaged sparse matrix"):
        REDDIT_DGL.read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"adj_indptr": None}, "lacks the array 'adj_indptr'; it has adj_data"),
        ({"attr_shape": None}, "lacks the array 'attr_shape'"),
        ({"attr_data": None}, "neither attr_data nor attr_matrix"),
        ({"labels": None}, "neither labels_data nor labels"),
    ],
)
def test_bad_benchmark_files(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    file = write_benchmark(tmp_path, toy(), **changes)
    with pytest.raises(FormatError, match=message):
        GNN_BENCHMARK.read(file)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("role.json", '{"tr": [], "va": []}', "list of node numbers under 'te'"),
        ("role.json", '{"tr": [0.5], "va": [], "te": []}', "under 'tr'"),
        ("role.json", "[]", "must hold an object, got list"),
        ("role.json", '{"tr": [8], "va": [], "te": []}', "split.train must lie in 0..7"),
        ("class_map.json", '{"0": [0, 2]}', "must be 0 or 1"),
        ("class_map.json", '{"8": 1}', "labels '8', which is not one of the 8 nodes"),
        ("feats.npy", "text", r"feats.npy cannot be read as a \.npy file"),
        ("feats.npy", "", r"feats.npy cannot be read as a \.npy file"),
    ],
)
def test_bad_saint_files(tmp_path: Path, file: str, content: str, message: str) -> None:
    (write_saint(tmp_path, toy()) / file).write_text(content)
    with pytest.raises(FormatError, match=message):
        GRAPHSAINT.read(tmp_path)


def test_an_archive_in_place_of_an_array(tmp_path: Path) -> None:
    folder = write_saint(tmp_path, toy())
    (folder / "adj_full.npz").rename(folder / "feats.npy")
    save_npz(folder / "adj_full.npz", adjacency(toy()))
    with pytest.raises(FormatError, match=r"feats.npy must be a .npy file, but is a .npz archive"):
        GRAPHSAINT.read(folder)


LEAST = np.iinfo(np.int64).min  # its difference from any offset above 0 wraps around


def with_offsets(arrays: dict[str, Any], prefix: str = "") -> list[dict[str, Any]]:
    """Changes to the offsets of a CSR matrix, none of which may reach compiled code."""
    offsets = np.asarray(arrays[f"{prefix}indptr"], np.int64)
    found = []
    for place, value in ((-1, LEAST), (1, LEAST), (-1, len(offsets) ** 3), (0, 1), (2, -1)):
        damaged = offsets.copy()
        damaged[place] = value
        found.append({f"{prefix}indptr": damaged})
    return [*found, {f"{prefix}indptr": offsets[:-1]}]


@pytest.mark.parametrize("case", range(6))
@pytest.mark.parametrize(("kind", "file"), [("npz", "adj.npz"), ("graphsaint", "adj_full.npz")])
def test_offsets_are_checked_without_arithmetic_that_wraps(
    tmp_path: Path, kind: str, file: str, case: int
) -> None:
    write, read = READS[kind]
    write(tmp_path, toy())
    resave(tmp_path, file, **with_offsets(dict(np.load(tmp_path / file)))[case])
    with pytest.raises(FormatError, match="holds a damaged sparse matrix"):
        read(tmp_path)


@pytest.mark.parametrize("case", range(6))
@pytest.mark.parametrize("prefix", ["adj_", "attr_"])
def test_offsets_of_the_benchmark_format_are_checked_too(
    tmp_path: Path, prefix: str, case: int
) -> None:
    file = write_benchmark(tmp_path, toy())
    arrays = dict(np.load(file, allow_pickle=True).items())
    write_benchmark(tmp_path, toy(), **with_offsets(arrays, prefix)[case])
    with pytest.raises(FormatError, match="holds a damaged sparse matrix"):
        GNN_BENCHMARK.read(file)
