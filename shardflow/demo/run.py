"""Measures: the same questions under every mode of speculation, interleaved, as a client sees it."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from shardflow.client import Chunk, Completion, ShardflowClient, Token, gather
from shardflow.demo.prompts import Question
from shardflow.errors import ShardflowError
from shardflow.v1.orchestrator_pb2 import RoundRecord

SEED = 0
REQUEST_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Schedule:
    """What to run: every question under every mode, `repetitions` times over."""

    modes: tuple[str, ...]
    """Modes of speculation, all different."""
    raw: tuple[Question, ...]
    chat: tuple[Question, ...]
    raw_tokens: int
    """Tokens of each raw answer; an end of sequence does not end it."""
    chat_tokens: int
    """Tokens of a chat answer at most."""
    raw_repetitions: int
    chat_repetitions: int

    def runs(self) -> list[tuple[Question, str, int]]:
        """(question, mode, repetition) in order: all modes of a question side by side, each time another one first."""
        rounds = [(q, r) for r in range(self.raw_repetitions) for q in self.raw]
        rounds += [(q, r) for r in range(self.chat_repetitions) for q in self.chat]
        return [
            (question, self.modes[(turn + place) % len(self.modes)], repetition)
            for turn, (question, repetition) in enumerate(rounds)
            for place in range(len(self.modes))
        ]

    def tokens(self, question: Question) -> int:
        """Tokens of an answer at most."""
        return self.chat_tokens if question.chat else self.raw_tokens


@dataclass(frozen=True)
class Round:
    """Where one round after the first token went, in milliseconds; `compute` and the like count all shards."""

    total: float
    network: float
    draft: float
    orchestrator: float
    compute: tuple[float, ...]
    """[shards]"""
    queue: float
    other: float


@dataclass(frozen=True)
class Sample:
    """One answer, measured at the client."""

    question: str
    mode: str
    repetition: int
    text: str
    token_ids: tuple[int, ...]
    first_token_s: float
    decode_s: float
    """From the first token to the last."""
    drafted: int
    accepted: int
    rounds: tuple[Round, ...]
    """The rounds after the first token."""


async def measure(
    client: ShardflowClient,
    question: Question,
    mode: str,
    repetition: int,
    tokens: int,
    on_token: Callable[[Token], None] = lambda token: None,
) -> Sample:
    """Asks one question and gathers what came, and when; ShardflowError if no token came."""
    started = time.perf_counter()
    arrivals: list[float] = []
    chunks: list[Chunk] = []
    async for chunk in client.generate(
        question.prompt(), max_tokens=tokens, temperature=0.0, seed=SEED, ignore_eos=not question.chat,
        speculation=mode, round_records=True, timeout=REQUEST_TIMEOUT_S,
    ):  # fmt: skip
        chunks.append(chunk)
        arrivals += [time.perf_counter()] * bool(chunk.tokens)
        for token in chunk.tokens:
            on_token(token)
    if not arrivals:
        raise ShardflowError(f"{question.name}: the answer has no token")
    return _sample(question, mode, repetition, gather(chunks), arrivals[0] - started, arrivals[-1] - arrivals[0])


def _sample(
    question: Question, mode: str, repetition: int, answer: Completion, first_token_s: float, decode_s: float
) -> Sample:
    return Sample(
        question=question.name,
        mode=mode,
        repetition=repetition,
        text=answer.text,
        token_ids=tuple(token.id for token in answer.tokens),
        first_token_s=first_token_s,
        decode_s=decode_s,
        drafted=answer.usage.drafted_tokens,
        accepted=answer.usage.accepted_tokens,
        rounds=tuple(_round(record) for record in answer.rounds if not record.prefill),
    )


def _round(record: RoundRecord) -> Round:
    return Round(
        total=record.round_ms,
        network=record.network_ms,
        draft=record.draft_ms,
        orchestrator=record.orchestrator_ms,
        compute=tuple(stage.compute_ms for stage in record.stages),
        queue=sum(stage.queue_ms for stage in record.stages),
        other=sum(stage.other_ms for stage in record.stages),
    )
