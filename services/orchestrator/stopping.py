"""Stop texts: releases generated text up to the first stop, and holds back what may become the start of one. Pure."""

from collections.abc import Sequence


class StopScanner:
    """Feeds on pieces of text; what it releases never contains a stop text nor a part of one that came true."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._pending = ""
        self.stopped = False

    def push(self, piece: str) -> str:
        """The text that `piece` makes safe to release; once `stopped`, nothing more."""
        if self.stopped:
            return ""
        self._pending += piece
        found = [index for stop in self._stops if (index := self._pending.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._release(min(found))
        return self._release(len(self._pending) - self._held())

    def flush(self) -> str:
        """The text still held back, when no more will come."""
        return "" if self.stopped else self._release(len(self._pending))

    def _release(self, length: int) -> str:
        released, self._pending = self._pending[:length], self._pending[length:]
        return released

    def _held(self) -> int:
        """Length of the longest end of the pending text that a stop text begins with."""
        longest = min(len(self._pending), max((len(stop) - 1 for stop in self._stops), default=0))
        for length in range(longest, 0, -1):
            if any(stop.startswith(self._pending[-length:]) for stop in self._stops):
                return length
        return 0
