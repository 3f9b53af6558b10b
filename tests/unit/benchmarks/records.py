"""Made-up records."""

from typing import Any

from benchmarks.spec.records import Key, Record


def record(
    arm: str,
    question: str,
    *,
    rate: float = 10.0,
    tokens: int = 40,
    rounds: int = 20,
    answer: str = "same",
    kind: str = "translation",
    draft: str = "head",
    temperature: float = 0.0,
    repetition: int = 0,
    **fields: Any,
) -> Record:
    """An answer of `tokens` tokens at `rate` tokens a second, 86 ms away."""
    key = Key(draft, 86.0, temperature, arm, question, repetition)
    timing = {"draft_ms": 0.0, "hidden_ms": 0.0, "first_token_ms": 100.0, "drafted": 60, "accepted": 20, **fields}
    return Record(key=key, kind=kind, tokens=tokens, seconds=tokens / rate, rounds=rounds, answer=answer, **timing)
