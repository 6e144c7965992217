"""A process of its own that trains and then says how much memory it took, as JSON.

    python -m benchmarks.speed.training_process DATA EPOCHS

Without arguments it only loads what training needs.
"""

import json
import sys
import tempfile
import threading
from pathlib import Path

STATUS = Path("/proc/self/status")

_SAMPLE_SECONDS = 0.005


def status_bytes(field: str) -> int:
    """A number of bytes that Linux keeps of this process, such as VmHWM, its peak."""
    (line,) = (
        each
        for each in STATUS.read_text(encoding="utf-8").splitlines()
        if each.startswith(f"{field}:")
    )
    return int(line.split()[1]) * 1024


class AnonymousPeak:
    """The largest RssAnon seen, looked at again and again: Linux keeps no peak of it.

    It leaves out mapped files, whose pages the system may drop whenever it needs memory.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "AnonymousPeak":
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._watcher.join()

    def _watch(self) -> None:
        while True:
            self.bytes = max(self.bytes, status_bytes("RssAnon"))
            if self._stopped.wait(_SAMPLE_SECONDS):
                return


def main(arguments: list[str]) -> None:
    with AnonymousPeak() as anonymous:
        from fastgcn.data.load import load
        from fastgcn.train.loop import fit
        from fastgcn.train.presets import paper_preset

        if arguments:
            data, epochs = arguments
            config = paper_preset(data).replace(epochs=int(epochs))
            with tempfile.TemporaryDirectory() as folder:
                fit(load(data), config, run_dir=Path(folder) / "run")
    print(json.dumps({"peak": status_bytes("VmHWM"), "anonymous": anonymous.bytes}))


if __name__ == "__main__":
    main(sys.argv[1:])
