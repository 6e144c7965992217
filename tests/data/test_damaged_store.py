"""Every array and every field of a store, damaged in every way: only this package's errors."""

import filecmp
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastgcn import Graph, fit, load, predict, subgraph
from fastgcn.data.info import describe
from fastgcn.data.layout import ARRAY_NAMES
from fastgcn.data.shards import open_parts, shard
from fastgcn.data.store import open_store, save
from fastgcn.errors import FormatError, MissingFileError
from fastgcn.graph.ids import ID_ORDER, find_ids
from fastgcn.model import GCN
from tests.communities import communities, quick
from tests.damage import (
    array_damage,
    damaged_copies,
    file_damage,
    json_damage,
    only_our_errors,
    value_damage,
)
from tests.thorough import some

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of PyG's, while it is imported
    import torch_geometric.data  # noqa: F401

KINDS: dict[str, dict[str, Any]] = {
    "dense": {"weighted": True, "directed": True, "node_ids": [f"n{i}" for i in range(60)]},
    "sparse": {"sparse": True, "node_ids": list(range(100, 160)), "class_names": None},
    "multilabel": {"multilabel": True, "feature_names": list("abcdef")},
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    for kind, fields in KINDS.items():
        save(communities(**fields), folder / kind)
    return folder


def use(graph: Graph, scratch: Path) -> list[bool]:
    """Read a store in every way, in one process; for each way, whether it works."""
    model = GCN([6, 4, 3], multilabel=graph.multilabel)
    uses: dict[str, Callable[[], object]] = {
        "info": lambda: describe(graph),
        "train": lambda: fit(graph, quick(epochs=1, inductive=False, precompute=False)),
        "train inductively": lambda: fit(graph, quick(epochs=1)),
        "subgraph": lambda: subgraph(graph, [3, 11]),
        "to_pyg": graph.to_pyg,
        "to_networkx": graph.to_networkx,
        "predict": lambda: predict(model, graph),
        "predict sampled": lambda: predict(model, graph, [5], samples=5),
        "save": lambda: save(graph, scratch / "copy", force=True),
        "shard": lambda: shard(graph, 3, scratch / "parts", force=True),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of infinities and NaN
        return [only_our_errors(what, each) for what, each in uses.items()]


ARRAYS = [
    (kind, name)
    for kind in KINDS
    for name in ARRAY_NAMES
    if (kind == "dense" and not name.startswith("features_") and name != "node_ids")
    or (kind == "sparse" and (name.startswith("features_") or name == "node_ids"))
    or (kind == "multilabel" and name == "labels")
]


@pytest.mark.parametrize(("kind", "name"), ARRAYS)
def test_a_damaged_array(stores: Path, tmp_path: Path, kind: str, name: str) -> None:
    copy = tmp_path / "s"
    found: list[Graph] = []
    for what in damaged_copies(
        stores / kind, copy, some(array_damage(stores / kind / f"{name}.npy"), every=2)
    ):
        found.clear()
        if only_our_errors(what, lambda: found.append(load(copy))):
            only_our_errors(what, lambda: use(found[0], tmp_path))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_damaged_order_of_ids(stores: Path, tmp_path: Path, kind: str) -> None:
    """Ids are never confused: a damaged order is refused, or ids are not found."""
    copy, ids = tmp_path / "s", [str(own) for own in KINDS[kind]["node_ids"]]
    path, sound = stores / kind / ID_ORDER, 0
    damage = [*file_damage(path), *value_damage(ID_ORDER, np.load(path))]
    for what in damaged_copies(stores / kind, copy, damage):

        def look_up() -> None:
            found = find_ids(load(copy).node_ids, 60, ids)
            assert all(node in (-1, i) for i, node in enumerate(found.tolist()))

        sound += only_our_errors(what, look_up)
        found = copy / ID_ORDER
        if not (found.is_file() and filecmp.cmp(found, path, shallow=False)):
            with pytest.raises((FormatError, MissingFileError)):
                open_store(copy, verify=True)
    assert sound


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_manifest(stores: Path, tmp_path: Path, kind: str) -> None:
    copy = tmp_path / "s"
    for what in damaged_copies(
        stores / kind, copy, some(json_damage(stores / kind / "graph.json"), every=4)
    ):
        only_our_errors(what, lambda: describe(load(copy)))


def test_the_stores_are_read_as_long_as_nothing_happens_to_them(
    stores: Path, tmp_path: Path
) -> None:
    for kind in KINDS:
        assert all(use(open_store(stores / kind, verify=True), tmp_path))
        open_parts(tmp_path / "parts", 0, 2)
