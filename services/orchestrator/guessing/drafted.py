"""The tree that the draft has grown so far, and the place in it where the text now ends. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shardflow.calibration import cell


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
