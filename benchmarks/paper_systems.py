"""All systems compared: Figure 3, Table 3, and the times and splits of appendix C."""

from collections.abc import Mapping

from benchmarks.cases import CURVE_NODES, OWN_SPLIT, Case
from benchmarks.pages import DASH, line_figure, mean, mean_sd, ratio, short
from benchmarks.paper_scale import (
    Contents,
    DataSet,
    Figures,
    Scale,
    against_paper,
    beside,
    step_times,
)
from benchmarks.published import (
    BATCH_SECONDS,
    F1,
    NEW_GRAPHSAGE_SECONDS,
    ORIGINAL_SPLIT,
    SYSTEMS,
    TOTAL_SECONDS,
)
from benchmarks.results import Measurement, Record, Results
from fastgcn.report.page import Figure, Table
from fastgcn.report.plots import Series, bars
from fastgcn.train.presets import METHODS

# Figure 3 and Table 3: time a batch and accuracy of all systems.


def _batch_times(data: DataSet, scale: Scale) -> Measurement:
    configs = {system: data.settings(system) for system in data.systems}
    return step_times("time a batch", data, configs, scale)


def times(scale: Scale) -> list[Measurement]:
    return [_batch_times(data, scale) for data in scale.data]


def trainings(scale: Scale) -> list[Case]:
    return [data.case(system) for data in scale.data for system in data.systems]


def times_and_trainings(scale: Scale) -> list[Case | Measurement]:
    return [*times(scale), *trainings(scale)]


def _seconds_a_batch(scale: Scale, results: Results) -> dict[str, dict[str, float]]:
    """The measured time of every system, by data set and name; empty where it is not on file."""
    found = {data.label: results.get(_batch_times(data, scale).key) or {} for data in scale.data}
    return {
        label: {system: times["seconds_per_batch"] for system, times in each.items()}
        for label, each in found.items()
    }


def systems_scores(system: str, data: DataSet, results: Results) -> list[float]:
    return data.case(system).test_scores(results) if system in data.systems else []


def show_figure3(scale: Scale, results: Results) -> Contents:
    """Bars of the time a batch, and the table of F1."""

    def score(system: str, data: DataSet) -> Figures:
        scores = systems_scores(system, data, results)
        return mean(scores), mean_sd(scores), F1[system].get(data.paper)

    texts = []
    for data in scale.data:
        ours, batched = (mean(systems_scores(s, data, results)) for s in ("fastgcn", "gcn-batched"))
        if ours is not None and batched is not None:
            texts.append(
                f"On {data.label} the F1 of FastGCN minus that of batched GCN is "
                f"{ours - batched:+.3f}."
            )
    caption = "Test micro-F1, mean ± sd over seeds"
    return [
        _bars(_seconds_a_batch(scale, results)),
        against_paper(SYSTEMS, score, scale.data, caption, digits=3),
        " ".join(texts),
        "Times are those of Table 3, below. Every system trains in the same loop, and stops by "
        f"the same rule: after {scale.small.config.patience} epochs without a better validation "
        "score, or at the limit of the table. Validation chooses the epoch that is kept and, where "
        "several are given, the learning rate, by its mean over seeds. Test nodes are evaluated "
        "once, by the full network.",
        _settings_table(scale, results),
    ]


def show_summary(scale: Scale, results: Results) -> Contents:
    """Figure 3 in one table, for the README."""
    seconds, rows = _seconds_a_batch(scale, results), []
    for data in scale.data:
        times = seconds[data.label]
        for system in data.systems if times else ():
            ours, whole = times[system], system == "gcn"  # its batch is the whole graph
            cells = [str(data.settings(system).hidden), short(1e3 * ours)]
            cells.append(DASH if whole else short(ours / times["fastgcn"]))
            cells.append(_paper_milliseconds(system, data))
            cells.append(mean_sd(systems_scores(system, data, results)))
            cells.append(beside(F1[system].get(data.paper), data, 3))
            rows.append((f"{data.label}: {SYSTEMS[system]}", *cells))
    head = (
        "", "hidden", "ms a batch", "times FastGCN's", "the paper", "test micro-F1", "the paper",
    )  # fmt: skip
    return [Table(head, rows, "Time a batch, and F1 over seeds, mean ± sd")] if rows else []


def _paper_milliseconds(system: str, data: DataSet) -> str:
    """The paper's time a batch; of GraphSAGE also that of its newer program, where it has one."""
    first = BATCH_SECONDS.get(system, {}).get(data.paper)
    text = beside(None if first is None else 1e3 * first, data)
    newer = NEW_GRAPHSAGE_SECONDS.get(data.paper) if system == "graphsage-gcn" else None
    return text if newer is None else f"{text}, new program {beside(1e3 * newer, data)}"


def _bars(seconds: Mapping[str, Mapping[str, float]]) -> Figure | None:
    if not any(seconds.values()):
        return None
    series = [(name, [each.get(s) for each in seconds.values()]) for s, name in SYSTEMS.items()]
    caption = "Seconds a batch, on a logarithmic scale; a batch of the original GCN is all nodes"
    svg = bars(
        list(seconds),
        series,
        title="Training time a batch",
        description=caption,
        y_label="seconds a batch",
        y_log=True,
        unit=" s",
    )
    return Figure(svg, caption)


