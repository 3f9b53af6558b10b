"""What a draft can say: the ids that the target says most, and the statistics that its inputs are normalised by."""

from collections.abc import Sequence

import torch
from torch import Tensor

from shardflow.engine.distill.talks import Talk

SMALLEST_STD = 1e-3
SAMPLE = 100_000  # answer tokens that the statistics come from


def choose_vocabulary(talks: Sequence[Talk], size: int, vocab_size: int) -> Tensor:
    """`[size]` ids, ascending: the most frequent in answers, then in prompts, then the lowest ones."""
    counts = torch.zeros(vocab_size, dtype=torch.float64)
    for talk in talks:
        counts += torch.bincount(torch.tensor(talk.answer), minlength=vocab_size)
        counts += torch.bincount(torch.tensor(talk.prompt), minlength=vocab_size) * 1e-3
    return counts.sort(descending=True, stable=True).indices[: min(size, vocab_size)].sort().values


def statistics(talks: Sequence[Talk], embedding: Tensor) -> dict[str, Tensor]:
    """Mean and standard deviation, `[hidden]` each, of the features and of the answer tokens' embeddings."""
    enough: list[Talk] = []
    while len(enough) < len(talks) and sum(len(talk.answer) for talk in enough) < SAMPLE:
        enough.append(talks[len(enough)])
    features = torch.cat([talk.features for talk in enough]).float()
    embedded = embedding[torch.tensor([token for talk in enough for token in talk.answer])]
    found = {}
    for name, values in (("feature", features), ("embed", embedded)):
        found[f"{name}_mean"] = values.mean(dim=0)
        found[f"{name}_std"] = values.std(dim=0).clamp(min=SMALLEST_STD)
    return found
