"""`load` and `detect`: which reader is taken, and what is said where none can be."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fastgcn
from fastgcn import load, save
from fastgcn.data import registry
from fastgcn.data.load import detect
from fastgcn.data.readers import READERS
from fastgcn.errors import FormatError, InputError, MissingFileError
from tests.data.readers.toy import assert_same, toy, write_trio
from tests.strategies import split_of


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder and a cache of the test's own."""
    for variable in ("FASTGCN_DATA", "FASTGCN_CACHE"):
        folder = tmp_path / variable
        folder.mkdir()
        monkeypatch.setenv(variable, str(folder))
    return tmp_path


NAMES_OF_FILES = {
    "planetoid": "ind.cora.graph",
    "graphsage": "ppi-G.json",
    "graphsaint": "adj_full.npz",
    "ogb": "raw/edge.csv.gz",
    "reddit-fastgcn": "reddit_adj.npz",
    "reddit-dgl": "reddit_graph.npz",
    "npz": "labels_split.npz",
    "tables": "nodes.parquet",
    "store": "graph.json",
}


@pytest.mark.parametrize("kind", NAMES_OF_FILES)
def test_one_file_is_enough_to_know_the_format(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "data" / NAMES_OF_FILES[kind]
    file.parent.mkdir(parents=True)
    file.touch()
    assert detect(tmp_path / "data") == kind


def test_single_files_are_known_too(tmp_path: Path) -> None:
    for name, kind in (
        ("photo.npz", "gnn-benchmark"),
        ("ppi-G.json", "graphsage"),
        ("cora.pt", "pyg"),
    ):
        (tmp_path / name).touch()
        assert detect(tmp_path / name) == kind


def test_every_reader_is_detected_by_a_test() -> None:
    assert {r.format for r in READERS} | {"store"} == NAMES_OF_FILES.keys() | {
        "gnn-benchmark",
        "pyg",
    }


def test_a_folder_and_a_store(tmp_path: Path) -> None:
    graph = load(write_trio(tmp_path / "mine", toy()))
    assert_same(graph, toy())
    assert graph.name == "mine"
    save(graph, tmp_path / "store")
    assert_same(load(str(tmp_path / "store")), toy())


def test_names_under_the_data_folder(elsewhere: Path) -> None:
    write_trio(elsewhere / "FASTGCN_DATA" / "mine", toy())
    assert_same(load("mine"), toy())
    with pytest.raises(InputError, match=r"'mien' is neither .*; did you mean 'mine'\?"):
        load("mien")


def test_digits_come_with_the_package() -> None:
    graph = load("digits")
    assert (graph.n_nodes, graph.n_classes) == (1797, 10)
    other = load("digits", split="random", seed=3)
    assert len(other.split.train) == len(graph.split.train)
    assert other.split.train.tolist() != graph.split.train.tolist()


def test_planetoid_by_name(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTGCN_DATA", str(real_data))
    assert len(load("cora").split.train) == 1208
    assert len(load("cora", split="public").split.train) == 140
    with pytest.raises(InputError, match=r"full, authors, public, got 'plain'"):
        load("cora", split="plain")
    with pytest.raises(InputError, match="'cora' is a name already"):
        load("cora", name="citeseer")


def test_generated_data_by_name(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(toy(name="a small one"), elsewhere / "generated")
    monkeypatch.setattr(registry, "fetch_generated", lambda _: elsewhere / "generated")
    assert_same(load("reddit-sim"), toy())


def test_a_random_split_of_any_format(tmp_path: Path) -> None:
    graph = load(
        write_trio(tmp_path / "mine", toy()), split="random", seed=1, train=0.4, val=0.3, test=0.3
    )
    assert [len(part) for _, part in graph.split.items()] == [3, 3, 1]
    save(toy(split=split_of()), tmp_path / "store")
    stored = load(tmp_path / "store", split="random", seed=1, train=0.4, val=0.3, test=0.3)
    assert_same(stored, graph)
    assert fastgcn.fingerprint(stored) != fastgcn.fingerprint(load(tmp_path / "store"))


def test_a_random_split_needs_labels(tmp_path: Path) -> None:
    save(toy(labels=None, name="bare"), tmp_path / "store")
    with pytest.raises(InputError, match="bare has no labels"):
        load(tmp_path / "store", split="random")


BAD_OPTIONS: list[tuple[dict[str, object], str]] = [
    ({"seed": 1}, "seed is an option of split='random' only"),
    ({"train": 0.5, "split": "full"}, "train is an option of split='random' only"),
    ({"split": "full"}, "split must be 'random' for npz, if given at all, got 'full'"),
    ({"direct": True}, r"npz has no option 'direct'; did you mean 'directed'\?"),
    ({"sede": 1}, "did you mean 'seed'"),
    ({"format": "npzz"}, r"format must be one of .*, got 'npzz'; did you mean 'npz'\?"),
    ({"format": 3}, "format must be one of .*, got 3"),
    ({"split": "random", "train": 2}, "train must be a share"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_wrong_options_are_refused(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load(write_trio(tmp_path / "mine", toy()), **options)


def test_wrong_options_of_what_is_no_reader(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="digits has no option 'size'"):
        load("digits", size=3)
    save(toy(), tmp_path / "store")
    with pytest.raises(InputError, match=r"store has no option 'verfy'; did you mean 'verify'\?"):
        load(tmp_path / "store", verfy=True)


def two_formats(folder: Path) -> Path:
    (write_trio(folder, toy()) / "role.json").touch()
    return folder


def test_a_folder_in_two_formats_is_asked_about(tmp_path: Path) -> None:
    folder = two_formats(tmp_path / "mine")
    with pytest.raises(FormatError, match="as graphsaint or as npz: choose one by format="):
        load(folder)
    assert_same(load(folder, format="npz"), toy())


@pytest.mark.parametrize("kind", [*NAMES_OF_FILES, "gnn-benchmark"])
def test_a_format_that_is_not_there(tmp_path: Path, kind: str) -> None:
    with pytest.raises((FormatError, MissingFileError), match=str(tmp_path / "FASTGCN_DATA")):
        load(tmp_path / "FASTGCN_DATA", format=kind)


def folder_with(*names: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        for name in names:
            (folder / name).touch()
        return folder

    return make


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (folder_with(), "holds nothing; looked for store: graph.json; planetoid: ind.NAME"),
        (folder_with("cora.cites", "README"), "it holds README, cora.cites; looked for"),
        (folder_with(*(f"file{i:02}" for i in range(30))), r"file19, \.\.\.; looked for"),
    ],
)
def test_a_folder_in_no_format_is_described(
    tmp_path: Path, make: Callable[[Path], Path], message: str
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    with pytest.raises(FormatError, match=message):
        load(make(folder))


def test_one_file_of_a_folder_points_to_the_folder(tmp_path: Path) -> None:
    (tmp_path / "role.json").touch()
    with pytest.raises(FormatError, match=f"pass the folder {tmp_path}, which is graphsaint"):
        load(tmp_path / "role.json")


@pytest.mark.parametrize("name", ["no/such/folder", Path("nowhere"), "./cora2"])
def test_a_missing_path_is_named(name: str | Path) -> None:
    with pytest.raises(MissingFileError, match=f"there is no file or folder {name}"):
        load(name)
    with pytest.raises(MissingFileError, match="there is no file or folder"):
        detect(name)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'corra' is .*did you mean 'cora'\?.*digits, cora"):
        load("corra")


@pytest.mark.parametrize("nothing", ["", "a\0b"])
def test_what_is_no_name(nothing: str) -> None:
    with pytest.raises(InputError, match="load takes a path or a name, got"):
        load(nothing)


def test_tables_are_passed_on(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "nodes.csv").write_text("id,label,f\na,x,1\nb,y,2\nc,x,3\n")
    with pytest.raises(MissingFileError, match=r"lacks a table edges \(.csv, .csv.gz, .parquet\)"):
        load(folder)
    (folder / "edges.csv").write_text("source,target\na,b\nb,c\n")
    graph = load(folder)
    assert (graph.n_nodes, graph.n_edges, graph.n_features, graph.name) == (3, 2, 1, "mine")
    assert load(folder, directed=True, name="other").name == "other"
    with pytest.raises(InputError, match=r"tables has no option 'lable'; did you mean 'label'\?"):
        load(folder, lable="f")
    (folder / "edges.parquet").touch()
    with pytest.raises(InputError, match=r"has both edges.csv and edges.parquet"):
        load(folder)


def test_loading_does_not_load_heavy_libraries(tmp_path: Path) -> None:
    write_trio(tmp_path / "mine", toy())
    code = (
        "import sys, json, fastgcn; fastgcn.load(sys.argv[1]);"
        "heavy = ['torch', 'pyarrow', 'sklearn', 'numba', 'networkx', 'torch_geometric'];"
        "print(json.dumps([name for name in heavy if name in sys.modules]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "mine")]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(out.stdout) == []


def test_a_loop_of_links(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(MissingFileError, match="there is no file or folder"):
        load(tmp_path / "a")


@pytest.mark.parametrize("columns", [5, {"id": 5}, {"features": "ab"}, {"features": [1]}])
def test_columns_of_a_store_that_are_no_imports(tmp_path: Path, columns: object) -> None:
    """What a user keeps with a store under this name is not taken for the columns of tables."""
    save(toy(), tmp_path / "store", columns=columns)
    assert load(tmp_path / "store").imported is None


def test_labelled_data_without_a_split_gets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("fastgcn.data.splits.note", said.append)
    digits = load("digits")
    save(digits.with_split(split_of()), tmp_path / "store")
    found = load(tmp_path / "store")
    assert_same(found, fastgcn.random_split(digits))
    assert found.source is not None
    assert found.source["split"] == "random"
    assert "has no split: 60, 20 and 20 %" in said[0]
    assert "--split random --split-seed N draws others" in said[0]  # --seed is that of training
    again = load(found.source["data"], split=found.source["split"])
    assert fastgcn.fingerprint(again) == fastgcn.fingerprint(found)
    load("digits", split="random")
    assert len(said) == 1
