"""What waits for the one thread that computes: work that somebody waits for goes first. Pure: knows no model."""

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
    """First come, first served, in two queues; the work of one session is never reordered. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._awaited: deque[_Entry[W]] = deque()
        self._background: deque[_Entry[W]] = deque()

    def __len__(self) -> int:
        with self._lock:
            return len(self._awaited) + len(self._background)

    def put(self, session: Hashable, work: W, *, background: bool) -> None:
        """Queues work; what is awaited takes along what its session has in the background, so as not to overtake it."""
        with self._lock:
            if background:
                self._background.append(_Entry(session, work))
            else:
                self._awaited += [*self._cut(session), _Entry(session, work)]

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
