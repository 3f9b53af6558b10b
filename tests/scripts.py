"""Scripted targets: functions from a text, as token ids, to the next token. Ids are the bytes of the text."""

import zlib
from collections.abc import Callable, Sequence

VOCAB = 257  # one id per byte, and
EOS = 256

NextToken = Callable[[Sequence[int]], int]


def letters(text: Sequence[int]) -> int:
    """A letter that depends on every token before it: one wrong token changes all that follow."""
    return 97 + zlib.crc32(repr(list(text)).encode()) % 26


def saying(prompt: str, answer: Sequence[int]) -> NextToken:
    """A target that answers `prompt` with exactly these ids; anything off the script is answered `?`."""
    script = [*prompt.encode(), *answer]

    def next_token(text: Sequence[int]) -> int:
        return script[len(text)] if list(text) == script[: len(text)] and len(text) < len(script) else ord("?")

    return next_token


def continuation(next_token: NextToken, prompt: str, length: int) -> str:
    """What the target says after `prompt`, token by token."""
    text = list(prompt.encode())
    for _ in range(length):
        text.append(next_token(text))
    return bytes(text[len(prompt.encode()) :]).decode()
