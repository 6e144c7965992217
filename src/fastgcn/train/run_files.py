"""The content of a run's files: what each must hold, and safetensors files with a checksum.

A `.safetensors` file of a run has in its metadata the SHA-256 of the whole file, in which the
digits of the sum itself count as zeros. It is checked whenever the file is read, because weights
are small and one changed bit changes predictions. Files of earlier versions have none.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fastgcn.data.imported import IMPORTED
from fastgcn.errors import FormatError, MissingFileError
from fastgcn.files import open_regular, parse_json
from fastgcn.graph.labels import TASKS, Task
from fastgcn.metrics import NUMBER_SCORES
from fastgcn.schema import (
    Check,
    anything,
    boolean,
    digest,
    integer,
    list_of,
    mapping,
    number,
    optional,
    record,
    refuse,
    text,
    validate,
)

_SUM = "sha256"
_ZEROS = "0" * 64


def one_of(choices: Sequence[str]) -> Check:
    """One of some words."""

    def check(value: Any, field: str) -> None:
        if value not in choices:
            raise refuse(field, f"one of {', '.join(choices)}", value)

    return check


_seconds: Check = mapping(number)
_numbers = list_of(number)


def _decision(value: Any, field: str) -> None:
    """Temperature and threshold, which outputs are divided by and compared with."""
    record({"temperature": number, "threshold": number}, {"positive": integer(0, 1)})(value, field)
    known = value.keys() <= {"temperature", "threshold", "positive"}
    if not known or not (value["temperature"] or 0) > 0 or value["threshold"] is None:
        raise refuse(field, "a temperature above 0 and a threshold", value)


_SIZE = integer(1, 2**31 - 1)

# What a network is beside its weights.
_NETWORK: dict[str, Check] = {
    "decision": _decision,
    "sizes": list_of(_SIZE, shortest=2),
    "multilabel": boolean,
    "class_names": optional(list_of(text())),
    "feature_names": optional(list_of(text())),
}

# Of a network that predicts numbers; others say by `multilabel` what they predict. And of several
# networks in one.
_SOME_HAVE: dict[str, Check] = {"task": one_of(TASKS), "ensemble": integer(1, 100)}

# `config.json`: what was started.
ABOUT = record(
    {
        "config": mapping(anything),
        "data": optional(record({}, {"data": text()})),
        "fingerprint": digest,
    },
    {
        "sampler": optional(text()),
        "model": text(),
        "imported": optional(IMPORTED),
        "task": one_of(TASKS),
    },
)

# A line of `metrics.jsonl`.
_SCORES = ("val_loss", "val_micro_f1", "val_macro_f1", "val_r2", "val_mae", "val_rmse")
EPOCH = record(
    {"epoch": integer(1), "train_loss": number, "empty_rows": number},
    dict.fromkeys((*_SCORES, "val_accuracy", "seconds", "seconds_per_batch"), number),
)

# `result.json`: what came of it, and the checksums of the other files.
_PURPOSES = ("precompute", "sampling", "compute", "evaluation")
RESULT = record(
    {
        "dataset": text(),
        "epochs": integer(1),
        "best_epoch": integer(1),
        **{f"{purpose}_seconds": number for purpose in _PURPOSES},
        "seconds_per_batch": number,
        "batches": integer(),
        "device": text(),
    },
    {
        **dict.fromkeys((*_SCORES, *(s.replace("val_", "test_") for s in _SCORES)), number),
        **dict.fromkeys(("val_accuracy", "test_accuracy", "compiling_seconds"), number),
        "validate_every": integer(1),
        "sampler": text(),
        "test_classes": record(dict.fromkeys(("precision", "recall", "f1", "support"), _numbers)),
        "stopped": text(),
        "metric": text(),
        "notes": list_of(text()),
        "decision": _decision,
        "task": one_of(TASKS),
        "target": record(dict.fromkeys(("mean", "scale"), number)),
        "files": mapping(digest),
    },
)

# The state that a run is resumed from.
PROGRESS = record({"epochs": integer(), "batches": integer(), "seconds": _seconds})

# What that state has beside it, so that a run can be used before its end.
NETWORK = record(
    {
        **_NETWORK,
        "dataset": text(),
        "metric": text(),
        "device": text(),
        "validate_every": integer(1),
    },
    _SOME_HAVE,
)

# The metadata of a model, each entry a text of JSON.
MODEL: dict[str, Check] = {"config": mapping(anything), **_NETWORK, **_SOME_HAVE}


# What a file without a checksum, such as that of an earlier version, may have.
_EARLIER = {"config", *_NETWORK, "schema", "fingerprint", "progress", "network"}


def check_result(result: Mapping[str, Any], classes: int, path: Path) -> None:
    """Check that the numbers of a run's result belong together; it has `classes` classes."""
    scores = [n for n in result if n.startswith(("val_", "test_")) and n != "test_classes"]
    validate(dict(result), record({}, dict.fromkeys(scores, number)), path, "train again")
    if result["best_epoch"] > result["epochs"]:
        said = f"best_epoch is {result['best_epoch']} of {result['epochs']} epochs"
    elif any(len(each) != classes for each in result.get("test_classes", {}).values()):
        said = f"test_classes must have numbers for each of the {classes} classes"
    elif any(_has_some(result, part) and not _has_scores(result, part) for part in _PARTS):
        said = "it does not have all scores of a part of the split"
    else:
        return
    raise FormatError(f"{path} is damaged: {said}")


_PARTS = ("val", "test")


