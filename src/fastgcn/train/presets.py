"""Presets: the paper's settings, those of the systems it compares, and the automatic choice's.

Each preset is a complete `TrainConfig`. `entrants` completes the settings that a user gives.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from torch import nn

from fastgcn.config import AGGREGATOR_NORMALIZATIONS, VARIANTS, Preset, TrainConfig
from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph
from fastgcn.train.automatic import SAMPLING_SETTINGS, Candidate, candidates


def _complete(**settings: Any) -> TrainConfig:
    """These settings, and the declared defaults for all others."""
    return TrainConfig(**settings).complete()


def paper_cora() -> TrainConfig:
    """The paper's settings for Cora.

    What the paper does not mention (weight decay, scaling of features) is not done. Of its three
    learning rates, this is the one with the best validation score.
    """
    return _complete(hidden=16, samples=400, batch_size=256, learning_rate=0.01)


def paper_pubmed() -> TrainConfig:
    """The paper's settings for Pubmed, chosen as for Cora."""
    return _complete(hidden=16, samples=100, batch_size=1024, learning_rate=0.001)


def paper_reddit() -> TrainConfig:
    """The paper's settings for Reddit (hidden 128, batch 256, t = 400)."""
    return _complete(hidden=128, samples=400, batch_size=256, learning_rate=0.001)


def authors_code(base: TrainConfig | None = None) -> TrainConfig:
    """`base` changed to what the authors' published program does, which departs from the paper.

    It draws with q ∝ ‖Â(:,u)‖, not its square, without replacement, among the neighbours of the
    batch. It divides by t·q(u) with q normalised over all vertices, which makes the estimate too
    large. It drops a partial last batch, has L2 on the first layer only (5e-4; 1e-4 on Reddit)
    and no biases, and scales rows of features to sum 1. It tests on the graph of training and
    test nodes, and has its own stopping rule. Load Planetoid data with `split="authors"`.
    """
    base = base or paper_cora()
    return base.replace(
        distribution="flat",
        draws="successive",
        neighbors_only=True,
        correct_weights=False,
        drop_last=True,
        bias=False,
        weight_decay=1e-4 if base.hidden == 128 else 5e-4,
        weight_decay_on="first",
        evaluation_graph="joined",
        early_stopping="authors",
        epochs=200,
        feature_scaling="row",
    )


def kipf_gcn() -> TrainConfig:
    """The original GCN as Kipf and Welling train it on the citation graphs: full batch."""
    return _complete(
        method="gcn",
        hidden=16,
        dropout=0.5,
        precompute=False,
        feature_scaling="row",
        weight_decay=5e-4,
        learning_rate=0.01,
        inductive=False,
        epochs=200,
        early_stopping="none",
    )


def graphsage(aggregator: Literal["gcn", "mean"], base: TrainConfig | None = None) -> TrainConfig:
    """GraphSAGE as the paper compares it: hidden 128, no precomputation; 10 neighbours of each
    batch node and 25 of each of those, the order in which its authors' program uses S1 and S2."""
    base = base or paper_reddit()
    return base.replace(
        method=f"graphsage-{aggregator}",
        normalization="row" if aggregator == "gcn" else "neighbors",
        precompute=False,
        hidden=128,
        fanouts=(25, 10),
    )


# The paper has settings for three graphs of very different sizes: 2,708, 19,717 and 232,965 nodes.
_LIKE_CORA, _LIKE_PUBMED = 10_000, 100_000


def paper_preset(graph: Graph) -> TrainConfig:
    """The paper's settings for the one of its three graphs that is nearest in size.

    >>> import fastgcn
    >>> paper_preset(fastgcn.load("digits")) == paper_cora()
    True
    """
    if graph.n_nodes < _LIKE_CORA:
        return paper_cora()
    return paper_pubmed() if graph.n_nodes < _LIKE_PUBMED else paper_reddit()


def best_preset(graph: Graph) -> TrainConfig:
    """The automatic choice without a race: the first candidate.

    >>> import fastgcn
    >>> best_preset(fastgcn.load("digits")).bias
    True
    """
    return candidates(graph)[0].config


# What each method changes in the settings of a preset.
METHODS: dict[str, Callable[[TrainConfig], TrainConfig]] = {
    "fastgcn": lambda config: config,
    "fastgcn-uniform": lambda config: config.replace(distribution="uniform"),
    "fastgcn-transductive": lambda config: config.replace(inductive=False),
    "authors-code": authors_code,
    "gcn": lambda _: kipf_gcn(),
    "gcn-batched": lambda config: config.replace(method="gcn-batched"),
    "graphsage-gcn": lambda config: graphsage("gcn", config),
    "graphsage-mean": lambda config: graphsage("mean", config),
}


