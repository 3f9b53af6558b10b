"""Grows a tree best-first by cumulative probability, one batched look at the draft per level. Pure: knows no model."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from shardflow.engine.drafts.base import MAX_EXPANDED, DraftTree, Limits


class Child(NamedTuple):
    """One candidate after some node."""

    token: int
    logprob: float


class Pool:
    """Every candidate seen so far; a node's index never changes, and a parent's is less than its children's."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._logprobs: list[float] = []
        self._scores: list[float] = []  # log-probability of the whole path

    def add(self, parent: int, children: Sequence[Child]) -> None:
        """Puts candidates below node `parent`, or below the text for -1."""
        above = 0.0 if parent < 0 else self._scores[parent]
        for child in children:
            self.tokens.append(child.token)
            self.parents.append(parent)
            self._logprobs.append(child.logprob)
            self._scores.append(above + child.logprob)

    def __len__(self) -> int:
        return len(self.tokens)

    def best(self, count: int) -> list[int]:
        """The `count` nodes with the best scores. No child beats its parent and ties go to the older: always a tree."""
        return sorted(range(len(self)), key=lambda node: (-self._scores[node], node))[:count]

    def path(self, node: int) -> list[int]:
        """Token ids from below the text down to `node`."""
        above = self.path(self.parents[node]) if self.parents[node] >= 0 else []
        return [*above, self.tokens[node]]

    def tree(self, nodes: Sequence[int]) -> DraftTree:
        """These nodes alone, numbered anew in the order of their indices."""
        kept = sorted(nodes)
        place = {node: index for index, node in enumerate(kept)} | {-1: -1}
        return DraftTree(
            [self.tokens[node] for node in kept],
            [place[self.parents[node]] for node in kept],
            [self._logprobs[node] for node in kept],
        )


def grow(
    roots: Sequence[Child], expand: Callable[[Pool, Sequence[int]], Sequence[Sequence[Child]]], limits: Limits
) -> DraftTree:
    """The `max_nodes` most probable nodes of all trees that the limits allow, given each node's children.

    `expand` looks at the nodes of one level and returns the candidates of each, `max_children` at most. A node outside
    the best max_nodes - 1 so far can not have a child in the tree, since no path gets more probable as it gets longer.
    Growth ends early, with a smaller search, where it would look at more than MAX_EXPANDED nodes.
    """
    pool = Pool()
    pool.add(-1, roots)
    level = expanded = 0
    for _ in range(1, limits.max_depth):
        frontier = sorted(node for node in pool.best(limits.max_nodes - 1) if node >= level)
        expanded += len(frontier)
        if not frontier or expanded > MAX_EXPANDED:
            break
        level = len(pool)
        for node, children in zip(frontier, expand(pool, frontier), strict=True):
            pool.add(node, children)
    return pool.tree(pool.best(limits.max_nodes))
