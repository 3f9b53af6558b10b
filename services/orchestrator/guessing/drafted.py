"""The tree that the draft has grown so far, and the place in it where the text now ends. Pure."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shardflow.calibration import cell
from shardflow.errors import ShardflowError
from shardflow.v1 import draft_pb2


class Child(NamedTuple):
    """One candidate of the draft."""

    node: int
    token: int
    cell: int  # of the calibration


class Drafted:
    """Nodes by index; the root, below which the draft was asked to grow, is -1."""

    def __init__(
        self, tokens: Sequence[int] = (), parents: Sequence[int] = (), confidences: Sequence[float] = ()
    ) -> None:
        """As in `draft.proto`: parents come before their children, and siblings best first; confidences from 0 to 1."""
        self.parents = parents
        self._children: dict[int, list[Child]] = {}
        self._nodes: list[Child] = []
        depths: list[int] = []
        for node, (token, parent, confidence) in enumerate(zip(tokens, parents, confidences, strict=True)):
            depths.append(1 if parent < 0 else depths[parent] + 1)
            siblings = self._children.setdefault(parent, [])
            child = Child(node, token, cell(depths[node], len(siblings), confidence))
            siblings.append(child)
            self._nodes.append(child)

    def __iter__(self) -> Iterator[Child]:
        """All nodes, parents first."""
        return iter(self._nodes)

    def children(self, node: int | None) -> Sequence[Child]:
        """Candidates below a node; none if the draft has not looked there, or does not know the node (None)."""
        return () if node is None else self._children.get(node, ())

    def child(self, node: int | None, token: int) -> int | None:
        """The node below `node` that carries `token`, if there is one."""
        return next((child.node for child in self.children(node) if child.token == token), None)


def read_tree(tree: draft_pb2.Tree, max_nodes: int, vocab_size: int) -> Drafted:
    """From the draft's answer, without nodes outside the target's vocabulary and what hangs below them.

    ShardflowError says what is wrong with a tree that was to have at most `max_nodes` nodes.
    """
    if fault := _fault(tree, max_nodes):
        raise ShardflowError(f"draft: {fault}")
    confidences = [math.exp(logprob) for logprob in tree.logprobs]
    if not tree.tokens or max(tree.tokens) < vocab_size:
        return Drafted(tree.tokens, tree.parents, confidences)
    kept = {-1: -1}
    for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
        if token < vocab_size and parent in kept:
            kept[node] = len(kept) - 1
    nodes = list(kept)[1:]
    parents = [kept[tree.parents[node]] for node in nodes]
    return Drafted([tree.tokens[node] for node in nodes], parents, [confidences[node] for node in nodes])


def _fault(tree: draft_pb2.Tree, max_nodes: int) -> str | None:
    if len(tree.tokens) > max_nodes:
        return f"{len(tree.tokens)} nodes where at most {max_nodes} were asked for"
    if not len(tree.tokens) == len(tree.parents) == len(tree.logprobs):
        return f"{len(tree.parents)} parents and {len(tree.logprobs)} log-probabilities for {len(tree.tokens)} nodes"
    if any(not -1 <= parent < node for node, parent in enumerate(tree.parents)):
        return f"parents {list(tree.parents)} do not come before their children"
    if not all(logprob <= 1e-3 for logprob in tree.logprobs):  # NaN is not either
        return "log-probabilities that are none"
    return None
