"""Record the golden runs: `python -m tests.golden.record [--check] [CASE ...]`.

Without names all are recorded. What differs from the file is printed; `--check` leaves the file.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from tests.golden.cases import CASES, PRESETS
from tests.golden.machine import fingerprint
from tests.golden.play import Graphs, Record, play, resolved

GOLDEN = Path(__file__).with_name("golden.json")


def differences(old: Record, new: Record) -> list[str]:
    """The names of what differs between two records of a case."""
    return [key for key in new if old.get(key) != new[key]]


def record(names: list[str], *, keep: bool) -> int:
    """Run the cases, say what changed, and write the file if `keep`; how many differ."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    runs = golden.get("runs", {})
    changed = 0
    with tempfile.TemporaryDirectory() as scratch:
        graphs = Graphs(Path(scratch) / "graphs")
        graphs.folder.mkdir()
        for number, name in enumerate(names):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            start = time.perf_counter()
            new = play(name, resolved(name, graphs), graphs, folder)
            if different := differences(runs.get(name, {}), new):
                changed += 1
                print(f"{name}: {', '.join(different)} {'new' if name not in runs else 'changed'}")
            runs[name] = new
            print(f"{name}: {time.perf_counter() - start:.2f} s", file=sys.stderr)
    if keep:
        golden = {
            "machine": fingerprint(),
            "presets": {
                name: json.loads(json.dumps(preset().to_dict())) for name, preset in PRESETS.items()
            },
            "runs": {name: runs[name] for name in CASES if name in runs},
        }
        text = json.dumps(golden, indent=1, ensure_ascii=False, allow_nan=True)
        GOLDEN.write_text(text + "\n", encoding="utf-8")
    return changed


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = [word for word in words if word != "--check"] or list(CASES)
    count = record(chosen, keep="--check" not in words)
    print(f"{count} of {len(chosen)} differ from what was recorded")
