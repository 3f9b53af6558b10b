"""Modes of speculation, and how many guesses are worth sending."""

import pytest

from services.orchestrator.policy import Mode, chain_length


@pytest.mark.parametrize(("text", "k"), [("none", 0), ("linear:1", 1), ("linear:8", 8), ("linear:64", 64)])
def test_modes(text: str, k: int) -> None:
    assert Mode.parse(text) == Mode(k)
    assert str(Mode(k)) == text


@pytest.mark.parametrize(
    "text", ["", "linear", "linear:", "linear:0", "linear:65", "linear:-1", "linear:²", "None", "tree"]
)
def test_what_is_no_mode(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        Mode.parse(text)
    assert str(caught.value) == f"{text!r} is neither `none` nor `linear:K` with K from 1 to 64"


@pytest.mark.parametrize(
    ("k", "remaining", "free", "length"),
    [
        (8, 99, 99, 8),
        (0, 99, 99, 0),
        (8, 9, 99, 8),
        (8, 8, 99, 7),
        (8, 1, 99, 0),
        (8, 99, 3, 3),
        (8, 99, 0, 0),
        (8, 99, -1, 0),
    ],
)
def test_chain_length(k: int, remaining: int, free: int, length: int) -> None:
    assert chain_length(Mode(k), remaining_tokens=remaining, free_positions=free) == length
