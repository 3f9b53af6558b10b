"""Asks one question in one mode of speculation and measures the answer as a client sees it."""

import hashlib
import time
from collections.abc import Sequence

from benchmarks.spec.questions import Question
from benchmarks.spec.records import Key, Record
from shardflow.client import Chunk, Completion, Prompt, ShardflowClient, gather

SEED = 0
_TIMEOUT_S = 300.0


async def ask(client: ShardflowClient, question: Question, key: Key, max_tokens: int) -> Record:
    """All turns of a question; errors are the client's. Questions that are no chat go on past an end of sequence."""
    answers: list[tuple[Completion, list[tuple[float, int]]]] = []
    started = time.perf_counter()
    for turn in range(len(question.turns)):
        prompt = question.prompt(turn, [answer.text for answer, _ in answers])
        answers.append(await _answer(client, prompt, key, max_tokens, ignore_eos=not question.chat))
    rounds = [record for answer, _ in answers for record in answer.rounds if not record.prefill]
    return Record(
        key=key,
        kind=question.kind,
        tokens=sum(len(answer.tokens) - arrivals[0][1] for answer, arrivals in answers),
        seconds=sum(arrivals[-1][0] - arrivals[0][0] for _, arrivals in answers),
        rounds=len(rounds),
        drafted=sum(record.drafted_tokens for record in rounds),
        accepted=sum(record.accepted_tokens for record in rounds),
        draft_ms=sum(record.draft_ms for record in rounds),
        hidden_ms=sum(record.draft_hidden_ms for record in rounds),
        first_token_ms=(answers[0][1][0][0] - started) * 1000,
        answer=_digest([token.id for answer, _ in answers for token in answer.tokens]),
    )


async def _answer(
    client: ShardflowClient, prompt: Prompt, key: Key, max_tokens: int, *, ignore_eos: bool
) -> tuple[Completion, list[tuple[float, int]]]:
    """One answer, and when its tokens came: seconds, and how many."""
    chunks: list[Chunk] = []
    arrivals: list[tuple[float, int]] = []
    async for chunk in client.generate(
        prompt, max_tokens=max_tokens, temperature=key.temperature, seed=SEED, ignore_eos=ignore_eos,
        speculation=key.arm, round_records=True, timeout=_TIMEOUT_S,
    ):  # fmt: skip
        chunks.append(chunk)
        if chunk.tokens:
            arrivals.append((time.perf_counter(), len(chunk.tokens)))
    return gather(chunks), arrivals


def _digest(ids: Sequence[int]) -> str:
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()[:16]
