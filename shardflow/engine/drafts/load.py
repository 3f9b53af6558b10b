"""Opens a draft's directory: a head or a whole model, as its config.json says."""

import json
from pathlib import Path

import torch

from shardflow.engine.drafts.base import Drafter
from shardflow.engine.drafts.eagle import EagleDrafter
from shardflow.engine.drafts.head import KIND
from shardflow.engine.drafts.hf import ModelDrafter
from shardflow.engine.errors import CheckpointError, UnsupportedModelError


def load_drafter(
    path: Path,
    target: Path | None,
    *,
    max_tokens: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Drafter:
    """Loads directory `path`; a head also needs the directory of its `target`, for the embedding.

    `max_tokens` bounds a session's context, beside the draft's own bound. Raises CheckpointError for an incomplete
    directory, UnsupportedModelError for a model that the engine can not run, or a head in another dtype than fp32.
    """
    if not (path / "config.json").is_file():
        raise CheckpointError(f"{path} holds no config.json")
    config = json.loads((path / "config.json").read_text())
    if config.get("kind") != KIND:
        longest = min(max_tokens, int(config.get("max_position_embeddings", max_tokens)))
        return ModelDrafter(path, longest, dtype, torch.device(device))
    if target is None:
        raise CheckpointError(f"{path} is a head: it needs the directory of its target")
    if dtype != torch.float32:
        raise UnsupportedModelError(f"{path} is a head, which runs in float32, not in {dtype}")
    return EagleDrafter(path, target, max_tokens, torch.device(device))
