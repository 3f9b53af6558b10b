"""Which slices a session takes, and when sessions are forgotten."""

from collections.abc import Callable
from typing import Any

import pytest

from services.verifier.sessions import TOMBSTONES, Apply, Drop, Refuse, SessionTable
from services.verifier.slices import Head, Setup
from shardflow.errors import FailedPrecondition, InvalidArgument, ResourceExhausted

Make = Callable[..., Head]
Table = SessionTable[list[int]]

# Row 0 is committed; rows 1 and 2 are guesses below it, 3 below 2.
TREE: dict[str, Any] = {"tokens": (4, 5, 6, 7), "parents": (-1, 0, 0, 2), "committed_rows": 1}


def applied(table: Table, head: Head, now: float = 0.0) -> Any:
    outcome = table.admit(head, now)
    assert isinstance(outcome, Apply), outcome
    return outcome.session


def refused(table: Table, head: Head, error: type[Exception], message: str) -> None:
    before = str(table.get(head.key))
    outcome = table.admit(head, 0.0)
    assert isinstance(outcome, Refuse), outcome
    assert type(outcome.error) is error
    assert message in str(outcome.error)
    assert str(table.get(head.key)) == before


def dropped(table: Table, head: Head) -> None:
    assert isinstance(table.admit(head, 0.0), Drop)


def test_a_session_begins_with_a_cache_of_its_size(table: Table, head: Make, setup: Callable[..., Setup]) -> None:
    session = applied(table, head(setup=setup(max_tokens=9)))
    assert (session.kv, session.epoch, session.round, session.base) == ([9], 1, 0, 0)
    assert (session.committed, session.tokens) == ([], (1, 2, 3))


def test_an_unknown_session_begins_at_base_0(table: Table, head: Make) -> None:
    refused(table, head(base=3), FailedPrecondition, "unknown session")
    refused(table, head(round=1), FailedPrecondition, "unknown session")


def test_a_shard_that_was_restarted_joins_at_a_later_epoch(table: Table, head: Make) -> None:
    assert applied(table, head(epoch=5)).epoch == 5


def test_prefill_goes_on_chunk_by_chunk(table: Table, head: Make) -> None:
    applied(table, head())
    session = applied(table, head(round=1, base=3, tokens=(4, 5)))
    assert session.committed == [1, 2, 3]
    assert applied(table, head(round=2, base=5, tokens=(6,))).committed == [1, 2, 3, 4, 5]


def test_kept_rows_are_the_text(table: Table, head: Make) -> None:
    applied(table, head())
    applied(table, head(round=1, base=3, **TREE))
    session = applied(table, head(round=2, base=6, keep=(0, 2, 3), tokens=(8,)))
    assert session.committed == [1, 2, 3, 4, 6, 7]


def test_the_first_rows_of_a_chain_stay_without_keep(table: Table, head: Make) -> None:
    applied(table, head(tokens=(1, 2, 3, 4), committed_rows=1))
    assert applied(table, head(round=1, base=2, tokens=(9,))).committed == [1, 2]


def test_the_chain_before_the_first_branch_stays_without_keep(table: Table, head: Make) -> None:
    applied(table, head())
    applied(table, head(round=1, base=3, **TREE))
    refused(table, head(round=2, base=6, tokens=(8,)), FailedPrecondition, "base 6 is beyond the chain")
    assert applied(table, head(round=2, base=5, tokens=(8,))).committed == [1, 2, 3, 4, 5]


def test_a_rewind_truncates_the_text(table: Table, head: Make) -> None:
    applied(table, head())
    applied(table, head(round=1, base=3, tokens=(4,)))
    assert applied(table, head(round=2, base=1, tokens=(8,))).committed == [1]


@pytest.mark.parametrize("keep", [(0, 1, 3), (0, 3), (1,), (0, 4), (2, 3)])
def test_keep_must_be_a_path(table: Table, head: Make, keep: tuple[int, ...]) -> None:
    applied(table, head())
    applied(table, head(round=1, base=3, **TREE))
    refused(
        table, head(round=2, base=3 + len(keep), keep=keep, tokens=(8,)), FailedPrecondition, "no path of the slice"
    )


@pytest.mark.parametrize("base", [3, 4, 6])
def test_keep_must_fit_base(table: Table, head: Make, base: int) -> None:
    applied(table, head())
    applied(table, head(round=1, base=3, **TREE))
    refused(table, head(round=2, base=base, keep=(0, 2), tokens=(8,)), FailedPrecondition, "do not fit")


def test_repeated_and_late_slices_are_dropped(table: Table, head: Make) -> None:
    applied(table, head(epoch=2))
    applied(table, head(epoch=2, round=1, base=3, tokens=(4,)))
    dropped(table, head(epoch=2, round=1, base=3, tokens=(4,)))
    dropped(table, head(epoch=2))
    dropped(table, head(epoch=1))
    dropped(table, head(epoch=1, round=7, base=99))


def test_a_gap_is_refused_with_what_is_held(table: Table, head: Make) -> None:
    applied(table, head())
    refused(table, head(round=2, base=3), FailedPrecondition, "a gap: epoch 1, round 2, base 3 after epoch 1, round 0")
    refused(table, head(epoch=2, round=1, base=3), FailedPrecondition, "a gap")


