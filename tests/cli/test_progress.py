"""Progress as plain lines: whoever saw a beginning sees the end."""

from collections.abc import Iterator

import pytest

import fastgcn.progress
from fastgcn.progress import plain_lines, progress


@pytest.fixture(autouse=True)
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A first line at once, and no other before the work is done."""
    monkeypatch.setattr(fastgcn.progress, "_DELAY", 0)
    monkeypatch.setattr(fastgcn.progress, "_LINE_EVERY", 1e9)
    plain_lines()
    yield
    plain_lines(False)


def test_the_last_line_says_that_all_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Sorting edges", 60, "entries") as advance:
        for _ in range(60):
            advance(1)
    assert capsys.readouterr().err.splitlines() == [
        "Sorting edges: 2% (1 of 60 entries)",
        "Sorting edges: 100% (60 of 60 entries)",
    ]


def test_all_in_one_step_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Sorting", 60) as advance:
        advance(60)
    assert capsys.readouterr().err == "Sorting: 100% (60 of 60)\n"


def test_work_that_failed_is_not_said_to_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), progress("Sorting", 60, "entries") as advance:
        advance(1)
        raise RuntimeError
    assert capsys.readouterr().err == "Sorting: 2% (1 of 60 entries)\n"


def test_quick_work_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastgcn.progress, "_DELAY", 1e9)
    with progress("Sorting", 60) as advance:
        advance(60)
    assert capsys.readouterr().err == ""
