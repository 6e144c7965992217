"""Bytes: how they are written, what there is, and what a plan makes of them."""

from pathlib import Path

import pytest

from fastgcn.errors import InputError
from fastgcn.features.plan import Budget, Demand, check_memory, plan_memory, training_demand
from fastgcn.memory import available_memory, left_in_groups, memory_bytes, resident_memory
from tests.communities import communities, quick

ROOMY = Demand(fixed=10**8, matrix=10**8, inputs=3 * 10**8, features=0, evaluation=10**8)


def with_left(left: int, monkeypatch: pytest.MonkeyPatch) -> Budget:
    monkeypatch.setattr(Budget, "left", lambda _: left)
    return Budget(4 * 10**9)


def test_what_is_taken_is_less_than_what_there_is() -> None:
    assert 10**7 < resident_memory() < available_memory() + resident_memory()


def test_limits_of_control_groups_count(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    assert left_in_groups(tmp_path) == []
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 50\nactive_file 20\n")
    assert left_in_groups(tmp_path) == [370]


def test_limits_around_and_of_the_own_group_count(tmp_path: Path) -> None:
    own = tmp_path / "user.slice" / "run.scope"
    own.mkdir(parents=True)
    for folder, limit in ((own.parent, "2000"), (own, "max")):
        (folder / "memory.max").write_text(limit)
        (folder / "memory.current").write_text("700\n")
        (folder / "memory.stat").write_text("inactive_file 50\n")
    groups = "5:cpu,memory:/job\n1:name=systemd:/x\n0::/user.slice/run.scope\n"
    assert left_in_groups(tmp_path, groups) == [1350]
    assert left_in_groups(tmp_path, "0::/elsewhere\n") == []
    (own / "memory.max").write_text("1000")
    assert left_in_groups(tmp_path, groups) == [1350, 350]


@pytest.mark.parametrize("text", ["1" + "0" * 400, "..", "4ib", "4XB", "-1GB", "1e9", "", "0.9MB"])
def test_what_is_no_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="memory must be at least 1MB, such as 500MB or 2GB, got"):
        memory_bytes(text)


def test_binary_units_are_binary() -> None:
    assert [memory_bytes(text) for text in ("4GiB", "4 gib", "4GB", "4g")] == [
        4 << 30, 4 << 30, 4 * 10**9, 4 * 10**9,
    ]  # fmt: skip


def test_half_of_the_machine_is_left_where_nobody_asked() -> None:
    left = Budget.of("auto").left()
    assert left == pytest.approx(available_memory() / 2, rel=0.2)


def test_what_a_process_has_is_not_left() -> None:
    budget = Budget.of("4GB")
    assert budget.asked == 4 * 10**9
    assert budget.left() < 4 * 10**9 - resident_memory() / 2


@pytest.mark.parametrize(
    ("left", "matrix", "inputs", "hot"),
    [
        (10**9, True, True, 0),
        # Of 350 MB after what is fixed and Â, a third at most is evaluation's.
        (55 * 10**7, True, False, 25 * 10**7),
        (25 * 10**7, True, False, 5 * 10**7 - 5 * 10**7 // 3),
        (15 * 10**7, False, False, 5 * 10**7 - 5 * 10**7 // 3),
        (10**8, False, False, 0),
    ],
)
def test_places_by_what_is_left(
    left: int, matrix: bool, inputs: bool, hot: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_memory(ROOMY, with_left(left, monkeypatch), "mine")
    assert (plan.matrix_in_memory, plan.inputs_in_memory) == (matrix, inputs)
    assert plan.hot_bytes == hot


def test_a_plan_says_where_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_memory(ROOMY, with_left(55 * 10**7, monkeypatch), "mine")
    assert str(plan) == (
        "Memory 4.0 GB: Â 100 MB in memory; ÂX 300 MB on disk, 250 MB of its rows drawn most in "
        "memory; 368 MB for nodes and batches"
    )
    assert plan.worth_saying


def test_little_is_not_worth_saying() -> None:
    demand = training_demand(communities(), quick(), 36, 200)
    plan = plan_memory(demand, Budget.of("auto"), "mine")
    assert not plan.worth_saying
    assert plan.inputs_in_memory
    assert plan.matrix_in_memory


def test_a_promise_that_cannot_be_kept_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = with_left(0, monkeypatch)
    with pytest.raises(InputError, match=r"memory = 4.0 GB is not enough .* mine: .* 4.1 GB;"):
        plan_memory(ROOMY, budget, "mine")


def test_where_nobody_asked_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_left(0, monkeypatch)
    plan = plan_memory(ROOMY, Budget(None), "mine")
    assert not plan.matrix_in_memory
    assert plan.worth_saying


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"hidden": 64}, "fixed"),
        ({"history": True}, "fixed"),
        ({"distribution": "optimal"}, "fixed"),
        ({"input_skip": True}, "inputs"),
        ({"hidden": 64}, "evaluation"),
    ],
)
def test_what_takes_more_is_reckoned_as_more(settings: dict[str, object], field: str) -> None:
    graph = communities()
    usual = training_demand(graph, quick(), 36, 200)
    more = training_demand(graph, quick(**settings), 36, 200)
    assert getattr(more, field) > getattr(usual, field)


def test_half_precision_is_half_the_bytes() -> None:
    graph = communities()
    whole, half = (
        training_demand(graph, quick(inputs_dtype=dtype), 36, 200).inputs
        for dtype in ("float32", "bfloat16")
    )
    assert whole == 2 * half == 36 * 6 * 4


def test_room_is_refused_where_all_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="memory = 4.0 GB is not enough: .* takes 4.3 GB; allow"):
        with_left(-25 * 10**7, monkeypatch).room()
    assert with_left(5, monkeypatch).room() == 5
    assert Budget(None).room() == 5
    monkeypatch.setattr(Budget, "left", lambda _: -5)
    assert Budget(None).room() == 0  # nobody asked for anything


@pytest.mark.parametrize("inductive", [True, False])
def test_too_little_is_known_before_a_graph_is_read(
    inductive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, config = communities(), quick(memory="4GB", inductive=inductive)
    fixed = training_demand(graph, config, 36 if inductive else 60, 0).fixed
    monkeypatch.setattr(Budget, "left", lambda _: fixed)
    check_memory(graph, config)
    monkeypatch.setattr(Budget, "left", lambda _: fixed - 1)
    with pytest.raises(InputError, match="memory = 4.0 GB is not enough to train on communities"):
        check_memory(graph, config)
    check_memory(graph, quick(inductive=inductive))
