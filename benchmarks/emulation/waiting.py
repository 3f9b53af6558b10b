"""Lets time pass as if something computed: in the thread that would compute, without using the processor."""

import time


class Pass:
    """One forward pass: it began when this was made, and takes `milliseconds`, real work meanwhile included."""

    def __init__(self, milliseconds: float) -> None:
        self._deadline = time.monotonic() + milliseconds / 1000

    def end(self) -> None:
        """Returns when the time is up. A sleep, not a loop: the processor belongs to the services that work."""
        time.sleep(max(0.0, self._deadline - time.monotonic()))
