"""Wrong inputs of people with tables: each is refused in one sentence, or said; none is silent.

`TABLES` are tables and options of `import`; each goes through the command and through Python, with
the same sentence. `COMMANDS` and `PYTHON` are for what comes after. A case is its name, what is
done, and a part of the sentence. `SAID` are inputs that are taken, with a note.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import polars
import pytest

import fastgcn
from fastgcn.errors import FastGCNError
from tests.cli_runner import run_cli

N = 40
NODES = "id,label,age,city,joined,note\n" + "".join(
    f"n{i},{'ab'[i % 2] if i < 36 else ''},{i + 20 if i % 9 else ''},"
    f"{('Rome', 'Oslo', 'Bonn')[i % 3]},2020-01-{i % 28 + 1:02d},x{i} y z\n"
    for i in range(N)
)
EDGES = "source,target,weight\n" + "".join(
    f"n{i},n{(i + step) % N},{1 + i % 3}\n" for i in range(N) for step in (1, 2)
)

# A change of the two tables, and options of the import as Python has them.
Edit = Callable[[str], str | bytes]
Table = tuple[str, Mapping[str, Edit], Mapping[str, Any], str]


def put(text: str | bytes) -> Edit:
    return lambda _: text


def add(row: str) -> Edit:
    return lambda text: f"{text}{row}\n"


def swap(old: str, new: str) -> Edit:
    return lambda text: text.replace(old, new, 1)


ONE_EDGE = put("source,target\nn0,n1\n")

TABLES: list[Table] = [
    ("no node table", {}, {"nodes": "nope.csv"}, "there is no file nope.csv"),
    ("a folder", {}, {"nodes": "folder"}, "folder must be a file, but is a folder"),
    ("another kind of file", {}, {"nodes": "table.txt"}, "must be a CSV or Parquet file"),
    ("an empty file", {"nodes": put("")}, {}, "nodes.csv is empty"),
    ("no rows", {"nodes": put("id,label,age\n")}, {}, "has no rows"),
    ("semicolons", {"nodes": put("id;label;age\nn0;a;1\n")}, {}, "must separate columns by commas"),
    ("not UTF-8", {"nodes": put("id,city\nn0,Z\xfcrich\n".encode("latin-1"))}, {}, "must be UTF-8"),
    ("Parquet in name only", {}, {"nodes": "fake.parquet"}, "fake.parquet could not be read"),
    ("a name twice", {"nodes": swap("age", "city")}, {}, "must name each column once"),
    ("a short row", {"nodes": add("n99,a")}, {}, "Expected 6 columns, got 2"),
    ("no column of ids", {}, {"id": "customer"}, "has no column 'customer' for node ids"),
    ("a misspelt label", {}, {"label": "labl"}, "has no column 'labl' for labels; its columns are"),
    ("a misspelt split", {}, {"split": "fold"}, "has no column 'fold' for the split"),
    ("an empty id", {"nodes": add(",a,1,Rome,2020-01-01,x")}, {}, "but row 41 has none"),
    ("an id twice", {"nodes": add("n0,a,1,Rome,2020-01-01,x")}, {}, "but has 'n0' more than once"),
    ("an infinite number", {"nodes": swap(",21,", ",inf,")}, {}, "must hold finite numbers"),
    ("a number too large", {"nodes": swap(",21,", ",1e300,")}, {}, "has one beyond float32"),
    ("no such part", {"nodes": swap("note\n", "split\n")}, {}, "must be train, val or test"),
    ("no features", {"nodes": put("id,label\nn0,a\nn1,b\n"), "edges": ONE_EDGE},
     {}, "--structure 64 makes features of the edges"),
    ("one value everywhere", {"nodes": put("id,c\nn0,x\nn1,x\n"), "edges": ONE_EDGE},
     {}, "has no column that can be a feature"),
    ("no edge table", {}, {"edges": "nope.csv"}, "there is no file nope.csv"),
    ("no column of ends", {}, {"source": "from"}, "has no column 'from'"),
    ("no column of weights", {}, {"weight": "w"}, "has no column 'w'"),
    ("an end without an id", {"edges": add("n0,,1")}, {}, "must have a 'target' in every row"),
    ("an unknown id", {"edges": add("n0,n77,1")}, {}, "that the node table does not have: 'n77'"),
    ("ids written otherwise", {"nodes": put("id,c\n0027,x\n0028,y\n"),
     "edges": put("source,target\n27,28\n")}, {}, "has '0027' where the edge table has '27'"),
    ("a negative weight", {"edges": add("n0,n5,-1")}, {}, "finite numbers, none negative"),
    ("an edge without its weight", {"edges": add("n0,n5,")}, {}, "--default-weight 1 fills it in"),
    ("a weight in words", {"edges": add("n0,n5,heavy")}, {}, "has 'heavy' in column 'weight'"),
    ("a negative default", {}, {"default_weight": -1.0}, "default_weight must be a number"),
    ("no column of types", {}, {"type_column": "kind"}, "has no column 'kind'"),
    ("types without a column", {}, {"types": {"card": 1.0}}, "types"),
    ("features that are not there", {}, {"features": ["height"]}, "has no column 'height'"),
    ("the label as a feature", {}, {"features": ["label"]}, "'label'"),
    ("nothing to drop", {}, {"drop": ["amount_*"]}, "drop names 'amount_*', but"),
    ("two kinds of one column", {}, {"numeric": ["age"], "categorical": ["age"]}, "to be both"),
    ("words as dates", {}, {"date": ["city"]}, "must hold dates such as 2024-12-31"),
    ("a scale that is none", {}, {"scale": "log"}, "scale must be one of"),
    ("no features of edges", {}, {"structure": 0}, "structure must be a number of features"),
    ("structure without degree", {}, {"structure": 4, "degree": False}, "the degree is one of"),
    ("encoders of nothing", {}, {"like": "folder"}, "folder is neither a store nor a run"),
    ("encoders and options", {}, {"like": "bank", "numeric": ["age"]}, "like has all encoders"),
    ("memory in words", {}, {"memory": "lots"}, "memory must be at least 1MB"),
]  # fmt: skip

# Tables that are taken, and the note that says what was made of them.
SAID: list[Table] = [
    ("row numbers of pandas", {"nodes": lambda text: "".join(
        f"{i - 1 if i else ''},{line}" for i, line in enumerate(text.splitlines(True)))},
     {}, "the column '' of nodes.csv numbers its rows"),
    ("labels that are missing", {}, {}, "4 of 40 nodes have no label"),
    ("no split", {}, {}, "the table has no split: 60, 20 and 20 % of each class"),
    ("gaps", {}, {"numeric": ["city"]}, "column 'city' is empty on all training nodes"),
    ("one value", {"nodes": lambda text: re.sub(",x.*", ",same", text)}, {},
     "column 'note' has the one value 'same'"),
    ("columns of edges", {"edges": lambda text: "".join(
        f"{line},{'amount' if i == 0 else i}\n" for i, line in enumerate(text.splitlines()))},
     {}, "the column 'amount' of edges.csv is not used"),
    ("unknown ids dropped", {"edges": add("n0,n77,1")}, {"unknown": "drop"},
     "1 edges are left out, because the node table does not have one of their ids, such as 'n77'"),
    ("unknown ids added", {"edges": add("n0,n77,1")}, {"unknown": "add"},
     "1 nodes are added, because only the edges name them, such as 'n77'"),
    ("ids written otherwise", {"edges": add("n0, N7,1")}, {"unknown": "drop"},
     "the node table has 'n7' where the edge table has ' N7'"),
    ("weights filled in", {"edges": add("n0,n5,")}, {"default_weight": 2.0},
     "1 edges without a weight have the weight 2"),
    ("one class", {"nodes": lambda text: text.replace(",b,", ",a,")}, {},
     "all labelled nodes have the class 'a'"),
]  # fmt: skip


# What is typed after the import of the tables and a training, and the sentence.
COMMANDS: list[tuple[str, str, str]] = [
    ("import to nowhere", "import --nodes nodes.csv --edges edges.csv", "--out FOLDER is needed"),
    ("one table", "import --nodes nodes.csv --out out", "--nodes and --edges go together"),
    ("a store in its place", "import --nodes nodes.csv --edges edges.csv --out bank", "exists"),
    ("dropped and added", "import --nodes nodes.csv --edges edges.csv --out out --drop-unknown "
     "--add-unknown", "--drop-unknown and --add-unknown exclude each other"),
    ("a split of another kind", "import --nodes nodes.csv --edges edges.csv --out out --split full",
     "--split of tables can only be random or none"),
    ("no data", "train", "give either DATA to train on or --resume RUN"),
    ("data that are not there", "train bnak --run-dir out", "bnak"),
    ("a table for a graph", "train nodes.csv --run-dir out", "nodes.csv"),
    ("no labels", "train unlabelled --run-dir out", "has no labels"),
    ("one class", "train one-class --run-dir out", "all training nodes are of one class"),
    ("a metric that is none", "train bank --run-dir out --metric auc", "metric"),
    ("no epochs", "train bank --run-dir out --epochs 0", "epochs"),
    ("a negative rate", "train bank --run-dir out --learning-rate -1", "learning_rate"),
    ("a rate that is no number", "train bank --run-dir out --learning-rate nan", "learning_rate"),
    ("no width", "train bank --run-dir out --hidden 0", "hidden"),
    ("too many samples", "train bank --run-dir out --preset paper --samples 5000", "samples"),
    ("no such setting", "train bank --run-dir out --set widht=3", "widht"),
    ("a folder with a run", "train bank --run-dir run", "run holds a run already"),
    ("no such file of settings", "train bank --run-dir out --config nope.toml", "nope.toml"),
    ("a run to resume that is none", "train --resume bank", "bank is not a run"),
    ("scores of no run", "evaluate bank", "bank is not a run"),
    ("scores of no part", "evaluate run --part tset", "tset"),
    ("scores without labels", "evaluate run unlabelled", "unlabelled's split is empty"),
    ("scores of another table", "evaluate run other", "were encoded otherwise"),
    ("predictions to nowhere", "predict run", "--out"),
    ("predictions of another kind", "predict run --out out.txt", "must end in .parquet or .csv"),
    ("predictions for no such node", "predict run --nodes n77 --out out.csv", "n77"),
    ("more classes than there are", "predict run --top 9 --out out.csv", "from 1 to the 2 classes"),
    ("predictions on another table", "predict run other --out out.csv", "were encoded otherwise"),
    ("new nodes without edges", "predict run --new-nodes new.csv --out out.csv", "--new-edges"),
    ("new nodes that are old", "predict run --new-nodes old.csv --new-edges new_edges.csv "
     "--out out.csv",
     "names 'n0', which bank has already"),
    ("new nodes without ids", "predict run --new-nodes no_id.csv --new-edges new_edges.csv "
     "--out out.csv",
     "has no column 'id' for node ids"),
    ("new nodes twice", "predict run --new-nodes twice.csv --new-edges new_edges.csv --out out.csv",
     "must name each node once"),
    ("no new nodes", "predict run --new-nodes none.csv --new-edges new_edges.csv --out out.csv",
     "has no rows"),
    ("new nodes of other columns", "predict run --new-nodes others.csv --new-edges new_edges.csv "
     "--out out.csv", "has none of the columns that the features are made of"),
    ("new edges to nobody", "predict run --new-nodes new.csv --new-edges nobody.csv --out out.csv",
     "the new edges name 'zz', which is neither a new node nor"),
    ("new edges of old nodes", "predict run --new-nodes new.csv --new-edges old_edges.csv "
     "--out out.csv",
     "which are both old"),
    ("new edges without weights", "predict run --new-nodes new.csv --new-edges no_weight.csv "
     "--out out.csv", "the edges of bank have weights, but the new edges have none"),
    ("a table of new nodes that is not there", "predict run --new-nodes nope.csv --new-edges "
     "new_edges.csv --out out.csv", "there is no file nope.csv"),
    ("embeddings to nowhere", "embed run", "--out"),
    ("embeddings of no layer", "embed run --layer 9 --out out.npy", "layer must lie in"),
    ("embeddings of another kind", "embed run --out out.txt", "--out must end in"),
]  # fmt: skip

Things = SimpleNamespace  # graph, run, nodes and edges as frames of pandas, new and new_edges

untyped: Any = fastgcn  # for what a type checker would refuse

# The same in Python.
PYTHON: list[tuple[str, Callable[[Things], Any], str]] = [
    ("a dictionary", lambda t: fastgcn.Graph.from_pandas({"id": [1]}, t.edges), "must be a file"),
    ("no edges", lambda t: fastgcn.Graph.from_pandas(t.nodes, None), "the edge table must be"),
    ("a series", lambda t: fastgcn.Graph.from_pandas(t.nodes["age"], t.edges), "it is one column"),
    ("no id in the frame", lambda t: fastgcn.Graph.from_pandas(t.nodes.drop(columns="id"), t.edges),
     "the node table has no column 'id'"),
    ("floats as ids", lambda t: fastgcn.Graph.from_pandas(
        t.nodes.assign(id=np.arange(N) + 0.5), t.edges), "must hold integers or text"),
    ("a column of anything", lambda t: fastgcn.Graph.from_pandas(
        t.nodes.assign(age=[1, "x", [2], None] * 10), t.edges), "the node table"),
    ("columns of pairs", lambda t: fastgcn.Graph.from_pandas(
        t.nodes.assign(age=[{"a": 1}] * N), t.edges), "cannot be a feature"),
    ("an option that is none", lambda t: fastgcn.Graph.from_pandas(t.nodes, t.edges, lable="x"),
     "tables have no option 'lable'; did you mean 'label'"),
    ("no rows", lambda t: fastgcn.Graph.from_pandas(t.nodes[:0], t.edges), "has no rows"),
    ("a frame of polars without ends", lambda t: fastgcn.Graph.from_polars(
        polars.from_pandas(t.nodes), polars.DataFrame({"from": ["n0"]})), "has no column 'source'"),
    ("two kinds", lambda t: fastgcn.Graph.from_polars(
        polars.from_pandas(t.nodes), polars.from_pandas(t.edges), text=["age"]),
     "cannot be read as text"),
    ("unknown ids", lambda t: fastgcn.Graph.from_polars(
        polars.from_pandas(t.nodes[1:]), polars.from_pandas(t.edges)), "does not have: 'n0'"),
    ("a number for a graph", lambda _: fastgcn.fit(5), "int"),
    ("a frame for a graph", lambda t: fastgcn.fit(t.nodes), "from_pandas"),
    ("a graph that is not there", lambda _: fastgcn.fit("bnak"), "bnak"),
    ("no such setting", lambda t: fastgcn.fit(t.graph, epoch=5), "did you mean 'epochs'"),
    ("a setting in words", lambda t: fastgcn.fit(t.graph, epochs="many"), "epochs must be"),
    ("a metric that is none", lambda t: fastgcn.fit(t.graph, metric="auc"), "metric must be"),
    ("progress in words", lambda t: untyped.fit(t.graph, progress="yes"), "progress must be"),
    ("a folder with a run", lambda t: fastgcn.fit(t.graph, run_dir=t.folder / "run"),
     "holds a run already"),
    ("no labels to learn", lambda t: fastgcn.fit(fastgcn.Graph.from_pandas(
        t.nodes.drop(columns="label"), t.edges)), "has no labels"),
    ("a run that is none", lambda t: fastgcn.Run.load(t.folder / "bank"), "is not a run"),
    ("no such id", lambda t: fastgcn.predict(t.run, t.graph, ids=["n77"]), "n77"),
    ("no such number", lambda t: fastgcn.predict(t.run, t.graph, [N]), "nodes must"),
    ("no such part", lambda t: fastgcn.predict(t.run, t.graph, "tset"), "tset"),
    ("top without a frame", lambda t: untyped.predict(t.run, t.graph, top=1), "as_frame=True"),
    ("a frame of a network", lambda t: fastgcn.predict(t.run.model, t.graph, as_frame=True),
     "as_frame=True needs a run"),
    ("another table", lambda t: fastgcn.predict(t.run, fastgcn.Graph.from_pandas(
        t.nodes.assign(city="Bonn"), t.edges)), "otherwise"),
    ("scores of no part", lambda t: fastgcn.evaluate(t.run, t.graph, "tset"), "mean 'test'"),
    ("scores without labels", lambda t: fastgcn.evaluate(t.run, t.graph, [N - 1]),
     "there is no labelled node"),
    ("no such layer", lambda t: fastgcn.embed(t.run, t.graph, layer=9), "layer must lie in"),
    ("confusions of no part", lambda t: t.run.confusion(t.graph, "tset"), "did you mean 'test'"),
    ("a picture of another kind", lambda t: t.run.plot().save("out.jpg"), ".png or .svg"),
    ("new nodes without edges", lambda t: fastgcn.predict_new(t.run, t.graph, nodes=t.new),
     "go together"),
    ("nothing new", lambda t: fastgcn.predict_new(t.run, t.graph), "new nodes need features"),
    ("new nodes that are old", lambda t: fastgcn.predict_new(
        t.run, t.graph, nodes=t.nodes[:1], edges=t.new_edges), "which bank has already"),
    ("new edges without weights", lambda t: fastgcn.predict_new(
        t.run, t.graph, nodes=t.new, edges=t.new_edges.drop(columns="weight")), "default_weight=1"),
    ("a negative default", lambda t: fastgcn.predict_new(
        t.run, t.graph, nodes=t.new, edges=t.new_edges, default_weight=-1),
     "default_weight must be a number"),
    ("new edges to nobody", lambda t: fastgcn.predict_new(
        t.run, t.graph, nodes=t.new, edges=t.new_edges.replace("n1", "zz")), "name 'zz'"),
    ("a weight that is none", lambda t: fastgcn.predict_new(
        t.run, t.graph, nodes=t.new, edges=t.new_edges.assign(weight=-1.0)), "weight"),
    ("an infinite number", lambda t: fastgcn.predict_new(
        t.run, t.graph, nodes=t.new.assign(age=np.inf), edges=t.new_edges), "finite"),
    ("a split of everything", lambda t: fastgcn.random_split(t.graph, train=0.9, val=0.9),
     "must add up to"),
    ("no such width", lambda t: fastgcn.structural_features(t.graph, 0), "from 1 to 4096"),
]  # fmt: skip


def write_tables(folder: Path, edits: Mapping[str, Edit]) -> None:
    (folder / "folder").mkdir(exist_ok=True)
    (folder / "table.txt").write_text(NODES)
    (folder / "fake.parquet").write_text("PAR1 of another kind")
    for name, text in (("nodes", NODES), ("edges", EDGES)):
        changed = edits.get(name, put(text))(text)
        data = changed if isinstance(changed, bytes) else changed.encode()
        (folder / f"{name}.csv").write_bytes(data)


def columns(options: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """The two files, and the other options."""
    rest = {"nodes": "nodes.csv", "edges": "edges.csv", **options}
    return rest.pop("nodes"), rest.pop("edges"), rest


def flags(options: Mapping[str, Any]) -> list[str]:
    """The options of `import` that mean the same."""
    found = []
    for name, value in options.items():
        if value is False:
            found.append(f"--no-{name}")
            continue
        if name == "unknown":
            found.append(f"--{value}-unknown")
            continue
        if isinstance(value, list):
            value = ",".join(value)
        elif isinstance(value, Mapping):
            value = ",".join(f"{k}={v:g}" for k, v in value.items())
        flag = {"split": "split-column"}.get(name, name.replace("_", "-"))
        found += [f"--{flag}", str(value)]
    return found


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Things:
    """A folder of tables, stores and a run, and the same in Python."""
    folder = tmp_path_factory.mktemp("bank")
    write_tables(folder, {})
    nodes, edges = pandas.read_csv(folder / "nodes.csv"), pandas.read_csv(folder / "edges.csv")
    new = nodes[:2].assign(id=["new0", "new1"]).drop(columns="label")
    new_edges = pandas.DataFrame(
        {"source": ["new0", "new1"], "target": ["n1", "n2"], "weight": 1.0}
    )
    tables = {
        "new": new,
        "new_edges": new_edges,
        "old": nodes[:1].drop(columns="label"),
        "no_id": new.drop(columns="id"),
        "twice": pandas.concat([new, new]),
        "none": new[:0],
        "others": new[["id"]].assign(height=1),
        "nobody": new_edges.replace("n1", "zz"),
        "old_edges": new_edges.replace("new0", "n5"),
        "no_weight": new_edges.drop(columns="weight"),
    }
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    graphs = {
        "bank": nodes,
        "unlabelled": nodes.drop(columns="label"),
        "one-class": nodes.assign(label="a"),
        "other": nodes.replace("Rome", "Nice"),
    }
    for name, table in graphs.items():
        fastgcn.save(fastgcn.Graph.from_pandas(table, edges, name=name), folder / name)
    graph = fastgcn.load(folder / "bank")
    run = fastgcn.fit(graph, run_dir=folder / "run", preset="fast", epochs=2, hidden=8, seed=0)
    return Things(
        folder=folder, graph=graph, run=run, nodes=nodes, edges=edges, new=new, new_edges=new_edges
    )


def named(cases: list[Any]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[case[0] for case in cases])


def refused(capfd: pytest.CaptureFixture[str], sentence: str, *words: object) -> None:
    """The command ends with one sentence and leaves nothing behind."""
    before = sorted(Path().rglob("*"))
    outcome = run_cli(capfd, *words)
    assert outcome.code == 1, outcome.err
    *_, last = outcome.err.splitlines()
    assert last.startswith("Error: ")
    assert sentence in last
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
    assert sorted(Path().rglob("*")) == before


@named(TABLES)
def test_tables_are_refused(
    case: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _, edits, options, sentence = case
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path, edits)
    if options.get("like") == "bank":
        assert run_cli(capfd, "import", ".", "--out", "bank").code == 0
    nodes, edges, rest = columns(options)
    words = ["import", "--nodes", nodes, "--edges", edges, "--out", "out", *flags(rest)]
    refused(capfd, sentence, *words)
    with pytest.raises(FastGCNError, match=re.escape(sentence)):
        fastgcn.Graph.from_tables(nodes, edges, **rest)


@named(SAID)
def test_what_is_made_of_tables_is_said(
    case: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _, edits, options, sentence = case
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path, edits)
    nodes, edges, rest = columns(options)
    words = ["import", "--nodes", nodes, "--edges", edges, "--out", "out", *flags(rest)]
    outcome = run_cli(capfd, *words)
    assert outcome.code == 0, outcome.err
    assert any(line.startswith("Note: ") and sentence in line for line in outcome.err.splitlines())
    graph = fastgcn.Graph.from_tables(nodes, edges, **rest)
    assert graph.imported is not None
    assert any(sentence in each for each in graph.imported["notes"])


@named(COMMANDS)
def test_commands_refuse(
    case: tuple[str, str, str],
    things: Things,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    _, line, sentence = case
    monkeypatch.chdir(things.folder)
    refused(capfd, sentence, *shlex.split(line))


@named(PYTHON)
def test_python_refuses(
    case: tuple[str, Callable[[Things], Any], str], things: Things, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, do, sentence = case
    monkeypatch.chdir(things.folder)
    before = sorted(Path().rglob("*"))
    with pytest.raises(FastGCNError, match=re.escape(sentence)):
        do(things)
    assert sorted(Path().rglob("*")) == before


def test_every_verb_has_wrong_inputs() -> None:
    for cases in (TABLES, SAID, COMMANDS, PYTHON):
        names = [case[0] for case in cases]
        assert len(set(names)) == len(names), "each is listed once"
    typed = [line.split()[0] for _, line, _ in COMMANDS]
    assert set(typed) == {"import", "train", "evaluate", "predict", "embed"}
