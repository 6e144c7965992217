"""Bad input through the real command: one sentence, exit code 1, and nothing left behind."""

import gzip
import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix, save_npz

from fastgcn import fit, save
from tests.cli_runner import run_cli
from tests.communities import communities, quick
from tests.small_disk import small_disk

NODES = "id,label,split,x,y\na,cat,train,0.5,1\nb,dog,val,1.5,2\nc,cat,test,2.5,3\n"
EDGES = "source,target,weight\na,b,1\nb,c,2\n"


def nodes(text: str) -> Callable[[Path], None]:
    return lambda folder: _write(folder, text, EDGES)


def edges(text: str) -> Callable[[Path], None]:
    return lambda folder: _write(folder, NODES, text)


def _write(folder: Path, node_text: str, edge_text: str) -> None:
    (folder / "nodes.csv").write_text(node_text)
    (folder / "edges.csv").write_text(edge_text)


TABLES = [
    (lambda f: (f / "edges.csv").write_text(EDGES), "nodes"),
    (lambda f: (f / "nodes.csv").write_text(NODES), "edges"),
    (nodes(""), "is empty"),
    (nodes("id,label,x\n"), "has no rows"),
    (nodes("name,label,x\na,cat,1\n"), "no column 'id'"),
    (nodes(NODES.replace("b,dog", "a,dog")), "'a'"),
    (nodes(NODES.replace("b,dog", ",dog")), "id"),
    (nodes(NODES.replace("1.5", "inf")), "must hold finite numbers, but node 'b'"),
    (nodes(NODES.replace("1.5", "1e300")), "beyond float32"),
    (nodes(NODES.replace("val", "valdiation")), "'valdiation'"),
    (nodes(NODES.replace("b,dog,val", "b,,val")), "has no label"),
    (nodes(NODES + "d,cat,train,1\n"), "column"),
    (nodes("id,id,x\na,b,1\n"), "'id' twice"),
    (nodes(NODES.replace(",", ";")), "must separate columns by commas"),
    (nodes(NODES.replace(",", ";").replace(".", ",")), "'id;label;split;x;y', has semicolons"),
    (nodes("\ufeff" + NODES.replace(",", "\t")), "has tabs"),
    (edges(EDGES.replace(",", ";")), "has semicolons; write it again with commas"),
    (lambda f: (nodes("")(f), (f / "nodes.csv").write_bytes(b"\xff\xfe\x00")), "nodes.csv"),
    (edges(""), "is empty"),
    (edges("from,to\na,b\n"), "no column 'source'"),
    (edges("source,to\na,b\n"), "no column 'target'"),
    (edges("source,target\na,zed\nb,zed\nyak,c\n"), "3 rows with an id that the node table"),
    (edges("source,target\na,\n"), "target"),
    (edges("source,target,weight\na,b,heavy\n"), "heavy"),
    (edges("source,target,weight\na,b,-1\n"), "negative"),
    (edges("source,target,weight\na,b,nan\n"), "weight"),
    (edges("source,target,weight\na,b,\n"), "weight"),
    (edges("source,target\na,b,c\n"), "column"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), TABLES)
