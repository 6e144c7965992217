"""Every answer of the service equals that of the library; reload, Arrow, CSV, metrics."""

import gc
import io
import json
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

import fastgcn
from fastgcn.serve.answers import Served
from fastgcn.serve.app import ARROW
from fastgcn.serve.releases import Releases
from tests.communities import communities, quick
from tests.serve.conftest import FAST, Bank
from tests.serve.server import Client, serving

IDS = ["C0000003", "C0000100", "C0000003"]
EDGES = [{"payer": "X0", "payee": "C0000003", "times": 2}]


def probabilities(rows: list[dict[str, Any]]) -> Any:
    return np.array([[row["p_fraud"], row["p_honest"]] for row in rows])


@pytest.mark.parametrize("on_demand", [False, True])
def test_predictions_and_embeddings(bank: Bank, on_demand: bool) -> None:
    run = bank.run()
    with serving(bank.runs / "one", on_demand=on_demand) as client:
        found = client.post("/predict", {"ids": IDS}).json()
        embedded = client.post("/embed", {"ids": IDS, "layer": -1}).json()
        scores = client.post("/embed", {"ids": IDS[:1], "layer": 2}).json()
    assert found["run"] == "one"
    assert [row["id"] for row in found["rows"]] == IDS
    expected = fastgcn.predict(run, bank.graph, ids=IDS)
    np.testing.assert_allclose(probabilities(found["rows"]), expected, atol=1e-6)
    nodes = [3, 100, 3]
    rows = [[row[f"h_{i}"] for i in range(8)] for row in embedded["rows"]]
    np.testing.assert_allclose(rows, fastgcn.embed(run, bank.graph, nodes), atol=1e-5)
    logits = fastgcn.embed(run, bank.graph, [3], layer=2)[0]
    np.testing.assert_allclose([scores["rows"][0][f"h_{i}"] for i in (0, 1)], logits, atol=1e-5)


def test_new_nodes_by_the_users_own_columns(bank: Bank, service: Client) -> None:
    body: dict[str, Any] = {"nodes": [bank.new_row()], "edges": EDGES}
    found = service.post("/predict-new", body).json()
    new = bank.tables.nodes.slice(0, 1).drop_columns(["status"])
    new = new.set_column(new.column_names.index("customer"), "customer", pa.array(["X0"]))
    expected = fastgcn.predict_new(bank.run(), bank.graph, nodes=new, edges=pa.table(
        {"payer": ["X0"], "payee": ["C0000003"], "times": [2]}))  # fmt: skip
    np.testing.assert_allclose(probabilities(found["rows"]), expected, atol=1e-6)
    # What is missing or guessed is said in the answer.
    assert found["notes"] == ["Note: column 'last_seen' has no value in 1 of 1 rows."]
    said = service.post("/predict-new", {"nodes": [bank.new_row(segment="royal")], "edges": EDGES})
    assert any("segment" in each for each in said.json()["notes"])
    alone = service.post("/predict-new", {"nodes": [{"customer": "X0", "age": 30}], "edges": []})
    assert alone.status_code == 200
    assert alone.json()["notes"]


def test_new_nodes_as_csv_files(bank: Bank, service: Client) -> None:
    rows = bank.new_row()
    sink = io.BytesIO()
    pa.csv.write_csv(pa.Table.from_pylist([rows]), sink)
    edges = "payer,payee,times\nX0,C0000003,2\n"
    body = {"nodes_csv": sink.getvalue().decode(), "edges_csv": edges}
    as_json = service.post("/predict-new", body).json()
    same = service.post("/predict-new", {"nodes": [rows], "edges": EDGES}).json()
    np.testing.assert_allclose(
        probabilities(as_json["rows"]), probabilities(same["rows"]), atol=1e-6
    )
    as_csv = service.post("/predict-new", body, headers={"Accept": "text/csv"})
    assert as_csv.headers["content-type"].startswith("text/csv")
    head, row = as_csv.text.splitlines()
    assert head == '"id","prediction","p_fraud","p_honest"'
    assert row.startswith('"X0"')
    bad = service.post("/predict-new", {"nodes_csv": "customer\nX0\n", "edges_csv": "a;b\n1;2\n"})
    assert bad.status_code == 422
    assert "/tmp" not in bad.text