def _has_some(values: Mapping[str, Any], part: str) -> bool:
    return any(f"{part}_{score}" in values for score in ("micro_f1", *NUMBER_SCORES))


def _has_scores(values: Mapping[str, Any], part: str) -> bool:
    return any(
        all(f"{part}_{score}" in values for score in scores)
        for scores in (("loss", "micro_f1", "macro_f1"), NUMBER_SCORES)
    )


def check_epoch(value: Any, number_of_epoch: int, path: Path) -> None:
    """Check one line of the history, that of the epoch with this number."""
    validate(value, EPOCH, path, f"see its line {number_of_epoch}")
    if value["epoch"] != number_of_epoch:
        raise FormatError(
            f"{path} is damaged: its line {number_of_epoch} is that of epoch {value['epoch']}"
        )
    if any(score in value for score in _SCORES) and not _has_scores(value, "val"):
        raise FormatError(f"{path} is damaged: line {number_of_epoch} lacks a score")


def model_metadata(
    metadata: Mapping[str, str], n_bytes: int, path: Path, *, own: bool = False
) -> dict[str, Any]:
    """The parsed metadata of a model whose file has `n_bytes`."""
    # Earlier versions do not have these.
    values: dict[str, Any] = {"feature_names": None, "decision": {}}
    for key, check in MODEL.items():
        if key in metadata:
            values[key] = parsed(metadata[key], key, check, path)
    check_network(values, n_bytes, path, own=own)
    return values


def check_network(
    values: Mapping[str, Any], n_bytes: int, path: Path, *, own: bool = False
) -> None:
    """Check that names and sizes belong together, and that weights of `n_bytes` may have these;
    of a user's `own` module, only the first and the last size are known."""
    if network_task(values) == "regression" and values["sizes"][-1] != 1:
        raise FormatError(f"{path} is damaged: a regression has one output")
    sizes = values["sizes"]
    widths = {"class_names": sizes[-1], "feature_names": sizes[0]}
    for key, width in widths.items():
        if values[key] is not None and len(values[key]) != width:
            raise FormatError(
                f"{path} is damaged: it has {len(values[key])} {key} for a network of {width}"
            )
    # A network is built before its weights are read: it must not be larger than these.
    if not own and any(4 * n_in * n_out > n_bytes for n_in, n_out in pairwise(sizes)):
        raise FormatError(f"{path} is damaged: it has no weights of the sizes {sizes[:8]}")


def network_task(values: Mapping[str, Any]) -> Task:
    """What a network predicts, from what a file has beside its weights."""
    usual: Task = "multilabel" if values["multilabel"] else "classification"
    task: Task = values.get("task", usual)
    return task


def parsed(data: str, field: str, check: Check, path: Path) -> Any:
    """A value that metadata hold as JSON."""
    try:
        value = parse_json(data)
        check(value, field)
    except ValueError as error:
        raise FormatError(f"{path} is damaged: {field}: {error}") from None
    return value


def safetensors_bytes(tensors: dict[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """A safetensors file with its checksum; the same content gives the same bytes.

    The library writes metadata in a random order; the header (its length in 8 bytes, then JSON
    padded with blanks to a multiple of 8) is written again with its keys sorted.
    """
    data = save(tensors, {**metadata, _SUM: _ZEROS})
    length = int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8 : 8 + length]), sort_keys=True).encode()
    header += b" " * (-len(header) % 8)
    size = len(header).to_bytes(8, "little")
    found = _sha256(size, header, data[8 + length :])
    return size + header.replace(_entry(_ZEROS), _entry(found), 1) + data[8 + length :]


def _entry(sha256: str) -> bytes:
    return f'"{_SUM}": "{sha256}"'.encode()


def _sha256(*parts: bytes | memoryview) -> str:
    digest_of = hashlib.sha256()
    for part in parts:
        digest_of.update(part)
    return digest_of.hexdigest()


def read_safetensors(
    path: Path, required: tuple[str, ...]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, and its metadata, which has the `required` keys; both verified."""
    data = _read(path)
    try:
        metadata = _metadata(data)
        if _SUM in metadata:
            _verify(data, metadata[_SUM])
        elif not metadata.keys() <= _EARLIER:  # perhaps a changed bit of the checksum's own name
            raise ValueError("it has no checksum, but metadata that no earlier version has")
        tensors: dict[str, Tensor] = load(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path} is damaged: {error}") from None
    for key in required:
        if key not in metadata:
            raise FormatError(f"{path} is damaged: its metadata lacks {key}")
    return tensors, metadata


def has_checksum(path: Path) -> bool:
    """True if a safetensors file has a checksum, which is right then."""
    return _SUM in read_safetensors(path, ())[1]


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read()
    except FileNotFoundError:
        raise MissingFileError(f"{path} is missing") from None
    except ValueError as error:
        raise FormatError(f"{path} is damaged: {error}") from None


def _metadata(data: bytes) -> dict[str, str]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise ValueError("it ends within its header")
    header = parse_json(data[8 : 8 + length])
    metadata: dict[str, str] = header.get("__metadata__", {}) if isinstance(header, dict) else {}
    mapping(text(1 << 26))(metadata, "its metadata")
    return metadata


def _verify(data: bytes, said: str) -> None:
    digest(said, _SUM)
    end = 8 + int.from_bytes(data[:8], "little")
    header = data[8:end].replace(_entry(said), _entry(_ZEROS), 1)
    if _sha256(data[:8], header, memoryview(data)[end:]) != said:
        raise ValueError("its checksum has changed")