def test_tables(
    make: Callable[[Path], None], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    make(source)
    _refused(capfd, tmp_path, message, "import", source, "--out", tmp_path / "out")


OPTIONS = [
    (["--label", "klass"], "no column 'klass'"),
    (["--label", "labell"], "label"),
    (["--split-column", "parts"], "no column 'parts'"),
    (["--weight", "w"], "no column 'w'"),
    (["--features", "x,z"], "'z'"),
    (["--features", "label"], "label"),
    (["--split", "public"], "--split of tables can only be random"),
    (["--seed", "1"], "--seed is the seed of --split random"),
    (["--memory", "lots"], "memory must be at least 1MB"),
    (["--id", "label"], "column 'label'"),
]


@pytest.mark.parametrize(("flags", "message"), OPTIONS)
def test_table_options(
    flags: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    _write(source, NODES, EDGES)
    _refused(
        capfd, tmp_path, message, "import", "--nodes", source / "nodes.csv",
        "--edges", source / "edges.csv", "--out", tmp_path / "out", *flags,
    )  # fmt: skip


class Exploit:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("exploited",)


def _planetoid(folder: Path) -> None:
    for part in ("x", "y", "tx", "ty", "allx", "ally", "graph"):
        (folder / f"ind.bad.{part}").write_bytes(pickle.dumps(Exploit(), protocol=2))
    (folder / "ind.bad.test.index").write_text("1\n")


def _saint(folder: Path) -> None:
    save_npz(folder / "adj_full.npz", csr_matrix(np.eye(3)))
    np.save(folder / "feats.npy", np.eye(3))
    (folder / "role.json").write_text(json.dumps({"tr": [0, 1], "va": [1], "te": [2]}))
    (folder / "class_map.json").write_text(json.dumps({"0": 0, "1": 1, "2": 0}))


def _npz(labels: list[int]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        save_npz(folder / "adj.npz", csr_matrix(np.ones((3, 3))))
        save_npz(folder / "features.npz", csr_matrix(np.eye(3)))
        np.savez(folder / "labels_split.npz", labels=np.array(labels))

    return write


def _ogb(folder: Path) -> None:
    for name, text in (("edge", "0,1\n1,9\n"), ("node-feat", "1\n2\n"), ("node-label", "0\n1\n")):
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "num-node-list.csv.gz").write_bytes(gzip.compress(b"2\n"))


FORMATS = [
    (lambda _: None, "holds nothing"),
    (lambda f: (f / "thesis.tex").write_text("hm"), "holds thesis.tex"),
    (_planetoid, "mkdir"),
    (lambda f: (f / "ind.cora.x").write_bytes(b""), "ind.cora"),
    (_saint, "in both train and val"),
    (_npz([0, 1]), "labels"),
    (_npz([0, -7, 1]), "-7"),
    (lambda f: (f / "adj.npz").write_bytes(b"PK junk"), "npz"),
    (_ogb, "9"),
    (lambda f: (f / "graph.json").write_text("{"), "is not valid JSON"),
    (lambda f: (f / "graph.json").write_text('{"kind": "other"}'), "does not describe"),
    (lambda f: (f / "toy-G.json").write_text("[]"), "toy"),
]


@pytest.mark.parametrize(("make", "message"), FORMATS)
def test_formats(
    make: Callable[[Path], None],
    message: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    make(source)
    monkeypatch.chdir(tmp_path)
    _refused(capfd, tmp_path, message, "import", source, "--out", tmp_path / "out")
    _refused(capfd, tmp_path, message, "info", source)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["import"], "--out FOLDER is needed"),
        (["import", "--out", "out"], "give either SOURCE or --nodes and --edges"),
        (["import", "--nodes", "n.csv", "--out", "out"], "--nodes and --edges go together"),
        (["import", "digits", "--nodes", "n", "--edges", "e", "--out", "out"], "give either"),
        (["import", "--nodes", "n.csv", "--edges", "e.csv", "--out", "out"], "no file n.csv"),
        (["import", "nowhere/at/all", "--out", "out"], "no file or folder nowhere/at/all"),
        (["import", "digits", "--weight", "w", "--out", "out"], "--weight is for tables"),
        (["import", "digits", "--split", "public", "--out", "out"], "split"),
        (["info", "cors"], "cors"),
        (["generate", "out", "--preset", "redit-sim"], "did you mean 'reddit-sim'"),
        (["generate", "out", "--nodes", "10"], "edges"),
        (["generate", "out", "--nodes", "10", "--edges", "99", "--features", "2", "--classes", "2"],
         "edges"),
    ],
)  # fmt: skip
def test_arguments(
    args: list[str],
    message: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    _refused(capfd, tmp_path, message, *args)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ["info", "damaged"],
        ["evaluate", "run", "damaged"],
        ["predict", "run", "damaged", "--out", "p.csv"],
        ["train", "damaged", "--epochs", "1"],
        ["train", "damaged", "--epochs", "1", "--transductive"],
        ["train", "damaged", "--epochs", "1", "--method", "graphsage-mean"],
        ["diagnose", "damaged"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", ["indices", "indptr"])
def test_a_damaged_store(
    command: list[str],
    name: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    fit(communities(), quick(epochs=1), run_dir="run")
    save(communities(), "damaged")
    with Path("damaged", f"{name}.npy").open("r+b") as file:
        file.seek(200)
        file.write(b"\xff\xff\xff\x7f" * 4)
    outcome = run_cli(capfd, *command)
    assert outcome.code == 1
    place = tmp_path / "damaged"
    *_, last = outcome.err.splitlines()
    assert last.startswith(f"Error: {place / name}.npy is damaged: ")
    assert last.endswith(f"; run fastgcn info {place} --verify")
    assert not Path("p.csv").exists()


@pytest.mark.parametrize("swapped", ["evaluate", "predict", "embed"])
def test_features_in_another_order(
    swapped: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = NODES + "d,dog,train,3,4\n"  # two classes to learn
    for folder, text in (("a", rows), ("b", rows.replace("x,y", "y,x"))):
        Path(folder).mkdir()
        _write(Path(folder), text, EDGES)
        assert run_cli(capfd, "import", folder, "--out", f"{folder}-store").code == 0
    flags = ["--epochs", 1, "--samples", 1, "--run-dir", "run"]
    assert run_cli(capfd, "train", "a-store", *flags).code == 0
    out = [] if swapped == "evaluate" else ["--out", "rows.csv"]
    assert run_cli(capfd, swapped, "run", "a-store", *out).code == 0
    Path("rows.csv").unlink(missing_ok=True)
    outcome = run_cli(capfd, swapped, "run", "b-store", *out)
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1] == (
        "Error: the columns of b-store were encoded otherwise than those that the run was trained "
        "on; import its tables again with the run's encoders (--like RUN)"
    )
    assert not Path("rows.csv").exists()


def test_a_page_where_a_folder_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(communities(), "store")
    fit(communities(), quick(epochs=1), run_dir="run")
    Path("mine").mkdir()
    outcome = run_cli(capfd, "report", "run", "store", "--out", "mine")
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1].startswith("Error: mine is a folder; name the file")
    assert not any(Path("mine").iterdir())


def test_too_many_samples_say_what_to_do(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(communities(), "store")
    outcome = run_cli(capfd, "train", "store", "--preset", "paper", "--run-dir", "run")
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1] == (
        "Error: samples must be at most the 36 nodes of the training graph, got 400; lower samples "
        "(--samples), or have it chosen for the graph (--preset auto)"
    )
    assert not Path("run").exists()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_file_of_node_ids(
    encoding: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    save(communities(node_ids=[f"ñ{i}" for i in range(60)]), "store")
    fit(communities(), quick(epochs=1), run_dir="run")
    Path("ids").write_text("ñ5\nñ7\n", encoding=encoding)
    predict = ["predict", "run", "store", "--out", "p.csv", "--nodes", "@ids"]
    assert run_cli(capfd, *predict).code == 0
    rows = Path("p.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[0].strip('"') for row in rows[1:]] == ["ñ5", "ñ7"]
    Path("ids").write_text("ñ5", encoding="latin-1")
    assert "ids must be UTF-8 text, but is not" in run_cli(capfd, *predict).err


def test_existing_output_is_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("yes")
    outcome = run_cli(capfd, "import", "digits", "--out", tmp_path / "out", "--force")
    assert outcome.code == 1
    assert "will not be overwritten" in outcome.err
    assert (tmp_path / "out" / "precious").read_text() == "yes"


def test_unreadable_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    _write(tmp_path, NODES, EDGES)
    (tmp_path / "nodes.csv").chmod(0)
    _refused(capfd, tmp_path, "nodes.csv", "import", tmp_path, "--out", tmp_path / "out")


def test_full_disk(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with small_disk(10_000):
        outcome = run_cli(capfd, "import", "digits", "--out", tmp_path / "out")
    assert outcome.code == 1
    assert "nothing was left behind" in outcome.err
    assert list(tmp_path.iterdir()) == []


def _refused(capfd: pytest.CaptureFixture[str], folder: Path, message: str, *args: object) -> None:
    before = sorted(folder.rglob("*"))
    outcome = run_cli(capfd, *args)
    assert outcome.code == 1, outcome
    assert outcome.out == ""
    assert re.fullmatch(r"Error: [^\n]+\n", outcome.err), outcome.err
    assert message in outcome.err
    assert sorted(folder.rglob("*")) == before, "something was left behind"
