"""Lets time pass as if something computed: in the thread that would compute, without using the processor."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lasting(milliseconds: float) -> Iterator[None]:
    """Returns `milliseconds` after it was entered; what is done inside counts as a part of that time.

    A sleep, not a loop: services that wait must not take the processor from those that work.
    """
    deadline = time.monotonic() + milliseconds / 1000
    yield
    time.sleep(max(0.0, deadline - time.monotonic()))
