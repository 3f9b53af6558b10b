"""Which slices share a forward pass."""

from services.verifier.scheduler import Scheduler


def make(row_budget: int, *entries: tuple[str, int, str]) -> Scheduler[str]:
    scheduler: Scheduler[str] = Scheduler(row_budget)
    for session, rows, item in entries:
        scheduler.add(session, rows, item)
    return scheduler


def test_nothing_waits() -> None:
    assert make(8).take() == []


def test_sessions_share_a_pass_in_order_of_arrival() -> None:
    assert make(8, ("a", 3, "a0"), ("b", 3, "b0"), ("c", 2, "c0")).take() == ["a0", "b0", "c0"]


def test_a_session_has_one_slice_in_a_pass() -> None:
    scheduler = make(8, ("a", 1, "a0"), ("a", 1, "a1"), ("b", 1, "b0"))
    assert [scheduler.take(), scheduler.take(), scheduler.take()] == [["a0", "b0"], ["a1"], []]


def test_the_budget_ends_a_pass_but_a_small_slice_may_fill_the_gap() -> None:
    scheduler = make(8, ("a", 5, "a0"), ("b", 5, "b0"), ("c", 3, "c0"))
    assert [scheduler.take(), scheduler.take()] == [["a0", "c0"], ["b0"]]


def test_a_slice_beyond_the_budget_runs_alone() -> None:
    scheduler = make(8, ("a", 20, "a0"), ("b", 1, "b0"))
    assert [scheduler.take(), scheduler.take()] == [["a0"], ["b0"]]


def test_a_long_prompt_takes_turns_with_others() -> None:
    scheduler = make(8, ("long", 8, "l0"), ("long", 8, "l1"), ("long", 8, "l2"), ("b", 2, "b0"))
    assert scheduler.take() == ["l0"]
    scheduler.add("c", 2, "c0")
    assert [scheduler.take() for _ in range(3)] == [["b0", "c0"], ["l1"], ["l2"]]


def test_discard_removes_what_is_unwanted_and_keeps_the_turn() -> None:
    scheduler = make(8, ("a", 1, "a0"), ("a", 1, "a1"), ("b", 1, "b0"))
    assert scheduler.discard("a", lambda item: item == "a0") == 1
    assert scheduler.discard("nobody", lambda item: True) == 0
    assert len(scheduler) == 2
    assert scheduler.take() == ["a1", "b0"]


def test_discard_of_everything_leaves_no_trace() -> None:
    scheduler = make(8, ("a", 1, "a0"))
    assert scheduler.discard("a", lambda item: True) == 1
    assert (len(scheduler), scheduler.take()) == (0, [])
