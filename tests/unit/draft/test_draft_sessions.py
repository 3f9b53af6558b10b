"""How many sessions are held, and which one leaves."""

from services.draft.sessions import Sessions


def numbered(most: int) -> Sessions[int]:
    numbers = iter(range(100))
    return Sessions(most, lambda: next(numbers))


def test_a_session_keeps_its_state() -> None:
    sessions = numbered(2)
    assert [sessions.use("a").state, sessions.use("b").state, sessions.use("a").state] == [0, 1, 0]


def test_the_least_recently_used_one_leaves() -> None:
    sessions = numbered(2)
    for name in ("a", "b", "a", "c"):
        sessions.use(name)
    assert len(sessions) == 2
    assert sessions.use("a").state == 0
    assert sessions.use("b").state == 3  # a new one


def test_an_evicted_state_still_serves_the_work_that_has_it() -> None:
    sessions = numbered(1)
    held = sessions.use("a")
    sessions.use("b")
    assert not held.forgotten


def test_a_forgotten_state_says_so_to_the_work_that_has_it() -> None:
    sessions = numbered(2)
    held = sessions.use("a")
    sessions.forget("a")
    sessions.forget("never seen")
    assert held.forgotten
    assert len(sessions) == 0


def test_a_spoilt_state_does_not_take_its_successor_along() -> None:
    sessions = numbered(2)
    spoilt = sessions.use("a")
    sessions.forget("a")
    successor = sessions.use("a")
    sessions.discard("a", spoilt)
    assert sessions.use("a") is successor
    sessions.discard("a", successor)
    assert len(sessions) == 0
