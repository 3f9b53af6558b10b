"""Makes a head's confidence mean what it says: one temperature, fitted on what the target chose."""

from collections.abc import Sequence

import torch
from torch.nn.functional import cross_entropy, linear

from shardflow.engine.distill.batches import batches, collate
from shardflow.engine.distill.heads import Apprentice
from shardflow.engine.distill.talks import Talk

STEPS = 3  # depths that count
GRID = [0.5 * 1.05**i for i in range(33)]  # 0.5 to 2.4
BATCH_TOKENS = 2048


@torch.inference_mode()
def fit_temperature(apprentice: Apprentice, talks: Sequence[Talk]) -> float:
    """The temperature under which the chosen tokens of greedy `talks` are most likely, as far as it can say them."""
    column = torch.full((apprentice.config.vocab_size,), -1)
    column[apprentice.vocabulary] = torch.arange(len(apprentice.vocabulary))
    losses = torch.zeros(len(GRID), dtype=torch.float64)
    mean, std = apprentice.student.frozen["feature_mean"], apprentice.student.frozen["feature_std"]
    for group in batches(talks, BATCH_TOKENS, 0):
        answers = collate(group, mean, std)
        for depth, output in enumerate(apprentice.student.unrolled(answers, STEPS)):
            chosen = column.to(mean.device)[answers.tokens[:, 1:]]
            due = answers.real[:, 1:] & (chosen >= 0)
            due[:, :depth] = False
            logits = linear(output[:, :-1][due] * std + mean, apprentice.vocab_weight)
            for i, temperature in enumerate(GRID):
                losses[i] += cross_entropy(logits / temperature, chosen[due], reduction="sum").item()
    return GRID[int(losses.argmin())]
