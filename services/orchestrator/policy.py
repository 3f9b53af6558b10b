"""How much to speculate: the modes a request may ask for, and the size of the next guess. Pure."""

from dataclasses import dataclass

MAX_NODES = 64


@dataclass(frozen=True)
class Mode:
    """A chain of `k` guesses a round; 0 is no speculation."""

    k: int

    @classmethod
    def parse(cls, text: str) -> "Mode":
        """Reads `none` or `linear:K` with K from 1 to 64; ValueError says what is wrong."""
        name, _, size = text.partition(":")
        if text == "none":
            return cls(0)
        if name == "linear" and size.isascii() and size.isdigit() and 1 <= int(size) <= MAX_NODES:
            return cls(int(size))
        raise ValueError(f"{text!r} is neither `none` nor `linear:K` with K from 1 to {MAX_NODES}")

    def __str__(self) -> str:
        return f"linear:{self.k}" if self.k else "none"


def chain_length(mode: Mode, *, remaining_tokens: int, free_positions: int) -> int:
    """Guesses worth sending: a round of n guesses brings n + 1 tokens, and its rows must fit the session's KV cache."""
    return max(0, min(mode.k, remaining_tokens - 1, free_positions))
