"""One tree out of all candidates, most probable first, of the size that pays. Pure.

The rule: nodes are taken in the order of their probability of being reached, and as many as bring the most expected
tokens beyond what their rows cost, i.e. what the other rounds would have brought in the time that they take.
"""

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from services.orchestrator.guessing.beliefs import Beliefs
from services.orchestrator.guessing.drafted import Drafted
from services.orchestrator.guessing.lookup import CONTEXT, Successors, TextIndex
from services.orchestrator.rounds import GuessSource, Tree

SURE = 0.98  # all candidates of one place together are never more probable


@dataclass(frozen=True)
class Candidate:
    """What may follow at some place."""

    token: int
    probability: float
    source: GuessSource  # the surest one
    node: int | None  # of the draft's tree


@dataclass(frozen=True)
class Evidence:
    """All sources of candidates for one text."""

    beliefs: Beliefs
    text: TextIndex
    successors: Successors
    drafted: Drafted

    def after(self, context: tuple[int, ...], node: int | None) -> list[Candidate]:
        """Candidates after `context`, which ends at `node` of the draft's tree, or at none.

        What the text says and what was recycled are much the same evidence, so the surer counts; the draft is another.
        """
        free: dict[int, tuple[float, GuessSource]] = {}
        for found in self.text.after(context):
            free[found.token] = (self.beliefs.text.shares[found.kind], GuessSource.TEXT)
        for found in self.successors.after(context):
            share = self.beliefs.recycled.shares[found.kind]
            if found.token not in free or free[found.token][0] < share:
                free[found.token] = (share, GuessSource.RECYCLED)
        candidates = []
        for child in self.drafted.children(node):
            share = self.beliefs.draft.shares[child.cell]
            other, source = free.pop(child.token, (0.0, GuessSource.DRAFT))
            source = source if other > share else GuessSource.DRAFT
            candidates.append(Candidate(child.token, share + other - share * other, source, child.node))
        candidates += [Candidate(token, share, source, None) for token, (share, source) in free.items()]
        return candidates


@dataclass(frozen=True)
class Room:
    """How large a tree may be."""

    nodes: int
    depth: int


class Price:
    """What rows cost: `costs[n]` is the number of tokens that n guesses must bring to be worth their time."""

    def __init__(self, costs: Sequence[float]) -> None:
        """From `costs[0]` = 0 on, never falling; nothing larger than the last one is to be had."""
        self.costs = costs
        self.floors = _steepest_descents(costs)
        self.least = list(itertools.accumulate(reversed(self.floors), min))[::-1]  # of the floors from n on
        self.nodes = len(costs) - 1


def _steepest_descents(costs: Sequence[float]) -> list[float]:
    """For each n: the least cost a node of going on from n guesses to any larger number."""
    return [
        min(((costs[more] - cost) / (more - n) for more in range(n + 1, len(costs))), default=1.0)
        for n, cost in enumerate(costs)
    ]


@dataclass(frozen=True)
class Built:
    """A tree, and the tokens that it is expected to bring beyond its cost."""

    tree: Tree
    value: float


def build(evidence: Evidence, context: tuple[int, ...], root: int | None, price: Price, room: Room) -> Built:
    """The tree below a text that ends with `context` (CONTEXT tokens) and at node `root` of the draft's tree."""
    tokens: list[int] = []
    parents: list[int] = []
    probabilities: list[float] = []
    sources: list[GuessSource] = []
    serial = itertools.count()
    heap: list[tuple[float, int, int, int, Candidate, tuple[int, ...]]] = []

    def offer(parent: int, depth: int, reach: float, context: tuple[int, ...], node: int | None) -> None:
        candidates = evidence.after(context, node)
        total = sum(candidate.probability for candidate in candidates)
        reach *= min(1.0, SURE / total) if total else 1.0
        floor = price.least[len(tokens)]
        for candidate in candidates:
            chance = reach * candidate.probability
            if chance > floor:
                heapq.heappush(heap, (-chance, next(serial), parent, depth, candidate, context))

    if room.depth > 0:
        offer(-1, 1, 1.0, context, root)
    most = min(room.nodes, price.nodes)
    best, best_value, gained = 0, 0.0, 0.0
    while heap and len(tokens) < most:
        chance, _, parent, depth, candidate, above = heapq.heappop(heap)
        if -chance <= price.floors[len(tokens)]:
            break
        place = len(tokens)
        tokens.append(candidate.token)
        parents.append(parent)
        probabilities.append(-chance)
        sources.append(candidate.source)
        gained -= chance
        if gained - price.costs[place + 1] > best_value:
            best, best_value = place + 1, gained - price.costs[place + 1]
        if depth < room.depth:
            offer(place, depth + 1, -chance, (*above, candidate.token)[-CONTEXT:], candidate.node)
    return Built(Tree(tokens[:best], parents[:best], sources[:best], probabilities[:best]), best_value)
