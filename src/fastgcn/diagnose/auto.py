"""`samples = "auto"`: finds the sample sizes for a target error before training."""

from dataclasses import dataclass, replace

import numpy as np

from fastgcn.backends.data import TrainingData, prepare
from fastgcn.config import TrainConfig
from fastgcn.diagnose.convolutions import ExactNetwork, convolve, draw_batches
from fastgcn.diagnose.gauge import Estimate, SamplerCache, percent, samples_from_top
from fastgcn.features.store import NodeFeatures, column_statistics
from fastgcn.graph.graph import Graph
from fastgcn.machine import thread_count
from fastgcn.model import as_gcn, build_model
from fastgcn.progress import note

_BATCHES = 8
# The most training nodes whose features are read to standardise features here: on a large graph,
# reading every row would take longer than all the rest.
_MEASURED_NODES = 8192


@dataclass(frozen=True, slots=True)
class Choice:
    """Sample sizes of the sampled layers, from the input up, and their relative errors.

    `margins` are the half-widths of the errors' 95 % confidence intervals; None: not known.
    """

    samples: tuple[int, ...]
    errors: tuple[float, ...]
    margins: tuple[float | None, ...]

    def sentence(self, target: float) -> str:
        """The sizes, errors and target in words.

        >>> Choice((730,), (0.0998,), (0.004,)).sentence(0.1)
        'samples = auto: 730 vertices, for a relative error of 10.0 ± 0.4 % (10 % asked for)'
        """
        sizes = ", ".join(f"{t:,}" for t in self.samples)
        known = zip(self.errors, self.margins, strict=True)
        errors = ", ".join(percent(Estimate(*each)) for each in known)
        return (
            f"samples = auto: {sizes} vertices, for a relative error of {errors} "
            f"({100 * target:g} % asked for)"
        )


def resolve_samples(graph: Graph, config: TrainConfig) -> TrainConfig:
    """The settings with `samples = "auto"` replaced by numbers, which are printed.

    >>> import fastgcn
    >>> config = TrainConfig(samples="auto", target_error=0.5, hidden=16)
    >>> (t,) = resolve_samples(fastgcn.load("digits"), config).samples
    >>> 550 < t < 650
    True
    """
    if config.samples != "auto" or config.method != "fastgcn":
        return config
    choice = choose_samples(graph, config)
    note(choice.sentence(config.target_error))
    return config.replace(samples=choice.samples)


def choose_samples(graph: Graph, config: TrainConfig) -> Choice:
    """t of each sampled layer, so that its convolution has the relative error `target_error`.

    The error is √(E Σ_v |y(v) − e(v)|² / Σ_v |e(v)|²) over batch rows v, for the settings' own
    distribution, draws and self term, under the network's initial weights; t is at most the
    number of nodes of the training graph. The rows of a lower layer are those that the layer
    above draws. A `history` is left out: its gain is known only after training.
    """
    with thread_count(config.threads):
        data = _data(graph, config)
        assert graph.task is not None
        sizes = [graph.n_features, *config.hidden_sizes, graph.n_outputs]
        model = build_model(config, sizes, graph.task)
        network = ExactNetwork(as_gcn(model, "samples = 'auto'"), data, config)
        rng = np.random.default_rng(config.seed)
        rows = [b.numpy() for b in draw_batches(data, config.batch_size, _BATCHES, config.seed)]
        if not network.layers:
            return Choice((), (), ())
        top = convolve(network, network.layers - 1, rows, rng)
        found = samples_from_top(config, SamplerCache(network), top, config.target_error, rng)
        return Choice(
            tuple(t for t, _ in found),
            tuple(error.value for _, error in found),
            tuple(error.margin for _, error in found),
        )


def _data(graph: Graph, config: TrainConfig) -> TrainingData:
    """The training graph and its features; without ÂX, because only a few rows are needed."""
    plain = config.replace(precompute=False, samples=1, feature_scaling="none")
    data = prepare(graph, plain, None)
    statistics = None
    if config.feature_scaling == "standard":
        nodes = graph.split.train
        statistics = column_statistics(graph.features, nodes[:: -(-len(nodes) // _MEASURED_NODES)])
    features = NodeFeatures(graph.features, config.feature_scaling, data.features.nodes, statistics)
    return replace(data, features=features, inputs=features, statistics=statistics)