def _settings_table(scale: Scale, results: Results) -> Table:
    rows = []
    for case in trainings(scale):
        batch = "all" if case.config.method == "gcn" else f"{case.config.batch_size:,}"
        hidden = ", ".join(f"{width:,}" for width in case.config.hidden_sizes)
        rates, rate = " or ".join(f"{r:g}" for r in case.rates), case.rate(results)
        cells = (
            hidden,
            batch,
            rates,
            DASH if rate is None else f"{rate:g}",
            f"{case.config.epochs:,}",
        )
        rows.append((case.label, *cells, str(len(case.runs(results)))))
    head = ("", "hidden", "batch", "rates", "chosen", "most epochs", "seeds")
    return Table(head, rows, "Settings of these trainings")


# A row's name, our system, and the paper's figures: its GraphSAGE was measured twice.
_TABLE3: dict[str, tuple[str, Mapping[str, float]]] = {
    "FastGCN": ("fastgcn", BATCH_SECONDS["fastgcn"]),
    "GraphSAGE-GCN, old program": ("graphsage-gcn", BATCH_SECONDS["graphsage-gcn"]),
    "GraphSAGE-GCN, new program": ("graphsage-gcn", NEW_GRAPHSAGE_SECONDS),
    "GraphSAGE-mean": ("graphsage-mean", {}),
    "GCN (batched)": ("gcn-batched", BATCH_SECONDS["gcn-batched"]),
    "GCN (original)": ("gcn", {}),
}


def show_table3(scale: Scale, results: Results) -> Contents:
    """Seconds a batch, and how many times FastGCN's that is."""
    seconds = _seconds_a_batch(scale, results)

    def time(name: str, data: DataSet) -> Figures:
        system, theirs = _TABLE3[name]
        ours = seconds[data.label].get(system)
        return ours, short(ours), theirs.get(data.paper)

    def times_fastgcn(name: str, data: DataSet) -> Figures:
        (ours, _, theirs), (fast, _, their_fast) = time(name, data), time("FastGCN", data)
        mine = ours / fast if ours and fast else None
        return mine, short(mine), theirs / their_fast if theirs and their_fast else None

    rows = {name: name for name in _TABLE3}
    # A step of the original GCN takes all nodes, so it is no batch to compare.
    others = {name: name for name in rows if name not in ("FastGCN", "GCN (original)")}
    of_fastgcn = "Time a batch in multiples of FastGCN's; ratio is ours to the paper's"
    return [
        against_paper(rows, time, scale.data, "Seconds a batch; ratio is ours to the paper's"),
        against_paper(others, times_fastgcn, scale.data, of_fastgcn),
        f"Medians over {scale.rounds} turns of about {scale.chunk_seconds:g} s, after a warm-up "
        "that also compiles kernels. The systems take turns, so that what else runs on the machine "
        "meets all of them. A time is that of sampling, reading rows, the step and all between "
        "them, on all cores, without evaluation and without the precomputation of ÂX. A step of "
        "the original GCN takes all nodes. The paper used four cores at 2.5 GHz and TensorFlow, "
        "and measured a second, new program of GraphSAGE in PyTorch; ours stands beside both.",
    ]


# Appendix C: total training time, and accuracy on training and test nodes on the way.


def _seconds(run: Record, *parts: str) -> float:
    """Of the precomputation, and from the first batch to the last; `evaluation` only if named."""
    return float(sum(run[f"{part}_seconds"] for part in ("training", "precompute", *parts)))


def show_total_time(scale: Scale, results: Results) -> Contents:
    """Seconds to the stop, without evaluation and with it."""
    rows, limits = [], []
    for data in scale.data:
        limits.append(f"{data.label}: {data.config.epochs}")
        for system, name in SYSTEMS.items():
            timed = system in data.systems
            runs = data.case(system).runs(results, timed=True) if timed else []
            ours = mean([_seconds(run) for run in runs])
            theirs = TOTAL_SECONDS.get(system, {}).get(data.paper)
            cells = [short(ours), short(mean([_seconds(run, "evaluation") for run in runs]))]
            cells += [beside(theirs, data), ratio(ours, theirs)]
            epochs = short(mean([run["epochs"] for run in runs]))
            rows.append((f"{data.label}: {name}", *cells, epochs, str(len(runs))))
            if fewer := data.limit(system).epochs:
                limits.append(f"{data.label}, {name}: {fewer}")
    head = ("", "training", "with evaluation", "the paper", "ratio", "epochs", "seeds")
    return [
        Table(head, rows, "Seconds of training in all; ratio is training / the paper"),
        "Means over the seeds of Figure 3 that were timed, each alone on the machine: seed 0, and "
        "others where they are on file. Training is ÂX, where it is precomputed, and all batches; "
        "evaluation is on the validation part after every epoch. The paper does not say whether "
        "its times include evaluation. Each training ends after "
        f"{scale.small.config.patience} epochs without a better validation score, or at its "
        f"limit of epochs ({'; '.join(limits)}).",
    ]


