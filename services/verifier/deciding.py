"""The last shard's part: what the target chooses at the rows of a slice, and with which probabilities."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from services.verifier.acceptance import Walk, path_to, walk
from services.verifier.slices import Head, Setup
from shardflow.engine import SamplingParams, choose, greedy, process

TOP_IDS = 8  # candidates for the next draft


@dataclass(frozen=True)
class Law:
    """Log-probabilities at one row, before temperature and truncation."""

    chosen: float
    top: list[tuple[int, float]]  # ids with their log-probabilities, best first


@dataclass(frozen=True)
class Decision:
    """What the target decided about one slice; lists have one entry per accepted row."""

    walk: Walk
    top_ids: list[list[int]]
    laws: list[Law] | None  # if the session asked for log-probabilities
    hidden: Tensor  # [accepted rows, hidden_size], after the final norm


@dataclass(frozen=True)
class Question:
    """A slice that wants a verdict; `hidden` and `logits` hold its rows from `first`, the last committed one, on."""

    head: Head
    setup: Setup
    committed: Sequence[int]  # token ids at positions [0, head.base)
    hidden: Tensor  # [rows - first, hidden_size]

    @property
    def first(self) -> int:
        """The last committed row."""
        return self.head.committed_rows - 1


def decide(questions: Sequence[Question], logits: Tensor) -> list[Decision]:
    """Answers all questions; `logits` `[rows_total, vocab]` has their rows in order.

    Raises NonFiniteError if a row that counts is not finite.
    """
    parts = torch.split(logits, [len(question.hidden) for question in questions])
    plain = [index for index, question in enumerate(questions) if _is_plain(question.setup.sampling)]
    best: dict[int, list[int]] = {}
    if plain:
        ids = greedy(logits if len(plain) == len(parts) else torch.cat([parts[index] for index in plain]))
        for index in plain:
            best[index], ids = ids[: len(parts[index])], ids[len(parts[index]) :]
    return [_decide(question, parts[index], best.get(index)) for index, question in enumerate(questions)]


def _is_plain(sampling: SamplingParams) -> bool:
    """Whether the choice is the greatest logit."""
    return sampling.temperature == 0 and not sampling.reads_history and not sampling.logit_bias


def _decide(question: Question, logits: Tensor, best: list[int] | None) -> Decision:
    head, first = question.head, question.first

    def choose_at(row: int) -> int:
        if best is not None:
            return best[row - first]
        path = path_to(head.parents, row)
        prompt, output = _prefix(question, path)
        return choose(logits[row - first], question.setup.sampling, head.base + len(path), prompt, output)

    path = walk(head.tokens, head.parents, first, choose_at)
    rows = torch.tensor(path.accepted) - first
    at_accepted = logits[rows]  # [accepted rows, vocab]
    top_ids: list[list[int]] = at_accepted.topk(min(TOP_IDS, logits.shape[1])).indices.tolist()
    return Decision(path, top_ids, _laws(question, path, at_accepted), question.hidden[rows])


def _laws(question: Question, path: Walk, logits: Tensor) -> list[Law] | None:
    setup = question.setup
    if not setup.want_logprobs and not setup.top_logprobs:
        return None
    params = dataclasses.replace(setup.sampling, temperature=0.0)
    laws = []
    for row, token, row_logits in zip(path.accepted, path.choices, logits, strict=True):
        prompt, output = _prefix(question, path_to(question.head.parents, row))
        log_p = process(row_logits, params, prompt, output)  # [vocab]
        values, ids = log_p.topk(setup.top_logprobs)
        laws.append(Law(float(log_p[token]), list(zip(ids.tolist(), values.tolist(), strict=True))))
    return laws


def _prefix(question: Question, path: Sequence[int]) -> tuple[list[int], list[int]]:
    """Prompt and output ids before the token that is chosen at the end of `path`."""
    text = [*question.committed, *(question.head.tokens[row] for row in path)]
    return text[: question.setup.prompt_tokens], text[question.setup.prompt_tokens :]
