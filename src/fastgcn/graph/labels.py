"""Labels: classes, label sets or numbers; they say what a network learns of a graph."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fastgcn.arrays import AnyArray, BoolArray, FloatArray, IntArray
from fastgcn.errors import InputError
from fastgcn.graph import checks

# What a graph's labels are, which says what a network learns: one class a node, several labels
# a node, or a number.
Task = Literal["classification", "multilabel", "regression"]
TASKS: tuple[Task, ...] = ("classification", "multilabel", "regression")
Labels = IntArray | BoolArray | FloatArray

# Whole numbers are class ids if there are at most so many of them, or if they are 0, 1, 2, ... and
# so many nodes on average have each; other numbers are amounts.
_MANY_NUMBERS = 100
_NODES_A_CODE = 20

# The square of a larger target is beyond float64.
_LARGEST_TARGET = 1e100

# Class ids may go up to this number, or up to the number of nodes if there are more. A part of a
# graph has fewer nodes and the same classes, so a graph that was checked may have more.
_MOST_CLASSES = 1 << 16
CLASSES_OF_PART = 1 << 20


def task_of(labels: AnyArray) -> Task:
    """The task of labels in the types that `checked_labels` returns."""
    if labels.dtype.kind == "f":
        return "regression"
    return "multilabel" if labels.ndim == 2 else "classification"


def has_label(labels: AnyArray) -> BoolArray:
    """(k,): which nodes have a class or a number; an empty set of labels counts as one."""
    if labels.ndim == 2:
        return np.ones(len(labels), np.bool_)
    return ~np.isnan(labels) if labels.dtype.kind == "f" else np.greater_equal(labels, 0)


def are_amounts(values: FloatArray) -> bool:
    """True if numbers, NaN for none, look like amounts, and not like the ids of classes.

    >>> are_amounts(np.array([0.0, 1.0, np.nan])), are_amounts(np.array([0.5, 1.0]))
    (False, True)
    """
    known = values[~np.isnan(values)]
    if not np.array_equal(known, np.trunc(known)):
        return True
    distinct = np.unique(known)
    return len(distinct) > _MANY_NUMBERS and not are_codes(known)


def are_codes(values: FloatArray) -> bool:
    """True if numbers are 0, 1, 2, ..., or 1, 2, ..., and many nodes have each of them."""
    known = values[~np.isnan(values)]
    distinct = np.unique(known)
    whole = len(distinct) and distinct[0] in (0, 1) and np.all(np.diff(distinct) == 1)
    return bool(whole) and len(known) >= _NODES_A_CODE * len(distinct)


def checked_labels(
    values: Any, n: int, class_names: Sequence[str] | None, task: Task | None = None
) -> Labels | None:
    """Class ids (n,) int64 with -1 for none, label sets (n, C) bool, or targets (n,) float64 with
    NaN for none; ids must fit `class_names` if given.

    Without a `task`, floats are targets if they have fractions, are below -1, or are many
    (`are_amounts`). Integers are class ids.
    """
    if task not in (None, *TASKS):
        raise InputError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
    if values is None:
        return None
    array = checks.as_array(values, "labels")
    if array.shape[1:] == (1,) and array.dtype.kind == "f" and not np.isin(array, (0, 1)).all():
        array = array[:, 0]
    if task == "regression" or (task is None and class_names is None and _are_targets(array)):
        return targets(array, n, class_names)
    if array.ndim == 1 and array.dtype.kind == "f":
        array = np.where(np.isnan(array), -1, array)
    if array.ndim not in (1, 2) or array.shape[0] != n:
        raise InputError(
            f"labels must have shape ({n},) for one class per node or ({n}, C) for several, "
            f"got {array.shape}"
        )
    if array.ndim == 2:
        if array.shape[1] == 0:
            raise InputError("labels must have at least one column, one per class, got none")
        if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
            raise InputError(
                "multi-label labels must be 0 or 1 (or bool); the targets of a regression are one "
                f"column, a number a node, got {array.shape[1]} columns"
            )
        _class_count(array.shape[1], class_names)
        return array.astype(np.bool_, copy=False)
    ids = checks.integers(array, "labels").astype(np.int64, copy=False)
    if ids.size and int(ids.min()) < -1:
        raise InputError(f"labels must be class ids or -1 for none, got {ids.min()}")
    if class_names is not None and ids.size and int(ids.max()) >= len(class_names):
        raise InputError(
            f"labels must be below the number of classes, {len(class_names)}, got {ids.max()}"
        )
    if class_names is None:
        class_count(ids)
    return ids


def _are_targets(array: AnyArray) -> bool:
    if array.dtype.kind != "f" or array.ndim != 1:
        return False
    return are_amounts(array) or bool(np.less(array, -1).any())


def targets(values: AnyArray, n: int, class_names: Sequence[str] | None = None) -> FloatArray:
    """(n,) float64, NaN for none: a number for each node."""
    if class_names is not None:
        raise InputError("class_names are for classes, and the labels of a regression are numbers")
    if values.shape != (n,):
        raise InputError(
            f"the labels of a regression must be one number a node, of shape ({n},), got "
            f"{values.shape}"
        )
    if values.dtype.kind not in "fiub":
        raise InputError(f"the labels of a regression must be numbers, got {values.dtype}")
    found = values.astype(np.float64)
    wrong = np.flatnonzero(np.abs(found) > _LARGEST_TARGET)
    if wrong.size:
        raise InputError(
            f"the labels of a regression must be finite, or NaN for none, but node {wrong[0]} has "
            f"{found[wrong[0]]:g} ({wrong.size:,} such nodes)"
        )
    return found


def class_count(ids: IntArray, most: int = _MOST_CLASSES) -> int:
    """The number of classes of (n,) class ids: the largest id and one.

    A model has an output for each number up to the largest, also for those that no node has.
    """
    count, n = int(ids.max(initial=-1)) + 1, len(ids)
    if count > max(n, most):
        raise InputError(
            f"labels must be class ids from 0, got {count - 1} in a graph of {n:,} nodes; number "
            "the classes 0, 1, 2, ..., and give a node without a class the label -1"
        )
    return count


def _class_count(n_columns: int, class_names: Sequence[str] | None) -> None:
    if class_names is not None and len(class_names) != n_columns:
        raise InputError(
            f"class_names must have {n_columns} entries, one per label, got {len(class_names)}"
        )


def labelled(
    parts: Mapping[str, IntArray],
    values: Labels | None,
    own_ids: Sequence[Any] | None,
) -> None:
    """Check that training and validation nodes have a label; test nodes may have none."""
    if values is None:
        return
    for name in ("train", "val"):
        without = parts[name][~has_label(values[parts[name]])]
        if without.size:
            raise InputError(
                f"{checks.named(int(without[0]), own_ids)} is in the {name} part of the split but "
                f"has no label ({without.size:,} such nodes); label it or leave it out of the split"
            )