_MARGIN = 0.02


def show_accuracy_vs_time(scale: Scale, results: Results) -> Contents:
    """A curve a system, for training and for test nodes, of seed 0."""
    content: Contents = []
    rows = []
    for data in scale.data:
        curves: dict[str, Record] = {}
        for system in data.systems:
            runs = data.case(system).runs(results, timed=True)
            if runs and runs[0]["curve"]["seconds"]:
                curves[system] = runs[0]["curve"]
        content += [_curve_plot(data, curves, part) for part in ("train", "test")]
        level = max((max(curve["test"]) for curve in curves.values()), default=0.0) - _MARGIN
        for system, name in SYSTEMS.items():
            cells = (DASH,) * 3
            if system in curves:
                seconds, test = curves[system]["seconds"], curves[system]["test"]
                pairs = zip(seconds, test, strict=True)
                when = next((short(second) for second, f1 in pairs if f1 >= level), "never")
                cells = (f"{max(test):.3f}", f"{level:.3f}", when)
            rows.append((f"{data.label}: {name}", *cells))
    caption = f"When the test accuracy first reaches {_MARGIN} below the best of all systems"
    return [
        *content,
        Table(("", "best test accuracy", "level", "seconds to it"), rows, caption),
        "One training a system, seed 0, of those of Figure 3. The clock runs while batches are "
        "trained on, and stands during evaluation. Training nodes are evaluated by the full "
        f"network on the whole graph. Where a part has more than {CURVE_NODES:,} nodes, "
        f"{CURVE_NODES:,} of them are evaluated, always the same. The paper draws these curves "
        "without printing numbers.",
    ]


def _curve_plot(data: DataSet, curves: Mapping[str, Record], part: str) -> Figure | None:
    series = [
        Series(SYSTEMS[system], curve["seconds"], curve[part], markers=False)
        for system, curve in curves.items()
    ]
    title = f"{data.label}: accuracy on {part} nodes"
    ends = ", ".join(f"{SYSTEMS[s]} ends at {curve[part][-1]:.3f}" for s, curve in curves.items())
    about = f"{title} over seconds of training, on a logarithmic scale: {ends}"
    return line_figure(series, title, about, "seconds of training", "accuracy", logs="x")


# Appendix C: the original split, with few labels.

_ON_ORIGINAL = {system: SYSTEMS.get(system, "FastGCN-transductive") for system in ORIGINAL_SPLIT}


def original_case(system: str, data: DataSet) -> Case:
    assert data.public is not None
    config = data.public
    if system == "gcn":  # at Kipf and Welling's rate
        config = METHODS["gcn"](data.public)
        config = config.replace(epochs=min(config.epochs, data.public.epochs))
    elif system != "fastgcn-transductive":
        config = METHODS[system](config.replace(inductive=True, samples=data.public_samples))
    return Case(
        label=f"{data.label}, original split: {_ON_ORIGINAL[system]}",
        data=data.name,
        split=data.split if data.split == OWN_SPLIT else "public",
        config=config,
        rates=data.rates if system != "gcn" else (config.learning_rate,),
        seeds=data.seeds,
        curve=True,
    )


def original_split(scale: Scale) -> list[Case]:
    public = [data for data in scale.data if data.public is not None]
    return [original_case(system, data) for data in public for system in _ON_ORIGINAL]


def show_original_split(scale: Scale, results: Results) -> Contents:
    """F1 and time beside the paper's."""
    data = [each for each in scale.data if each.public is not None]

    def score(system: str, data: DataSet) -> Figures:
        scores = original_case(system, data).test_scores(results)
        return mean(scores), mean_sd(scores), ORIGINAL_SPLIT[system][data.paper][1]

    def time(system: str, data: DataSet) -> Figures:
        runs = original_case(system, data).runs(results, timed=True)
        seconds = mean([_seconds(run, "evaluation") for run in runs])
        return seconds, short(seconds), ORIGINAL_SPLIT[system][data.paper][0]

    texts = []
    for each in data:
        config = each.public
        assert config is not None
        texts.append(
            f"{each.label}: at most {config.epochs:,} epochs, which here are single batches, "
            f"patience {config.patience:,}; L2 {config.weight_decay:g} on the first layer, "
            f"features scaled: {config.feature_scaling}. GCN has Kipf and Welling's settings. "
            "FastGCN and GraphSAGE-GCN are inductive: they see the graph of the training nodes "
            f"alone, of which FastGCN draws {each.public_samples}."
        )
    by_score = "Test micro-F1 on the original split, mean ± sd over seeds"
    by_time = "Seconds of training in all, evaluation included"
    return [
        against_paper(_ON_ORIGINAL, score, data, by_score, digits=3),
        against_paper(_ON_ORIGINAL, time, data, by_time),
        *texts,
    ]
