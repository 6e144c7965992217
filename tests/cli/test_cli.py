"""The commands, end to end, on the embedded data set."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
import typer.main

import fastgcn
from fastgcn.cli import app
from fastgcn.config import SETTINGS
from fastgcn.errors import InputError
from fastgcn.train.automatic import candidates
from tests.cli_runner import run_cli

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
DOCS = Path(__file__).parents[2] / "docs"

Capture = pytest.CaptureFixture[str]

ODD_NAMES = ("[/red] x", ":smile: [bold]", "blå", "long " * 30 + "name")


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "digits"
    config = fastgcn.TrainConfig(hidden=16, samples=100, epochs=15)
    fastgcn.fit(fastgcn.load("digits"), config, run_dir=folder)
    return folder


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_and_is_documented(name: str, capfd: Capture) -> None:
    outcome = run_cli(capfd, name, "--help")
    assert outcome.code == 0
    assert COMMANDS[name].help, f"{name} has no help"
    for parameter in COMMANDS[name].params:
        assert getattr(parameter, "help", None), f"{name} {parameter.name} has no help"
    pages = (page.read_text("utf-8") for page in DOCS.glob("*.md") if page.name != "LOG.md")
    assert any(f"fastgcn {name}" in page for page in pages), f"no page mentions {name}"


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_every_setting_is_a_flag_of_train(name: str) -> None:
    (option,) = [each for each in COMMANDS["train"].params if each.name == name]
    setting = SETTINGS[name]
    first = setting.flag.partition("/")[0]
    assert first in option.opts
    assert option.help.startswith(setting.help)
    assert ("[default: " in option.help) == (not setting.automatic)


def test_the_help_of_train_has_a_heading_for_each_group(capfd: Capture) -> None:
    text = run_cli(capfd, "train", "--help").out
    groups = [f"{group} settings" for group in ("Network", "Sampling", "Training", "Machine")]
    headings = re.findall(r"^(\w[\w ]*):$", text, re.MULTILINE)
    assert headings == ["Arguments", "Options", *groups]
    usual = text.partition("Network settings:")[0]
    assert len(re.findall(r"^  --", usual, re.MULTILINE)) < 16, "the usual flags fit a screen"


def test_flags_of_every_kind_are_understood(tmp_path: Path, capfd: Capture) -> None:
    outcome = run_cli(
        capfd, "train", "digits", "--epochs", 1, "--hidden", "8,4", "--dropout", "0.1,0.2",
        "--norm", "batch", "--no-bias", "--transductive", "--fanouts", "3,4,5",
        "--validate-every", "auto", "--weight-decay", "1e-4", "--power", 0.5, "--samples", "40",
        "--run-dir", tmp_path / "r", "--json",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    graph, config = fastgcn.load("digits"), fastgcn.Run.load(tmp_path / "r").config
    assert config == candidates(graph, sampled=True)[0].config.replace(
        epochs=1, hidden=(8, 4), dropout=(0.1, 0.2), norm="batch", bias=False, inductive=False,
        fanouts=(3, 4, 5), weight_decay=1e-4, power=0.5, samples=40,
    )  # fmt: skip


def test_the_tables_at_the_end_name_their_columns(tmp_path: Path, capfd: Capture) -> None:
    outcome = run_cli(capfd, "train", "digits", "--epochs", 1, "--run-dir", tmp_path / "r")
    assert outcome.code == 0, outcome.err
    lines = [line.split() for line in outcome.out.splitlines()]
    assert ["micro-F1", "macro-F1", "loss"] in lines
    assert ["class", "precision", "recall", "F1", "nodes"] in lines
    assert ["seconds", "share"] in lines


def test_training_has_one_default(tmp_path: Path, capfd: Capture) -> None:
    """The command, `fit` and the classifier choose the same for the graph."""
    graph = fastgcn.load("digits")
    for number, preset in enumerate(([], ["--preset", "auto"], ["--preset", "best"])):
        run_dir = tmp_path / str(number)
        outcome = run_cli(capfd, "train", "digits", "--epochs", 1, *preset, "--run-dir", run_dir)
        assert outcome.code == 0, outcome.err
        by_command = fastgcn.Run.load(run_dir).config
        assert by_command == fastgcn.best_preset(graph).replace(epochs=1)
    assert by_command == fastgcn.fit(graph, epochs=1).config
    assert by_command == fastgcn.fit(graph, fastgcn.TrainConfig(epochs=1)).config
    assert by_command == fastgcn.FastGCNClassifier(epochs=1).fit(graph).run_.config


def test_help_does_not_load_heavy_libraries() -> None:
    code = (
        "import sys; from fastgcn.cli import app; import typer.main; typer.main.get_command(app);"
        "print([m for m in ('torch', 'numba', 'pyarrow', 'sklearn', 'scipy', 'numpy', 'matplotlib',"
        " 'rich')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_import_does_not_load_torch() -> None:
    code = "import sys, fastgcn; print(len(fastgcn.__all__), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(fastgcn.__all__)), "False"]


def test_public_names_exist_and_have_docs() -> None:
    for name in fastgcn.__all__:
        if name != "__version__":
            assert getattr(fastgcn, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = fastgcn.nonsense


def test_version(capfd: Capture) -> None:
    assert run_cli(capfd, "--version").out.strip() == f"fastgcn {fastgcn.__version__}"


def test_info_as_text_and_as_json(capfd: Capture) -> None:
    text = run_cli(capfd, "info", "digits")
    assert text.code == 0
    assert "1,797" in text.out
    facts = json.loads(run_cli(capfd, "info", "digits", "--json").out)
    assert facts["nodes"] == 1797
    assert facts["edges"] == fastgcn.load("digits").n_edges
    assert facts["split"] == {"train": 1078, "val": 362, "test": 357}
    assert sum(b["nodes"] for b in facts["degree_histogram"]) == 1797
    assert 0.9 < facts["homophily"] <= 1


def test_train_json_has_what_scripts_read(tmp_path: Path, capfd: Capture) -> None:
    outcome = run_cli(
        capfd, "train", "digits", "--epochs", 3, "--seed", 5, "--hidden", "8", "--samples", "50",
        "--run-dir", tmp_path / "r", "--json",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    result = json.loads(outcome.out)
    for key in (
        "dataset", "seed", "epochs", "best_epoch", "val_micro_f1", "test_micro_f1",
        "test_macro_f1", "train_seconds", "seconds_per_batch", "precompute_seconds", "run",
    ):  # fmt: skip
        assert key in result
    assert (result["dataset"], result["seed"], result["epochs"]) == ("digits", 5, 3)
    assert Path(result["run"]) == tmp_path / "r"
    assert {f.name for f in (tmp_path / "r").iterdir()} == {
        "config.json", "metrics.jsonl", "model.safetensors", "result.json", "state.safetensors"
    }  # fmt: skip


def test_train_says_what_happened(
    tmp_path: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run_cli(capfd, "train", "digits", "--epochs", 2, "--hidden", "8")
    assert outcome.code == 0, outcome.err
    assert "1,797 nodes" in outcome.err
    assert "full passes" in outcome.err
    assert "val F1" in outcome.err
    for word in ("micro-F1", "macro-F1", "precision", "precompute", "sampling", "evaluation"):
        assert word in outcome.out
    assert "Run: runs/digits-1" in outcome.err
    again = run_cli(capfd, "train", "digits", "--epochs", 1, "--hidden", "8")
    assert "Run: runs/digits-2" in again.err


def test_config_file_flags_and_set(tmp_path: Path, capfd: Capture) -> None:
    toml = tmp_path / "c.toml"
    toml.write_text("epochs = 4\nhidden = [8, 8]\nbatch_size = 512\nbias = true\n")
    outcome = run_cli(
        capfd, "train", "digits", "--config", toml, "--epochs", 1, "--set", "batch_size=300",
        "--set", "distribution=uniform", "--run-dir", tmp_path / "r", "--json",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    config = fastgcn.Run.load(tmp_path / "r").config
    assert (config.epochs, config.hidden, config.batch_size) == (1, (8, 8), 300)
    assert config.bias
    assert config.distribution == "uniform"


def test_evaluate_is_what_training_reported(digits_run: Path, capfd: Capture) -> None:
    run = fastgcn.Run.load(digits_run)
    scores = json.loads(run_cli(capfd, "evaluate", digits_run, "--json").out)
    assert scores["micro_f1"] == pytest.approx(run.metrics["test_micro_f1"])
    val = json.loads(
        run_cli(capfd, "evaluate", digits_run, "digits", "--part", "val", "--json").out
    )
    assert val["micro_f1"] == pytest.approx(run.metrics["val_micro_f1"])
    assert "precision" in run_cli(capfd, "evaluate", digits_run).out


def test_other_data_is_noted_and_other_classes_are_refused(
    digits_run: Path, tmp_path: Path, capfd: Capture
) -> None:
    outcome = run_cli(
        capfd, "evaluate", digits_run, "digits", "--split", "random", "--split-seed", 3
    )
    assert outcome.code == 0, outcome.err
    assert "is not the graph (or the split) that the run was trained on" in outcome.err
    assert "Note" not in run_cli(capfd, "evaluate", digits_run, "digits").err
    graph = fastgcn.load("digits")
    renamed = fastgcn.Graph(
        **{f: getattr(graph, f) for f in graph.__dataclass_fields__ if f != "class_names"},
        class_names=["zero", *"123456789"],
    )
    fastgcn.save(renamed, tmp_path / "renamed")
    outcome = run_cli(capfd, "evaluate", digits_run, tmp_path / "renamed")
    assert outcome.code == 1
    assert "class 0 is '0' in the run and 'zero' in the graph" in outcome.err


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predict_writes_ids_classes_and_probabilities(
    digits_run: Path, tmp_path: Path, capfd: Capture, ending: str
) -> None:
    out = tmp_path / f"p.{ending}"
    outcome = run_cli(capfd, "predict", digits_run, "--nodes", "test", "--out", out, "--json")
    assert outcome.code == 0, outcome.err
    read = pyarrow.csv.read_csv if ending == "csv" else pyarrow.parquet.read_table
    table = read(out)
    graph, run = fastgcn.load("digits"), fastgcn.Run.load(digits_run)
    expected = fastgcn.predict(run, graph, graph.split.test)
    assert table.column_names == ["id", "prediction", *(f"p_{c}" for c in range(10))]
    assert table["id"].to_pylist() == graph.split.test.tolist()
    assert [int(p) for p in table["prediction"].to_pylist()] == expected.argmax(axis=1).tolist()
    np.testing.assert_allclose(table["p_3"].to_numpy(), expected[:, 3], rtol=1e-5)
    assert [f.name for f in tmp_path.iterdir()] == [out.name], "nothing is left beside it"


def test_predict_takes_ids_files_and_samples(
    digits_run: Path, tmp_path: Path, capfd: Capture
) -> None:
    out = tmp_path / "p.csv"
    run_cli(capfd, "predict", digits_run, "--nodes", "5,3", "--out", out)
    assert pyarrow.csv.read_csv(out)["id"].to_pylist() == [5, 3]
    (tmp_path / "ids.txt").write_text("7\n9\n\n")
    run_cli(capfd, "predict", digits_run, "--nodes", f"@{tmp_path / 'ids.txt'}", "--out", out)
    assert pyarrow.csv.read_csv(out)["id"].to_pylist() == [7, 9]
    outcome = run_cli(capfd, "predict", digits_run, "--samples", "300", "--out", out)
    assert outcome.code == 0, outcome.err
    assert len(pyarrow.csv.read_csv(out)) == 1797


def test_embed_in_every_format(digits_run: Path, tmp_path: Path, capfd: Capture) -> None:
    run, graph = fastgcn.Run.load(digits_run), fastgcn.load("digits")
    expected = fastgcn.embed(run, graph, [1, 2])
    for ending in ("npy", "csv", "parquet"):
        out = tmp_path / f"e.{ending}"
        outcome = run_cli(capfd, "embed", digits_run, "--nodes", "1,2", "--out", out)
        assert outcome.code == 0, outcome.err
    np.testing.assert_array_equal(np.load(tmp_path / "e.npy"), expected)
    table = pyarrow.parquet.read_table(tmp_path / "e.parquet")
    assert table.column_names == ["id", *(f"h_{k}" for k in range(16))]
    np.testing.assert_allclose(table["h_7"].to_numpy(), expected[:, 7])
    run_cli(capfd, "embed", digits_run, "--layer", 2, "--out", tmp_path / "l.npy")
    assert np.load(tmp_path / "l.npy").shape == (1797, 10)


def _friends(folder: Path) -> None:
    """Tables of 40 people in two camps, who know people of their own camp."""
    rng = np.random.default_rng(0)
    camps = np.arange(40) % 2
    lines = [
        f"p{i},{'ab'[camp]},{'train' if i < 24 else 'val' if i < 32 else 'test'},"
        f"{camp + rng.normal(scale=0.3):.4f},{rng.normal():.4f}"
        for i, camp in enumerate(camps)
    ]
    (folder / "people.csv").write_text("\n".join(["who,camp,split,height,mood", *lines]) + "\n")
    pairs = [(i, j) for i in range(40) for j in rng.choice(np.flatnonzero(camps == i % 2), 3)]
    (folder / "knows.csv").write_text("a,b\n" + "".join(f"p{i},p{j}\n" for i, j in pairs))


def test_new_nodes_from_tables(tmp_path: Path, capfd: Capture) -> None:
    _friends(tmp_path)
    store, run = tmp_path / "store", tmp_path / "run"
    columns = ["--id", "who", "--label", "camp", "--source", "a", "--target", "b"]
    outcome = run_cli(
        capfd, "import", "--nodes", tmp_path / "people.csv", "--edges", tmp_path / "knows.csv",
        "--out", store, *columns,
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    outcome = run_cli(
        capfd, "train", store, "--samples", 20, "--hidden", 8, "--epochs", 60,
        "--learning-rate", 0.05, "--run-dir", run,
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    # Columns are found by their names, in any order.
    (tmp_path / "new.csv").write_text("mood,who,height\n0.1,q1,1.1\n-0.2,q2,-0.1\n")
    (tmp_path / "links.csv").write_text("a,b\nq1,p1\nq1,p3\nq2,p0\nq2,q1\n")
    out = tmp_path / "p.csv"
    new = ["--new-nodes", tmp_path / "new.csv", "--new-edges", tmp_path / "links.csv"]
    outcome = run_cli(capfd, "predict", run, *new, "--out", out)
    assert outcome.code == 0, outcome.err
    table = pyarrow.csv.read_csv(out)
    assert table["id"].to_pylist() == ["q1", "q2"]
    graph = fastgcn.open_store(store)
    expected = fastgcn.predict_new(
        fastgcn.Run.load(run), graph, features=[[1.1, 0.1], [-0.1, -0.2]], node_ids=["q1", "q2"],
        source=["q1", "q1", "q2", "q2"], target=["p1", "p3", "p0", "q1"],
    )  # fmt: skip
    np.testing.assert_allclose(table["p_a"].to_numpy(), expected[:, 0], rtol=1e-5)
    assert table["prediction"].to_pylist()[0] == "b"

    outcome = run_cli(capfd, "embed", run, *new, "--layer", 1, "--out", tmp_path / "h.csv")
    assert outcome.code == 0, outcome.err
    rows = pyarrow.csv.read_csv(tmp_path / "h.csv")
    assert rows["id"].to_pylist() == ["q1", "q2"]
    hidden = fastgcn.embed_new(
        fastgcn.Run.load(run), graph, layer=1, nodes=tmp_path / "new.csv",
        edges=tmp_path / "links.csv",
    )  # fmt: skip
    np.testing.assert_allclose(rows["h_3"].to_numpy(), hidden[:, 3], rtol=1e-5, atol=1e-7)
    run_cli(capfd, "embed", run, *new, "--layer", 1, "--out", tmp_path / "h.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "h.npy"), hidden)
    outcome = run_cli(capfd, "embed", run, *new, "--nodes", "test", "--out", tmp_path / "n.csv")
    assert (outcome.code, (tmp_path / "n.csv").exists()) == (1, False)
    assert "leave --nodes out" in outcome.err

    known = (tmp_path / "new.csv").read_text().replace("q2", "p2")
    (tmp_path / "new.csv").write_text(known)
    outcome = run_cli(capfd, "predict", run, *new, "--out", tmp_path / "again.csv")
    assert outcome.code == 1
    assert "names 'p2', which store has already" in outcome.err
    assert not (tmp_path / "again.csv").exists()


def test_tensorboard_events_on_request(tmp_path: Path, capfd: Capture) -> None:
    outcome = run_cli(
        capfd, "train", "digits", "--epochs", 2, "--hidden", 8, "--run-dir", tmp_path / "r",
        "--tensorboard", tmp_path / "events",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert [f.name for f in (tmp_path / "events").iterdir() if "tfevents" in f.name]


def test_resume_of_a_finished_run_reports_it(digits_run: Path, capfd: Capture) -> None:
    outcome = run_cli(capfd, "train", "--resume", digits_run, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["epochs"] == 15


@pytest.fixture(scope="module")
def odd_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose classes have names that a terminal or a markup language may take amiss."""
    folder = tmp_path_factory.mktemp("odd")
    rows = [f"{i},{i % 4},{i % 3},{ODD_NAMES[i % 4]}" for i in range(60)]
    (folder / "nodes.csv").write_text("\n".join(["id,a,b,label", *rows]), encoding="utf-8")
    edges = [f"{i},{(i + 4) % 60}" for i in range(60)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]))
    graph = fastgcn.load(str(folder), split="random", seed=0)
    fastgcn.save(graph, folder / "store")
    config = fastgcn.TrainConfig(hidden=4, samples=10, epochs=2)
    fastgcn.fit(graph, config, run_dir=folder / "run")
    return folder


