"""The time budget of a distillation, which counts on where an interrupted run stopped."""

import json
import time
from pathlib import Path


class Clock:
    """Seconds used by this run and the ones before it, kept in a file."""

    def __init__(self, file: Path, seconds: float) -> None:
        """`seconds`: the whole budget."""
        self._file = file
        self.seconds = seconds
        self._before = float(json.loads(file.read_text())) if file.exists() else 0.0
        self._started = time.monotonic()

    def used(self) -> float:
        """Seconds used up to now."""
        return self._before + time.monotonic() - self._started

    def left(self, until: float = 1.0) -> float:
        """Seconds left until the share `until` of the budget is used; negative when it is passed."""
        return self.seconds * until - self.used()

    def save(self) -> None:
        """Makes sure that an interruption from here on forgets nothing up to here."""
        self._file.write_text(json.dumps(self.used()))
