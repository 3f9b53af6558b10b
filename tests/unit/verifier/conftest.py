"""Slices without numbers, with sensible defaults."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from services.verifier.sessions import SessionTable
from services.verifier.slices import Head, Limits, Setup
from shardflow.engine import GREEDY

LIMITS = Limits(vocab_size=100, max_sessions=2, max_session_tokens=20, max_slice_rows=6)
SETUP = Setup(max_tokens=12, prompt_tokens=2, top_logprobs=0, want_logprobs=False, want_hidden=False, sampling=GREEDY)


def make_head(**fields: Any) -> Head:
    tokens = tuple(fields.pop("tokens", (1, 2, 3)))
    values: dict[str, Any] = {
        "origin": "o", "session": "s", "epoch": 1, "round": 0, "base": 0, "keep": (), "tokens": tokens,
        "parents": tuple(range(-1, len(tokens) - 1)), "committed_rows": len(tokens), "want_verdict": True, **fields,
    }  # fmt: skip
    values.setdefault("setup", SETUP if values["round"] == 0 else None)
    return Head(**values)


@pytest.fixture
def head() -> Callable[..., Head]:
    """`head(**fields)`: three committed rows of session "s", round 0."""
    return make_head


@pytest.fixture
def setup() -> Callable[..., Setup]:
    """`setup(**fields)`."""
    return lambda **fields: replace(SETUP, **fields)


@pytest.fixture
def limits() -> Limits:
    return LIMITS


@pytest.fixture
def table() -> SessionTable[list[int]]:
    """Two sessions of at most 20 tokens, forgotten after 100 s, or 10 s after their origin has gone."""
    return SessionTable(LIMITS, lambda max_tokens: [max_tokens], idle_s=100, grace_s=10)
