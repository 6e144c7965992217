"""The real command: it answers, drains on SIGTERM, and leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.serve.conftest import Bank
from tests.serve.server import TOKEN, Client

WORKERS = [1, 2] if os.environ.get("FASTGCN_VERIFY") else [1]


@pytest.mark.parametrize("workers", WORKERS)
def test_sigterm_answers_what_has_begun(bank: Bank, tmp_path: Path, workers: int) -> None:
    command = [sys.executable, "-m", "fastgcn", "serve", str(bank.runs / "one"), "--port", "0",
               "--workers", str(workers)]  # fmt: skip
    environment = os.environ | {"FASTGCN_TOKEN": TOKEN, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment
    ) as process, ThreadPoolExecutor(4) as pool:  # fmt: skip
        assert process.stderr is not None
        said = process.stderr.readline()
        while not (address := re.search(r"at (http://[\d.]+:\d+)", said)):
            assert said, "the service ended before it was ready"
            said = process.stderr.readline()
        client = Client(address[1], TOKEN)
        assert client.get("/readyz").json() == {"status": "ready", "run": "one"}
        assert "fastgcn_requests_total" in client.get("/metrics").text
        # Explanations, one after the other in one thread, are under way.
        asked = [pool.submit(client.get, f"/nodes/C000000{i}") for i in range(4)]
        assert client.get("/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert [each.result().status_code for each in asked] == [200] * 4
        client.close()
        rest = process.stderr.read()
        assert process.wait(60) == 0
    *lines, last = rest.splitlines()
    messages = [json.loads(line)["message"] for line in lines]
    assert messages.count("drained") == workers
    assert last == "Stopped: every request that had begun was answered."
    assert list(tmp_path.iterdir()) == []
