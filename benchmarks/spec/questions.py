"""What a benchmark asks: questions by kind of task, read from a file in Spec-Bench's form, and the raw prompts."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardflow.client import Prompt
from shardflow.demo.prompts import RAW
from shardflow.errors import InvalidArgument

DEFAULT = Path(__file__).resolve().parents[1] / "questions.jsonl"
KINDS = (
    "conversation", "translation", "summarization", "question answering", "math reasoning", "retrieval",
)  # fmt: skip
RAW_KIND = "raw"
# Spec-Bench's categories; those of its multi-turn questions are many.
_KIND_OF = {
    "translation": "translation",
    "summarization": "summarization",
    "qa": "question answering",
    "math_reasoning": "math reasoning",
    "rag": "retrieval",
}
_CONVERSATION = (
    "multi_turn", "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities",
)  # fmt: skip


@dataclass(frozen=True)
class Question:
    """One thing to ask. Each turn of a chat sees the turns and answers before it; other questions have one turn."""

    name: str
    kind: str
    turns: tuple[str | tuple[int, ...], ...]
    """Texts, or token ids."""
    chat: bool

    def prompt(self, turn: int, answers: Sequence[str]) -> Prompt:
        """What the client sends for a turn, given the answers to the turns before."""
        asked = self.turns[turn]
        if not self.chat:
            return asked
        messages = []
        for before, answer in zip(self.turns, answers, strict=False):
            messages += [{"role": "user", "content": str(before)}, {"role": "assistant", "content": answer}]
        return [*messages, {"role": "user", "content": str(asked)}]


def read(file: Path, kinds: Collection[str], limit: int | None) -> list[Question]:
    """The first `limit` questions of each of `kinds`; InvalidArgument names a line that is none."""
    found: dict[str, list[Question]] = {kind: [] for kind in KINDS}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        question = _question(line, f"{file}:{number}")
        found[question.kind].append(question)
    return [question for kind in KINDS if kind in kinds for question in found[kind][:limit]]


def raw() -> list[Question]:
    """The raw prompts of the demonstration."""
    return [Question(prompt.name, RAW_KIND, (prompt.text,), chat=False) for prompt in RAW]


def _question(line: str, place: str) -> Question:
    try:
        entry = json.loads(line)
        category, turns = entry["category"], tuple(str(turn) for turn in entry["turns"])
        kind = "conversation" if category in _CONVERSATION else _KIND_OF[category]
        return Question(f"{category}-{entry['question_id']}", kind, turns, chat=True)
    except (ValueError, LookupError, TypeError) as error:
        raise InvalidArgument(f"{place}: no question in Spec-Bench's form: {error!r}") from error
