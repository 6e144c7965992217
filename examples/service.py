"""A run as a service: start it, ask over HTTP, try "what if", stop it.

python examples/service.py
"""

import json
import os
import re
import secrets
import subprocess
import sys
from typing import Any
from urllib.request import Request, urlopen

import fastgcn

graph = fastgcn.load("digits")
fastgcn.fit(graph, epochs=5, samples=100, run_dir="runs/digits")

token = secrets.token_urlsafe()
service = subprocess.Popen(
    [sys.executable, "-m", "fastgcn", "serve", "runs/digits", "--port", "0"],
    env=os.environ | {"FASTGCN_TOKEN": token},
    stderr=subprocess.PIPE,
    text=True,
)


def ask(path: str, body: Any = None) -> Any:
    """The answer to a question: with a body, it is a POST."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with urlopen(Request(address + path, data, headers), timeout=60) as answer:
        return json.load(answer)


try:
    # The line "Serving digits at http://127.0.0.1:PORT ..." says where.
    assert service.stderr is not None
    address = next(
        found[1] for line in service.stderr if (found := re.search(r"at (http\S+)", line))
    )

    for row in ask("/predict", {"ids": [2, 7], "top": 2})["rows"]:
        print(f"{row['id']}: {row['class_1']} ({row['p_1']:.0%}) or {row['class_2']}")

    node = ask("/nodes/2?neighbors=3")
    print("why:", [each["name"] for each in node["explanation"]["features"][:3]])

    gone = [each["id"] for each in node["neighbors"]]
    found = ask("/what-if", {"id": 2, "remove": gone})
    before, after = (found[when]["p_8"] for when in ("before", "after"))
    print(f"probability of 8 without neighbours {gone}: {before:.3f} becomes {after:.3f}")
finally:
    service.terminate()  # answers what has begun, then ends
    service.communicate()
