"""In which order work is taken, and what can be taken back."""

import pytest

from services.draft.backlog import Backlog


def order(*arrivals: str) -> list[str]:
    """The works in the order in which they are taken: each is a session's letter and a number, small ones awaited."""
    backlog: Backlog[str] = Backlog()
    for work in arrivals:
        backlog.put(work[0].lower(), work, background=work[0].isupper())
    return [work for _ in arrivals if (work := backlog.take()) is not None]


@pytest.mark.parametrize(
    ("arrivals", "taken"),
    [
        (["a1", "b1", "a2"], ["a1", "b1", "a2"]),
        (["A1", "B1", "A2"], ["A1", "B1", "A2"]),
        (["A1", "b1", "C1", "d1"], ["b1", "d1", "A1", "C1"]),
        (["A1", "B1", "a2"], ["A1", "a2", "B1"]),  # a session's own work is not overtaken
        (["A1", "A2", "b1", "a3", "A4"], ["b1", "A1", "A2", "a3", "A4"]),
        (["A1", "a2", "B1", "A3", "b2"], ["A1", "a2", "B1", "b2", "A3"]),
    ],
)
def test_awaited_work_goes_first(arrivals: list[str], taken: list[str]) -> None:
    assert order(*arrivals) == taken


def test_nothing_is_left_when_all_was_taken() -> None:
    backlog: Backlog[str] = Backlog()
    assert backlog.take() is None
    backlog.put("a", "work", background=True)
    assert (len(backlog), backlog.take(), backlog.take(), len(backlog)) == (1, "work", None, 0)


def test_a_sessions_background_work_is_taken_back() -> None:
    backlog: Backlog[str] = Backlog()
    for session, work in (("a", "A1"), ("b", "B1"), ("a", "A2")):
        backlog.put(session, work, background=True)
    backlog.put("c", "c1", background=False)
    assert backlog.drop("a") == ["A1", "A2"]
    assert backlog.drop("c") == []
    assert [backlog.take(), backlog.take(), backlog.take()] == ["c1", "B1", None]
