"""What a draft is: a session that follows a text by its token ids, and guesses a tree of continuations of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from shardflow.engine.errors import EngineError
from shardflow.engine.sampling import SamplingParams

MAX_NODES = 1024  # of one tree; far beyond what pays
MAX_CHILDREN = 64  # of one node; far beyond what pays
MAX_EXPANDED = 2 * MAX_NODES  # nodes that the draft looks at below one text: what its cache has room for


class DraftRequestError(EngineError):
    """The request is wrong in itself; nothing was changed."""


class DraftGapError(EngineError):
    """The request starts behind what the session knows; it may be repeated from `known_tokens` on."""

    def __init__(self, message: str, known_tokens: int) -> None:
        super().__init__(message)
        self.known_tokens = known_tokens


@dataclass(frozen=True)
class Limits:
    """How large a tree may be, and when its growth ends. Raises DraftRequestError for values that make no sense.

    `max_nodes` 0 asks for no tree: the text is taken in, and that is all. `max_children` 1 asks for a chain; more than
    MAX_CHILDREN are never given.
    """

    max_nodes: int
    max_depth: int
    max_children: int
    max_levels: int = 0  # forward passes at most; 0 for as many as `max_depth`
    min_gain: float = 0.0  # growth ends where the next level promises less, see `Pool.frontier`
    min_probability: float = 0.0  # nodes with less probability of being reached are not looked at, and not returned

    def __post_init__(self) -> None:
        if not 0 <= self.max_nodes <= MAX_NODES:
            raise DraftRequestError(f"max_nodes is {self.max_nodes}, not within [0, {MAX_NODES}]")
        if self.max_nodes and min(self.max_depth, self.max_children) < 1:
            raise DraftRequestError("max_depth and max_children must be at least 1")
        if not (self.min_gain >= 0 and 0 <= self.min_probability <= 1):
            raise DraftRequestError("min_gain must be at least 0, and min_probability within [0, 1]")

    @property
    def width(self) -> int:
        """Candidates wanted after each node."""
        return min(self.max_children, MAX_CHILDREN)


@dataclass(frozen=True)
class DraftTree:
    """Guesses below the newest committed token: `parents[i] < i`, or -1 for its children."""

    tokens: list[int]
    parents: list[int]
    logprobs: list[float]  # the draft's own confidence in each token after its parent


@dataclass(frozen=True)
class Proposal:
    """A tree, and the forward passes that were made to grow it."""

    tree: DraftTree
    levels: int


NOTHING = Proposal(DraftTree([], [], []), 0)


class DraftSession(Protocol):
    """The draft's view of one text. What it holds is found by comparing ids, never by counting what was accepted."""

    @property
    def known_tokens(self) -> int:
        """Tokens of the committed text that `extend` may build on."""

    def extend(self, base: int, tokens: Sequence[int], *, prompt_tokens: int, hidden: Tensor | None) -> None:
        """Makes known[:base] + `tokens` the committed text, of which the first `prompt_tokens` are the prompt.

        No tokens, with all that is known as `base`, leave the text as it is, and what was grown below it.
        `hidden`, `[n, hidden_size]`: the target's final hidden states that produced the last n of `tokens`.
        Raises DraftRequestError, DraftGapError, or NonFiniteError (the session is then of no more use).
        """

    def propose(self, limits: Limits, sampling: SamplingParams, calibration: Sequence[float] | None = None) -> Proposal:
        """Guesses below the end of the text; fewer than asked for where the draft's own context ends.

        Ranks with the noise that the target will use. What was grown below the same text, with the same sampling and as
        many children, is where growth starts: two calls for one level each do what one for two does.
        `calibration`, `[CELLS]`: log-probabilities that the target chooses a candidate, by its `cell`; without it the
        draft's own confidence stands for them. Raises NonFiniteError.
        """


class Drafter(Protocol):
    """A loaded draft; all its sessions are to be used from one thread at a time."""

    vocab_size: int
    hidden_size: int  # of the target's hidden states that it feeds on; 0 for a model that feeds on tokens alone
    max_tokens: int  # its longest context

    def new_session(self) -> DraftSession:
        """A session that knows no text."""


def splice(text: list[int], base: int, tokens: Sequence[int], prompt_tokens: int, vocab_size: int) -> None:
    """Makes text[:base] + `tokens` of `text`, in place. Raises, before any change, as `DraftSession.extend` says."""
    if base > len(text):
        raise DraftGapError(f"base is {base}, but {len(text)} tokens are known", len(text))
    if not tokens:
        raise DraftRequestError("tokens: at least one is needed, unless nothing changes")
    if min(tokens) < 0 or max(tokens) >= vocab_size:
        raise DraftRequestError(f"tokens: ids must be within [0, {vocab_size})")
    if prompt_tokens > base + len(tokens):
        raise DraftRequestError(f"prompt_tokens is {prompt_tokens}, but the text has {base + len(tokens)}")
    text[base:] = tokens


def agreement(held: Sequence[int], base: int, tokens: Sequence[int]) -> int:
    """Length of the common prefix of `held` and a text that has `tokens` from `base` on and is the same before."""
    at = min(base, len(held))
    end = min(len(held), base + len(tokens))
    while base <= at < end and held[at] == tokens[at - base]:
        at += 1
    return at
