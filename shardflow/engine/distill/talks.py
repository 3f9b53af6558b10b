"""What a head is trained on: conversations by token ids, with the target's feature behind every answer token."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Talk:
    """One prompt and the target's answer. `features[s]`, fp16, is the final hidden state that produced `answer[s]`."""

    prompt: Sequence[int]
    answer: Sequence[int]
    features: Tensor  # [len(answer), hidden]


def save_talks(file: Path, talks: Sequence[Talk]) -> None:
    """Writes all or nothing: a file that exists is complete."""
    tensors = {
        "prompts": torch.tensor([token for talk in talks for token in talk.prompt], dtype=torch.int32),
        "prompt_lengths": torch.tensor([len(talk.prompt) for talk in talks], dtype=torch.int32),
        "answers": torch.tensor([token for talk in talks for token in talk.answer], dtype=torch.int32),
        "answer_lengths": torch.tensor([len(talk.answer) for talk in talks], dtype=torch.int32),
        "features": torch.cat([talk.features for talk in talks]),
    }
    partial = file.with_name(f"{file.name}.partial")
    save_file(tensors, partial)
    partial.replace(file)


def load_talks(folder: Path) -> Iterator[Talk]:
    """Every conversation of every file in `folder`, in the order of the files' names."""
    for file in sorted(folder.glob(f"*{SUFFIX}")):
        held = load_file(file)
        prompts, answers = _ends(held["prompt_lengths"]), _ends(held["answer_lengths"])
        for (p, q), (a, b) in zip(prompts, answers, strict=True):
            yield Talk(held["prompts"][p:q].tolist(), held["answers"][a:b].tolist(), held["features"][a:b])


def _ends(lengths: Tensor) -> list[tuple[int, int]]:
    ends = np.cumsum(lengths.numpy()).tolist()
    return list(zip([0, *ends], ends, strict=False))
