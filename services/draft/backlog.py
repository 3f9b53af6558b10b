"""What waits for the one thread that computes: work that somebody waits for goes first. Pure: knows no model.

Work in the background is done in turns: it is taken, put back, and taken again, until its session is asked for more.
"""

import threading
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

W = TypeVar("W")


@dataclass(frozen=True)
class _Entry(Generic[W]):
    session: Hashable
    work: W


class Backlog(Generic[W]):
    """First come, first served, in two queues. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._awaited: deque[_Entry[W]] = deque()
        self._background: deque[_Entry[W]] = deque()

    def __len__(self) -> int:
        with self._lock:
            return len(self._awaited) + len(self._background)

    def put(self, session: Hashable, work: W, *, background: bool) -> list[W]:
        """Queues work; what is awaited takes the place of what its session has in the background, which is returned."""
        with self._lock:
            if background:
                self._background.append(_Entry(session, work))
                return []
            replaced = self._cut(session)
            self._awaited.append(_Entry(session, work))
        return [entry.work for entry in replaced]

    def put_back(self, session: Hashable, work: W) -> bool:
        """Queues work in the background for another turn, unless somebody waits for work of its session by now."""
        with self._lock:
            if any(entry.session == session for entry in self._awaited):
                return False
            self._background.append(_Entry(session, work))
        return True

    def take(self) -> W | None:
        """The next work, None if there is none."""
        with self._lock:
            queue = self._awaited or self._background
            return queue.popleft().work if queue else None

    def drop(self, session: Hashable) -> list[W]:
        """Takes back what a session has in the background."""
        with self._lock:
            return [entry.work for entry in self._cut(session)]

    def _cut(self, session: Hashable) -> list[_Entry[W]]:
        mine = [entry for entry in self._background if entry.session == session]
        if mine:
            self._background = deque(entry for entry in self._background if entry.session != session)
        return mine
