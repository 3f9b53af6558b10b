"""Conversations in batches of similar length, in an order that a seed gives."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from shardflow.engine.distill.student import Answers
from shardflow.engine.distill.talks import Talk

SORTED = 16  # batches whose conversations are sorted by length together: less padding


def batches(talks: Sequence[Talk], tokens: int, seed: int) -> Iterator[list[Talk]]:
    """All conversations once, in batches of about `tokens` answer tokens."""
    random = np.random.default_rng(seed)
    order = [talks[i] for i in random.permutation(len(talks))]
    mean = sum(len(talk.answer) for talk in talks) / max(1, len(talks))
    window = max(1, round(SORTED * tokens / mean))
    groups: list[list[Talk]] = []
    for start in range(0, len(order), window):
        groups += _cut(sorted(order[start : start + window], key=lambda talk: len(talk.answer)), tokens)
    for index in random.permutation(len(groups)):
        yield groups[index]


def _cut(talks: Sequence[Talk], tokens: int) -> list[list[Talk]]:
    groups: list[list[Talk]] = [[]]
    for talk in talks:
        if groups[-1] and (len(groups[-1]) + 1) * len(talk.answer) > tokens:
            groups.append([])
        groups[-1].append(talk)
    return groups


def collate(talks: Sequence[Talk], mean: Tensor, std: Tensor) -> Answers:
    """Answers padded on the right, their features normalised; on the device of `mean`."""
    ids = pad_sequence([torch.tensor(talk.answer) for talk in talks], batch_first=True, padding_value=-1)
    features = pad_sequence([talk.features for talk in talks], batch_first=True).to(mean.device)
    ids = ids.to(mean.device)
    return Answers(ids.clamp(min=0), ids >= 0, (features.float() - mean) / std)
