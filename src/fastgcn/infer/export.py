"""`export`: a trained network as one file, for torch or for any runtime of ONNX.

The file takes a neighbourhood and gives what `predict` gives. Its inputs:

* `x` (n, F) float32: features of n nodes, unscaled, as the graph has them;
* `edge_index` (2, e) int64 and `edge_weight` (e,) float32: entries of Â between them; the entry
  Â(v,u) has the position of u in row 0 and that of v in row 1, which ascends;
* `nodes` (k,) int64: the positions, in `x`, of the nodes that are asked for.

These n nodes must include all within M hops of those asked for, where M is the number of layers,
and the entries all rows of those within M-1 hops. `neighborhood` makes them from a graph.
"""

import copy
import io
import json
import logging
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from fastgcn.arrays import FloatArray, IntArray
from fastgcn.backends.exact import full_view, needed_nodes
from fastgcn.errors import FastGCNError, InputError, MissingDependencyError
from fastgcn.graph.graph import Graph
from fastgcn.infer.finite import check_weights
from fastgcn.infer.predict import asked_nodes, model_of
from fastgcn.network import Network
from fastgcn.sampling.block import Block
from fastgcn.writing import write_bytes

if TYPE_CHECKING:
    from fastgcn.train.run import Run

FORMATS = {"torch": ".pt2", "onnx": ".onnx"}
INPUTS = ("x", "edge_index", "edge_weight", "nodes")

# A file of ONNX can hold 2 GB.
_MOST_BYTES = 2_000_000_000

# What the written file may differ by from the network, as a share of the largest output.
_TOLERANCE = 1e-5


Inputs = tuple[Tensor, ...]
Made = tuple[bytes, Callable[[Inputs], FloatArray]]  # a file, and what applies it


class Neighborhood(NamedTuple):
    """The inputs of an exported file, in its order."""

    x: FloatArray
    edge_index: IntArray
    edge_weight: FloatArray
    nodes: IntArray


def neighborhood(run_or_model: "Run | Network", graph: Graph, nodes: Any = None) -> Neighborhood:
    """The inputs of an exported file for some nodes of a graph: all that their outputs depend on.

    `nodes` are those of `predict`. `neighborhood(run, graph, nodes)._asdict()` is what a session of
    onnxruntime takes.
    """
    model = model_of(run_or_model)
    ids = asked_nodes(run_or_model, graph, nodes)
    source, _ = full_view(model, graph)
    needed = needed_nodes(source, np.unique(ids), model.depth)
    near, rows = needed[0], source.rows(needed[1])
    targets = np.repeat(np.searchsorted(near, needed[1]), np.diff(rows.indptr))
    x = graph.features[near]
    x = x.toarray() if isinstance(x, csr_array) else np.asarray(x)
    return Neighborhood(
        np.ascontiguousarray(x, np.float32),
        np.stack([np.searchsorted(near, rows.indices), targets]).astype(np.int64),
        rows.values.astype(np.float32),
        np.searchsorted(near, ids).astype(np.int64),
    )


class _Edges(Block):
    """A block between all nodes of a neighbourhood, in operations that can be exported."""

    def __init__(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> None:
        every = torch.arange(x.shape[0])
        edges = edge_index, edge_weight
        for name, value in {"dst": every, "src": every, "csr": None, "_edges": edges}.items():
            object.__setattr__(self, name, value)

    def mix(self, h: Tensor) -> Tensor:
        source, target = self.edge_index[0], self.edge_index[1]
        rows = h[source] * self.edge_weight[:, None]
        return torch.zeros_like(h).scatter_add(0, target[:, None].expand_as(rows), rows)

    def own_rows(self, h: Tensor) -> Tensor:
        return h

    def mixing_first_pays(self, n_in: int, n_out: int) -> bool:
        return n_in < n_out


class Exported(nn.Module):
    """A network from a neighbourhood to predictions; the module that is exported.

    >>> import fastgcn
    >>> graph = fastgcn.load("digits")
    >>> run = fastgcn.fit(graph, epochs=1)
    >>> found = neighborhood(run, graph, [3, 5])
    >>> Exported(run.model)(*map(torch.from_numpy, found)).shape
    torch.Size([2, 10])
    """

    def __init__(self, model: Network) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).cpu().eval()

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, nodes: Tensor) -> Tensor:
        """(k, C) probabilities of `nodes`; (k, 1) numbers of a regression."""
        model = self.model
        if model.feature_scaling == "row":
            sums = x.abs().sum(dim=1, keepdim=True)
            x = x / torch.where(sums > 0, sums, torch.ones_like(sums))
        elif model.feature_scaling == "standard":
            x = (x - cast(Tensor, model.feature_mean)) * cast(Tensor, model.feature_scale)
        block = _Edges(x, edge_index, edge_weight)
        outputs = model([block] * model.depth, x)
        return model.predictions(outputs[nodes])