def entrants(
    graph: Graph,
    config: TrainConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    sampled: bool | None = None,
) -> list[Candidate]:
    """The complete settings that a run may have: what the user gave, and each candidate's rest.

    `settings` override those of `config`. The first entrant is the one to take without a race;
    there is only one if the user names a preset other than the automatic choice, or another
    method than FastGCN, which has the paper's settings. A method may change a candidate's
    settings, never the user's; a candidate that does not fit these is left out. Every way to train
    calls this, so all have the same defaults. `sampled` is that of `candidates`.
    """
    given = (config or TrainConfig()).replace(**(settings or {}))
    if given.is_complete:
        return [Candidate("given", given)]
    preset: Preset = given.preset
    if "preset" not in given.given and given.method != "fastgcn":
        preset = "paper"
    own = _implied(given) | {k: v for k, v in given.to_dict().items() if k != "preset"}
    if given.method in VARIANTS:
        del own["method"]
    if preset == "paper":
        start = METHODS[given.method](paper_preset(graph))
        return [Candidate("the paper's", start.replace(**own))]
    if sampled is None and given.given & SAMPLING_SETTINGS:
        sampled = True
    if preset == "fast":
        own = {"ensemble": 1} | own
    found: list[Candidate] = []
    refused: InputError | None = None
    for name, candidate in candidates(graph, sampled=sampled, device=given.device):
        try:
            chosen = METHODS[given.method](candidate).replace(**own)
        except InputError as error:  # the user's settings do not fit this candidate's
            refused = refused or error
            continue
        if chosen.method == "fastgcn" and "samples" not in own and isinstance(chosen.samples, int):
            # The user may have chosen a smaller training graph than the candidate's.
            n = len(graph.split.train) if chosen.inductive else graph.n_nodes
            chosen = chosen.replace(samples=max(1, min(chosen.samples, n)))
        if all(chosen != other.config for other in found):
            found.append(Candidate(name, chosen))
    if refused is not None and not found:
        raise refused
    return found[:1] if preset == "fast" else found


def _implied(given: TrainConfig) -> dict[str, Any]:
    """What some settings need of others that are not given."""
    single = {"ensemble": 1} if given.jumping == "concat" or not given.is_linear else {}
    if "aggregator" not in given.given or given.aggregator == "convolution":
        return single
    kinds = AGGREGATOR_NORMALIZATIONS[given.aggregator]
    implied: dict[str, Any] = single | {"normalization": kinds[0]}
    if given.aggregator != "attention":  # attention sees the node among its neighbours
        implied |= {"skip": True, "input_skip": True}
    if not given.is_linear:
        implied |= {"precompute": False, "pair": False, "jumping": "none"}
    return implied


# Settings of fastgcn's own network, which another module decides by itself.
_NOT_YOURS = (
    "hidden", "bias", "dropout", "skip", "input_skip", "norm", "jumping", "pair", "aggregator",
    "heads", "precompute", "history", "ensemble",
)  # fmt: skip


def resolve_own(
    graph: Graph, config: TrainConfig | None, settings: Mapping[str, Any], module: nn.Module
) -> TrainConfig:
    """The complete settings of a run that trains a user's module.

    It has as many layers as `samples` has numbers, or as its attribute `n_layers` says, or two.
    """
    given = (config or TrainConfig()).replace(**settings)
    for name in _NOT_YOURS:
        if name in given.given and not given.is_complete:
            raise InputError(
                f"{name} is a setting of fastgcn's own network; leave it out with a module of your "
                "own, which decides that itself"
            )
    if given.is_complete:
        return given
    layers = getattr(module, "n_layers", 2)
    if isinstance(given.samples, tuple):
        layers = len(given.samples)
    if isinstance(layers, bool) or not isinstance(layers, int) or layers < 1:
        raise InputError(f"n_layers of your module must be a whole number from 1 on, got {layers}")
    fixed: dict[str, Any] = {
        "hidden": (_ASSUMED_WIDTH,) * (layers - 1),
        "precompute": False,
        "pair": False,
        "norm": "none",
        "ensemble": 1,
        "dropout": 0.0,
        "skip": True,  # blocks then hold a node's own row
        "input_skip": True,
        "weight_decay_on": "all",
    }
    if "normalization" not in given.given:
        fixed["normalization"] = "symmetric"
    return resolve(graph, config, {**settings, **fixed})


# Of a module's hidden layers; only estimates of work depend on it.
_ASSUMED_WIDTH = 128


def resolve(
    graph: Graph,
    config: TrainConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    sampled: bool | None = None,
) -> TrainConfig:
    """The complete settings of a run without a race: those of the first entrant.

    >>> import fastgcn
    >>> digits = fastgcn.load("digits")
    >>> resolve(digits, TrainConfig(epochs=20)) == best_preset(digits).replace(epochs=20)
    True
    """
    return entrants(graph, config, settings, sampled=sampled)[0].config
