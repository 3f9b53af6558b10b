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
        (["A1", "B1", "a2"], ["a2", "B1"]),  # what is awaited takes the place of the session's own
        (["A1", "A2", "b1", "a3", "A4"], ["b1", "a3", "A4"]),
        (["A1", "a2", "B1", "A3", "b2"], ["a2", "b2", "A3"]),
    ],
)
def test_awaited_work_goes_first(arrivals: list[str], taken: list[str]) -> None:
    assert order(*arrivals) == taken


def test_what_is_replaced_is_given_back() -> None:
    backlog: Backlog[str] = Backlog()
    for session, work in (("a", "A1"), ("b", "B1"), ("a", "A2")):
        assert backlog.put(session, work, background=True) == []
    assert backlog.put("a", "a3", background=False) == ["A1", "A2"]


def test_another_turn_comes_after_the_others_and_not_while_the_session_waits() -> None:
    backlog: Backlog[str] = Backlog()
    for session, work in (("a", "A1"), ("b", "B1")):
        backlog.put(session, work, background=True)
    assert (backlog.take(), backlog.put_back("a", "A1")) == ("A1", True)
    assert (backlog.take(), backlog.put("b", "b2", background=False)) == ("B1", [])
    assert not backlog.put_back("b", "B1")
    assert [backlog.take(), backlog.take(), backlog.take()] == ["b2", "A1", None]


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
