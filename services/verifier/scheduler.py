"""Which waiting slices are packed into the next forward pass. The seam for other policies; no I/O, no clock."""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Scheduler(Generic[Item]):
    """First come, first served, with turns: at most one slice of a session in a pass, and `row_budget` rows in all.

    A session that was served and has more to do goes to the back, so that a long prompt, which arrives as many slices
    at once, can not keep others waiting for more than one pass each.
    """

    def __init__(self, row_budget: int) -> None:
        self._row_budget = row_budget
        self._waiting: OrderedDict[Hashable, deque[tuple[int, Item]]] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._waiting.values())

    def add(self, session: Hashable, rows: int, item: Item) -> None:
        """Queues a slice of `rows` rows behind those of its session."""
        self._waiting.setdefault(session, deque()).append((rows, item))

    def take(self) -> list[Item]:
        """Removes and returns the slices of the next pass; the first in turn is always among them, however large."""
        taken: list[Item] = []
        room = self._row_budget
        for session in list(self._waiting):
            rows, item = self._waiting[session][0]
            if taken and rows > room:
                continue
            taken.append(item)
            room -= rows
            self._serve(session)
        return taken

    def discard(self, session: Hashable, unwanted: Callable[[Item], bool]) -> int:
        """Removes the waiting slices of a session that are `unwanted`; returns how many those were."""
        queue = self._waiting.get(session, deque())
        kept = deque(entry for entry in queue if not unwanted(entry[1]))
        if kept:
            self._waiting[session] = kept
        else:
            self._waiting.pop(session, None)
        return len(queue) - len(kept)

    def _serve(self, session: Hashable) -> None:
        queue = self._waiting[session]
        queue.popleft()
        if queue:
            self._waiting.move_to_end(session)
        else:
            del self._waiting[session]
