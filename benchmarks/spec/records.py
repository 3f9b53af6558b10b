"""Raw records of a benchmark, one JSON line an answer, so that a run that was interrupted goes on where it was."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shardflow.errors import InvalidArgument


@dataclass(frozen=True)
class Key:
    """Which answer it is."""

    draft: str
    """Which draft the deployment has."""
    rtt_ms: float
    temperature: float
    arm: str
    """The mode of speculation."""
    question: str
    repetition: int


@dataclass(frozen=True)
class Record:
    """One answer, measured at the client; of a question of several turns, all of them together."""

    key: Key
    kind: str
    tokens: int
    """Without those of the first round of each turn, which carries the prompt."""
    seconds: float
    """From the first token to the last, over all turns."""
    rounds: int
    drafted: int
    accepted: int
    draft_ms: float
    """Waited for the draft."""
    hidden_ms: float
    """The draft's work for which nobody waited."""
    first_token_ms: float
    """Of the first turn."""
    answer: str
    """Digest of all token ids."""


class Records:
    """The records of one file. Its first line says under which conditions they were taken."""

    def __init__(self, file: Path, conditions: dict[str, Any]) -> None:
        """Goes on with `file` if there is one; InvalidArgument if it was taken under other conditions."""
        self.all: list[Record] = []
        self._file = file
        if file.exists():
            self._read(conditions)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(conditions) + "\n", encoding="utf-8")
        self._done = {record.key for record in self.all}

    def __contains__(self, key: Key) -> bool:
        return key in self._done

    def add(self, record: Record) -> None:
        """Appends a record; it is in the file when this returns."""
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(asdict(record)) + "\n")
        self.all.append(record)
        self._done.add(record.key)

    def _read(self, conditions: dict[str, Any]) -> None:
        lines = self._file.read_text(encoding="utf-8").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):  # a run was ended while it wrote
            lines.pop()
            self._file.write_text("".join(lines), encoding="utf-8")
        held = json.loads(lines[0]) if lines else None
        if held != json.loads(json.dumps(conditions)):
            raise InvalidArgument(f"{self._file}: taken under other conditions: {held}, not {conditions}; remove it")
        for line in lines[1:]:
            entry = json.loads(line)
            self.all.append(Record(key=Key(**entry.pop("key")), **entry))