def export(
    run_or_model: "Run | Network", path: str | os.PathLike[str], *, format: str | None = None
) -> dict[str, Any]:
    """Write a network as a file that torch or a runtime of ONNX applies without this package.

    `format` is "torch" (`torch.export.load(FILE).module()`) or "onnx"; by default the ending of the
    path decides, .pt2 or .onnx. The file takes the arrays of `neighborhood` and gives what
    `predict` gives: (k, C) probabilities with the run's temperature, or (k, 1) numbers. Scaling of
    features is in the file; encoders of tables are not. Names of classes, the threshold and the
    normalisation are in its metadata, which are returned. The file is applied to an example and
    compared with the network before it is written.
    """
    path = Path(path)
    kind = format or {ending: name for name, ending in FORMATS.items()}.get(path.suffix)
    if kind not in FORMATS:
        raise InputError(
            f"format must be torch or onnx, got {format!r}"
            if format is not None
            else f"the name of the file must end in .pt2 (torch) or .onnx, or give a format, "
            f"got {path.name!r}"
        )
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} into")
    model = model_of(run_or_model)
    check_weights(model)
    module, about = Exported(model), _about(run_or_model)
    # The second has other sizes: an exporter may take those of the first for fixed.
    examples = [_example(model, *sizes) for sizes in ((7, 19, 3), (11, 31, 2))]
    try:
        with _quiet():
            data, apply = (_to_onnx if kind == "onnx" else _to_torch)(module, examples[0], about)
        apart = max(_apart(apply(each), module(*each)) for each in examples)
    except FastGCNError:
        raise
    except Exception as error:  # the exporters and runtimes raise what they like
        raise InputError(
            f"this network has an operation that cannot be written for {kind}: {_reason(error)}"
        ) from error
    if not apart <= _TOLERANCE:
        raise InputError(
            f"the file for {kind} would give other outputs than the network, by up to {apart:g} of "
            "the largest, so it was not written"
        )
    write_bytes(path, data)
    return about


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings and logs of the exporters, which are about themselves."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _example(model: Network, n: int, e: int, k: int) -> Inputs:
    """A small neighbourhood with features of the usual size."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(n, model.sizes[0], generator=rng).abs()
    edges = torch.stack([torch.randint(n, (e,), generator=rng), torch.arange(e) * n // e])
    return x, edges, torch.rand(e, generator=rng), torch.randperm(n, generator=rng)[:k]


def _apart(found: FloatArray, wanted: Tensor) -> float:
    """The largest difference, as a share of the largest output above one."""
    outputs = wanted.detach().numpy()
    return float(np.abs(found - outputs).max() / max(1.0, np.abs(outputs).max()))


def _reason(error: BaseException) -> str:
    """The first line of what went wrong at first, without colours."""
    while error.__cause__ is not None:
        error = error.__cause__
    line = re.sub("\x1b\\[[0-9;]*m", "", str(error)).strip().partition("\n")[0]
    return line[:200] or type(error).__name__


def _shapes() -> dict[str, dict[int, Any]]:
    n, e, k = (torch.export.Dim(name, min=1) for name in ("n", "e", "k"))
    return {"x": {0: n}, "edge_index": {1: e}, "edge_weight": {0: e}, "nodes": {0: k}}


def _about(run_or_model: "Run | Network") -> dict[str, Any]:
    """What a user of the file needs to know beside its inputs, as plain data."""
    model = model_of(run_or_model)
    names = None if isinstance(run_or_model, Network) else run_or_model.class_names
    features = None if isinstance(run_or_model, Network) else run_or_model.feature_names
    return {
        "task": model.task,
        "layers": model.depth,
        "n_features": model.sizes[0],
        "n_outputs": model.sizes[-1],
        "normalization": model.normalization,
        "class_names": None if names is None else list(names),
        "feature_names": None if features is None else list(features),
        **({"decision": model.decision.to_dict()} if model.target is None else {}),
    }


def _to_torch(module: Exported, example: Inputs, about: dict[str, Any]) -> Made:
    program = torch.export.export(module, example, dynamic_shapes=_shapes())
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={"about.json": json.dumps(about)})
    data = file.getvalue()
    applied = torch.export.load(io.BytesIO(data)).module()
    return data, lambda inputs: applied(*inputs).detach().numpy()


def _to_onnx(module: Exported, example: Inputs, about: dict[str, Any]) -> Made:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ImportError as error:
        raise MissingDependencyError(
            "the packages of ONNX are not installed; pip install 'fastgcn[export]'"
        ) from error
    size = sum(math.prod(t.shape) * t.element_size() for t in module.state_dict().values())
    if size > _MOST_BYTES:
        raise InputError(f"a file of ONNX holds 2 GB, the weights take {size:,} bytes; use torch")
    output = "probabilities" if module.model.target is None else "numbers"
    program = torch.onnx.export(
        module, example, dynamo=True, dynamic_shapes=_shapes(), input_names=list(INPUTS),
        output_names=[output], verbose=False,
    )  # fmt: skip
    assert program is not None
    for name, value in about.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        program.model.metadata_props[name] = text
    data = program.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])

    def apply(inputs: Inputs) -> FloatArray:
        named = {name: each.numpy() for name, each in zip(INPUTS, inputs, strict=True)}
        return cast(FloatArray, session.run(None, named)[0])

    return data, apply