def test_arrow_has_the_same_rows(service: Client) -> None:
    found = service.post("/predict", {"ids": IDS}, headers={"Accept": ARROW})
    assert found.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(found.content).read_all()
    rows = service.post("/predict", {"ids": IDS}).json()["rows"]
    assert table.to_pylist() == rows
    assert (
        service.post("/predict", {"ids": IDS}, headers={"Accept": "image/png"}).status_code == 406
    )


def test_a_node_with_its_features_neighbours_and_reasons(bank: Bank, service: Client) -> None:
    found = service.get("/nodes/C0000003").json()
    expected = fastgcn.explain(bank.run(), bank.graph, "C0000003")
    assert found["explanation"]["prediction"] == expected.prediction
    assert found["explanation"]["features"][0]["name"] == expected.features[0].name
    assert found["features"]["segment"] == bank.tables.nodes["segment"][3].as_py()
    near = bank.graph.indices[bank.graph.indptr[3] : bank.graph.indptr[4]]
    assert [each["id"] for each in found["neighbors"]] == [f"C{v:07d}" for v in near]
    assert found["degree"] == len(near)
    pairs = {tuple(pair) for pair in found["edges"]}
    assert all(
        ("C0000003", each["id"]) in pairs or (each["id"], "C0000003") in pairs
        for each in found["neighbors"]
    )
    brief = service.get("/nodes/C0000003?explain=false&neighbors=1").json()
    assert "explanation" not in brief
    assert len(brief["neighbors"]) == 1


def test_what_if_shows_before_and_after(bank: Bank, service: Client) -> None:
    near = f"C{int(bank.graph.indices[bank.graph.indptr[3]]):07d}"
    body = {"id": "C0000003", "features": {"age": 80}, "remove": [near]}
    found = service.post("/what-if", body).json()
    before = fastgcn.predict(bank.run(), bank.graph, ids=["C0000003"])
    np.testing.assert_allclose(probabilities([found["before"]]), before, atol=1e-6)
    from fastgcn.infer.what_if import what_if

    after = what_if(bank.run(), bank.graph, "C0000003", features={"age": 80}, remove=[near])
    np.testing.assert_allclose(probabilities([found["after"]]), after, atol=1e-6)


def test_the_model_tells_what_to_ask(service: Client) -> None:
    found = service.get("/model").json()
    assert found["classes"] == ["fraud", "honest"]
    assert found["runs"] == ["one", "two"]
    assert {"name": "segment", "kind": "category"} in found["columns"]
    assert found["names"]["id"] == "customer"
    assert found["limits"]["nodes"] == 200
    assert service.post("/predict", {"ids": found["examples"]}).status_code == 200


def test_ids_may_have_slashes_and_large_answers_are_refused(tmp_path: Path) -> None:
    names = ["a/b", "c d", "ü?", 9007199254740993, *range(4, 60)]
    graph = communities(node_ids=[str(each) for each in names])
    fastgcn.save(graph, tmp_path / "store")
    graph = fastgcn.load(tmp_path / "store")
    fastgcn.fit(graph, quick(epochs=1), run_dir=tmp_path / "run")
    with serving(tmp_path / "run") as client:
        for own in names[:4]:
            found = client.get(f"/nodes/{quote(str(own), safe='')}?explain=false&neighbors=2")
            assert found.json()["id"] == str(own)
        answered = client.post("/predict", {"ids": [str(each) for each in names] * 50})
        assert len(answered.json()["rows"]) == 50 * len(names)  # written in another thread
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fastgcn.serve.answers._NUMBERS", 5)
            assert client.post("/predict", {"ids": ["c d", "ü?"]}).status_code == 413
        (tmp_path / "run" / "model.safetensors").write_bytes(b"x")
        damaged = client.post("/reload", {"run": "run"})
        assert damaged.status_code == 422
        assert "/" not in damaged.json()["error"].replace("run/model.safetensors", "")
        assert client.post("/predict", {"ids": ["a/b"]}).status_code == 200


