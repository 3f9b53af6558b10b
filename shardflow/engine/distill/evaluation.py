"""How good a draft is, by use: where it agrees with the target, and how many tokens a round of it brings."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn.functional import linear

from shardflow.engine import GREEDY
from shardflow.engine.distill.batches import batches, collate
from shardflow.engine.distill.heads import Apprentice
from shardflow.engine.distill.talks import Talk
from shardflow.engine.drafts import Drafter, DraftTree, Limits
from shardflow.engine.model import ModelSlice, Segment

WIDTHS = (1, 2, 4, 8)  # candidates looked at
DEPTHS = 4
SHAPES = {"chain_4": Limits(4, 4, 1), "chain_8": Limits(8, 8, 1), "tree_31": Limits(31, 8, 4)}
BATCH_TOKENS = 2048


@dataclass(frozen=True)
class Use:
    """What one shape of tree did over whole answers."""

    tokens_per_round: float
    levels_per_round: float
    level_ms: float  # median over the rounds


@torch.inference_mode()
def agreement(apprentice: Apprentice, talks: Sequence[Talk]) -> dict[str, list[float]]:
    """For each of WIDTHS, by depth: share of answer tokens that are among the draft's first, their path being right.

    The talks must be greedy: then the answer is what the target chose.
    """
    student, vocabulary = apprentice.student, apprentice.vocabulary
    mean, std = student.frozen["feature_mean"], student.frozen["feature_std"]
    found = torch.zeros(DEPTHS, len(WIDTHS), dtype=torch.float64)
    seen = torch.zeros(DEPTHS, dtype=torch.float64)
    for group in batches(talks, BATCH_TOKENS, 0):
        answers = collate(group, mean, std)
        for depth, output in enumerate(student.unrolled(answers, DEPTHS)):
            due = answers.real[:, 1:].clone()
            due[:, :depth] = False
            logits = linear(output[:, :-1][due] * std + mean, apprentice.vocab_weight)
            best = vocabulary[logits.topk(WIDTHS[-1]).indices]  # [n, widest]
            right = best == answers.tokens[:, 1:][due][:, None]
            found[depth] += torch.stack([right[:, :width].any(1).sum() for width in WIDTHS]).cpu()
            seen[depth] += len(right)
    shares = found / seen.clamp(min=1)[:, None]
    return {f"first_{width}": shares[:, i].tolist() for i, width in enumerate(WIDTHS)}


def use(drafter: Drafter, talks: Sequence[Talk], limits: Limits) -> Use:
    """Plays the rounds of greedy talks as an orchestrator would, the target's answers being known."""
    tokens = rounds = levels = 0
    times: list[float] = []
    for talk in talks:
        session, base, done = drafter.new_session(), 0, 1
        text = [*talk.prompt, *talk.answer]
        hidden = talk.features.float() if drafter.hidden_size else None
        while done < len(talk.answer):
            end = len(talk.prompt) + done
            rows = None if hidden is None else hidden[max(0, base - len(talk.prompt)) : done]
            session.extend(base, text[base:end], prompt_tokens=len(talk.prompt), hidden=rows)
            started = time.perf_counter()
            proposal = session.propose(limits, GREEDY)
            deep = proposal.levels + 1  # the first one needs no forward pass, only the logits
            times.append((time.perf_counter() - started) * 1000 / deep)
            step = min(1 + _accepted(proposal.tree, talk.answer[done:]), len(talk.answer) - done)
            base, done = end, done + step
            tokens, rounds, levels = tokens + step, rounds + 1, levels + deep
    middle = sorted(times)[len(times) // 2] if times else 0.0
    return Use(tokens / max(1, rounds), levels / max(1, rounds), middle)


def predicted_tok_s(used: Use, rtt_ms: float, verify_ms: float) -> float:
    """Tokens a second over a link of `rtt_ms`, nothing being hidden behind it: draft, then flight, then the next."""
    return 1000 * used.tokens_per_round / (rtt_ms + verify_ms + used.levels_per_round * used.level_ms)


def verify_ms(target: ModelSlice, rows: int, repetitions: int = 5) -> float:
    """Milliseconds of one pass of the whole target over `rows` rows behind a text of 128 tokens; the median."""
    kv = target.new_kv(128 + rows)
    target.forward([Segment(kv, 0, range(-1, 127), [0] * 128)])
    times = []
    for _ in range(repetitions):
        started = time.perf_counter()
        target.logits(target.forward([Segment(kv, 128, range(-1, rows - 1), [0] * rows)]))
        times.append((time.perf_counter() - started) * 1000)
    return sorted(times)[repetitions // 2]


def judge(
    drafter: Drafter, target: ModelSlice, talks: Sequence[Talk], rtt_ms: float, shapes: dict[str, Limits] = SHAPES
) -> dict[str, Any]:
    """Each shape's use, and the speed that it predicts at `rtt_ms` beside that without a draft."""
    plain = 1000 / (rtt_ms + verify_ms(target, 1))
    figures: dict[str, Any] = {"none": {"tok_s": plain}}
    for name, limits in shapes.items():
        used = use(drafter, talks, limits)
        speed = predicted_tok_s(used, rtt_ms, verify_ms(target, limits.max_nodes + 1))
        figures[name] = asdict(used) | {"tok_s": speed}
    return figures


def _accepted(tree: DraftTree, answer: Sequence[int]) -> int:
    """Tokens of the tree's path that the answer takes."""
    at, accepted = -1, 0
    while accepted < len(answer):
        below = [n for n, parent in enumerate(tree.parents) if parent == at and tree.tokens[n] == answer[accepted]]
        if not below:
            break
        at, accepted = below[0], accepted + 1
    return accepted
