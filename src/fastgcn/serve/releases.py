"""The runs that a service may answer with, and the one that it answers with now.

All workers of a service share a folder. Each release is a folder in it: a copy of a run, which
nobody trains on meanwhile, and the table of its predictions. The file `current` has the number of
the newest release. A worker that is told to reload makes the next one, and the others follow.
"""

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastgcn.data.load import load, load_again
from fastgcn.errors import FastGCNError, InputError, nearest
from fastgcn.files import dumps, read_json
from fastgcn.graph.graph import Graph
from fastgcn.infer.predict import predict_parts
from fastgcn.infer.tables import write_array
from fastgcn.locks import Lock
from fastgcn.npy import map_npy
from fastgcn.serve.answers import Served, check_fit
from fastgcn.serve.limits import Limits
from fastgcn.train.run import Run
from fastgcn.writing import write_text

_FILES = ("config.json", "metrics.jsonl", "result.json", "model.safetensors")
_KEPT = 2  # releases; a worker may still open the one before the newest


@dataclass(frozen=True, slots=True)
class Releases:
    """The folder that the workers share, and what the service was started with.

    Attributes:
        folder: private to the service.
        first: the run it starts with.
        runs: a folder with runs that /reload may choose; None for none but the first.
        data: the graph to use; None for each run's own.
        on_demand: compute predictions when they are asked for, without a table.
        limits: of a request.
    """

    folder: Path
    first: Path
    runs: Path | None = None
    data: str | None = None
    on_demand: bool = False
    limits: Limits = field(default_factory=Limits)

    def choices(self) -> dict[str, Path]:
        """The runs that may be chosen, by name."""
        found = {self.first.name: self.first}
        if self.runs is not None:
            found |= {
                each.name: each
                for each in sorted(self.runs.iterdir())
                if (each / "config.json").is_file()
            }
        return found

    def publish(self, name: str) -> int:
        """Make the next release of a run; returns its number."""
        choices = self.choices()
        # The name only chooses among the folders that are there; it is no part of a path.
        path = choices.get(name)
        if path is None:
            listed = ", ".join(list(choices)[:20])
            raise InputError(
                f"there is no run {name[:100]!r} to choose{nearest(name, choices)}; there are "
                f"{listed}"
            )
        lock = Lock(self.folder / ".lock")
        lock.take("the next release")
        try:
            return self._publish(path, name)
        except FastGCNError as error:
            # The copy's path means nothing to anyone, and a client should not see it.
            text = str(error).replace(f"{self.folder / str(self.current() + 1) / 'run'}", name)
            raise InputError(text) from None
        finally:
            lock.release()

    def _publish(self, path: Path, name: str) -> int:
        number = self.current() + 1
        target = self.folder / str(number)
        shutil.rmtree(target, ignore_errors=True)
        copy = target / "run"
        copy.mkdir(parents=True)
        try:
            names = [each for each in _FILES if (path / each).is_file()]
            if "result.json" not in names:
                names.append("state.safetensors")  # of a run that is not finished
            for each in names:
                if (path / each).is_file():
                    shutil.copyfile(path / each, copy / each)
            run = Run.load(copy)
            graph = self._graph(run, path)
            check_fit(run, graph)
            if not self.on_demand:
                parts = predict_parts(run, graph)
                write_array(target / "predictions.npy", graph.n_nodes, (rows for _, rows in parts))
            write_text(target / "about.json", dumps({"name": name}), durable=False)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        write_text(self.folder / "current", str(number), durable=False)
        for old in self.folder.iterdir():
            if old.name.isdecimal() and int(old.name) <= number - _KEPT:
                shutil.rmtree(old, ignore_errors=True)
        return number

    def current(self) -> int:
        """The number of the newest release; 0 if there is none."""
        try:
            return int((self.folder / "current").read_text("utf-8"))
        except FileNotFoundError:
            return 0

    def open(self, number: int, before: Served | None = None) -> Served:
        """A release, with the graph of the one `before` if both have the same."""
        folder = self.folder / str(number)
        about: dict[str, Any] = read_json(folder / "about.json")
        name = str(about["name"])
        run = Run.load(folder / "run")
        same = before is not None and (
            self.data is not None
            or (run.source is not None and run.source == before.run.source
                and run.fingerprint == before.run.fingerprint)
        )  # fmt: skip
        graph = before.graph if before is not None and same else self._graph(run, Path(name))
        table = None if self.on_demand else map_npy(folder / "predictions.npy")
        served = Served(name, number, replace(run, path=None), graph, table, self.limits)
        served.warm_up()
        return served

    def _graph(self, run: Run, path: Path) -> Graph:
        return load(self.data) if self.data is not None else load_again(run.source, path)
