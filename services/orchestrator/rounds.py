"""One round on paper: the rows of a slice, the tokens of a verdict, and where the time went. Pure.

Glossary. committed: part of the text for good. guess: a node of the draft's tree. accepted: a guess that the target
chose too. corrected: the target's own choice where a guess was at its place. bonus: its choice below a guess that was
accepted to the end of the tree.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field


class GuessSource(enum.Enum):
    """Where a guess came from."""

    DRAFT = "draft"
    TEXT = "text"
    RECYCLED = "recycled"


@dataclass(frozen=True)
class Tree:
    """Guesses below the newest committed token; `parents[i]` is an earlier node, or -1."""

    tokens: Sequence[int] = ()
    parents: Sequence[int] = ()
    sources: Sequence[GuessSource] = ()
    probabilities: Sequence[float] = ()  # that the target reaches the guess, as expected

    def depths(self) -> list[int]:
        """Depth of each node, from 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return depths

    def path(self, guesses: Sequence[int]) -> list[int]:
        """The nodes from the text down that carry `guesses`; of siblings with the same token the first."""
        nodes: list[int] = []
        for guess in guesses:
            above = nodes[-1] if nodes else -1
            steps = zip(self.parents, self.tokens, strict=True)
            nodes.append(next(node for node, step in enumerate(steps) if step == (above, guess)))
        return nodes


@dataclass(frozen=True)
class Rows:
    """Rows of one slice: committed tokens (a chain), then the nodes of a tree below the last of them."""

    base: int
    tokens: Sequence[int]
    parents: Sequence[int]
    committed: int


def plan(tokens: Sequence[int], base: int, tree: Tree, chunk: int) -> list[Rows]:
    """The slices that bring shards which hold `tokens[:base]` to the end of `tokens` and then to the tree.

    Each slice has at most `chunk` committed rows; the last one carries the tree.
    """
    slices = []
    while len(tokens) - base > chunk:
        slices.append(Rows(base, tokens[base : base + chunk], range(-1, chunk - 1), chunk))
        base += chunk
    committed = tokens[base:]
    below = [parent + len(committed) for parent in tree.parents]
    parents = [*range(-1, len(committed) - 1), *below]
    return [*slices, Rows(base, [*committed, *tree.tokens], parents, len(committed))]


def next_base(rows: Rows, accepted: Sequence[int]) -> tuple[int, list[int]]:
    """Committed length of the KV after a verdict, and the rows to gather if those kept are not the first ones."""
    kept = [*range(rows.committed - 1), *accepted]
    contiguous = kept == list(range(len(kept)))
    return rows.base + len(kept), [] if contiguous else kept


class Source(enum.Enum):
    """Where a token came from."""

    TARGET = "target"
    ACCEPTED = "accepted"
    CORRECTED = "corrected"
    BONUS = "bonus"


def sources(rows: Rows, accepted: Sequence[int]) -> list[Source]:
    """Source of each token that a verdict brings: the accepted guesses, then the target's own choice."""
    if len(rows.tokens) == rows.committed:
        return [Source.TARGET]
    has_guess = accepted[-1] in set(rows.parents[rows.committed :])
    last = Source.CORRECTED if has_guess else Source.BONUS
    return [Source.ACCEPTED] * (len(accepted) - 1) + [last]


@dataclass(frozen=True)
class Stage:
    """One shard's share of a round, in milliseconds on its own clock."""

    shard: str
    queue_ms: float
    compute_ms: float
    other_ms: float
    batch_rows: int

    @property
    def stay_ms(self) -> float:
        """All the time that the slice spent in the shard."""
        return self.queue_ms + self.compute_ms + self.other_ms


@dataclass(frozen=True)
class Timing:
    """Where one round's time went, in milliseconds."""

    round_ms: float
    draft_ms: float
    flight_ms: float  # from sending the slice to the arrival of its verdict
    stages: Sequence[Stage] = field(default_factory=tuple)

    @property
    def network_ms(self) -> float:
        """What the links took: the flight less the shards' stay."""
        return self.flight_ms - sum(stage.stay_ms for stage in self.stages)

    @property
    def orchestrator_ms(self) -> float:
        """What is left: writing the round before to the client, building the slice, committing the tokens."""
        return self.round_ms - self.draft_ms - self.flight_ms
