"""`Served`: a run and its graph, and the answers to every question about them; no HTTP here.

A prediction for a node of the graph is read from a table that was computed once, or computed from
its neighbourhood if there is no table. Everything else is computed from the neighbourhood.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from torch import Tensor

from fastgcn.arrays import AnyArray, FloatArray, IntArray, forget
from fastgcn.backends.exact import check_width, full_forward, full_view, needed_nodes
from fastgcn.errors import InputError
from fastgcn.files import finite
from fastgcn.graph.graph import Graph, old_positions, own_ids, positions
from fastgcn.infer.explain import Columns, explain, label_of, names_of_classes
from fastgcn.infer.finite import Described, check_rows, check_weights
from fastgcn.infer.new_nodes import predict_new, read_new_nodes
from fastgcn.infer.predict import check_features, layers_of
from fastgcn.infer.tables import csv_bytes, embedding_columns, prediction_columns, rows_as_json
from fastgcn.infer.what_if import what_if
from fastgcn.model import GCN
from fastgcn.progress import collected_notes
from fastgcn.serve.limits import Limits, RequestError, check_count
from fastgcn.train.run import Run

# Features that a description of a node shows, at most.
_FEATURES_SHOWN = 200
_EXAMPLES = 8
_NUMBERS = 2_000_000  # in an answer: 40 MB of JSON
_NO_REASONS = (
    "There is no explanation: only networks of convolutions (aggregator = 'convolution', 'mean' or "
    "'sum') have one."
)


class Served:
    """A run, its graph, and the limits of a request.

    Attributes:
        name: of the run, for people; never a path.
        number: of the release; it grows with every reload.
        table: (n, C) float32, or (n, 1) float64: the predictions for all nodes; None to compute.
        notes: what a user should know about the run and the graph.
    """

    def __init__(
        self, name: str, number: int, run: Run, graph: Graph, table: AnyArray | None, limits: Limits
    ) -> None:
        self.name, self.number, self.run, self.graph = name, number, run, graph
        self.table, self.limits = table, limits
        self.notes: list[str] = []
        # Two threads use the network. A computation puts a network in training mode back into it.
        self.model = run.model.cpu().eval()
        self.depth = self.model.depth
        check_fit(run, graph)
        # Kept: it may hold a factor for every node, which is as large as the graph's `indptr`.
        self.source, self.features = full_view(self.model, graph)
        known = graph.stored_fingerprint
        if known is not None and run.fingerprint and known != run.fingerprint:
            self.notes.append(f"{graph.name} is not the graph (or the split) of the training")

    def warm_up(self) -> None:
        """Make what the first request would wait for: the index of ids, compiled code, Arrow."""
        first = np.array([0])
        csv_bytes({"id": ["a"]})
        positions(self.graph, [str(own_ids(self.graph, first)[0])])
        quietest = int(np.argmin(np.diff(self.graph.indptr[:10_001])))
        self.predicted([np.array([quietest])])

    # Nodes of the graph.

    def find(self, ids: Sequence[str | int]) -> IntArray:
        """(k,): the numbers of nodes by their own ids."""
        check_count(len(ids), self.limits.nodes, "nodes")
        words = [str(each) for each in ids]
        known = old_positions(self.graph, words)
        unknown = [word for word in words if word not in known]
        if not unknown:
            return np.array([known[word] for word in words], np.int64)
        try:
            return positions(self.graph, words)  # an id may be written as in a CSV file
        except InputError as error:
            raise RequestError(404, str(error)) from None

    def check_answer(self, rows: int, width: int) -> None:
        """Refuse an answer that is too large to be written as text."""
        check_count(rows * width, _NUMBERS, "numbers in its answer")

    def stored(self, nodes: IntArray) -> FloatArray:
        """(k, C): rows of the table."""
        assert self.table is not None
        rows: FloatArray = np.array(self.table[nodes])
        forget(self.table)
        return rows

    def predicted(self, asked: Sequence[IntArray]) -> list[FloatArray]:
        """Probabilities or numbers of several sets of nodes, in one computation."""
        return self._computed(asked, self.depth, self.model.predictions)

    def hidden(self, asked: Sequence[IntArray], layers: int) -> list[FloatArray]:
        """Rows H^(layers) of several sets of nodes, in one computation."""
        return self._computed(asked, layers, lambda rows: rows)

    def _computed(
        self, asked: Sequence[IntArray], layers: int, finish: Callable[[Tensor], Tensor]
    ) -> list[FloatArray]:
        nodes, place = np.unique(np.concatenate(asked), return_inverse=True)
        needed = self.reach(nodes, layers)
        found = full_forward(
            self.model, self.source, self.features, nodes, layers=layers, needed=needed
        )
        rows: FloatArray = finish(found).numpy()
        described = Described(self.graph.features, self.graph.node_ids)
        check_rows(rows, nodes, described, feature_names=self.graph.feature_names)
        return np.split(rows[place], np.cumsum([len(each) for each in asked])[:-1])

    def reach(self, nodes: IntArray, hops: int) -> list[IntArray]:
        """The nodes that each layer needs, from the input up; refuses too large neighbourhoods."""
        sets, edges = [nodes], 0
        for _ in range(hops):
            ids = sets[0]
            edges += int((self.graph.indptr[ids + 1] - self.graph.indptr[ids]).sum())
            if edges > self.limits.field:
                raise RequestError(
                    413,
                    f"the neighbourhood has more than {self.limits.field:,} edges, the limit of a "
                    "request; ask for fewer nodes, or raise --max-field",
                )
            sets.insert(0, needed_nodes(self.source, ids, 1)[0])
        return sets

    def prediction_table(
        self, nodes: IntArray, rows: FloatArray, top: int | None
    ) -> dict[str, Any]:
        """The columns of an answer, as `fastgcn predict` writes them."""
        return prediction_columns(own_ids(self.graph, nodes), rows, self.run, top)

    def embedding_table(self, nodes: IntArray, rows: FloatArray) -> dict[str, Any]:
        return embedding_columns(own_ids(self.graph, nodes), rows)

    def layer(self, layer: int) -> int:
        """How many layers an embedding needs."""
        return layers_of(self.model, layer)

    # New nodes.

    def new_from_rows(
        self, nodes: list[dict[str, Any]], edges: list[dict[str, Any]], weight: float | None
    ) -> tuple[dict[str, Any], list[str]]:
        """The columns of an answer for new nodes, and notes; rows have the user's own columns."""
        import pyarrow

        check_count(len(nodes), self.limits.nodes, "new nodes")
        check_count(len(edges), self.limits.edges, "new edges")
        if not nodes:
            raise InputError("nodes must have at least one new node")
        tables = []
        for name, rows in (("nodes", nodes), ("edges", edges)):
            columns = list(dict.fromkeys(key for row in rows for key in row))
            if name == "edges" and not rows:
                columns = [self._columns()[end] for end in ("source", "target")]
            arrays = {}
            for column in columns:
                values = [row.get(column) for row in rows]
                try:
                    kind = pyarrow.string() if not rows else None
                    arrays[column] = pyarrow.array(values, kind)
                except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
                    raise InputError(
                        f"the column {column!r} of {name} must hold values of one kind: text, "
                        "numbers, true and false, or lists of numbers"
                    ) from None
            tables.append(pyarrow.table(arrays))
        return self._new(tables[0], tables[1], weight)

    def new_from_csv(
        self, nodes: str, edges: str, weight: float | None
    ) -> tuple[dict[str, Any], list[str]]:
        """The same from the text of two CSV files."""
        check_count(nodes.count("\n"), self.limits.nodes + 1, "lines of new nodes")
        check_count(edges.count("\n"), self.limits.edges + 1, "lines of new edges")
        # The reader of CSV files reads files. These are our own, under names of our own.
        with TemporaryDirectory(prefix="fastgcn-upload-") as folder:
            paths = Path(folder) / "nodes.csv", Path(folder) / "edges.csv"
            for path, text in zip(paths, (nodes, edges), strict=True):
                path.write_text(text, encoding="utf-8")
            try:
                return self._new(*paths, weight)
            except InputError as error:
                raise InputError(str(error).replace(f"{folder}/", "")) from None

    def _new(
        self, nodes: Any, edges: Any, weight: float | None
    ) -> tuple[dict[str, Any], list[str]]:
        with collected_notes() as notes:
            new = read_new_nodes(self.run, self.graph, nodes, edges)
            check_count(len(new["node_ids"]), self.limits.nodes, "new nodes")
            check_count(len(new["source"]), self.limits.edges, "new edges")
            ends = {str(end) for end in (*new["source"], *new["target"])}
            touched = np.array(sorted(old_positions(self.graph, ends).values()), np.int64)
            self.reach(touched, self.depth - 1)
            found = predict_new(self.run, self.graph, default_weight=weight, **new)
        rows = found.reshape(len(new["node_ids"]), -1)
        return prediction_columns(new["node_ids"], rows, self.run), notes

    def _columns(self) -> dict[str, str]:
        from fastgcn.data.imported import COLUMNS

        imported = self.run.imported or self.graph.imported or {}
        return COLUMNS | dict(imported.get("columns", {}))

    # One node.

    def describe(self, node: int, neighbors: int, explained: bool, top: int) -> dict[str, Any]:
        """Features, neighbours, the edges between them, the prediction, and why."""
        graph = self.graph
        rows = self.one(node)
        start, stop = int(graph.indptr[node]), int(graph.indptr[node + 1])
        near = np.array(graph.indices[start : min(stop, start + neighbors)], np.int64)
        shown = np.concatenate([[node], near])
        near_rows = self.stored(shown)[1:] if self.table is not None else None
        ids, answers = own_ids(graph, near), []
        if near_rows is not None and len(near):
            answers = prediction_columns(ids, near_rows, self.run, None)["prediction"]
        found: dict[str, Any] = {
            "id": own_ids(graph, shown[:1])[0],
            "label": label_of(graph, node),
            "prediction": rows_as_json([self.prediction_table(shown[:1], rows, None)])[0],
            "features": self._features(node),
            "degree": stop - start,
            "neighbors": [
                {
                    "id": own,
                    "label": label_of(graph, int(other)),
                    "weight": None if graph.weights is None else float(graph.weights[start + i]),
                    "prediction": answers[i] if len(answers) else None,
                }
                for i, (own, other) in enumerate(zip(ids, near, strict=True))
            ],
            "edges": self._edges_among(shown),
        }
        if explained and isinstance(self.model, GCN):
            self.reach(np.array([node]), self.depth)
            found["explanation"] = explain(self.run, graph, found["id"], top=top).to_dict()
        elif explained:
            found |= {"explanation": None, "notes": [_NO_REASONS]}
        answer: dict[str, Any] = finite(found)
        return answer

    def one(self, node: int) -> FloatArray:
        """(1, C): the prediction for a node."""
        nodes = np.array([node])
        if self.table is not None:
            return self.stored(nodes)
        return self.predicted([nodes])[0]

    def _features(self, node: int) -> dict[str, Any]:
        """The node's own values by column; of features without tables, those that are not zero."""
        stored = self.graph.features[np.array([node])]
        row: FloatArray = np.asarray(stored.toarray() if hasattr(stored, "toarray") else stored)[0]
        columns = Columns.of(self.graph)
        places = range(len(columns.names))
        if not columns.encoders and len(columns.names) > _FEATURES_SHOWN:
            order = np.flatnonzero(row)
            places = order[np.argsort(-np.abs(row[order]), kind="stable")].tolist()
        return {columns.names[i]: columns.value(i, row) for i in places[:_FEATURES_SHOWN]}

    def _edges_among(self, nodes: IntArray) -> list[list[Any]]:
        """Pairs of own ids: the edges between the given nodes."""
        ids, places = own_ids(self.graph, nodes), {int(v): i for i, v in enumerate(nodes)}
        found: list[list[Any]] = []
        for v in nodes.tolist():
            start, stop = int(self.graph.indptr[v]), int(self.graph.indptr[v + 1])
            inside = np.intersect1d(np.asarray(self.graph.indices[start:stop]), nodes).tolist()
            for u in inside:
                if self.graph.directed or v < u:
                    found.append([ids[places[v]], ids[places[u]]])
        return found

    def what_if(
        self, node: int, features: Mapping[str, Any], add: Sequence[Any], remove: Sequence[Any],
        weight: float,
    ) -> dict[str, Any]:  # fmt: skip
        """The prediction for a node before and after changes."""
        check_count(len(add) + len(remove), self.limits.edges, "changed edges")
        others = [*add, *remove]
        ends = self.find(others) if others else np.empty(0, np.int64)
        self.reach(np.unique(np.append(ends, node)), self.depth)
        nodes = np.array([node])
        (own,) = own_ids(self.graph, nodes)
        with collected_notes() as notes:
            after = what_if(
                self.run, self.graph, own, features=features, add=add, remove=remove, weight=weight
            )
        rows = [self.prediction_table(nodes, each, None) for each in (self.one(node), after)]
        before_row, after_row = rows_as_json(rows)
        return {"id": own, "before": before_row, "after": after_row, "notes": notes}

    # The model.

    def about(self) -> dict[str, Any]:
        """What a client must know to ask: classes, columns, counts; and how good the run is."""
        graph, run = self.graph, self.run
        columns = Columns.of(graph)
        kinds = [spec["kind"] for spec in columns.encoders]
        scores = ("micro_f1", "macro_f1", "r2", "mae", "rmse", "loss")
        test = graph.split.test if len(graph.split.test) else np.arange(graph.n_nodes)
        return {
            "run": self.name,
            "release": self.number,
            "dataset": graph.name,
            "task": self.model.task,
            "classes": None if self.model.target is not None else names_of_classes(run),
            "nodes": graph.n_nodes,
            "edges": graph.n_edges,
            "directed": bool(graph.directed),
            "weighted": graph.weights is not None,
            "layers": self.depth,
            "method": run.config.method,
            "names": self._columns(),
            "columns": [
                {"name": name, "kind": kinds[i] if i < len(kinds) else "number"}
                for i, name in enumerate(columns.names[:_FEATURES_SHOWN])
            ],
            "features": graph.n_features,
            "encoded": bool(columns.encoders),
            "scores": {
                f"test_{name}": run.metrics[f"test_{name}"]
                for name in scores
                if run.metrics.get(f"test_{name}") is not None
            },
            "examples": own_ids(graph, test[:_EXAMPLES]),
            "computed": "at start" if self.table is not None else "on demand",
            "limits": self.limits.to_dict(),
            "notes": self.notes,
        }


def check_fit(run: Run, graph: Graph) -> None:
    """Refuse a graph that the network was not made for."""
    check_weights(run.model)
    check_width(run.model, graph.n_features, f"{graph.name} has")
    check_features(run, graph)
