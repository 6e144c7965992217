"""When to stop and what to keep, against hand-made histories."""

from typing import Any

import pytest

from fastgcn import TrainConfig
from fastgcn.train.training import best_epoch, should_stop

AUTHORS = TrainConfig(early_stopping="authors")
NEVER = TrainConfig(early_stopping="none")


def history(losses: list[float], f1: list[float] | None = None) -> list[dict[str, Any]]:
    scores = f1 or [0.5] * len(losses)
    return [
        {"epoch": i + 1, "val_loss": loss, "val_micro_f1": score}
        for i, (loss, score) in enumerate(zip(losses, scores, strict=True))
    ]


def test_authors_rule_waits_for_thirty_epochs() -> None:
    rising = [float(i) for i in range(60)]
    assert next(n for n in range(1, 61) if should_stop(history(rising[:n]), AUTHORS)) == 31


@pytest.mark.parametrize(
    ("last_two", "stops"),
    [((1.0, 1.0), False), ((0.5, 1.6), True), ((1.6, 0.5), True), ((0.5, 1.4), False)],
)
def test_authors_rule_compares_two_with_the_thirty_before(
    last_two: tuple[float, float], stops: bool
) -> None:
    """Thirty losses of mean 1 decide; a far larger one before them does not count."""
    before = [1000.0] * 5 + [0.5, 1.5] * 15
    assert should_stop(history(before + list(last_two)), AUTHORS) is stops


def test_authors_rule_lets_a_falling_loss_go_on() -> None:
    falling = [1 / (i + 1) for i in range(200)]
    assert not any(should_stop(history(falling[:n]), AUTHORS) for n in range(1, 201))


@pytest.mark.parametrize("patience", [1, 3])
def test_patience_counts_epochs_since_the_best(patience: int) -> None:
    config = TrainConfig(early_stopping="patience", patience=patience)
    f1 = [0.1, 0.2, 0.9, 0.9, 0.8, 0.7, 0.6, 0.5]
    losses = [5.0, 4.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0]  # the best is the third epoch
    stops = [n for n in range(1, 9) if should_stop(history(losses[:n], f1[:n]), config)]
    assert stops == list(range(3 + patience, 9))


def test_without_validation_or_without_a_rule_nothing_stops() -> None:
    rising = [float(i) for i in range(60)]
    assert not should_stop(history(rising), NEVER)
    assert not should_stop([{"epoch": i, "train_loss": 1.0} for i in range(60)], AUTHORS)
    assert not should_stop([], AUTHORS)


@pytest.mark.parametrize(
    ("f1", "losses", "best"),
    [
        ([0.1, 0.3, 0.2], [1.0, 9.0, 1.0], 1),  # the highest score, whatever the loss
        ([0.3, 0.3, 0.3], [3.0, 1.0, 2.0], 1),  # the lowest loss among equals
        ([0.3, 0.3, 0.3], [1.0, 1.0, 1.0], 0),  # the first among what is the same
        ([0.5], [1.0], 0),
    ],
)
def test_the_epoch_that_is_kept(f1: list[float], losses: list[float], best: int) -> None:
    assert best_epoch(history(losses, f1)) == best


def test_without_validation_the_last_epoch_is_kept() -> None:
    assert best_epoch([{"epoch": i + 1, "train_loss": 1.0} for i in range(7)]) == 6


def thinned(records: list[dict[str, Any]], every: int) -> list[dict[str, Any]]:
    """The same epochs, of which only each `every`-th was validated."""
    return [r if r["epoch"] % every == 0 else {"epoch": r["epoch"]} for r in records]


def test_patience_counts_epochs_and_is_asked_at_validations() -> None:
    config = TrainConfig(early_stopping="patience", patience=4)
    f1 = [0.9, 0.2, 0.9, 0.5, 0.9, 0.6, 0.9, 0.5, 0.9, 0.5, 0.9, 0.5]  # odd ones are not seen
    records = thinned(history([1.0] * 12, f1), 2)
    assert best_epoch(records) == 5
    assert [n for n in range(1, 13) if should_stop(records[:n], config)] == [10, 12]


def test_authors_rule_counts_validations() -> None:
    rising = thinned(history([float(i) for i in range(200)]), 3)
    stops = [n for n in range(1, 201) if should_stop(rising[:n], AUTHORS)]
    assert stops == list(range(93, 201, 3))
    low = {"epoch": 93, "val_loss": -50.0, "val_micro_f1": 0.5}
    assert not should_stop([*rising[:92], low], AUTHORS)


def test_an_epoch_without_validation_is_never_kept_before_one_that_has_it() -> None:
    records = thinned(history([3.0, 1.0, 2.0, 1.5, 1.0], [0.1, 0.5, 0.9, 0.3, 0.9]), 2)
    assert [best_epoch(records[:n]) for n in range(1, 6)] == [0, 1, 1, 1, 1]
