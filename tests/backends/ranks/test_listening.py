"""Who can reach the ranks of one machine, and who is refused by them."""

import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fastgcn import loopback
from fastgcn.backends.ranks.joining import agreed_prefix
from fastgcn.errors import PeerError
from tests.backends.ranks.launch import ROOT, environment
from tests.backends.ranks.test_alone import Keys

LISTENER = "tests.backends.ranks.listener"
LOCAL = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def installed(folder: Path) -> Path:
    """A folder that, on the path, installs the package's entry points as they are here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = folder / "here-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: here\nVersion: 1\n")
    (group, entries), *others = project["entry-points"].items()
    assert not others
    lines = [f"{name} = {place}" for name, place in entries.items()]
    (about / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    return folder


def test_under_torchrun_nothing_listens_beyond_the_machine(tmp_path: Path) -> None:
    variables = environment()
    variables["PYTHONPATH"] += os.pathsep + str(installed(tmp_path))
    command = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend", "loopback",
               "--nproc-per-node", "2", "-m", LISTENER]  # fmt: skip
    done = subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Exception" not in done.stderr
    found = [json.loads(text) for text in re.findall(r"\{[^{}]*\}", done.stdout)]
    assert [each["numbers"] for each in found] == [[7, 8]] * 2
    for each in found:
        assert each["rank"]
        assert each["agent"]
        assert set(each["rank"] + each["agent"]) <= LOCAL


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def rank(number: int, port: int, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A rank of two that was started without torchrun."""
    place = {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    env = environment(**place, MASTER_PORT=str(port), **variables)
    command = [sys.executable, "-m", LISTENER]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=200)
    (line,) = [line for line in out.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_stranger_is_refused_and_the_job_goes_on() -> None:
    """Without torchrun too, and then the first rank serves the store: on loopback only."""
    port = free_port()
    with rank(0, port, FASTGCN_SECRET="ours") as first:
        with rank(1, port, FASTGCN_SECRET="theirs") as stranger:
            assert "rank 0 at localhost:" in said(stranger)["error"]
        with rank(1, port, FASTGCN_SECRET="ours") as second:
            answers = [said(first), said(second)]
    assert [answer["numbers"] for answer in answers] == [[7, 8]] * 2
    assert all(set(answer["rank"]) <= LOCAL for answer in answers)
    assert answers[0]["rank"]


@pytest.mark.parametrize("variable", ["FASTGCN_SECRET", "TORCHELASTIC_RUN_ID"])
def test_another_jobs_process_is_refused(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = Keys()
    for name in ("FASTGCN_SECRET", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "one")
    store.append("hello/1", "a-word with-a-false-signature\n")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(agreed_prefix, store, 0, 2, 30)
        second = pool.submit(agreed_prefix, store, 1, 2, 30)
        assert first.result() == second.result()
    assert store["welcome/1/a-word"] == b"refused"
    # A process that takes a stranger for its first rank finds out as well.
    monkeypatch.setenv(variable, "two")
    asked = next(key for key in store if key.startswith("welcome/1/") and "a-word" not in key)

    class Replay(Keys):
        def get(self, key: str) -> bytes:  # type: ignore[override]
            return store[asked] if key.startswith("welcome/") else super().get(key)

    replay: Any = Replay()
    with pytest.raises(PeerError, match="rank 1 could not join: rank 0 .* is of another job"):
        agreed_prefix(replay, 1, 2, 30)


@pytest.mark.parametrize(
    ("variables", "local"),
    [
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node7"}, True),
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, False),
        ({"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1"}, True),
        ({"WORLD_SIZE": "4", "MASTER_ADDR": "::1"}, True),
        ({"WORLD_SIZE": "4", "MASTER_ADDR": "10.1.2.3"}, False),
        ({"WORLD_SIZE": "4", "MASTER_ADDR": "node7"}, False),
    ],
)
def test_where_the_ranks_are(variables: dict[str, str], local: bool) -> None:
    assert loopback.is_local(variables) == local


def test_several_machines_need_another_meeting_place() -> None:
    from torch.distributed.elastic.rendezvous import RendezvousParameters

    create = loopback.handler()
    with pytest.raises(ValueError, match="for one machine"):
        create(RendezvousParameters("loopback", "", "job", min_nodes=1, max_nodes=2))