def test_own_names_are_shown_as_they_are(odd_names: Path, capfd: Capture) -> None:
    for command in (
        ["info", odd_names / "store"],
        ["evaluate", odd_names / "run", odd_names / "store"],
        ["train", "--resume", odd_names / "run"],
    ):
        outcome = run_cli(capfd, *command)
        assert outcome.code == 0, outcome.err
        for name in ODD_NAMES[:3]:
            assert name in outcome.out, command
        assert max(map(len, outcome.out.splitlines())) <= 100, "a line is too long for its console"


def test_output_that_is_not_unicode(odd_names: Path) -> None:
    def printed(*args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "fastgcn", "info", str(odd_names / "store"), *args],
            env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=True,
        )  # fmt: skip
        return done.stdout.decode("ascii")

    assert r"bl\xe5" in printed()
    assert list(json.loads(printed("--json"))["class_counts"]) == sorted(ODD_NAMES)


@pytest.mark.parametrize("closed", ["1", "2"])
def test_closed_streams(closed: str) -> None:
    command = f'exec "$0" -m fastgcn info digits {"--json" if closed == "2" else ""} {closed}>&-'
    done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    if closed == "2":
        assert json.loads(done.stdout)["nodes"] == 1797


def test_evaluate_names_the_part(digits_run: Path, capfd: Capture) -> None:
    outcome = run_cli(capfd, "evaluate", digits_run, "--part", "val")
    assert "Val nodes by class" in outcome.out
    assert "Test nodes" not in outcome.out


