"""The law of emulation: what the target says next, and how well the draft knows it. Pure.

A text is known by one state for each shard: 48 bits that stand for every token so far. Ids are dealt by position, so
that no token, and hence no n-gram, occurs twice in POSITIONS tokens: a search of the text for repeats finds nothing.
"""

import bisect
import itertools
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

POSITIONS = 256
SLOTS = 16  # ids that a position may hold
VOCAB_SIZE = POSITIONS * SLOTS
SHARES = (0.30, 0.15, 0.07, 0.05, 0.04, 0.02, 0.02)  # of what rank 1 leaves, for the ranks 2 to 8
_SURE = 0.95

States = tuple[int, ...]  # [shards]


def beginning(shards: int) -> States:
    """The states of the empty text."""
    return (0,) * shards


def follow(state: int, value: int) -> int:
    """One shard's state after one more token; `value` is the token, or what the shard before passed on for it."""
    return _bits("state", state, value)


def advance(states: States, tokens: Iterable[int]) -> States:
    """The states of a text with `tokens` behind it, as a slice brings them about shard by shard."""
    for value in tokens:
        after = []
        for state in states:
            value = follow(state, value)
            after.append(value)
        states = tuple(after)
    return states


def next_token(state: int, position: int) -> int:
    """What the target says at `position` after the text with this `state` of the last shard."""
    return position % POSITIONS * SLOTS + _slot(state)


@dataclass(frozen=True)
class Acceptance:
    """How often the emulated draft is right.

    Its first candidate is the target's token with probability `alpha`; the rest goes to the ranks 2 to 8 by SHARES, and
    what is left to none. `varying`: the draft is sure of some tokens (.95) and unsure of others (.35, or .45 for a good
    draft), with the same mean, and says so; else it is as sure of all.
    """

    alpha: float
    varying: bool = False

    def confidences(self, state: int) -> tuple[float, ...]:
        """[8] probability of each rank after the text with this `state`."""
        first = self._first(state)
        return (first, *((1 - first) * share for share in SHARES))

    def rank(self, state: int) -> int | None:
        """Rank, from 0, of the target's token among the draft's candidates; None if it is not among them."""
        below = list(itertools.accumulate(self.confidences(state)))
        rank = bisect.bisect_right(below, _uniform("rank", state))
        return rank if rank < len(below) else None

    def candidates(self, state: int, position: int) -> list[tuple[int, float]]:
        """[8] what the draft proposes at `position`, best first: ids with their confidences."""
        slot, rank = _slot(state), self.rank(state)
        slots = [(slot + step) % SLOTS for step in range(1, len(SHARES) + 2)]
        if rank is not None:
            slots = [*slots[:rank], slot, *slots[rank:-1]]
        first_id = position % POSITIONS * SLOTS
        return [(first_id + each, p) for each, p in zip(slots, self.confidences(state), strict=True)]

    def _first(self, state: int) -> float:
        if not self.varying:
            return self.alpha
        unsure = 0.35 if self.alpha < 0.7 else 0.45
        share_sure = (self.alpha - unsure) / (_SURE - unsure)
        return _SURE if _uniform("sure", state) < share_sure else unsure


def _slot(state: int) -> int:
    return _bits("slot", state) % SLOTS


def _uniform(purpose: str, state: int) -> float:
    return _bits(purpose, state) / 2**48


def _bits(purpose: str, *values: int) -> int:
    """48 bits that look random, different for each purpose."""
    packed = struct.pack(f"<{len(values)}Q", *values)
    return int.from_bytes(blake2b(packed, digest_size=6, person=purpose.encode()).digest(), "little")
