"""Columns of a node table as features; only training nodes count for what is fitted."""

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from fastgcn.arrays import AnyArray
from fastgcn.data.store import open_store
from fastgcn.data.tables import fitting, import_tables
from fastgcn.data.tables.encoders import (
    Encoders,
    bucket,
    places_of_words,
    shown_value,
    word_counts,
)
from fastgcn.data.tables.fitting import HASHED_WORDS, MOST_CATEGORIES, WORDS
from fastgcn.errors import FormatError, InputError
from fastgcn.graph.graph import Graph
from tests.tables import read, read_csv, write

N = 200
IDS = {"id": [f"n{i}" for i in range(N)]}
NO_EDGES: dict[str, Any] = {"source": ["n0"], "target": ["n1"]}
SPLIT = ["train"] * 100 + ["val"] * 50 + ["test"] * 50
KNOWN = {**IDS, "label": ["a", "b"] * (N // 2), "split": SPLIT}


def features(folder: Path, columns: dict[str, Any], **options: Any) -> tuple[Graph, AnyArray]:
    options = {"degree": False, **options}
    graph = read(folder, {**KNOWN, **columns}, NO_EDGES, **options)
    assert isinstance(graph.features, np.ndarray)
    return graph, graph.features


def notes(graph: Graph) -> str:
    assert graph.imported is not None
    return "\n".join(graph.imported["notes"])


def column(graph: Graph, name: str) -> AnyArray:
    assert graph.feature_names is not None
    assert isinstance(graph.features, np.ndarray)
    return graph.features[:, list(graph.feature_names).index(name)]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_numbers_are_scaled_by_the_training_nodes(tmp_path: Path, kind: str) -> None:
    values = np.random.default_rng(0).normal(5, 3, N)
    values[100:] += 100  # nodes that are not trained on must not matter
    graph, _ = features(tmp_path, {"x": values, "c": ["p", "q"] * 100}, kind=kind)
    expected = StandardScaler().fit(values[:100, None]).transform(values[:, None])[:, 0]
    np.testing.assert_allclose(column(graph, "x"), expected, rtol=1e-4, atol=1e-5)
    assert "scaled to mean 0 and deviation 1: 'x'" in notes(graph)
    assert "those of the training nodes" in notes(graph)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_missing_numbers_are_the_mean_and_have_an_indicator(tmp_path: Path, kind: str) -> None:
    values: list[float | None] = [float(i % 7) for i in range(N)]
    values[3] = values[150] = None
    graph, _ = features(tmp_path, {"x": values}, kind=kind)
    assert graph.feature_names == ("x", "x:missing")
    assert np.flatnonzero(column(graph, "x:missing")).tolist() == [3, 150]
    assert column(graph, "x")[[3, 150]].tolist() == [0, 0]


def test_only_later_nodes_lack_a_number(tmp_path: Path) -> None:
    values: list[float | None] = [float(i % 7) for i in range(N)]
    values[150] = None
    graph, _ = features(tmp_path, {"x": values})
    assert graph.feature_names == ("x",)  # a network cannot learn what an indicator means
    assert column(graph, "x")[150] == pytest.approx(np.mean(values[:100]))  # type: ignore[arg-type]
    assert "'x' has no value for 1 nodes" in notes(graph)


def test_numbers_alone_stay_as_they_are(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(5, 3, N).astype(np.float32)
    for options in ({}, {"scale": "none"}):
        graph, found = features(tmp_path, {"x": values, "y": np.arange(N) % 2}, **options)
        np.testing.assert_array_equal(found[:, 0], values)
    assert "taken as they are" not in notes(graph)
    _, scaled = features(tmp_path, {"x": values, "y": np.arange(N) % 2}, scale="standard")
    assert abs(scaled[:100, 0].mean()) < 1e-5
    np.testing.assert_array_equal(scaled[:, 1], np.arange(N) % 2)  # 0 and 1 stay


def test_long_tails_are_quantiles(tmp_path: Path) -> None:
    values = np.random.default_rng(0).pareto(1, N) * 1000
    values[0] = 1e9
    graph, _ = features(tmp_path, {"x": values, "split": ["train"] * 150 + ["val"] * 50})
    assert graph.imported is not None
    assert graph.imported["encoders"][0]["scale"] == "quantile"
    sklearns = QuantileTransformer(n_quantiles=101, output_distribution="normal")
    expected = sklearns.fit(values[:150, None]).transform(values[:, None])[:, 0]
    np.testing.assert_allclose(column(graph, "x"), np.clip(expected, -3.1, 3.1), atol=0.02)
    assert "long tails" in notes(graph)


def test_equal_values_have_one_quantile_in_the_middle(tmp_path: Path) -> None:
    values = np.where(np.arange(N) % 2, 0.0, np.arange(N))
    graph, _ = features(tmp_path, {"x": values}, scale="quantile")
    zeros = column(graph, "x")[values == 0]
    assert len(set(zeros.tolist())) == 1
    assert -1 < zeros[0] < -0.4  # the middle of the lower half of a normal distribution


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_categories(tmp_path: Path, kind: str) -> None:
    cities: list[str | None] = [["Rome", "Oslo", "Bonn"][i % 3] for i in range(N)]
    cities[5], cities[120] = None, "Paris"
    graph, found = features(tmp_path, {"city": cities}, kind=kind)
    assert graph.feature_names == ("city=Bonn", "city=Oslo", "city=Rome", "city:missing")
    assert found[[0, 1, 5, 120]].tolist() == [[0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0] * 4]
    assert "'city' has values that no training node has, on 1 nodes" in notes(graph)


def test_categories_of_pandas_and_bools(tmp_path: Path) -> None:
    nodes = {
        "size": pa.array(["s", "m"] * 100).dictionary_encode(),
        "flag": [True, None, False, True] * 50,
    }
    graph, found = features(tmp_path, nodes)
    assert graph.feature_names == ("size=m", "size=s", "flag", "flag:missing")
    assert found[:2].tolist() == [[0, 1, 1, 0], [1, 0, pytest.approx(2 / 3), 1]]


def test_many_categories_are_hashed(tmp_path: Path) -> None:
    shops = [f"shop {i % (MOST_CATEGORIES + 2)}" for i in range(N)]
    split = {"split": ["train"] * 150 + ["val"] * 50}
    graph, found = features(tmp_path, {"shop": shops, **split})
    assert found.sum(axis=1).tolist() == [1] * N
    np.testing.assert_array_equal(found[0], found[MOST_CATEGORIES + 2])
    assert "with many values, hashed" in notes(graph)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_dates(tmp_path: Path, kind: str) -> None:
    start = datetime.date(2024, 1, 1)  # a Monday
    days: list[datetime.date | None] = [start + datetime.timedelta(i) for i in range(N)]
    days[7] = None
    graph, found = features(tmp_path, {"day": pa.array(days)}, kind=kind)
    parts = ["time", "month_sin", "month_cos", "weekday_sin", "weekday_cos", "missing"]
    assert graph.feature_names == tuple(f"day:{part}" for part in parts)
    np.testing.assert_allclose(found[0, 1:], [0, 1, 0, 1, 0], atol=1e-6)
    assert found[7].tolist() == [0, 0, 0, 0, 0, 1]
    assert abs(found[:100, 0].mean()) < 1e-5
    assert np.all(np.diff(found[8:, 0]) > 0)


def test_times_have_hours_and_text_can_be_a_date(tmp_path: Path) -> None:
    times = pa.array([datetime.datetime(2024, 1, 1, 6) + datetime.timedelta(i) for i in range(N)])
    graph, found = features(tmp_path, {"at": times})
    np.testing.assert_allclose(found[0, 5:], [1, 0], atol=1e-6)  # six hours are a quarter
    iso = times.cast(pa.date32()).cast(pa.string())
    assert "dates" in notes(features(tmp_path, {"at": iso})[0])
    german = pa.array([f"{i % 28 + 1:02d}.03.2024" for i in range(N)])
    graph, _ = features(tmp_path, {"at": german}, date=["at"])
    assert graph.imported is not None
    assert graph.imported["encoders"][0]["format"] == "%d.%m.%Y"
    with pytest.raises(InputError, match="can be read in two ways"):
        features(tmp_path, {"at": ["01/02/2024", "02/03/2024"] * 100}, date=["at"])
    with pytest.raises(InputError, match="must hold dates such as 2024-12-31"):
        features(tmp_path, {"at": ["soon", "late"] * 100}, date=["at"])


def test_text_is_tf_idf(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    words = np.array(["the", "cat", "sat", "on", "a", "mat", "with", "Émile"])
    texts = [" ".join(rng.choice(words, 5)) + f" {i} {N + i}" for i in range(N)]
    graph, found = features(tmp_path, {"note": texts})
    assert "text, as tf-idf" in notes(graph)
    assert graph.imported is not None
    (spec,) = graph.imported["encoders"]
    own = sorted(word.lower() for word in words)
    assert sorted(spec["words"][: len(own)]) == own  # the commonest; numbers occur once
    assert len(spec["words"]) == WORDS - HASHED_WORDS
    assert graph.feature_names is not None
    assert graph.feature_names[0] == f"note:{spec['words'][0]}"
    assert graph.feature_names[-1] == f"note#{HASHED_WORDS - 1}"
    text, place, count = word_counts(pa.array(texts), places_of_words(spec["words"], WORDS))
    counts = np.zeros((N, WORDS))
    counts[text, place] = count
    expected = TfidfTransformer().fit(counts[:100]).transform(counts).toarray()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_text_of_few_words_has_a_feature_for_each(tmp_path: Path) -> None:
    texts = [f"pays the {'rent' if i % 2 else 'food'} {'late' * (i % 3 == 0)}" for i in range(N)]
    new = ["pays games", "", "the late late food"]
    graph, _ = features(tmp_path, {"note": texts}, text=["note"])
    assert graph.feature_names == ("note:pays", "note:the", "note:food", "note:rent", "note:late")
    assert graph.imported is not None
    encoders = Encoders(graph.imported["encoders"])
    rows = encoders.encode({"note": pa.array(new)}, len(new))
    np.testing.assert_array_equal(rows[0], [1, 0, 0, 0, 0])  # "games" is no word of training
    np.testing.assert_array_equal(rows[1], 0)
    idf = np.array(graph.imported["encoders"][0]["idf"])
    expected = np.array([0, 1, 1, 0, 2]) * idf
    np.testing.assert_allclose(rows[2], expected / np.linalg.norm(expected), rtol=1e-6)


def test_rare_words_are_forgotten_and_long_ones_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_REMEMBERED_WORDS", 20)
    words = fitting.Words("note", "text")
    for start in range(0, 300, 10):
        words.add(pa.array([f"common often {'x' * 100} rare{start + i}" for i in range(10)]))
    spec, _ = words.spec()
    assert spec is not None
    assert spec["words"][:2] == ["common", "often"]
    assert all(len(word) <= 64 for word in spec["words"])
    assert len(spec["idf"]) == len(spec["words"]) + HASHED_WORDS
    assert min(spec["idf"]) >= 1


def test_words_of_a_node_are_shown() -> None:
    spec = {"kind": "vocabulary", "missing": True, "words": ["rent", "late"], "idf": [1, 1, 1]}
    shown = [([0.1, 0.9, 0, 0], "late, rent"), ([0.5, 0, 0.5, 0], "rent and others"),
             ([0, 0, 1, 0], "others"), ([0, 0, 0, 1], "missing"), ([0, 0, 0, 0], "")]  # fmt: skip
    for values, text in shown:
        assert shown_value(spec, np.array(values)) == text


def test_text_of_earlier_stores_is_hashed() -> None:
    spec = {"column": "note", "kind": "text", "missing": True, "idf": [1.0] * 8}
    found = Encoders([spec]).encode({"note": pa.array(["one two two", None])}, 2)
    expected = np.zeros(9)
    expected[bucket("one", 8)], expected[bucket("two", 8)] = 1, 2
    np.testing.assert_allclose(found[0], expected / np.sqrt(5), rtol=1e-6)
    np.testing.assert_array_equal(found[1], [0] * 8 + [1])


def test_columns_that_say_nothing(tmp_path: Path) -> None:
    columns = {
        "x": np.arange(N),
        "mail": [f"u{i}@example.org" for i in range(N)],
        "unit": ["EUR"] * N,
        "empty": pa.array([None] * N, pa.float64()),
        "same": [3] * N,
        "Unnamed: 0": np.arange(N),
    }
    graph, _ = features(tmp_path, columns)
    assert graph.feature_names == ("x",)
    said = notes(graph)
    for sentence in (
        "'mail' has another value for nearly every node",
        "'unit' has the one value 'EUR'",
        "'empty' is empty",
        "'same' has one value",
        "'Unnamed: 0' of .* numbers its rows",
    ):
        assert sentence.split(" of ")[0] in said
    graph, _ = features(tmp_path, columns, categorical=["mail"])
    assert "hashed" in notes(graph)


def test_control_by_column(tmp_path: Path) -> None:
    columns = {
        "a_1": np.arange(N),
        "a_2": np.arange(N),
        "zip": np.arange(N) % 5,
        "age": ["30", "unknown"] * 100,
    }
    graph, _ = features(tmp_path, columns, drop=["a_*"], categorical=["zi*"], numeric=["age"])
    assert graph.feature_names == (*(f"zip={i}" for i in range(5)), "age:missing")
    with pytest.raises(InputError, match="drop names 'zap', but .* did you mean 'zip'"):
        features(tmp_path, columns, drop=["zap"])
    with pytest.raises(InputError, match="'zip' is asked to be both"):
        features(tmp_path, columns, categorical=["zip"], numeric=["zip"])
    with pytest.raises(InputError, match="'zip' of .* cannot be read as text: it holds int64"):
        features(tmp_path, columns, text=["zip"])
    with pytest.raises(InputError, match="scale must be one of auto, none, standard, quantile"):
        features(tmp_path, columns, scale="log")
    graph, _ = features(tmp_path, columns, features=["a_*"])
    assert graph.feature_names == ("a_1", "a_2")


def test_lists_beside_other_columns(tmp_path: Path) -> None:
    lists = np.arange(2 * N, dtype=np.float32).reshape(N, 2)
    columns = {"v": pa.array(lists.tolist()), "c": ["p", "q"] * 100}
    graph, found = features(tmp_path, columns)
    assert graph.feature_names == ("v#0", "v#1", "c=p", "c=q")
    np.testing.assert_array_equal(found[:, :2], lists)


def test_a_column_that_cannot_be_a_feature(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'raw' of .* cannot be a feature: it holds bin.*drop"):
        features(tmp_path, {"x": np.arange(N), "raw": [b"x"] * N})
    graph, _ = features(tmp_path, {"x": np.arange(N), "raw": [b"x"] * N}, drop=["raw"])
    assert graph.feature_names == ("x",)


def test_gaps_in_a_csv_file_are_written_in_many_ways(tmp_path: Path) -> None:
    gaps = ["NA", "", "null", "NaN", "n/a", "#N/A"]
    rows = [f"{i},{value},a\n" for i, value in enumerate([*gaps, *range(30)])]
    graph = read_csv(tmp_path, "id,x,label\n" + "".join(rows))
    assert np.flatnonzero(column(graph, "x:missing")).tolist() == [0, 1, 2, 3, 4, 5]
    rows = [*(f"{i},{i}\n" for i in range(300_000)), "9999999,many\n"]
    with pytest.raises(InputError, match="has 'many' in column 'x', where a number must be"):
        read_csv(tmp_path, "id,x\n" + "".join(rows))


def test_encoders_are_kept_in_the_store(tmp_path: Path) -> None:
    nodes = write(tmp_path / "nodes.csv", {**KNOWN, "city": ["Rome", "Oslo"] * 100})
    edges = write(tmp_path / "edges.csv", NO_EDGES)
    import_tables(nodes, edges, tmp_path / "store")
    stored = open_store(tmp_path / "store")
    assert stored.imported is not None
    encoders = Encoders(stored.imported["encoders"])
    assert [*encoders.names, "degree"] == list(stored.feature_names or ())
    row = encoders.encode({"city": pa.array(["Oslo", "Rome", None])}, 3)
    assert row.tolist() == [[1, 0], [0, 1], [0, 0]]
    # A table that is imported like it is encoded by the same values, not by its own.
    other = write(
        tmp_path / "other.csv", {**KNOWN, "city": ["Rome", "Bonn"] * 100, "more": [1] * N}
    )
    import_tables(other, edges, tmp_path / "like", like=tmp_path / "store")
    like = open_store(tmp_path / "like")
    assert isinstance(like.features, np.ndarray)
    assert like.features[:2, :2].tolist() == [[0, 1], [0, 0]]
    assert "'more' of" in notes(like)
    assert "no training node has, in 100 of 200 rows" in notes(like)
    with pytest.raises(InputError, match="like has all encoders; leave drop out"):
        import_tables(other, edges, tmp_path / "x", like=tmp_path / "store", drop=["more"])


@pytest.mark.parametrize(
    "damage",
    [
        {"kind": "magic"},
        {"values": [1]},
        {"missing": "no"},
        {"column": None},
        {"kind": "number"},
        {"kind": "vocabulary", "idf": [1.0], "words": ["a", "b"]},
        {"kind": "vocabulary", "idf": [1.0, 1.0], "words": ["a", "a"]},
        {"kind": "vocabulary", "idf": [], "words": []},
    ],
)
def test_damaged_encoders_are_refused(tmp_path: Path, damage: dict[str, Any]) -> None:
    nodes = write(tmp_path / "nodes.csv", {**KNOWN, "city": ["Rome", "Oslo"] * 100})
    import_tables(nodes, write(tmp_path / "edges.csv", NO_EDGES), tmp_path / "store")
    manifest = tmp_path / "store" / "graph.json"
    said = json.loads(manifest.read_text())
    said["imported"]["encoders"][0] |= damage
    manifest.write_text(json.dumps(said))
    with pytest.raises(FormatError, match="graph.json is damaged|graph.json lacks"):
        open_store(tmp_path / "store")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_words_of_ascii_are_those_of_any_text(kind: pa.DataType) -> None:
    texts = ["Pay, PAY and_pay!", "  ", "", "a1 b2\t\nC-3", "x" * 50, "'quoted' \x7f 12.5"]
    places = places_of_words([], 64)
    plain = word_counts(pa.array(texts, kind).slice(1), places)
    # One more text that is not ASCII: all go the other way.
    mixed = word_counts(pa.array([*texts[1:], "é"], kind), places)
    for one, other in zip(plain, mixed, strict=True):
        assert one.tolist() == other.tolist()[: len(one)]
