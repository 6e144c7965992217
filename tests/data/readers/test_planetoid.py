"""Planetoid's eight files, as Python 2 wrote them and as Python 3 does."""

import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from fastgcn import Graph
from fastgcn.data.readers.planetoid import PLANETOID
from fastgcn.errors import FormatError, InputError, MissingFileError
from tests.data.readers.python2_pickle import array_pickle, lists_pickle, matrix_pickle
from tests.data.readers.toy import assert_same, dense
from tests.strategies import split_of

N_FIRST, N_KNOWN, N = 3, 530, 540
MISSING = [532, 537]  # in the range of the test nodes, but without a row
TEST = [539, 531, 530, 538, 535, 533, 534, 536]


def chain(split: dict[str, list[int]]) -> Graph:
    """A chain of 540 nodes; some rows are those of nodes that the files leave out."""
    rng = np.random.default_rng(0)
    features = rng.integers(0, 2, (N, 6)).astype(np.float32)
    features[MISSING] = 0
    labels = rng.integers(0, 4, N)
    labels[[5, 400, *MISSING]] = -1  # 5 and 400 have a row of zeros in `ally`
    return Graph.from_edges(
        range(N - 1), range(1, N), features=features, labels=labels, split=split_of(**split)
    )


FULL = {
    "train": [i for i in range(N_KNOWN) if (i < N_FIRST or i >= N_FIRST + 500) and i != 5],
    "val": [i for i in range(N_FIRST, N_FIRST + 500) if i not in (5, 400)],
    "test": TEST,
}


def pieces(graph: Graph) -> dict[str, Any]:
    features = csr_array(graph.features)
    assert graph.labels is not None
    one_hot = (graph.labels[:, None] == np.arange(4)).astype(np.int32)
    lists: dict[int, list[int]] = defaultdict(list)
    for node in range(N):
        lists[node] = graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist()
    lists[0] += [0, 1]  # a self loop and an edge twice, as the published files have
    return {
        "x": features[:N_FIRST],
        "y": one_hot[:N_FIRST],
        "allx": features[:N_KNOWN],
        "ally": one_hot[:N_KNOWN],
        "tx": features[TEST],
        "ty": one_hot[TEST],
        "graph": lists,
    }


def write(folder: Path, graph: Graph, python: int = 2, name: str = "toy") -> Path:
    folder.mkdir(exist_ok=True)
    for part, value in pieces(graph).items():
        file = folder / f"ind.{name}.{part}"
        if python == 3:
            value = csr_matrix(value) if isinstance(value, csr_array) else value
            file.write_bytes(pickle.dumps(value, protocol=2))
        elif isinstance(value, csr_array):
            file.write_bytes(matrix_pickle(value))
        else:
            file.write_bytes((lists_pickle if part == "graph" else array_pickle)(value))
    (folder / f"ind.{name}.test.index").write_text("".join(f"{i}\n" for i in TEST))
    return folder


@pytest.mark.parametrize("python", [2, 3])
def test_reads_back_what_was_written(tmp_path: Path, python: int) -> None:
    graph = PLANETOID.read(write(tmp_path, chain(FULL), python))
    assert_same(graph, chain(FULL))
    assert graph.name == "toy"
    assert (graph.cleaned.self_loops, graph.cleaned.duplicates) == (1, 1)


def test_every_protocol_of_python_3_reads(tmp_path: Path) -> None:
    folder = write(tmp_path, chain(FULL))
    ally = pieces(chain(FULL))["ally"]
    for protocol in (2, 3, 4):
        (folder / "ind.toy.ally").write_bytes(pickle.dumps(ally, protocol=protocol))
        assert_same(PLANETOID.read(folder), chain(FULL))


def test_the_other_splits(tmp_path: Path) -> None:
    folder = write(tmp_path, chain(FULL))
    authors = {
        "train": [i for i in range(30) if i != 5],
        "val": [i for i in range(30, 530) if i != 400],
        "test": TEST,
    }
    assert_same(PLANETOID.read(folder, split="authors"), chain(authors))
    public = FULL | {"train": [0, 1, 2]}
    assert_same(PLANETOID.read(folder, split="public"), chain(public))


