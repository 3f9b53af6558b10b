"""What the generations of one HTTP request have brought so far: text, tokens, usage, rounds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from services.orchestrator.openai.answers import FinishReason, Guess, Round, SourcedToken, Statistics, Usage
from services.orchestrator.openai.translate import Asked
from shardflow.v1 import orchestrator_pb2


@dataclass
class Gathered:
    """One choice."""

    index: int
    text: str = ""
    tokens: list[orchestrator_pb2.Token] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    usage: orchestrator_pb2.Usage = field(default_factory=orchestrator_pb2.Usage)
    finish_reason: FinishReason | None = None

    def add(self, reply: orchestrator_pb2.GenerateResponse) -> None:
        """Takes the next reply."""
        self.text += reply.text
        self.tokens += reply.tokens
        self.rounds += [_round(self.index, record, reply) for record in reply.rounds]
        if reply.finish_reason:
            self.usage = reply.usage
            self.finish_reason = cast(FinishReason, _suffix(orchestrator_pb2.FinishReason.Name(reply.finish_reason)))


def usage(choices: Sequence[Gathered], n: int) -> Usage:
    """Tokens of the whole request; every `n` choices share one prompt."""
    prompt = sum(choice.usage.prompt_tokens for choice in choices[::n])
    completion = sum(choice.usage.completion_tokens for choice in choices)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def statistics(choices: Sequence[Gathered], asked: Asked) -> Statistics:
    """ShardFlow's own account of the whole request."""
    account: Statistics = {
        "seed": asked.seed,
        "num_rounds": sum(choice.usage.rounds for choice in choices),
        "drafted_tokens": sum(choice.usage.drafted_tokens for choice in choices),
        "accepted_tokens": sum(choice.usage.accepted_tokens for choice in choices),
    }
    if asked.extras is not None and asked.extras.rounds:
        account["rounds"] = [each for choice in choices for each in choice.rounds]
    return account


def _round(choice: int, record: orchestrator_pb2.RoundRecord, reply: orchestrator_pb2.GenerateResponse) -> Round:
    return {
        "choice": choice,
        "prefill": record.prefill,
        "round_ms": round(record.round_ms, 3),
        "draft_ms": round(record.draft_ms, 3),
        "draft_hidden_ms": round(record.draft_hidden_ms, 3),
        "network_ms": round(record.network_ms, 3),
        "orchestrator_ms": round(record.orchestrator_ms, 3),
        "stages": [
            {
                "shard": stage.shard,
                "queue_ms": round(stage.queue_ms, 3),
                "compute_ms": round(stage.compute_ms, 3),
                "other_ms": round(stage.other_ms, 3),
            }
            for stage in record.stages
        ],
        "drafted_tokens": record.drafted_tokens,
        "accepted_tokens": record.accepted_tokens,
        "guesses": _guesses(record),
        "tokens": [_sourced(token) for token in reply.tokens],
    }


def _guesses(record: orchestrator_pb2.RoundRecord) -> list[Guess]:
    columns = (record.draft_tokens, record.draft_parents, record.draft_sources, record.draft_probabilities)
    accepted = set(record.accepted_guesses)
    guesses = []
    for index, (token_id, parent, source, probability) in enumerate(zip(*columns, strict=True)):
        guess = {"id": token_id, "parent": parent, "source": _suffix(orchestrator_pb2.GuessSource.Name(source))}
        guesses.append(cast(Guess, {**guess, "probability": round(probability, 4), "accepted": index in accepted}))
    return guesses


def _sourced(token: orchestrator_pb2.Token) -> SourcedToken:
    source = _suffix(orchestrator_pb2.TokenSource.Name(token.source))
    return cast(SourcedToken, {"id": token.id, "text": token.text, "source": source})


def _suffix(name: str) -> str:
    """The last word of an enum's name, e.g. `stop` of FINISH_REASON_STOP."""
    return name.rpartition("_")[2].lower()
