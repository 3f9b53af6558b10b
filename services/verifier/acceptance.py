"""Which rows of a slice the target agrees with. No I/O, no torch.

Glossary. *Row*: one token of a slice, a node of a tree; its parent is an earlier row. *Committed row*: a token that is
certain, such as a prompt token or the last token of the round before. *Guess*: any other row, proposed by the draft.
*Choice at a row*: the token that the target puts after that row. *Accepted row*: the last committed row, or a guess
that equals the choice at its accepted parent. *Next token*: the choice at the last accepted row: certain, without KV.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Walk:
    """The path that the target takes through a tree."""

    accepted: tuple[int, ...]  # row indices, by depth
    choices: tuple[int, ...]  # the token chosen at each accepted row

    @property
    def next_token(self) -> int:
        """The token after the last accepted row."""
        return self.choices[-1]


def walk(tokens: Sequence[int], parents: Sequence[int], start: int, choose: Callable[[int], int]) -> Walk:
    """Follows the target's choices from row `start` down the tree for as long as a child carries the chosen token.

    `tokens` and `parents` are one entry per row; `choose(row)` is called once per accepted row, in order of depth. Of
    siblings with the same token the first counts.
    """
    child: dict[tuple[int, int], int] = {}
    for guess in range(start + 1, len(tokens)):
        child.setdefault((parents[guess], tokens[guess]), guess)
    accepted: list[int] = []
    choices: list[int] = []
    row: int | None = start
    while row is not None:
        accepted.append(row)
        choices.append(choose(row))
        row = child.get((row, choices[-1]))
    return Walk(tuple(accepted), tuple(choices))


def path_to(parents: Sequence[int], row: int) -> list[int]:
    """The rows from the root of the tree down to `row`, both included."""
    path = []
    while row >= 0:
        path.append(row)
        row = parents[row]
    return path[::-1]
