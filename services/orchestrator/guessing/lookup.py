"""Candidates that cost no time: what followed the same tokens before, and what the target held likely there.

The first is prompt lookup; the second is Token Recycling (Luo et al. 2024, arXiv 2408.08696), with the token before as
further context. Pure.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

LENGTHS = (8, 5, 3, 2, 1)  # tokens of context that are looked up, longest first
CONTEXT = LENGTHS[0]
REMEMBERED = 4  # latest continuations of one context
SUCCESSORS = 4  # of the target's best that are kept for one context

TEXT_KINDS = len(LENGTHS) * 3
RECYCLED_KINDS = 2 * SUCCESSORS


class Found(NamedTuple):
    """A candidate, and the kind of evidence for it: all candidates of a kind are equally likely to be right."""

    token: int
    kind: int


class TextIndex:
    """What followed each run of tokens in one text, latest last."""

    def __init__(self) -> None:
        self._tail: tuple[int, ...] = ()
        self._followers: dict[tuple[int, ...], list[int]] = {}

    def append(self, token: int) -> None:
        """The text goes on with `token`."""
        for length in LENGTHS:
            if length <= len(self._tail):
                followers = self._followers.setdefault(self._tail[-length:], [])
                followers.append(token)
                del followers[:-REMEMBERED]
        self._tail = (*self._tail, token)[-CONTEXT:]

    def after(self, context: tuple[int, ...]) -> Iterator[Found]:
        """Candidates after `context`, for the longest run at its end that has been met, best first."""
        for place, length in enumerate(LENGTHS):
            if length > len(context):
                continue
            followers = self._followers.get(context[-length:])
            if followers:
                yield from _latest_first(followers, 3 * place)
                return


def _latest_first(followers: Sequence[int], kind: int) -> Iterator[Found]:
    """The latest follower: the only one so far (kind), confirmed (+ 1) or contested (+ 2); then the others."""
    latest = followers[-1]
    others = [token for token in followers if token != latest]
    if others:
        yield Found(latest, kind + 2)
        for token in dict.fromkeys(reversed(others)):
            yield Found(token, kind + 2)
    else:
        yield Found(latest, kind + (len(followers) > 1))


class Successors:
    """The target's most probable tokens where a token, or a pair of tokens, was met last."""

    def __init__(self) -> None:
        self._best: dict[tuple[int, ...], Sequence[int]] = {}

    def learn(self, context: tuple[int, ...], best: Sequence[int]) -> None:
        """`best`: ids that the target held most probable after `context`, best first."""
        self._best[context[-1:]] = self._best[context[-2:]] = best[:SUCCESSORS]

    def after(self, context: tuple[int, ...]) -> Iterator[Found]:
        """Candidates after `context`, best first; of the last two tokens if that pair has been met."""
        best, kind = self._best.get(context[-2:]), 0
        if best is None:
            best, kind = self._best.get(context[-1:]), SUCCESSORS
        for rank, token in enumerate(best or ()):
            yield Found(token, kind + rank)
