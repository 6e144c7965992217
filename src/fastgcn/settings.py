"""From preset, file and flags to one `TrainConfig`: each overrides what comes before it."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastgcn.config import TrainConfig
from fastgcn.errors import FormatError, InputError, MissingFileError, nearest
from fastgcn.graph import Graph
from fastgcn.presets import authors_code, best_preset, graphsage, kipf_gcn, paper_preset

# Each method as a change to the settings that the preset gives.
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
PRESETS: dict[str, Callable[[Graph], TrainConfig]] = {
    "best": best_preset,
    "paper": lambda graph: paper_preset(graph.name),
}


def settle(
    graph: Graph,
    *,
    preset: str | None = None,
    method: str = "fastgcn",
    file: Path | None = None,
    flags: Mapping[str, Any],
    assignments: Sequence[str] = (),
) -> TrainConfig:
    """The settings for a run on a graph: preset, then method, then file, then flags.

    Without a preset: the best settings, or the paper's where a method of its comparison is named.
    `flags` that are None were not given. `assignments` are texts KEY=VALUE in TOML's syntax.
    """
    if preset is None:
        preset = "best" if method == "fastgcn" else "paper"
    if preset not in PRESETS:
        raise InputError(
            f"preset must be one of {', '.join(PRESETS)}, got {preset!r}" + nearest(preset, PRESETS)
        )
    if method not in METHODS:
        raise InputError(
            f"method must be one of {', '.join(METHODS)}, got {method!r}" + nearest(method, METHODS)
        )
    config = METHODS[method](PRESETS[preset](graph))
    given = {key: value for key, value in flags.items() if value is not None}
    values = (read_toml(file) if file else {}) | _assigned(assignments) | given
    return config.replace(**values)


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise MissingFileError(f"there is no config file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not valid TOML: {error}") from None


def _assigned(assignments: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set takes KEY=VALUE, got {text!r}")
        try:
            values[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            values[key.strip()] = value.strip()  # a word without quotes
    return values


def sample_sizes(text: str | None) -> int | list[int] | str | None:
    """The flag `--samples`: numbers, or `auto`."""
    if text is not None and text.isalpha() and text != "auto":
        raise InputError(f"--samples must be whole numbers or auto, got {text!r}")
    return text if text == "auto" else whole_numbers(text, "--samples")


def whole_numbers(text: str | None, name: str) -> int | list[int] | None:
    """A flag such as `--samples 400` or `--samples 400,200`."""
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(
            f"{name} must be a whole number or several with commas, got {text!r}"
        ) from None
    return numbers[0] if len(numbers) == 1 else numbers
