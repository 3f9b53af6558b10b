"""What verified rounds teach, kept compactly: the opt-in log that an orchestrator writes and `shardflow distill` reads.

A log is two files at most: NAME, and NAME.old, which it becomes when it is half as large as the whole may be. A file is
MAGIC, then records: the length of the body, then the body, every number an unsigned LEB128. A body is a kind, the
number of a text within the file, and

    BEGIN    the prompt: a count, then the ids
    ROUND    the committed tokens of the round: a count, then the ids; for each of them the target's best ids at its
             place: a count, then the ids; the branches that it turned down: a count, then each as a count and ids
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from shardflow.errors import InvalidArgument

MAGIC = b"shardflow rounds 1\n"
BEGIN, ROUND = 0, 1


@dataclass(frozen=True)
class Round:
    """One verified round of a text."""

    tokens: Sequence[int]  # committed
    best: Sequence[Sequence[int]] = ()  # the target's most likely ids at each of them, best first
    rejected: Sequence[Sequence[int]] = ()  # paths below the text that the target did not follow


@dataclass
class Text:
    """A logged text."""

    prompt: Sequence[int]
    rounds: list[Round] = field(default_factory=list)

    @property
    def answer(self) -> list[int]:
        """The committed tokens of all rounds."""
        return [token for round_ in self.rounds for token in round_.tokens]


class RoundLog:
    """Appends to a log. One process and one thread write it; a record that a crash cut off is the last of its file."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        """Starts a new file at `path`; what is there already becomes the older half. The whole stays below
        `max_bytes`, but for the one record that crosses half of it."""
        self._path = path
        self._half = max_bytes // 2
        self._file: BinaryIO
        self._numbers: dict[str, int] = {}
        self._rotate()

    def begin(self, session: str, prompt: Sequence[int]) -> None:
        """A text starts; rounds of sessions that did not begin in this file are not kept."""
        self._numbers[session] = self._next
        self._next += 1
        self._write(BEGIN, self._numbers[session], [prompt])

    def round(self, session: str, round_: Round) -> None:
        """A round of it was verified."""
        if session not in self._numbers:
            return
        lists: list[Sequence[int]] = [round_.tokens, *round_.best]
        if len(round_.best) != len(round_.tokens):
            raise ValueError(f"{len(round_.best)} rows of best ids for {len(round_.tokens)} tokens")
        self._write(ROUND, self._numbers[session], lists, round_.rejected)

    def end(self, session: str) -> None:
        """The text ended."""
        self._numbers.pop(session, None)

    def close(self) -> None:
        """Closes the file; nothing may be written after it."""
        self._file.close()

    def _write(
        self, kind: int, number: int, lists: Sequence[Sequence[int]], counted: Sequence[Sequence[int]] | None = None
    ) -> None:
        body = _varints([kind, number]) + b"".join(_listed(items) for items in lists)
        if counted is not None:
            body += _varints([len(counted)]) + b"".join(_listed(items) for items in counted)
        self._file.write(_varints([len(body)]) + body)
        self._file.flush()
        if self._file.tell() > self._half:
            self._file.close()
            self._rotate()

    def _rotate(self) -> None:
        if self._path.exists():
            self._path.replace(_older(self._path))
        self._file = self._path.open("wb")
        self._file.write(MAGIC)
        self._numbers.clear()
        self._next = 0


def read_texts(path: Path) -> Iterator[Text]:
    """Every text of a log, the older half first. Raises InvalidArgument for a file that is no log."""
    for file in (_older(path), path):
        if file.exists():
            yield from _texts(file)


def _texts(file: Path) -> list[Text]:
    held = file.read_bytes()
    if not held.startswith(MAGIC):
        raise InvalidArgument(f"log: {file} is no log of rounds")
    texts: list[Text] = []
    at = len(MAGIC)
    while (body := _body(held, at)) is not None:
        reader, at = body
        kind, number = reader.number(), reader.number()
        if kind == BEGIN:
            texts.append(Text(reader.items()))
        else:
            tokens = reader.items()
            best = [reader.items() for _ in tokens]
            texts[number].rounds.append(Round(tokens, best, [reader.items() for _ in range(reader.number())]))
    return texts


def _body(held: bytes, at: int) -> "tuple[_Reader, int] | None":
    """The record at offset `at`, and the offset behind it; None at the end, or where the last one was cut off."""
    head = _Reader(held, at)
    try:
        size = head.number()
    except IndexError:
        return None
    end = head.at + size
    return None if end > len(held) else (_Reader(held, head.at), end)


@dataclass
class _Reader:
    held: bytes
    at: int

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.held[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def items(self) -> list[int]:
        return [self.number() for _ in range(self.number())]


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.old")


def _listed(items: Sequence[int]) -> bytes:
    return _varints([len(items), *items])


def _varints(numbers: Sequence[int]) -> bytes:
    out = bytearray()
    for number in numbers:
        while number >= 0x80:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)