def test_a_new_epoch_keeps_the_committed_text(table: Table, head: Make) -> None:
    applied(table, head())
    session = applied(table, head(epoch=2, base=3, tokens=(4,)))
    assert (session.epoch, session.round, session.committed) == (2, 0, [1, 2, 3])


def test_a_new_epoch_does_not_trust_guesses(table: Table, head: Make) -> None:
    applied(table, head(committed_rows=1))
    refused(table, head(epoch=2, base=2), FailedPrecondition, "base 2 is beyond the chain")
    assert applied(table, head(epoch=2, base=1)).committed == [1]


def test_round_0_keeps_no_rows(table: Table, head: Make) -> None:
    refused(table, head(keep=(0,)), InvalidArgument, "keep: round 0 of an epoch has no slice before it")
    applied(table, head(**TREE))
    refused(table, head(epoch=2, base=2, keep=(0, 2)), InvalidArgument, "keep: round 0")


def test_a_new_epoch_may_change_the_sampling_but_not_the_size(
    table: Table, head: Make, setup: Callable[..., Setup]
) -> None:
    applied(table, head())
    assert applied(table, head(epoch=2, setup=setup(prompt_tokens=5))).setup.prompt_tokens == 5
    refused(table, head(epoch=3, setup=setup(max_tokens=13)), InvalidArgument, "the session was made for 12")


def test_rows_beyond_the_session_are_refused(table: Table, head: Make) -> None:
    applied(table, head(tokens=(1,) * 6))
    applied(table, head(round=1, base=6, tokens=(1,) * 6))
    refused(table, head(round=2, base=12, tokens=(1,)), InvalidArgument, "beyond setup.max_tokens 12")
    refused(table, head(session="t", tokens=(1,) * 7), InvalidArgument, "7 rows, 1 to 6")


def test_a_session_too_small_for_its_first_slice_is_refused(
    table: Table, head: Make, setup: Callable[..., Setup]
) -> None:
    refused(table, head(setup=setup(max_tokens=2)), InvalidArgument, "beyond setup.max_tokens 2")
    assert len(table) == 0


def test_a_malformed_slice_leaves_its_session_alone(table: Table, head: Make) -> None:
    applied(table, head())
    refused(table, head(round=1, base=3, tokens=(100,)), InvalidArgument, "100 is not below 100")


def test_sessions_are_limited_until_one_is_released(table: Table, head: Make) -> None:
    applied(table, head(session="a"))
    applied(table, head(session="b"))
    refused(table, head(session="c"), ResourceExhausted, "all 2 sessions are taken")
    table.release(("o", "a"))
    applied(table, head(session="c"))


def test_a_released_session_never_comes_back(table: Table, head: Make) -> None:
    applied(table, head())
    table.release(("o", "s"))
    assert len(table) == 0
    dropped(table, head(round=1, base=3))
    dropped(table, head(epoch=9))


def test_a_release_may_come_before_the_first_slice(table: Table, head: Make) -> None:
    table.release(("o", "s"))
    dropped(table, head())


def test_releases_are_remembered_up_to_a_bound(table: Table, head: Make) -> None:
    for number in range(TOMBSTONES + 1):
        table.release(("o", str(number)))
    dropped(table, head(session="1"))
    applied(table, head(session="0"))


def test_two_origins_may_use_the_same_id(table: Table, head: Make) -> None:
    one = applied(table, head(origin="a"))
    two = applied(table, head(origin="b", tokens=(7,)))
    table.release(("a", "s"))
    assert (one.tokens, table.get(("a", "s")), table.get(("b", "s"))) == ((1, 2, 3), None, two)


def test_after_a_failure_the_text_before_it_stays(table: Table, head: Make) -> None:
    applied(table, head())
    session = applied(table, head(round=1, base=3, tokens=(4,)))
    session.forget_rows()
    refused(table, head(round=2, base=4, tokens=(5,)), FailedPrecondition, "base 4 is beyond")
    refused(table, head(round=2, base=4, keep=(0,), tokens=(5,)), FailedPrecondition, "no path")
    assert applied(table, head(epoch=2, base=3, tokens=(4,))).committed == [1, 2, 3]


def test_an_idle_session_expires_and_may_come_back(table: Table, head: Make) -> None:
    table.connect("o")
    applied(table, head(), now=1000.0)
    applied(table, head(round=1, base=3), now=1050.0)
    assert table.expire(1150.0) == []
    assert table.expire(1150.5) == [("o", "s")]
    applied(table, head(epoch=2), now=1151.0)


def test_sessions_of_a_lost_origin_expire_after_the_grace(table: Table, head: Make) -> None:
    table.connect("o")
    applied(table, head(), now=1000.0)
    table.disconnect("o", 1020.0)
    assert table.expire(1030.0) == []
    assert table.expire(1030.5) == [("o", "s")]


def test_an_origin_that_returns_in_time_keeps_its_sessions(table: Table, head: Make) -> None:
    table.connect("o")
    applied(table, head(), now=1000.0)
    table.disconnect("o", 1020.0)
    table.connect("o")
    assert table.expire(1090.0) == []


def test_an_origin_that_never_came_has_the_grace_too(table: Table, head: Make) -> None:
    applied(table, head(), now=1000.0)
    assert table.expire(1010.0) == []
    assert table.expire(1010.5) == [("o", "s")]
