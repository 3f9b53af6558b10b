"""An answer as it comes into a terminal: token by token in the colours of their sources, then how it went."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from rich.console import Console

from shardflow import paint
from shardflow.client import Chunk, Usage, gather


@dataclass(frozen=True)
class Shown:
    """An answer that was shown to its end."""

    text: str
    usage: Usage
    first_token_s: float
    decode_s: float
    """From the first token to the last."""

    def summary(self) -> str:
        """How it went, in one line."""
        usage = self.usage
        later = usage.completion_tokens - 1
        rate = f"{later / self.decode_s:.1f} tok/s, " if later and self.decode_s > 0 else ""
        return (
            f"{usage.completion_tokens} tokens in {usage.rounds} rounds, {rate}"
            f"first after {self.first_token_s * 1000:.0f} ms; "
            f"{usage.accepted_tokens} of {usage.drafted_tokens} guesses accepted"
        )


async def show(chunks: AsyncIterator[Chunk], console: Console) -> Shown:
    """Prints the tokens of a stream as they come, and a line break; errors are those of the stream."""
    started = first = last = time.perf_counter()
    got: list[Chunk] = []
    async for chunk in chunks:
        got.append(chunk)
        last = time.perf_counter()
        if len(got) == 1:
            first = last
        for token in chunk.tokens:
            console.print(paint.token_text(token), end="", soft_wrap=True)
    console.print()
    answer = gather(got)
    return Shown(answer.text, answer.usage, first - started, last - first)
