"""What a draft has found below one text: every candidate, its confidence and the probability of its path. Pure."""

import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardflow.calibration import CONFIDENCES, DEPTHS, RANKS
from shardflow.engine.drafts.base import MAX_EXPANDED, DraftTree, Limits

ROWS = 32  # nodes of one level at most: about where a forward pass begins to cost more for each further row

Nodes = NDArray[np.int64]

_FALLING = -np.array(CONFIDENCES)


class Candidates(NamedTuple):
    """What may come after each of some rows: best first, and as many places for each."""

    tokens: NDArray[np.int64]  # [rows, width]
    logprobs: NDArray[np.float64]  # [rows, width] the draft's confidence; -inf where there is no candidate


class Pool:
    """Every candidate seen so far below one text.

    The candidates after one row are a group: group 0 follows the text, group g the g-th node that was expanded. Rank r
    of group g is node g * width + r, so that a node's index never changes, is greater than its parent's, and rises with
    its rank among siblings.
    """

    def __init__(self, roots: Candidates, calibration: Sequence[float] | None = None) -> None:
        self.width = roots.tokens.shape[1]
        shape = (MAX_EXPANDED + 1, self.width)
        self.groups = 0
        self._tokens = np.empty(shape, dtype=np.int64)
        self._logprobs = np.empty(shape)
        self._scores = np.empty(shape)  # log-probability of the whole path
        self._above = np.empty(shape[0], dtype=np.int64)  # [groups] the node that a group follows, -1 for the text
        self._depths = np.empty(shape[0], dtype=np.int64)  # [groups] of the nodes in it, from 1
        self._below = np.zeros(shape, dtype=np.int64)  # the group that follows each node, 0 for none
        self._paths: list[list[int]] = []  # by group: the tokens between the text and the group
        self._given = calibration
        self._table = None if calibration is None else np.array(calibration)
        self._score(self._put(np.array([-1]), [[]], roots))

    @property
    def expanded(self) -> Nodes:
        """The nodes whose candidates are known, in the order in which they were added."""
        return self._above[1 : self.groups]

    def tokens(self, nodes: Nodes) -> list[int]:
        """The token of each."""
        ids: list[int] = self._tokens.ravel()[nodes].tolist()
        return ids

    def parents(self, nodes: Nodes) -> Nodes:
        """The node above each, -1 for the text."""
        above: Nodes = self._above[nodes // self.width]
        return above

    def depths(self, nodes: Nodes) -> NDArray[np.int64]:
        """How many tokens below the text each is, from 1."""
        deep: NDArray[np.int64] = self._depths[nodes // self.width]
        return deep

    def paths(self, nodes: Nodes) -> list[list[int]]:
        """For each the tokens from below the text down to it."""
        groups = (nodes // self.width).tolist()
        return [[*self._paths[group], token] for group, token in zip(groups, self.tokens(nodes), strict=True)]

    def places(self, nodes: Nodes) -> Nodes:
        """The index in `expanded` of each, which was expanded; -1 for the text, which is -1."""
        return np.where(nodes < 0, -1, self._below.ravel()[nodes] - 1)

    def ancestry(self, nodes: Nodes) -> NDArray[np.bool_]:
        """`[nodes, expanded + nodes]`: True where the column's node is the row's, or above it."""
        seen = np.zeros((len(nodes), self.groups - 1 + len(nodes)), dtype=np.bool_)
        rows = np.arange(len(nodes))
        seen[rows, self.groups - 1 + rows] = True
        above = self.parents(nodes)
        while len(rows := rows[above[rows] >= 0]):
            seen[rows, self.places(above[rows])] = True
            above[rows] = self.parents(above[rows])
        return seen

    def add(self, nodes: Nodes, candidates: Candidates) -> None:
        """Puts candidates below nodes that had none."""
        self._score(self._put(nodes, self.paths(nodes), candidates))

    def walk(self, tokens: Sequence[int]) -> Nodes:
        """The nodes that spell the beginning of `tokens`, from below the text, as far as they were expanded."""
        path: list[int] = []
        group = 0
        for token in tokens:
            ranks = np.flatnonzero((self._tokens[group] == token) & (self._below[group] > 0))
            if not len(ranks):
                break
            path.append(group * self.width + int(ranks[0]))
            group = int(self._below[group, ranks[0]])
        return np.array(path, dtype=np.int64)

    def below(self, path: Nodes) -> tuple["Pool", list[int]]:
        """The pool for the text that goes on along `path`, all expanded, and the places that its expanded nodes had."""
        if not len(path):
            return self, list(range(self.groups - 1))
        first, parents = int(self._below.ravel()[path[-1]]), self._above.tolist()
        places = {first: 0}  # of the groups that stay, by what they were
        for group in range(first + 1, self.groups):
            if parents[group] // self.width in places:
                places[group] = len(places)
        kept = list(places)[1:]
        pool = Pool(Candidates(self._tokens[[first]], self._logprobs[[first]]), self._given)
        above = [places[parents[group] // self.width] * self.width + parents[group] % self.width for group in kept]
        paths = [self._paths[group][len(path) :] for group in kept]
        pool._put(np.array(above, dtype=np.int64), paths, Candidates(self._tokens[kept], self._logprobs[kept]))
        pool._score_all()
        return pool, [group - 1 for group in kept]

    def calibrate(self, calibration: Sequence[float] | None) -> None:
        """Has every node scored by this calibration, or by the draft's own confidence for None."""
        if calibration == self._given:
            return
        self._given = calibration
        self._table = None if calibration is None else np.array(calibration)
        self._score_all()

    def frontier(self, limits: Limits) -> tuple[Nodes, float]:
        """The nodes to look at next, best first, and what the tree's expected length will about grow by.

        A node outside the best max_nodes - 1 so far can not have a child in the tree, since no path gets more probable
        as it gets longer. What is expected of one is a first child as probable as first children are on average, which
        pushes out the least node of a tree that is full.
        """
        best = self._best(limits.max_nodes, limits)
        scores = self._scores.ravel()
        least = float(np.exp(scores[best].min())) if len(best) == limits.max_nodes else 0.0
        inner: Nodes = best[(self._below.ravel()[best] == 0) & (self._depths[best // self.width] < limits.max_depth)]
        reach = np.exp(scores[inner])
        order = np.argsort(-reach, kind="stable")[: min(ROWS, MAX_EXPANDED + 1 - self.groups)]
        order = order[reach[order] > least] if least else order
        first = np.exp(self._scores[: self.groups, 0] - self._before(np.arange(self.groups))).mean()
        return inner[order], float(np.maximum(reach[order] * first - least, 0.0).sum())

    def tree(self, limits: Limits) -> DraftTree:
        """The best nodes. No child beats its parent, no sibling an earlier one, and ties go to the older: so the nodes
        are a tree, and siblings the first ones by rank."""
        nodes = self._best(limits.max_nodes, limits)
        parents = self.parents(nodes)
        places = np.where(parents < 0, -1, np.searchsorted(nodes, parents))
        return DraftTree(self.tokens(nodes), places.tolist(), self._logprobs.ravel()[nodes].tolist())

    def _put(self, above: Nodes, paths: list[list[int]], candidates: Candidates) -> Nodes:
        """Appends one group below each node of `above`, where its path ends; the groups, not scored yet."""
        groups = np.arange(self.groups, self.groups + len(above))
        self.groups += len(above)
        self._paths += paths
        self._above[groups] = above
        self._below.ravel()[above[above >= 0]] = groups[above >= 0]
        self._depths[groups] = [len(path) + 1 for path in paths]
        self._tokens[groups], self._logprobs[groups] = candidates
        return groups

    def _score_all(self) -> None:
        depths = self._depths[: self.groups]
        for depth in range(1, int(depths.max()) + 1):
            self._score(np.flatnonzero(depths == depth))

    def _score(self, groups: Nodes) -> None:
        """Scores the nodes of these groups, from the scores of the nodes above them."""
        logprobs = self._logprobs[groups]
        if self._table is not None:
            believed = np.minimum(self._table[_cells(self._depths[groups], logprobs)], 0)
            logprobs = np.where(logprobs > -np.inf, believed, -np.inf)
        self._scores[groups] = self._before(groups)[:, None] + np.minimum.accumulate(logprobs, axis=1)

    def _before(self, groups: Nodes) -> NDArray[np.float64]:
        """`[groups]`: the log-probability of the path to each."""
        above = self._above[groups]
        before: NDArray[np.float64] = np.where(above < 0, 0.0, self._scores.ravel()[above])
        return before

    def _best(self, count: int, limits: Limits) -> Nodes:
        """The `count` best nodes that the limits allow, by index; the older of equals."""
        deep = self._depths[: self.groups] > limits.max_depth
        scores = np.where(deep[:, None], -np.inf, self._scores[: self.groups]).ravel()
        floor = math.log(max(limits.min_probability, sys.float_info.min))  # a node of probability 0 is none
        if count < len(scores):
            edge = np.partition(scores, len(scores) - count)[len(scores) - count] if count else np.inf
            above = np.flatnonzero(scores > edge)
            equal = np.flatnonzero(scores == edge)[: count - len(above)]
            best = np.sort(np.concatenate([above, equal]))
        else:
            best = np.arange(len(scores))
        kept: Nodes = best[scores[best] >= floor]
        return kept


def _cells(depths: NDArray[np.int64], logprobs: NDArray[np.float64]) -> NDArray[np.int64]:
    """`[groups, width]`: the `cell` of each candidate, for groups at `depths` `[groups]`."""
    level = np.minimum(depths, DEPTHS) - 1
    place = np.searchsorted(RANKS, np.arange(logprobs.shape[1]), side="right") - 1
    confidence = np.searchsorted(_FALLING, -np.exp(logprobs))
    return (level[:, None] * len(RANKS) + place) * (len(CONFIDENCES) + 1) + confidence
