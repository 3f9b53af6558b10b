"""What the heartbeats of one stream tell about its link: round trip and bandwidth. No clock of its own."""

from collections import deque

_RTT_SAMPLES = 32


class Meter:
    """Counts the pings of one stream and pairs them with their pongs; times in seconds on one monotonic clock."""

    def __init__(self) -> None:
        self.answered = 0  # sequence of the last pong
        self._sequence = 0  # of the last ping, counted from 1
        self._sent: dict[int, tuple[float, int]] = {}
        self._rtts_ms: deque[float] = deque(maxlen=_RTT_SAMPLES)
        self._largest: tuple[int, float] | None = None  # padding in bytes, and how long its exchange took in ms

    def next(self) -> int:
        """The sequence number of the next ping."""
        self._sequence += 1
        return self._sequence

    def ping(self, sequence: int, padding: int, now: float) -> None:
        """A ping with `padding` bytes goes out."""
        self._sent[sequence] = (now, padding)

    def pong(self, sequence: int, now: float) -> None:
        """A ping came back; one that this stream did not send tells nothing of its link."""
        self.answered = sequence
        if sequence not in self._sent:
            return
        sent, padding = self._sent.pop(sequence)
        took_ms = (now - sent) * 1000
        self._rtts_ms.append(took_ms)
        if padding and (self._largest is None or padding >= self._largest[0]):
            self._largest = (padding, took_ms)

    @property
    def rtt_ms(self) -> float:
        """Least round trip of the last heartbeats, in milliseconds; 0 before the first."""
        return min(self._rtts_ms, default=0.0)

    @property
    def bytes_per_second(self) -> float:
        """What the largest padded ping found, both ways together, for it went there and back; 0 if there was none."""
        if self._largest is None:
            return 0.0
        padding, took_ms = self._largest
        on_the_way_ms = took_ms - self.rtt_ms
        return 2 * padding / (on_the_way_ms / 1000) if on_the_way_ms > 0 else 0.0
