"""The graphs that are measured, by name; small stand-ins are generated on first use."""

from functools import cache

from fastgcn.data.generate import GenerateConfig, generate
from fastgcn.data.generate_config import PRESETS, config_from
from fastgcn.data.load import load
from fastgcn.data.registry import cache_folder
from fastgcn.data.store import is_store
from fastgcn.errors import InputError
from fastgcn.graph.graph import Graph

OWN_SPLIT = "own"  # the only one that the data set has

SMALL_REDDIT = "reddit-sim-small"
TINY = ("tiny-sim-a", "tiny-sim-b", "tiny-sim-c")

_STAND_INS = {SMALL_REDDIT: config_from("reddit-sim", name=SMALL_REDDIT, nodes=20_000)} | {
    name: GenerateConfig(name=name, nodes=nodes, edges=6 * nodes, features=12, classes=3)
    for name, nodes in zip(TINY, (240, 320, 400), strict=True)
}


def is_stand_in(name: str) -> bool:
    """Whether a graph is generated, and so not the one that the paper measured."""
    return name in _STAND_INS or name in PRESETS


@cache
def graph(name: str, split: str) -> Graph:
    """Loaded once for all measurements."""
    source = name
    if name in _STAND_INS:
        store = cache_folder() / name
        if not is_store(store):
            generate(_STAND_INS[name], store)
        source = str(store)
    loaded = load(source) if split == OWN_SPLIT else load(source, split=split)
    for part, nodes in loaded.split.items():
        if not nodes.size:
            raise InputError(
                f"{name} has no {part} nodes, and the paper's experiments need all three parts; "
                "give it a split (a split column, or --split random when it is imported)"
            )
    return loaded
