"""One page writer: experiments become sections of a Markdown page, or of a report in HTML.

A Markdown page has the lines `<!-- NAME: begin -->` and `<!-- NAME: end -->` for each experiment;
what is between them is replaced. Figures go into the folder `figures` beside the page. Below every
section stands where its results come from, and whether they are stale.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.processes import together
from benchmarks.results import Measurement, Record, Results
from fastgcn.errors import FormatError, InputError, nearest
from fastgcn.progress import note
from fastgcn.report.page import Content, Figure, Section, Table, markdown
from fastgcn.report.plots import Series, lines
from fastgcn.writing import write_text

DASH = "–"  # not known, or it does not exist
NOT_YET = "Not measured yet."
CLAIMS_HEAD = ("", "measured", "bound", "met")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A question: what must be measured for it, and how the results are shown.

    `show` gives nothing as long as results are missing that it cannot do without; parts that are
    None or empty are left out. `gathered`: its rows are those of other
    sections, which say where they come from.
    """

    name: str
    title: str
    question: str = ""
    plan: Callable[[Results], Iterable[Measurement]]
    show: Callable[[Results], Sequence[Content | None]]
    gathered: bool = False


def from_records(
    name: str,
    title: str,
    measurements: Mapping[str, Measurement],
    show: Callable[[dict[str, Record]], Sequence[Content | None]],
    *,
    some: bool = False,
) -> Experiment:
    """An experiment that is shown as soon as all its results are on file, given by their names.

    Optional ones may be missing; with `some`, all but one may.
    """

    def shown(results: Results) -> Sequence[Content | None]:
        every = {each: results.get(m.key) for each, m in measurements.items()}
        found = {each: record for each, record in every.items() if record is not None}
        lacking = [each for each, m in measurements.items() if each not in found and not m.optional]
        return [] if lacking and not (some and found) else show(found)

    return Experiment(name=name, title=title, plan=lambda _: measurements.values(), show=shown)


def chosen(names: Iterable[str] | None, experiments: Sequence[Experiment]) -> list[Experiment]:
    """The experiments of these names, in their order; none, or `all`, means every one."""
    known = [each.name for each in experiments]
    wanted = set(names or ()) or {"all"}
    for name in wanted - {"all"}:
        if name not in known:
            raise InputError(
                f"there is no experiment {name!r}{nearest(name, known)}; there are all, "
                f"{', '.join(known)}"
            )
    return [each for each in experiments if "all" in wanted or each.name in wanted]


def measure(experiments: Sequence[Experiment], results: Results, *, jobs: int = 1) -> int:
    """Measure what the results lack; how many that were.

    Each result is on file as soon as it is there. What a plan asks for later may depend on it
    (the learning rate that validation prefers), so the total may change on the way. With several
    jobs, what is not timed is measured first, in so many processes, each on one core, and those
    that took longest the last time begin; then the rest, alone.
    """

    def missing() -> Iterable[Measurement]:
        return (m for each in experiments for m in each.plan(results) if results.lacks(m))

    tried: set[str] = set()

    def batch(*, alone: bool) -> list[Measurement]:
        found = {repr(m.key): m for m in missing() if m.alone == alone and repr(m.key) not in tried}
        tried.update(found)
        return [*found.values()]

    total, done = len({repr(m.key) for m in missing()}), 0
    if jobs == 1:
        for measurement in missing():
            done += 1
            note(f"{done} of {max(total, done)}: {measurement.label}")
            results.measure(measurement)
        return done
    while some := batch(alone=False) or batch(alone=True):
        timed = some[0].alone
        some.sort(key=lambda m: 0.0 if timed else -results.took(m))
        how = "one by one" if timed else f"in {min(jobs, len(some))} processes"
        note(f"{len(some)} {'times' if timed else 'results'}, {how}")
        records = (
            map(Measurement.record, some) if timed else together(Measurement.record, some, jobs)
        )
        for record in records:
            done += 1
            note(f"{done} of {max(total, done)}")
            results.keep(record)
    return done


def sections(experiments: Sequence[Experiment], results: Results) -> list[Section]:
    """All experiments as they are on file, each with the origin of its results below."""
    found = []
    for each in experiments:
        content, left_out = settled(each, results)
        notes = results.notes()
        if each.gathered:
            notes = [" ".join(results.notes(machines=False))] if notes else []
        content = [*(content or [NOT_YET]), *filter(None, notes)]
        if left_out:
            content.append(f"{left_out:,} results of earlier code are left out: they do not mix.")
        found.append(Section(each.name, each.title, each.question, content))
    return found


_TOGETHER = "Fresh and stale results are shown together: the fresh ones alone would show nothing."


def settled(experiment: Experiment, results: Results) -> tuple[list[Content], int]:
    """What an experiment shows, and how many stale results it leaves out.

    Where some results are fresh and some stale, of the same party, the fresh ones alone count. If
    they are not enough to show anything, all are shown, and it is said. Rows that are gathered
    from several sections were settled there.
    """

    def shown() -> list[Content]:
        results.used = {}
        return [part for part in experiment.show(results) if part]

    content, stale, mixed = shown(), results.stale_used, results.mixed
    if not mixed or experiment.gathered:
        return content, 0
    with results.fresh_alone(mixed):
        content = shown()
    if content:
        return content, stale - results.stale_used
    return [*shown(), _TOGETHER], 0