def test_a_folder_of_several_is_asked_by_name(tmp_path: Path) -> None:
    write(tmp_path, chain(FULL), name="one")
    write(tmp_path, chain(FULL), name="two.b")
    with pytest.raises(InputError, match="one, two.b"):
        PLANETOID.read(tmp_path)
    with pytest.raises(InputError, match=r"holds one, two.b, not name='two'"):
        PLANETOID.read(tmp_path, name="two")
    assert PLANETOID.read(tmp_path, name="two.b").name == "two.b"


def test_an_unknown_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"full, authors, public, got 'publik'; did you mean"):
        PLANETOID.read(write(tmp_path, chain(FULL)), split="publik")


@pytest.mark.parametrize("part", ["x", "graph", "test.index"])
def test_a_missing_file_is_named(tmp_path: Path, part: str) -> None:
    (write(tmp_path, chain(FULL)) / f"ind.toy.{part}").unlink()
    with pytest.raises(MissingFileError, match=rf"lacks ind\.toy\.{part};"):
        PLANETOID.read(tmp_path)


ONES = np.ones((3, 4), np.int32)
DAMAGE: dict[str, tuple[str, bytes, str]] = {
    "cut off": ("ally", array_pickle(ONES)[:-40], "is damaged or not a pickle"),
    "no pickle": ("graph", b"this is text", "is damaged or not a pickle"),
    "empty": ("tx", b"", "is damaged or not a pickle"),
    "array for matrix": ("allx", array_pickle(ONES), "a complete CSR matrix, got an array"),
    "matrix for array": ("ally", matrix_pickle(csr_array(ONES)), "must hold an array of numbers"),
    "list for dictionary": ("graph", b"\x80\x02].", "must hold a dictionary of lists"),
    "too few labels": ("ally", array_pickle(ONES[:, :1]), "must hold 530 rows"),
    "too few test rows": ("tx", matrix_pickle(csr_array(ONES)), "must hold 8 rows"),
    "two classes a node": ("ty", array_pickle(np.ones((8, 4))), "at most one 1"),
    "other classes": ("ty", array_pickle(np.eye(8)), "must have 4 columns as ally has, got 8"),
    "labels in one column": ("y", array_pickle(ONES[0]), "must repeat the first of the 530"),
    "edge to nowhere": (
        "graph",
        lists_pickle({0: [540]}),
        "node 540, but nodes end at 539",
    ),
    "a negative end": ("graph", lists_pickle({-1: [0]}), "got -1"),
    "an edge to a list": ("graph", pickle.dumps({0: [[[1]]]}, 2), "by numbers from 0, got a list"),
    "a wide number": ("graph", pickle.dumps({0: [2**63]}, 2), "by numbers from 0, got 9223372036"),
    "a long index": ("test.index", b"9" * 5000, "one node number per line"),
    "no ASCII": ("test.index", "５３０".encode(), "one node number per line"),
    "edge to text": ("graph", pickle.dumps({0: ["a"]}, 2), "got 'a'"),
    "no list": ("graph", pickle.dumps({0: 1}, 2), "a list for each node, but not for 0"),
    "text as index": ("test.index", b"530\nabc\n", "one node number per line"),
    "index of a known node": (
        "test.index",
        b"3\n",
        "from 530, .* to 539, got 3 to 3",
    ),
    "wild index": ("test.index", b"9000000000000\n", "got 9000000000000"),
    "index twice": ("test.index", b"530\n530\n", "names a node twice"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(tmp_path: Path, kind: str) -> None:
    part, content, message = DAMAGE[kind]
    file = write(tmp_path, chain(FULL)) / f"ind.toy.{part}"
    file.write_bytes(content)
    with pytest.raises(FormatError, match=message) as error:
        PLANETOID.read(tmp_path)
    assert str(file) in str(error.value)


LEAST = np.iinfo(np.int64).min  # its difference from any offset above 0 wraps around


@pytest.mark.parametrize("part", ["allx", "tx"])
@pytest.mark.parametrize(("place", "value"), [(-1, LEAST), (1, LEAST), (-1, 10**9), (0, 1)])
def test_offsets_are_checked(tmp_path: Path, part: str, place: int, value: int) -> None:
    folder = write(tmp_path, chain(FULL), python=3)
    matrix = csr_matrix(pieces(chain(FULL))[part])
    offsets = matrix.indptr.astype(np.int64)
    offsets[place] = value
    matrix.indptr = offsets
    (folder / f"ind.toy.{part}").write_bytes(pickle.dumps(matrix, protocol=2))
    with pytest.raises(FormatError, match=rf"ind\.toy\.{part} holds a damaged sparse matrix"):
        PLANETOID.read(folder)


def test_half_precision_and_foreign_byte_order(tmp_path: Path) -> None:
    folder = write(tmp_path, chain(FULL), python=3)
    for part, kind in (("allx", np.float16), ("tx", ">f8")):
        matrix = csr_matrix(pieces(chain(FULL))[part])
        matrix.data = matrix.data.astype(kind)
        (folder / f"ind.toy.{part}").write_bytes(pickle.dumps(matrix, protocol=2))
    assert_same(PLANETOID.read(folder), chain(FULL))


@pytest.mark.parametrize("width", [1 << 30, 1 << 40])
def test_a_width_that_nothing_could_hold(tmp_path: Path, width: int) -> None:
    """The product that placed the rows of `tx` took memory for every column."""
    folder = write(tmp_path, chain(FULL), python=3)
    for part in ("allx", "tx"):
        matrix = csr_matrix(pieces(chain(FULL))[part])
        wide = csr_matrix((matrix.data, matrix.indices, matrix.indptr), (matrix.shape[0], width))
        (folder / f"ind.toy.{part}").write_bytes(pickle.dumps(wide, protocol=2))
    if width == 1 << 30:
        assert PLANETOID.read(folder).n_features == width
    else:
        with pytest.raises(FormatError, match="at most 2,147,483,647 columns, got 1,099,511"):
            PLANETOID.read(folder)


def test_too_few_rows_for_the_authors_split(tmp_path: Path) -> None:
    folder = write(tmp_path, chain(FULL))
    small = csr_array(np.ones((5, 6), np.float32))
    (folder / "ind.toy.allx").write_bytes(matrix_pickle(small))
    (folder / "ind.toy.ally").write_bytes(array_pickle(np.eye(5, 4, dtype=np.int32)))
    (folder / "ind.toy.ty").write_bytes(array_pickle(np.eye(8, 4, dtype=np.int32)))
    (folder / "ind.toy.graph").write_bytes(lists_pickle({0: [1]}))
    (folder / "ind.toy.test.index").write_text("5 6 7 8 9 10 11 12")
    with pytest.raises(FormatError, match="has 5 rows, too few for split='authors'"):
        PLANETOID.read(folder, split="authors")
    # The public validation set is then what there is; row 4 of the identity is zeros.
    assert PLANETOID.read(folder).split.val.tolist() == [3]


@pytest.mark.parametrize(
    ("name", "counts", "train"),
    [
        ("cora", (2708, 5278, 1433, 7), 1208),
        ("citeseer", (3327, 4552, 3703, 6), 1812),
        ("pubmed", (19717, 44324, 500, 3), 18217),
    ],
)
def test_the_published_counts(
    real_data: Path, name: str, counts: tuple[int, ...], train: int
) -> None:
    graph = PLANETOID.read(real_data / "planetoid", name=name)
    assert (graph.n_nodes, graph.n_edges, graph.n_features, graph.n_classes) == counts
    assert [len(part) for _, part in graph.split.items()] == [train, 500, 1000]
    authors = PLANETOID.read(real_data / "planetoid", name=name, split="authors")
    assert [len(part) for _, part in authors.split.items()] == [train, 500, 1000]
    public = PLANETOID.read(real_data / "planetoid", name=name, split="public")
    assert len(public.split.train) == 20 * graph.n_classes


def test_citeseers_missing_rows(real_data: Path) -> None:
    graph = PLANETOID.read(real_data / "planetoid", name="citeseer")
    assert graph.labels is not None
    nowhere = np.flatnonzero(graph.labels < 0)
    assert len(nowhere) == 15
    assert not dense(graph.features)[nowhere].any()
    for _, part in graph.split.items():
        assert not np.isin(nowhere, part).any()