@pytest.mark.parametrize(
    ("name", "module", "work"),
    [
        ("evaluate", "fastgcn.infer.predict", "evaluate"),
        ("predict", "fastgcn.infer.predict", "predict_parts"),
        ("embed", "fastgcn.infer.predict", "embed_parts"),
        ("report", "fastgcn.report", "run_report"),
        ("diagnose", "fastgcn.diagnose.diagnosis", "Session"),
    ],
)
def test_commands_work_on_the_threads_asked_for(
    name: str, module: str, work: str, digits_run: Path, tmp_path: Path, capfd: Capture
) -> None:
    seen = []

    def at_once(*_: object, **__: object) -> None:
        seen.append(torch.get_num_threads())
        raise InputError("seen")

    def in_parts(*_: object, **__: object) -> Iterator[None]:
        at_once()
        yield

    before = torch.get_num_threads()
    wanted = before + 1  # which no default is
    out = ["--out", tmp_path / "o.csv"] if name in ("predict", "embed") else []
    subject = "digits" if name == "diagnose" else digits_run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{module}.{work}", in_parts if work.endswith("_parts") else at_once)
        assert "seen" in run_cli(capfd, name, subject, *out, "--threads", wanted).err
    assert seen == [wanted]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("name", ["predict", "embed", "import"])