def check_marks(path: Path, experiments: Sequence[Experiment]) -> None:
    """Refuse a page that has no place for what is measured."""
    text = path.read_text(encoding="utf-8") if path.exists() else _blank(experiments)
    for begin, end in map(_marks, experiments):
        if [text.count(begin), text.count(end)] != [1, 1] or text.index(begin) > text.index(end):
            raise FormatError(
                f"{path} must hold the line {begin} and after it the line {end}, once each, "
                "between which the tables go"
            )


def fill_page(path: Path, experiments: Sequence[Experiment], results: Results) -> list[Path]:
    """Put the sections between their marks; the files written, the page last.

    A page that does not exist is made.
    """
    check_marks(path, experiments)
    text = path.read_text(encoding="utf-8") if path.exists() else _blank(experiments)
    files: list[Path] = []
    for each, section in zip(experiments, sections(experiments, results), strict=True):
        parts, figures = [], 0
        for part in section.content:
            if isinstance(part, Figure):
                name = _numbered(f"{path.stem}-{each.name}", figures)
                files.append(path.parent / "figures" / f"{name}.svg")
                figures += 1
                files[-1].parent.mkdir(parents=True, exist_ok=True)
                write_text(files[-1], part.svg + "\n")
                parts.append(f"![{part.caption}](figures/{name}.svg)\n")
            else:
                parts.append(markdown(part) if isinstance(part, Table) else f"{part}\n")
        begin, end = _marks(each)
        before, rest = text.split(begin)
        text = f"{before}{begin}\n\n" + "\n".join(parts) + f"\n{end}{rest.split(end)[1]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return [*files, path]


def as_json(shown: Iterable[Section]) -> list[Record]:
    """The tables and sentences of sections as plain data."""
    return [
        {
            "id": section.id,
            "title": section.title,
            "tables": [
                {"caption": part.caption, "head": part.head, "rows": part.rows}
                for part in section.content
                if isinstance(part, Table)
            ],
            "text": [part for part in section.content if isinstance(part, str)],
        }
        for section in shown
    ]


def _numbered(name: str, number: int) -> str:
    return name if number == 0 else f"{name}-{number + 1}"


def _marks(experiment: Experiment) -> tuple[str, str]:
    return f"<!-- {experiment.name}: begin -->", f"<!-- {experiment.name}: end -->"


def _blank(experiments: Sequence[Experiment]) -> str:
    parts = ["\n".join([f"## {each.title}\n", *_marks(each)]) + "\n" for each in experiments]
    return "\n".join(["# Measured\n", *parts])


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One measured number and the bound asked of it, if any.

    >>> claim = Claim(what="a step / its floor", value=1.25, at_most=1.3)
    >>> claim.bound, claim.met
    ('at most 1.3', True)
    """

    what: str
    value: float
    at_most: float | None = None
    at_least: float | None = None
    unit: str = ""

    @property
    def bound(self) -> str:
        if self.at_most is not None:
            return f"at most {short(self.at_most)}{self.unit}"
        return DASH if self.at_least is None else f"at least {short(self.at_least)}{self.unit}"

    @property
    def met(self) -> bool | None:
        """None where nothing was asked."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return None if self.at_least is None else self.value >= self.at_least


def claims_table(claims: Sequence[Claim], caption: str) -> Table:
    """What was measured beside what was asked."""
    answers = {None: DASH, True: "yes", False: "no"}
    rows = [(c.what, short(c.value) + c.unit, c.bound, answers[c.met]) for c in claims]
    return Table(CLAIMS_HEAD, rows, caption)


def line_figure(
    series: Sequence[Series], title: str, about: str, x: str, y: str, *, logs: str = "xy"
) -> Figure | None:
    """Lines in a picture, if there are any; `about` is its caption, `logs` names axes in logs."""
    if not series:
        return None
    x_log, y_log = "x" in logs, "y" in logs
    svg = lines(
        series, title=title, description=about, x_label=x, y_label=y, x_log=x_log, y_log=y_log
    )
    return Figure(svg, about)


def short(value: float | None, digits: int = 3) -> str:
    """A number to so many significant digits, without an exponent; whole ones are not rounded.

    >>> short(0.0084123), short(58346.6), short(26.04), short(None), short(float("inf"))
    ('0.00841', '58,347', '26', '–', '∞')
    """
    if value is None:
        return DASH
    if np.isinf(value):
        return "∞"  # a time to a score that was never reached
    decimals = max(0, digits - 1 - int(np.floor(np.log10(abs(value))))) if value else 0
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def sd(values: Sequence[float]) -> float:
    """The standard deviation of which some values are a sample; NaN of one.

    >>> sd([1.0, 2.0, 3.0]), sd([1.0])
    (1.0, nan)
    """
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def standard_error(values: Sequence[float]) -> float:
    """That of the mean of some values; NaN of one.

    >>> standard_error([1.0, 3.0, 5.0, 7.0]) * 4 == sd([1.0, 3.0, 5.0, 7.0]) * 2
    True
    """
    return sd(values) / float(np.sqrt(len(values)))


def mean_sd(values: Sequence[float], digits: int = 3) -> str:
    """Mean ± standard deviation; of one value, that value.

    >>> mean_sd([0.85, 0.87]), mean_sd([0.85]), mean_sd([])
    ('0.860 ± 0.014', '0.850', '–')
    """
    if not values:
        return DASH
    spread = f" ± {sd(values):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def ratio(ours: float | None, theirs: float | None) -> str:
    """ours / theirs."""
    return DASH if ours is None or not theirs else short(ours / theirs)


def listed(items: Sequence[Any]) -> str:
    """Items in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    words = [str(item) for item in items]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
