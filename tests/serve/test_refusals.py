"""Wrong requests: one sentence as JSON and a 4xx; limits, tokens, hosts; never a path or a 500."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fastgcn.errors import InputError
from fastgcn.serve.limits import check_exposure, read_token
from tests.cli_runner import run_cli
from tests.serve.conftest import Bank
from tests.serve.server import TOKEN, Client, serving

ROW = {"customer": "X0", "age": 30}
EDGE = {"payer": "X0", "payee": "C0000003", "times": 1}
KNOWN = "C0000003"

# Path, body, status, and a part of the sentence.
WRONG: list[tuple[str, Any, int, str]] = [
    ("/predict", b"{", 400, "not JSON"),
    ("/predict", b"", 422, "required"),
    ("/predict", b"\xff\xfe", 400, "not JSON"),
    ("/predict", b"[" * 90_000, 400, "pars"),
    ("/predict", b"[]", 422, "body"),
    ("/predict", b"null", 422, "body"),
    ("/predict", b'{"ids": ["\\ud800"]}', 422, "unicode"),
    ("/predict", {}, 422, "ids"),
    ("/predict", {"ids": []}, 422, "ids"),
    ("/predict", {"ids": "C0000003"}, 422, "list"),
    ("/predict", {"ids": [None]}, 422, "ids.0"),
    ("/predict", {"ids": [1.5]}, 422, "ids.0"),
    ("/predict", {"ids": [["a"]]}, 422, "ids.0"),
    ("/predict", {"ids": ["x" * 2000]}, 422, "1000"),
    ("/predict", {"ids": ["nobody"]}, 404, "has no node 'nobody'"),
    ("/predict", {"ids": [10**30]}, 404, "no node"),
    ("/predict", {"ids": ["../../etc/passwd"]}, 404, "no node"),
    ("/predict", {"ids": ["@/etc/passwd"]}, 404, "no node"),
    ("/predict", {"ids": [KNOWN], "top": 0}, 422, "top must be from 1 to the 2 classes"),
    ("/predict", {"ids": [KNOWN], "top": "2"}, 422, "top"),
    ("/predict", {"ids": [KNOWN], "nodes": []}, 422, "nodes"),
    ("/predict", {"ids": [KNOWN] * 201}, 413, "at most 200 nodes"),
    ("/embed", {"ids": [KNOWN], "layer": 3}, 422, "layer must lie in -2..2"),
    ("/embed", {"ids": [KNOWN], "layer": "last"}, 422, "layer"),
    ("/predict-new", {}, 422, "nodes and edges"),
    ("/predict-new", {"nodes": []}, 422, "at least one"),
    ("/predict-new", {"nodes": [ROW], "nodes_csv": "id\n1\n"}, 422, "nodes_csv"),
    ("/predict-new", {"nodes": ["X0"]}, 422, "nodes.0"),
    ("/predict-new", {"nodes": [{"age": 3}], "edges": []}, 422, "no column 'customer'"),
    ("/predict-new", {"nodes": [{"customer": KNOWN, "age": 3}], "edges": []}, 422, "already"),
    ("/predict-new", {"nodes": [ROW, ROW], "edges": []}, 422, "X0"),
    ("/predict-new", {"nodes": [ROW], "edges": [{"payer": "X0"}]}, 422, "payee"),
    ("/predict-new", {"nodes": [ROW], "edges": [EDGE | {"payee": "nobody"}]}, 422, "nobody"),
    ("/predict-new", {"nodes": [ROW], "edges": [EDGE | {"times": -1}]}, 422, "weight"),
    ("/predict-new", {"nodes": [ROW], "edges": [EDGE | {"times": "x"}]}, 422, "times"),
    ("/predict-new", {"nodes": [ROW | {"age": {"a": 1}}], "edges": [EDGE]}, 422, "age"),
    ("/predict-new", {"nodes": [ROW, {"customer": 5, "age": "x"}], "edges": []}, 422, "one kind"),
    ("/predict-new", {"nodes": [ROW], "edges": [EDGE] * 301}, 413, "300 new edges"),
    ("/predict-new", {"nodes": [ROW], "edges": [], "default_weight": -1}, 422, "default_weight"),
    (
        "/predict-new",
        {"nodes_csv": "/etc/passwd", "edges_csv": "x"},
        422,
        "nodes.csv is empty",
    ),
    ("/predict-new", {"nodes_csv": "", "edges_csv": ""}, 422, "empty"),
    ("/what-if", {"id": "nobody"}, 404, "no node"),
    ("/what-if", {"id": KNOWN, "features": {"colour": 1}}, 422, "no column 'colour'"),
    ("/what-if", {"id": KNOWN, "features": {"age": [1]}}, 422, "'age'"),
    ("/what-if", {"id": KNOWN, "features": {"signed_up": 7}}, 422, "signed_up"),
    ("/what-if", {"id": KNOWN, "add": [KNOWN]}, 422, "its own neighbour"),
    ("/what-if", {"id": KNOWN, "add": [None]}, 422, "add.0"),
    ("/what-if", {"id": KNOWN, "weight": 0}, 422, "weight"),
    ("/reload", {"run": "../one"}, 422, "there is no run '../one' to choose"),
    ("/reload", {"run": "/etc"}, 422, "there is no run"),
    ("/reload", {"run": 1}, 422, "run"),
    ("/nothing", {}, 404, "there is no '/nothing' here"),
    ("/model", {}, 405, "POST is not for this address"),
]


def sentence(answer: Any, status: int) -> str:
    """The one sentence of a refusal."""
    assert answer.status_code == status, answer.text
    (error,) = answer.json().values()
    assert "Traceback" not in error
    assert "\n" not in error
    return str(error)


@pytest.mark.parametrize(
    ("path", "body", "status", "part"),
    WRONG,
    ids=[f"{i}-{each[0][1:]}" for i, each in enumerate(WRONG)],
)
def test_a_wrong_request_gets_one_sentence(
    service: Client, path: str, body: Any, status: int, part: str
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = service.post(path, data=data, headers={"Content-Type": "application/json"})
    assert part in sentence(answer, status)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nodes/nobody", 404),
        ("/nodes/..%2f..%2fetc%2fpasswd", 404),
        ("/nodes/C0000003?neighbors=-1", 422),
        ("/nodes/C0000003?neighbors=x", 422),
        ("/nodes/C0000003?top=0", 422),
        ("/static/..%2fapp.py", 404),
        ("/static/app.py", 404),
        ("/predict", 405),
    ],
)
def test_a_wrong_address_gets_one_sentence(service: Client, path: str, status: int) -> None:
    sentence(service.get(path), status)


def test_a_token_is_needed_but_not_for_the_page(service: Client) -> None:
    without = Client(service.address, None)
    wrong = Client(service.address, "a-token-for-other-tests")
    for client in (without, wrong):
        assert "token" in sentence(client.post("/predict", {"ids": [KNOWN]}), 401)
        assert "token" in sentence(client.get("/metrics"), 401)
        for path in ("/", "/healthz", "/readyz", "/docs"):
            assert client.get(path).status_code == 200
        client.close()


def test_a_body_is_json_and_not_too_large(service: Client) -> None:
    assert "JSON" in sentence(service.post("/predict", data=b"x"), 415)
    assert "100,000 bytes" in sentence(service.post("/predict", {"ids": ["x" * 999] * 150}), 413)

    def endless() -> Iterator[bytes]:
        for _ in range(200):
            yield b" " * 1000

    chunked = service.post("/predict", data=endless(), headers={"Content-Type": "application/json"})
    assert "100,000 bytes" in sentence(chunked, 413)


def test_without_a_token_only_this_machine_may_ask_and_nobody_reload(bank: Bank) -> None:
    with serving(bank.runs / "one", token=None, seconds=2.5, field=50, queue=1) as client:
        assert client.post("/predict", {"ids": [KNOWN]}).status_code == 200
        other = client.get("/model", headers={"Host": "evil.example"})
        assert "Host" in sentence(other, 400)
        assert "needs a token" in sentence(client.post("/reload", {"run": "one"}), 403)
        assert "50 edges" in sentence(client.get(f"/nodes/{KNOWN}"), 413)
        # Slow clients are told so; others are answered meanwhile, until there are too many.
        host, port = client.address.removeprefix("http://").split(":")
        begun = (
            b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        with ExitStack() as stack:
            began, slow = time.monotonic(), []
            for _ in range(2):
                slow.append(stack.enter_context(socket.create_connection((host, int(port)), 10)))
                slow[-1].sendall(begun)
            assert client.get("/healthz").status_code == 200
            full = client.post("/predict", {"ids": [KNOWN]})
            while full.status_code == 200 and time.monotonic() - began < 2:  # not yet read
                full = client.post("/predict", {"ids": [KNOWN]})
            assert "ask again" in sentence(full, 429)
            assert full.headers["Retry-After"] == "1"
            assert all(b" 408 " in each.recv(4096) for each in slow)
            assert time.monotonic() - began < 10
        assert client.post("/predict", {"ids": [KNOWN]}).status_code == 200


def test_a_service_for_other_machines_does_not_start_without_a_token(
    bank: Bank, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("FASTGCN_TOKEN", raising=False)
    found = run_cli(capfd, "serve", bank.runs / "one", "--host", "0.0.0.0")
    assert found.code == 1
    assert found.err.startswith("Error: --host 0.0.0.0 can be reached from other machines, which")
    for host in ("127.0.0.1", "::1", "localhost"):
        check_exposure(host, None)
    check_exposure("0.0.0.0", TOKEN)
    monkeypatch.setenv("FASTGCN_TOKEN", "short")
    with pytest.raises(InputError, match="at least 16"):
        read_token(None)
    (tmp_path / "token").write_text(TOKEN + "\n")
    assert read_token(tmp_path / "token") == TOKEN
    assert run_cli(capfd, "serve", tmp_path / "none").code == 1
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("FASTGCN_TOKEN", TOKEN)
        port = taken.getsockname()[1]
        found = run_cli(capfd, "serve", bank.runs / "one", "--port", port)
    assert (found.code, "cannot listen" in found.err) == (1, True)
