"""Measures a running deployment on one's own prompts, mode against mode, with the demonstration's figures."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from shardflow.client import ShardflowClient
from shardflow.demo import series
from shardflow.demo.prompts import Question
from shardflow.demo.run import Schedule
from shardflow.errors import InvalidArgument


@dataclass(frozen=True)
class Bench:
    """What to measure, where, and where to write it."""

    address: str
    prompts: Path
    modes: tuple[str, ...]
    max_tokens: int
    repetitions: int
    limit: int | None
    """Use only so many prompts of the file."""
    raw: bool
    """Continue each prompt as it is, past an end of sequence; else it is a chat question."""
    json_file: Path | None

    async def run(self, console: Console) -> dict[str, Any]:
        """Asks everything in every mode and returns the figures; errors are those of the client and of the readers."""
        schedule = self._schedule()
        async with ShardflowClient(self.address) as client:
            await series.warm_up(client, schedule)
            samples = await series.take(client, schedule, console)
            status = await client.status()
        conditions = {"address": self.address, "model": status.model, "served_version": status.version}
        figures = series.evaluate(samples, status, schedule, None, prompts=self.prompts.name, **conditions)
        series.present(figures, console, self.json_file)
        return figures

    def _schedule(self) -> Schedule:
        questions = read_questions(self.prompts, chat=not self.raw, limit=self.limit)
        return Schedule(
            modes=self.modes,
            raw=questions if self.raw else (),
            chat=() if self.raw else questions,
            raw_tokens=self.max_tokens,
            chat_tokens=self.max_tokens,
            raw_repetitions=self.repetitions,
            chat_repetitions=self.repetitions,
        )


def read_questions(file: Path, *, chat: bool, limit: int | None) -> tuple[Question, ...]:
    """The first `limit` prompts of a file: Spec-Bench's JSON lines (the first turn of each), or one prompt a line.

    Raises InvalidArgument for a file that can not be read, has no prompt, or has a JSON line without `turns`.
    """
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"prompts: {file}: {error}") from error
    if not lines:
        raise InvalidArgument(f"prompts: {file} has no line")
    return tuple(_question(number, line, chat) for number, line in enumerate(lines[:limit], start=1))


def _question(number: int, line: str, chat: bool) -> Question:
    if not line.lstrip().startswith("{"):
        return Question(f"line-{number}", line, chat)
    try:
        entry = json.loads(line)
        return Question(f"{entry.get('category', 'line')}-{entry.get('question_id', number)}", entry["turns"][0], chat)
    except (ValueError, LookupError, TypeError) as error:
        raise InvalidArgument(f"prompts: line {number} is no Spec-Bench entry with `turns`: {error!r}") from error
