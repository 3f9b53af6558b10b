"""Slices that are wrong in themselves."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from services.verifier.slices import Head, Limits, Setup, chain_length, check
from shardflow.errors import InvalidArgument


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"session": ""}, "session: 1 to 256 characters"),
        ({"session": "x" * 257}, "session: 1 to 256 characters"),
        ({"origin": ""}, "origin: 1 to 256 characters"),
        ({"epoch": 0}, "epoch: counts from 1"),
        ({"tokens": (), "committed_rows": 0}, "tokens: 0 rows, 1 to 6 fit a slice"),
        ({"tokens": (1,) * 7}, "tokens: 7 rows, 1 to 6 fit a slice"),
        ({"tokens": (1, 100)}, "tokens: 100 is not below 100"),
        ({"committed_rows": 0}, "committed_rows: 0 of 3 rows"),
        ({"committed_rows": 4}, "committed_rows: 4 of 3 rows"),
        ({"parents": (-1, 0)}, "parents: 2 for 3 rows"),
        ({"parents": (0, 0, 1)}, "parents: the committed rows are not a chain"),
        ({"parents": (-1, 0, 0)}, "parents: the committed rows are not a chain"),
        ({"parents": (-1, 0, 2), "committed_rows": 1}, "parents: a guess hangs below none"),
        ({"parents": (-1, 0, -1), "committed_rows": 1}, "parents: a guess hangs below none"),
        ({"parents": (-1, 0, 0), "committed_rows": 2}, "parents: a guess hangs below none"),
        ({"parents": (-1, 2, 0), "committed_rows": 1}, "parents: a guess hangs below none"),
        ({"round": 1, "keep": (0, 2, 1)}, "keep: not ascending"),
        ({"round": 1, "keep": (0, 0)}, "keep: not ascending"),
        ({"setup": None}, "setup: belongs to round 0"),
    ],
)
def test_refused(head: Callable[..., Head], limits: Limits, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{re.escape(message)}"):
        check(head(**fields), limits)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": 0}, "setup.max_tokens: 0, a session holds 1 to 20"),
        ({"max_tokens": 21}, "setup.max_tokens: 21, a session holds 1 to 20"),
        ({"prompt_tokens": 0}, "setup.prompt_tokens: 0 of max_tokens"),
        ({"prompt_tokens": 13}, "setup.prompt_tokens: 13 of max_tokens"),
        ({"top_logprobs": 21}, "setup.top_logprobs: at most 20"),
    ],
)
def test_setup_refused(
    head: Callable[..., Head], setup: Callable[..., Setup], limits: Limits, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"^{re.escape(message)}"):
        check(head(setup=setup(**fields)), limits)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tokens": (99,) * 6},
        {"round": 1, "keep": (0, 2)},
        {"parents": (-1, 0, 0), "committed_rows": 1},
        {"parents": (-1, 0, 1, 1, 2, 3), "tokens": (1,) * 6, "committed_rows": 2},
    ],
)
def test_accepted(head: Callable[..., Head], limits: Limits, fields: dict[str, Any]) -> None:
    check(head(**fields), limits)


def test_setup_belongs_to_round_0_only(head: Callable[..., Head], setup: Callable[..., Setup], limits: Limits) -> None:
    with pytest.raises(InvalidArgument, match=r"^setup: belongs to round 0"):
        check(head(round=1, setup=setup()), limits)


def test_chain_length() -> None:
    assert [chain_length(p) for p in ([], [-1], [-1, 0, 1], [-1, 0, 0], [-1, 0, 1, 1])] == [0, 1, 3, 2, 3]
