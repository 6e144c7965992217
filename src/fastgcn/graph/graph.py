"""`Graph`: nodes, edges, features, labels and a split, checked once, by the constructor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.sparse import csr_array

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.errors import FormatError, InputError, MissingFileError
from fastgcn.files import open_regular
from fastgcn.graph import checks, convert, convert_networkx, labels
from fastgcn.graph.checks import Split
from fastgcn.graph.csr import CSR, Cleaning, clean_csr, csr_from_edges, is_symmetric
from fastgcn.graph.edges import induced_csr
from fastgcn.graph.ids import find_ids, written_otherwise
from fastgcn.graph.labels import Labels, Task
from fastgcn.text import unguard

if TYPE_CHECKING:
    import networkx
    import torch_geometric.data


@dataclass(frozen=True, slots=True)
class Graph:
    """n nodes and their edges as CSR rows; undirected graphs store both directions.

    The constructor checks everything and cleans the rows (`fastgcn.graph.csr` defines clean), so
    functions that take a `Graph` never check it again.

    >>> import numpy as np
    >>> from fastgcn import Graph, Split
    >>> g = Graph.from_edges([0, 1, 1], [1, 2, 2], features=np.eye(3), labels=[0, 1, 1])
    >>> g
    Graph(graph: 3 nodes, 2 undirected edges, 3 features, 2 classes)
    >>> g.cleaned.duplicates
    1

    Attributes:
        indptr: (n+1,) int64, row offsets into `indices`.
        indices: (m,) int32 or int64, column ids, ascending in each row.
        weights: (m,) float32, positive; None if every edge has weight one.
        features: (n, F) float32, dense (may be memory-mapped) or `scipy.sparse.csr_array`.
        labels: (n,) int64 class ids, -1 = unlabelled; or (n, C) bool, multi-label; or (n,)
            float64, numbers to predict, NaN = unlabelled; or None.
        split: training, validation and test node ids.
        node_ids: the user's own ids, length n; None if they are 0..n-1.
        class_names: length C; None if classes have only numbers.
        feature_names: length F; None if features have only numbers.
        directed: True if an edge may lack its reverse. If None, the constructor finds out.
        name: the graph's name in messages and reports.
        cleaned: how many edges the constructor has removed.
        stored_fingerprint: set by the store, which knows it without reading the arrays.
        source: the arguments of `fastgcn.load` ({"data": ..., and its options}), so that a run
            can load its data again; None for graphs made in memory, without "data" if only their
            split was drawn by `random_split`.
        imported: what an import of tables has decided (`fastgcn.data.imported`): columns, encoders
            and notes; None for other graphs.
        task: classification, multilabel or regression; None without labels. By default the labels
            say it: floats that are not class ids are for regression, integers never are.
    """

    indptr: IntArray
    indices: IntArray
    weights: FloatArray | None
    features: FloatArray | csr_array
    labels: Labels | None = None
    split: Split = field(default_factory=Split)
    node_ids: Sequence[Any] | None = None
    class_names: Sequence[str] | None = None
    feature_names: Sequence[str] | None = None
    directed: bool | None = None
    name: str = "graph"
    cleaned: Cleaning = field(default_factory=Cleaning)
    stored_fingerprint: str | None = None
    source: Mapping[str, Any] | None = None
    imported: Mapping[str, Any] | None = None
    task: Task | None = None

    def __post_init__(self) -> None:
        csr, n = checks.csr_arrays(self.indptr, self.indices, self.weights)
        csr, cleaned = clean_csr(csr)
        self._set("indptr", csr.indptr)
        self._set("indices", csr.indices)
        self._set("weights", csr.weights)
        self._set("cleaned", self.cleaned + cleaned)
        self._set("features", checks.features(self.features, n))
        self._set("feature_names", checks.feature_names(self.feature_names, self.n_features))
        if self.class_names is not None:
            self._set("class_names", tuple(str(name) for name in self.class_names))
        if self.node_ids is not None:
            self._set("node_ids", checks.node_ids(self.node_ids, n))
        self._set("labels", labels.checked_labels(self.labels, n, self.class_names, self.task))
        self._set("task", None if self.labels is None else labels.task_of(self.labels))
        parts = {name: checks.split_part(part, name, n) for name, part in self.split.items()}
        checks.disjoint(parts, self.node_ids)
        labels.labelled(parts, self.labels, self.node_ids)
        self._set("split", Split(**parts))
        if self.directed is not True:
            symmetric = is_symmetric(csr)
            if self.directed is False and not symmetric:
                raise InputError(
                    "the graph is declared undirected, but some edges lack their reverse; "
                    "build it with Graph.from_edges(..., directed=False), which adds them"
                )
            self._set("directed", not symmetric)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def trusted(cls, **fields: Any) -> "Graph":
        """A graph from fields that were checked before (a store's), without reading them again.

        So a store larger than memory opens at once.
        """
        graph = object.__new__(cls)
        optional = "labels node_ids class_names feature_names stored_fingerprint source imported"
        defaults: dict[str, Any] = dict.fromkeys(optional.split())
        defaults |= {"name": "graph", "cleaned": Cleaning(), "split": Split()}
        known = fields.get("labels")
        defaults["task"] = None if known is None else labels.task_of(known)
        for name, value in (defaults | fields).items():
            graph._set(name, value)
        return graph

    @classmethod
    def from_edges(
        cls,
        source: Sequence[int] | IntArray,
        target: Sequence[int] | IntArray,
        *,
        features: Any,
        weights: Sequence[float] | FloatArray | None = None,
        directed: bool = False,
        **fields: Any,
    ) -> "Graph":
        """A graph from edge ends 0..n-1; without `directed`, edges are stored both ways.

        `fields` are those of `Graph`: labels, split, node_ids, class_names, feature_names,
        name. The number of nodes is the number of rows of `features`.
        """
        n = checks.row_count(features)
        source, target, values = checks.edge_arrays(source, target, weights, n)
        csr, cleaned = csr_from_edges(source, target, values, n, directed=directed)
        return cls(
            indptr=csr.indptr,
            indices=csr.indices,
            weights=csr.weights,
            features=features,
            directed=directed,
            cleaned=cleaned,
            **fields,
        )

    @property
    def n_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def n_edges(self) -> int:
        """The number of edges; an undirected edge counts once."""
        return len(self.indices) if self.directed else len(self.indices) // 2

    @property
    def n_features(self) -> int:
        return int(self.features.shape[1])

    @property
    def multilabel(self) -> bool:
        return self.task == "multilabel"

    @property
    def regression(self) -> bool:
        return self.task == "regression"

    @property
    def n_outputs(self) -> int:
        """The width of a network's output: the number of classes, or one for a number."""
        return 1 if self.regression else self.n_classes

    @property
    def n_classes(self) -> int:
        """The number of classes; 0 if there are no labels, or if they are numbers."""
        if self.labels is None or self.regression:
            return 0
        if self.labels.ndim == 2:
            return int(self.labels.shape[1])
        if self.class_names is not None:
            return len(self.class_names)
        return labels.class_count(cast(IntArray, self.labels), labels.CLASSES_OF_PART)

    @property
    def csr(self) -> CSR:
        return CSR(self.indptr, self.indices, self.weights)

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        learned = "a number to predict" if self.regression else f"{self.n_classes} classes"
        return (
            f"Graph({self.name}: {self.n_nodes:,} nodes, {self.n_edges:,} {kind} edges, "
            f"{self.n_features:,} features, {learned})"
        )

    def with_split(self, split: Split) -> "Graph":
        """The same graph under another split, which is checked; `load` does not give it again."""
        parts = {name: checks.split_part(part, name, self.n_nodes) for name, part in split.items()}
        checks.disjoint(parts, self.node_ids)
        labels.labelled(parts, self.labels, self.node_ids)
        return self._replaced(split=Split(**parts), source=None)

    def with_source(self, source: Mapping[str, Any]) -> "Graph":
        """The same graph with another `source`."""
        return self._replaced(source=source, stored_fingerprint=self.stored_fingerprint)

    def __deepcopy__(self, _: dict[int, Any]) -> "Graph":
        """Returns itself: a graph never changes, and a copy would double its memory."""
        return self

    def _replaced(self, **changes: Any) -> "Graph":
        kept = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return Graph.trusted(**(kept | {"stored_fingerprint": None} | changes))

    # Conversions live in `graph.convert` and `graph.convert_networkx`; each imports its library
    # only when it is called.

    @classmethod
    def from_scipy(cls, adjacency: Any, *, features: Any, **fields: Any) -> "Graph":
        """From a square scipy sparse matrix, A(v, u) = the edge v → u."""
        return convert.from_scipy(cls, adjacency, features=features, **fields)

    def to_scipy(self) -> csr_array:
        """The adjacency matrix, float32, of ones if the graph has no weights."""
        return convert.to_scipy(self)

    @classmethod
    def from_networkx(cls, graph: "networkx.Graph", **options: Any) -> "Graph":
        """From a networkx graph; node and edge attributes are named by the options."""
        return convert_networkx.from_networkx(cls, graph, **options)

    def to_networkx(self) -> "networkx.Graph":
        """As a networkx `Graph` or `DiGraph` under the user's own node ids."""
        return convert_networkx.to_networkx(self)

    @classmethod
    def from_pyg(cls, data: "torch_geometric.data.Data", **fields: Any) -> "Graph":
        """From a PyG `Data`: x, edge_index, edge_weight, y and the three masks."""
        return convert.from_pyg(cls, data, **fields)

    def to_pyg(self) -> "torch_geometric.data.Data":
        """As a PyG `Data` with x, edge_index, edge_weight, y and the three masks."""
        return convert.to_pyg(self)

    @classmethod
    def from_tables(cls, nodes: Any, edges: Any, **options: Any) -> "Graph":
        """From a node table and an edge table: data frames, Arrow tables, DuckDB relations, files.

        Text, categories, dates and gaps are encoded as numbers. The options, and what is chosen
        without them, are those of `fastgcn.data.tables.import_tables`; `Graph.imported` keeps what
        was chosen.
        """
        # The import of tables lies above this module; its name is looked up when it is called.
        return cast("Graph", import_module("fastgcn.data.tables").read_tables(
            nodes, edges, **{"name": "graph", **options}
        ))  # fmt: skip

    @classmethod
    def from_pandas(cls, nodes: Any, edges: Any, **options: Any) -> "Graph":
        """From two pandas data frames; see `from_tables`. A named index counts as a column."""
        return cls.from_tables(nodes, edges, **options)

    @classmethod
    def from_polars(cls, nodes: Any, edges: Any, **options: Any) -> "Graph":
        """From two polars data frames; see `from_tables`."""
        return cls.from_tables(nodes, edges, **options)


def parse_nodes(graph: Graph, text: str | None) -> IntArray:
    """Node numbers from `all`, `unlabelled`, a part of the split, own ids with commas, or @FILE.

    >>> g = Graph.from_edges([0], [1], features=np.eye(3), node_ids=["a", "b", "c"])
    >>> parse_nodes(g, "c,a").tolist()
    [2, 0]
    """
    if text is None or text == "all":
        return np.arange(graph.n_nodes)
    if text in UNLABELLED:
        return unlabelled(graph.labels, graph.n_nodes, graph.name)
    parts = dict(graph.split.items())
    if text in parts:
        if not parts[text].size:
            raise InputError(f"the {text} part of {graph.name}'s split is empty")
        return parts[text]
    words = _lines(Path(text[1:])) if text.startswith("@") else text.split(",")
    return positions(graph, [word.strip() for word in words if word.strip()])


UNLABELLED = ("unlabelled", "unlabeled")


def unlabelled(known: Labels | None, n: int, name: str) -> IntArray:
    """The nodes without a class or number; without labels, all nodes."""
    if known is None:
        return np.arange(n)
    if known.ndim == 2:
        raise InputError(
            f"the nodes of {name} have several labels or none, so none of them is unlabelled; "
            "name nodes by their ids, or in a file (--nodes @FILE)"
        )
    return np.flatnonzero(~labels.has_label(known))


def _lines(path: Path) -> list[str]:
    try:
        with open_regular(path) as file:
            # Editors on Windows put a byte order mark before the text; skip it.
            return file.read().decode("utf-8-sig").split("\n")
    except FileNotFoundError:
        raise MissingFileError(f"there is no file {path} with node ids") from None
    except UnicodeDecodeError:
        raise FormatError(f"{path} must be UTF-8 text, but is not") from None
    except ValueError as error:
        raise FormatError(f"{path} must list node ids, but {error}") from None
    except OSError as error:  # no permission, or a name that no file can have
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def positions(graph: Graph, words: Sequence[str]) -> IntArray:
    """The numbers of the nodes whose own ids, as text, are `words`.

    An id may also be written as in a CSV file of predictions (`fastgcn.text.guard`).
    """
    if not words:
        raise InputError("no node ids were given")
    found = old_positions(graph, words)
    guarded = {unguard(word): word for word in words if word not in found}
    found |= {guarded[own]: node for own, node in old_positions(graph, guarded).items()}
    unknown = [word for word in words if word not in found]
    if unknown:
        raise InputError(
            f"{graph.name} has no node {unknown[0]!r} "
            f"({len(unknown):,} unknown ids of {len(words):,})"
            f"{written_otherwise(graph.node_ids, graph.n_nodes, unknown[0])}"
        )
    return np.array([found[word] for word in words], dtype=np.int64)


def old_positions(graph: Graph, wanted: Iterable[Any]) -> dict[Any, int]:
    """Numbers of the graph's nodes by own id; ids are compared as text.

    Ids that the graph does not have are left out.
    """
    words = list(wanted)
    found = find_ids(graph.node_ids, graph.n_nodes, [str(word) for word in words])
    return {word: i for word, i in zip(words, found.tolist(), strict=True) if i >= 0}


def own_ids(graph: Graph, nodes: IntArray) -> list[Any]:
    """The user's ids of these nodes."""
    if graph.node_ids is None:
        return list(map(int, nodes))
    return [checks.plain(graph.node_ids[int(i)]) for i in nodes]


def subgraph(graph: Graph, nodes: Any) -> Graph:
    """The graph induced on `nodes` (distinct ids), renumbered in the order given.

    Features, labels, own ids and the split are restricted to these nodes.

    >>> from fastgcn import Graph, subgraph
    >>> g = Graph.from_edges([0, 1], [1, 2], features=[[0.0], [1.0], [2.0]], node_ids=list("abc"))
    >>> h = subgraph(g, [2, 1])
    >>> h.node_ids, h.indices.tolist()
    (['c', 'b'], [1, 0])
    """
    ids = checks.split_part(nodes, "nodes", graph.n_nodes)
    if not ids.size:
        raise InputError("a subgraph must have at least one node, got none")
    position = np.full(graph.n_nodes, -1, dtype=np.int64)
    position[ids] = np.arange(len(ids))
    parts = (position[part] for _, part in graph.split.items())
    csr = induced_csr(graph.csr, ids)
    return Graph.trusted(
        indptr=csr.indptr,
        indices=csr.indices,
        weights=csr.weights,
        features=graph.features[ids],
        labels=None if graph.labels is None else graph.labels[ids],
        split=Split(*(part[part >= 0] for part in parts)),
        node_ids=None if graph.node_ids is None else [graph.node_ids[int(i)] for i in ids],
        class_names=graph.class_names,
        directed=graph.directed,
        name=graph.name,
        feature_names=graph.feature_names,
        imported=graph.imported,
    )
