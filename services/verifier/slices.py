"""What a slice says, its hidden states aside, and whether it is well formed. No I/O, no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardflow.errors import InvalidArgument

if TYPE_CHECKING:
    from shardflow.engine import SamplingParams

MAX_ID_CHARS = 256
MAX_TOP_LOGPROBS = 20

Key = tuple[str, str]  # origin and session id: two orchestrators never meet, whatever ids they choose


@dataclass(frozen=True)
class Limits:
    """What a shard can hold."""

    vocab_size: int
    max_sessions: int
    max_session_tokens: int
    max_slice_rows: int


@dataclass(frozen=True)
class Setup:
    """What a request asks of its session."""

    max_tokens: int
    prompt_tokens: int
    top_logprobs: int
    want_logprobs: bool
    want_hidden: bool
    sampling: "SamplingParams"


@dataclass(frozen=True)
class Head:
    """A slice without its numbers; `parents` is always one entry per row."""

    origin: str
    session: str
    epoch: int
    round: int
    base: int
    keep: tuple[int, ...]
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    committed_rows: int
    want_verdict: bool
    setup: Setup | None

    @property
    def key(self) -> Key:
        """Names the session among those of all orchestrators."""
        return self.origin, self.session


def check(head: Head, limits: Limits) -> None:
    """Raises InvalidArgument for a slice that is wrong whatever the state of its session."""
    rows = len(head.tokens)
    _require(0 < len(head.session) <= MAX_ID_CHARS, f"session: 1 to {MAX_ID_CHARS} characters")
    _require(0 < len(head.origin) <= MAX_ID_CHARS, f"origin: 1 to {MAX_ID_CHARS} characters")
    _require(head.epoch >= 1, "epoch: counts from 1")
    _require(1 <= rows <= limits.max_slice_rows, f"tokens: {rows} rows, 1 to {limits.max_slice_rows} fit a slice")
    _require(max(head.tokens) < limits.vocab_size, f"tokens: {max(head.tokens)} is not below {limits.vocab_size}")
    _require(1 <= head.committed_rows <= rows, f"committed_rows: {head.committed_rows} of {rows} rows")
    _check_parents(head.parents, rows, head.committed_rows)
    _require(all(low < high for low, high in zip(head.keep, head.keep[1:], strict=False)), "keep: not ascending")
    _require(not head.keep or head.round > 0, "keep: round 0 of an epoch has no slice before it")
    _require((head.setup is not None) == (head.round == 0), "setup: belongs to round 0 of an epoch, and only there")
    if head.setup is not None:
        _check_setup(head.setup, limits)


def chain_length(parents: Sequence[int]) -> int:
    """How many leading rows form a chain."""
    return next((row for row, parent in enumerate(parents) if parent != row - 1), len(parents))


def _check_parents(parents: Sequence[int], rows: int, committed: int) -> None:
    _require(len(parents) == rows, f"parents: {len(parents)} for {rows} rows")
    _require(chain_length(parents) >= committed, "parents: the committed rows are not a chain")
    guesses = enumerate(parents[committed:], committed)
    _require(
        all(committed - 1 <= parent < row for row, parent in guesses),
        "parents: a guess hangs below none of the rows from the last committed one to itself",
    )


def _check_setup(setup: Setup, limits: Limits) -> None:
    _require(
        1 <= setup.max_tokens <= limits.max_session_tokens,
        f"setup.max_tokens: {setup.max_tokens}, a session holds 1 to {limits.max_session_tokens}",
    )
    _require(1 <= setup.prompt_tokens <= setup.max_tokens, f"setup.prompt_tokens: {setup.prompt_tokens} of max_tokens")
    _require(setup.top_logprobs <= MAX_TOP_LOGPROBS, f"setup.top_logprobs: at most {MAX_TOP_LOGPROBS}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidArgument(message)