def test_health_metrics_docs_and_pages(service: Client) -> None:
    assert service.get("/healthz").json() == {"status": "ok"}
    assert service.get("/readyz").json()["status"] == "ready"
    service.post("/predict", {"ids": IDS})
    metrics = service.get("/metrics").text
    assert 'fastgcn_requests_total{route="/predict",status="200"}' in metrics
    docs = service.get("/docs")
    assert "POST /predict-new" in docs.text
    assert set(service.get("/openapi.json").json()["paths"]) >= {"/predict", "/embed"}
    page = service.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for answer in (page, docs):
        assert "http://" not in answer.text
        assert "https://" not in answer.text


def test_reload_drops_no_request_and_mixes_no_answers(bank: Bank) -> None:
    expected = {
        name: fastgcn.predict(bank.run(name), bank.graph, ids=IDS[:1])[0] for name in ("one", "two")
    }
    assert np.abs(expected["one"] - expected["two"]).max() > 1e-3
    stop, seen = threading.Event(), set()

    def ask(client: Client) -> None:
        while not stop.is_set():
            answer = client.post("/predict", {"ids": IDS[:1]})
            assert answer.status_code == 200
            found = answer.json()
            np.testing.assert_allclose(
                probabilities(found["rows"])[0], expected[found["run"]], atol=1e-6
            )
            seen.add(found["run"])

    with (
        serving(bank.runs / "one", runs=bank.runs, on_demand=True) as client,
        ThreadPoolExecutor(3) as pool,
    ):
        asking = [pool.submit(ask, client) for _ in range(3)]
        try:
            for name in ("two", "one", "two"):
                assert client.post("/reload", {"run": name}).json()["run"] == name
            assert client.get("/model").json()["release"] == 4
        finally:
            stop.set()
        for each in asking:
            each.result()
    assert seen == {"one", "two"}


def test_a_replaced_release_is_freed_without_the_collector(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there when a service starts is frozen, so the collector would never free it."""
    whole, opened = Releases.open, []

    def opening(self: Releases, number: int, before: Served | None = None) -> Served:
        served = whole(self, number, before)
        opened.append(weakref.ref(served))
        return served

    monkeypatch.setattr(Releases, "open", opening)
    with serving(bank.runs / "one", runs=bank.runs) as client:
        assert gc.get_freeze_count() > 10_000
        gc.disable()
        try:
            assert client.post("/reload", {"run": "two"}).json()["run"] == "two"
            until = time.monotonic() + 10  # frames of the request end after its answer
            while opened[0]() is not None and time.monotonic() < until:
                time.sleep(0.01)
        finally:
            gc.enable()
        assert [each() is None for each in opened] == [True, False]
    assert gc.get_freeze_count() == 0


def test_a_log_line_is_json_without_ids_or_features(
    service: Client, caplog: pytest.LogCaptureFixture
) -> None:
    from fastgcn.serve.guard import JsonLines

    with caplog.at_level("INFO", logger="fastgcn.serve"):
        service.get("/nodes/C0000003?explain=false")
        service.post("/predict", {"ids": ["C0000003", "secret-id"]})
        until = time.monotonic() + 10  # a line is written after its answer
        while len(caplog.records) < 2 and time.monotonic() < until:
            time.sleep(0.01)
    lines = [JsonLines().format(record) for record in caplog.records]
    about = [json.loads(line) for line in lines]
    assert [each["status"] for each in about] == [200, 404]
    assert about[0]["route"] == "/nodes/{id:path}"
    assert "C0000003" not in "".join(lines)
    assert "secret" not in "".join(lines)


def test_a_network_that_is_not_made_of_convolutions(bank: Bank, tmp_path: Path) -> None:
    run = fastgcn.fit(bank.graph, run_dir=tmp_path / "max", aggregator="max", **FAST)
    with serving(tmp_path / "max", on_demand=True) as client:
        found = client.post("/predict", {"ids": IDS}).json()
        changed = client.post("/what-if", {"id": IDS[0], "features": {"age": 80}}).json()
        node = client.get(f"/nodes/{IDS[0]}").json()
    expected = fastgcn.predict(run, bank.graph, ids=IDS)
    np.testing.assert_allclose(probabilities(found["rows"]), expected, atol=1e-6)
    np.testing.assert_allclose(probabilities([changed["before"]]), expected[:1], atol=1e-6)
    np.testing.assert_allclose(probabilities([node["prediction"]]), expected[:1], atol=1e-6)
    assert node["explanation"] is None
    assert node["notes"][0].startswith("There is no explanation")
