"""The text of one request as it grows: commits tokens one by one and says when it ends. Pure.

Tokens of a round are committed in order; the first one that ends the text (an end-of-sequence id, a stop text, the last
token allowed) wins, and the rest of the round never existed.
"""

import enum
from collections.abc import Sequence
from typing import Protocol

from services.orchestrator.stopping import StopScanner


class Finish(enum.Enum):
    """Why a text ended."""

    STOP = "stop"
    LENGTH = "length"


class Decoder(Protocol):
    """Turns ids into text one at a time, holding back incomplete characters."""

    def push(self, token_id: int) -> str:
        """The text that `token_id` completes."""

    def flush(self) -> str:
        """The text of what is incomplete, when no more will come."""


class Transcript:
    """Prompt, output and finish of one request."""

    def __init__(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int,
        eos_ids: frozenset[int],
        stops: Sequence[str],
        decoder: Decoder,
    ) -> None:
        """`eos_ids` are the ids that end the text; empty to go on past them. `max_tokens` is at least 1."""
        self.tokens = list(prompt)
        self.prompt_tokens = len(prompt)
        self.finish: Finish | None = None
        self._max_tokens = max_tokens
        self._eos_ids = eos_ids
        self._stops = StopScanner(stops)
        self._decoder = decoder

    @property
    def output_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def remaining(self) -> int:
        """Tokens that may still be generated."""
        return 0 if self.finish else self._max_tokens - self.output_tokens

    def commit(self, token_id: int) -> str:
        """Appends one token, sets `finish` if it is the last, and returns the text that it releases."""
        self.tokens.append(token_id)
        text = self._stops.push(self._decoder.push(token_id))
        if self._stops.stopped or token_id in self._eos_ids:
            self.finish = Finish.STOP
        elif self.output_tokens >= self._max_tokens:
            self.finish = Finish.LENGTH
        if self.finish is not None:
            text += self._stops.push(self._decoder.flush()) + self._stops.flush()
            if self._stops.stopped:
                self.finish = Finish.STOP
        return text
