"""The comparison of the estimators as tables and figures, and the page in docs that holds them."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.family import BASELINE, MEMBERS, Effort
from benchmarks.results import Record
from fastgcn.errors import FormatError
from fastgcn.files import write_text
from fastgcn.report.page import Figure, Table, markdown, plain_number
from fastgcn.report.plots import Series, lines

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
DASH = "–"  # what is not known, or does not exist
AS_WRITTEN = f"{BASELINE} as written"
_CLEARLY = 1.05  # a gain below this is the clock's noise


def cost_table(costs: Record) -> Table:
    """A row for each member: its error and time at the paper's t, and its errors at equal time."""
    head = (
        "estimator", "error", "variance", "rows", "ms a step",
        "t at equal time", "error there", "gain",
        "t at the time as written", "error there", "gain",
    )  # fmt: skip
    baseline, written = _baseline(costs), costs["written"]
    as_written = {"member": AS_WRITTEN, "equal_time": None, "written_time": None}
    rows = [
        (
            each["member"],
            _error(each),
            _short(each["variance"]),
            _short(each["rows"]),
            f"{1000 * each['seconds']:.2f}",
            *_at(costs, each, "equal_time"),
            *_at(costs, each, "written_time"),
        )
        for each in [baseline | written | as_written, *costs["members"]]
    ]
    return Table(
        head, rows, f"Error of the gradient and time on {costs['data']}, t = {costs['t']:,}"
    )


def _at(costs: Record, member: Record, which: str) -> tuple[str, str, str]:
    there, gain = member[which], gain_of(costs, member, which)
    if there is None or gain is None:
        return DASH, DASH, DASH
    return f"{there['t']:,}", _error(there), _short(gain)


def gain_of(costs: Record, member: Record, which: str = "equal_time") -> float | None:
    """How many times a member's error is below Algorithm 2's, at the time of its step; `which`
    says whether of the library's, or as it is written."""
    if member[which] is None:
        return None
    return float(_baseline(costs)["error"] / member[which]["error"])


def _baseline(costs: Record) -> Record:
    (baseline,) = (each for each in costs["members"] if each["member"] == BASELINE)
    found: Record = baseline
    return found


def finding(costs: Record) -> str:
    """Who is best at equal time, in two sentences or three."""
    text = f"On {costs['data']}, at the time that a step of Algorithm 2 takes with "
    text += f"t = {costs['t']:,}, {_best(costs, 'equal_time')}."
    gains = [gain_of(costs, each) for each in costs["members"]]
    if slow := gains.count(None):
        text += f" {slow} of {len(gains)} take longer at any size tried."
    text += f" At the {1000 * costs['written']['seconds']:.2f} ms that it takes as it is written, "
    return f"{text}every row drawn computed, {_best(costs, 'written_time')}."


def _best(costs: Record, which: str) -> str:
    gains = {each["member"]: gain_of(costs, each, which) for each in costs["members"]}
    known = {name: gain for name, gain in gains.items() if gain is not None}
    best = max(known, key=lambda name: known[name])
    if known[best] < _CLEARLY:
        return "no estimator's error is clearly below its own"
    return f"the smallest error is that of {best}: {_short(known[best])} times below its own"


def figure(costs: Record) -> Figure:
    """Error against time for some of the members, over the sizes tried."""
    shown = {member.name for member in MEMBERS if member.drawn}
    series = []
    for each in costs["members"]:
        if each["member"] in shown:
            curve = sorted(each["curve"], key=lambda point: point["seconds"])
            milliseconds = [1000 * point["seconds"] for point in curve]
            series.append(Series(each["member"], milliseconds, [p["error"] for p in curve]))
    sizes = [point["t"] for point in costs["members"][0]["curve"]]
    title = f"Error of the gradient against time, {costs['data']}"
    svg = lines(
        series,
        title=title,
        description=f"t from {min(sizes):,} to {max(sizes):,}. {finding(costs)}",
        x_label="ms a step",
        y_label="squared error / squared norm",
        x_log=True,
        y_log=True,
    )
    return Figure(svg, title)


def accuracy_table(accuracies: Sequence[Record]) -> Table:
    """Mean ± sd of the test micro-F1: a row for each member, a column for each data set."""
    data = list(dict.fromkeys(each["data"] for each in accuracies))
    cells = {(each["case"], each["data"]): _score(each) for each in accuracies}
    rows = [(m.name, *(cells[m.name, name] for name in data)) for m in MEMBERS]
    seeds = accuracies[0]["seeds"]
    caption = f"mean ± sd over {seeds} seeds" if seeds > 1 else "one seed"
    return Table(("estimator", *data), rows, f"Test micro-F1, {caption}")


def write_page(
    path: Path, effort: Effort, costs: Sequence[Record], accuracies: Sequence[Record]
) -> list[Path]:
    """Put tables and figures between the marks of a page; the files written, the page last.

    Figures go into the folder `figures` beside it. A page that does not exist is made.
    """

    check_marks(path)
    page = (
        path.read_text(encoding="utf-8") if path.exists() else f"# Estimators\n\n{BEGIN}\n{END}\n"
    )
    pictures = {
        path.parent / "figures" / f"estimators-{Path(each['data']).name}.svg": figure(each)
        for each in costs
    }
    (path.parent / "figures").mkdir(parents=True, exist_ok=True)
    parts = [markdown(_members()), _how(effort)]
    for each, (file, picture) in zip(costs, pictures.items(), strict=True):
        write_text(file, picture.svg + "\n")
        link = f"![{picture.caption}](figures/{file.name})\n"
        parts += [markdown(cost_table(each)), finding(each) + "\n", _where(each), link]
    if accuracies:
        parts.append(markdown(accuracy_table(accuracies)))
    before, rest = page.split(BEGIN)
    text = f"{before}{BEGIN}\n\n" + "\n".join(parts) + f"\n{END}{rest.split(END)[1]}"
    write_text(path, text)
    return [*pictures, path]


def check_marks(path: Path) -> None:
    """Refuse a page that has no place for what is measured."""
    if path.exists():
        text = path.read_text(encoding="utf-8")
        if [text.count(BEGIN), text.count(END)] != [1, 1] or text.index(BEGIN) > text.index(END):
            raise FormatError(
                f"{path} must hold the line {BEGIN} and after it the line {END}, once each, "
                "between which the tables go"
            )


def _members() -> Table:
    rows = [(member.name, member.in_words() or "those of the paper") for member in MEMBERS]
    return Table(("estimator", "settings"), rows, "The estimators")


def _how(effort: Effort) -> str:
    sizes = ", ".join(f"{size:g}" for size in effort.sizes)
    return (
        f"Errors: {effort.draws} draws for each of {effort.batches} batches, after "
        f"{effort.network_epochs} epochs. Times: medians of {effort.rounds}, at {sizes} times the "
        "paper's t.\n"
    )


def _where(costs: Record) -> str:
    where = costs["where"]
    gpu = f", {where['gpu']}" if where.get("gpu") else ""
    return (
        f"Times: {where.get('processor')}, {where.get('cores')} cores{gpu}; "
        f"fastgcn {where.get('fastgcn')}, torch {where.get('torch')}.\n"
    )


def _score(accuracy: Record) -> str:
    spread = f" ± {accuracy['test_sd']:.4f}" if accuracy["seeds"] > 1 else ""
    return f"{accuracy['test_micro_f1']:.4f}{spread}"


def _error(found: Record) -> str:
    return f"{_short(found['error'])} ± {_short(found['standard_error'], 1)}"


def _short(value: float, digits: int = 3) -> str:
    return plain_number(float(f"{value:.{digits}g}"))
