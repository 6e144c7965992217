"""Text files are UTF-8 whatever the locale says.

That every call names its encoding is checked by ruff (PLW1514, in `make check`).
"""

import os
import subprocess
import sys
from pathlib import Path

from fastgcn import fit, save
from tests.communities import communities, quick


def test_names_in_any_script_under_the_plainest_locale(tmp_path: Path) -> None:
    n = 60
    graph = communities(
        node_ids=[f"Zürich-{i}" for i in range(n)], class_names=["猫", "犬", "ñ"], name="größe"
    )
    save(graph, tmp_path / "store")
    # The name is one of those that go into the run's config.json.
    fit(graph.with_source({"data": str(tmp_path / "größe")}), quick(), run_dir=tmp_path / "run")
    (tmp_path / "ids").write_text("Zürich-3\n", encoding="utf-8")
    (tmp_path / "settings.toml").write_text("# für später\nepochs = 1\n", encoding="utf-8")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for command in (
        ["info", "store"],
        ["predict", "run", "store", "--nodes", "@ids", "--out", "p.csv"],
        ["train", "store", "--config", "settings.toml", "--samples", "9", "--run-dir", "again"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "fastgcn", *command],
            cwd=tmp_path,
            env=os.environ | plain,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