def test_help_claims_no_default_where_there_is_none(name: str, capfd: Capture) -> None:
    assert "[default: .]" not in run_cli(capfd, name, "--help").out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train"], "give either DATA to train on or --resume RUN"),
        (["train", "digits", "--resume", "x"], "give either DATA"),
        (["train", "--resume", "nowhere"], "nowhere is not a run"),
        (
            ["train", "--resume", "RUN", "--epochs", "500", "--set", "bias=true"],
            "a run continues with its own settings; leave out --set",
        ),
        (["train", "digits", "--hidden", "x"], "--hidden must be a whole number"),
        (
            ["train", "digits", "--samples", "many"],
            "--samples must be a whole number, several with commas or 'auto', got 'many'",
        ),
        (["train", "digits", "--norm", "lyer"], "did you mean 'layer'?"),
        (["train", "digits", "--dropout", "0.5,x"], "--dropout must be a finite number or several"),
        (
            ["train", "digits", "--set", "epoch=3"],
            "unknown setting 'epoch'; did you mean 'epochs'?",
        ),
        (["train", "digits", "--set", "epochs"], "--set takes KEY=VALUE"),
        (["train", "digits", "--method", "fastgnc"], "did you mean 'fastgcn'?"),
        (["train", "digits", "--preset", "papre"], "did you mean 'paper'?"),
        (["train", "digits", "--config", "no.toml"], "there is no config file no.toml"),
        (["train", "digits", "--samples", "5000"], "at most the 1,797 nodes of the training graph"),
        (["train", "digits", "--distribution", "importanc"], "did you mean 'importance'?"),
        (["train", "digits", "--epochs", "0"], "epochs must be at least 1, got 0"),
        (["train", "digits", "--device", "tpu"], "device must be auto, cpu or cuda"),
        (["train", "digitz"], "did you mean 'digits'?"),
        (["evaluate", "nowhere"], "nowhere is not a run"),
        (["evaluate", "RUN", "--part", "testing"], "--part must be train, val or test"),
        (["predict", "RUN"], "--out FILE is needed"),
        (["predict", "RUN", "--out", "p.xlsx"], "must end in .parquet or .csv"),
        (["predict", "RUN", "--out", "no/such/p.csv"], "there is no folder"),
        (["predict", "RUN", "--nodes", "99999", "--out", "p.csv"], "has no node '99999'"),
        (["predict", "RUN", "--nodes", "@no.txt", "--out", "p.csv"], "there is no file no.txt"),
        (["predict", "RUN", "--new-nodes", "n.csv", "--out", "p.csv"], "go together"),
        (["embed", "RUN", "--layer", "7", "--out", "e.npy"], "layer must lie in -2..2"),
        (["info", "digits", "--verify"], "and digits is none of them"),
    ],
)
def test_mistakes_get_one_sentence(
    args: list[str],
    message: str,
    digits_run: Path,
    tmp_path: Path,
    capfd: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run_cli(capfd, *(digits_run if arg == "RUN" else arg for arg in args))
    assert outcome.code == 1
    assert message in outcome.err
    last = outcome.err.strip().splitlines()[-1]
    assert re.match(r"Error: \S", last)
    assert outcome.out == ""
    assert list(tmp_path.iterdir()) == [], "nothing half-written is left behind"
