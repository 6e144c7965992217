"""Settings for the data sets that benchmarks name: the paper's, and the best found by hand.

The library itself knows no data set by its name (`fastgcn.train.automatic`).
"""

from fastgcn.config import TrainConfig
from fastgcn.train.automatic import BEST_SAMPLER
from fastgcn.train.presets import paper_cora, paper_pubmed, paper_reddit


def paper_settings(data: str) -> TrainConfig:
    """The paper's settings for a data set; Reddit's for any that it does not have."""
    if data in ("cora", "citeseer"):
        return paper_cora()
    return paper_pubmed() if data == "pubmed" else paper_reddit()


def best_cora() -> TrainConfig:
    """For word counts of few nodes: the plain network, high dropout, means over neighbours.

    Chosen by cross validation over training and validation nodes (docs/LOG.md).
    """
    return TrainConfig(
        **BEST_SAMPLER,
        hidden=64,
        bias=True,
        normalization="row",
        dropout=0.7,
        weight_decay=5e-4,
        averaging=0.85,
        samples=800,
        batch_size=1024,
        learning_rate=0.01,
        epochs=250,
        patience=60,
    ).complete()


def best_pubmed() -> TrainConfig:
    """For Pubmed's tf-idf rows: deep, with skips for a node's own rows; chosen as for Cora."""
    return TrainConfig(
        **BEST_SAMPLER,
        hidden=(256, 256),
        norm="layer",
        skip=True,
        input_skip=True,
        jumping="max",
        dropout=(0.3, 0.5),
        weight_decay=1e-4,
        averaging=0.85,
        samples=2000,
        batch_size=1024,
        learning_rate=0.002,
        epochs=200,
        patience=30,
    ).complete()


def best_in_paper_budget(data: str) -> TrainConfig:
    """Hidden 16, two layers and the paper's t, with the better estimator; chosen as for Cora."""
    if data == "pubmed":
        return paper_pubmed().replace(
            **BEST_SAMPLER,
            bias=True,
            norm="layer",
            skip=True,
            input_skip=True,
            dropout=0.3,
            weight_decay=1e-4,
            weight_decay_on="all",
            averaging=0.85,
            batch_size=4096,
            learning_rate=0.01,
            epochs=200,
            patience=40,
        )
    return paper_settings(data).replace(**BEST_SAMPLER)
