"""Loads layers [a, b) of a local Hugging Face directory, reading no other weight."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from shardflow.engine.attention import ATTENTION
from shardflow.engine.checkpoint import Checkpoint
from shardflow.engine.errors import CheckpointError, UnsupportedModelError
from shardflow.engine.families import check_supported, slice_config
from shardflow.engine.linear import PackedLinear, SharedLinear, pack_linears, packs
from shardflow.engine.model import ModelSlice, Parts

EMBEDDING = "model.embed_tokens.weight"


def load_slice(
    path: Path,
    layers: tuple[int, int] | None,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> ModelSlice:
    """Layers [a, b) of the model in directory `path`, or all of them for None.

    The modules are built on the meta device, then each parameter is filled from its place in the safetensors files, so
    the process never holds more than its slice, a staging buffer, and one matrix that is being packed.
    Raises UnsupportedModelError before any weight is read, CheckpointError when the directory is incomplete.
    """
    config = _read_config(path)
    check_supported(config)
    start, stop = layers or (0, config.num_hidden_layers)
    if not 0 <= start < stop <= config.num_hidden_layers:
        raise ValueError(f"[{start}, {stop}) is no range of the model's {config.num_hidden_layers} layers")
    checkpoint = Checkpoint(path)
    parts = _read_parts(checkpoint, config, start, stop, dtype, torch.device(device))
    return ModelSlice(config, parts, start, dtype, torch.device(device), checkpoint.digest())


def _read_config(path: Path) -> Any:
    if not (path / "config.json").is_file():
        raise CheckpointError(f"{path} holds no config.json")
    try:
        return AutoConfig.from_pretrained(path, trust_remote_code=False)
    except ValueError as error:  # an architecture that is unknown here, or that comes as code of its own
        raise UnsupportedModelError(str(error)) from error


def _read_parts(
    checkpoint: Checkpoint, config: Any, start: int, stop: int, dtype: torch.dtype, device: torch.device
) -> Parts:
    part = slice_config(config, start, stop)
    part._attn_implementation = ATTENTION
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(part, dtype=dtype).eval().requires_grad_(False)
    body, last = model.model, stop == config.num_hidden_layers
    embed = _read_embedding(checkpoint, body.embed_tokens, device) if start == 0 else None
    # The head comes first: while it is packed it is held twice, and then nothing else is held yet.
    head = _read_head(checkpoint, model.lm_head, embed, config.tie_word_embeddings, device) if last else None
    by_type = any(isinstance(value, dict) for value in part.rope_parameters.values())
    for index, layer in enumerate(body.layers, start):
        _read_layer(checkpoint, layer.to_empty(device=device), f"model.layers.{index}.")
        pack_linears(layer)
    return Parts(
        layers=body.layers,
        # The rotary tables are in no checkpoint: computed anew outside the meta device, and fp32 whatever the dtype.
        rotary=type(body.rotary_emb)(config=part).to(device),
        rotary_types=part.layer_types if by_type else None,
        embed=embed,
        norm=_read_norm(checkpoint, body.norm, device) if last else None,
        head=head,
    )


def _read_layer(checkpoint: Checkpoint, layer: nn.Module, prefix: str) -> None:
    """Raises CheckpointError for a tensor that is missing, and for one that the architecture has no place for."""
    wanted = {prefix + name: value for name, value in layer.named_parameters()}
    for name, value in wanted.items():
        checkpoint.copy_into(name, value)
    # Old checkpoints carry the rotary table, which is computed here.
    stored = {n for n in checkpoint.entries if n.startswith(prefix) and not n.endswith("rotary_emb.inv_freq")}
    if unread := stored - set(wanted):
        raise CheckpointError(f"the architecture has no place for {', '.join(sorted(unread))}")


def _read_embedding(checkpoint: Checkpoint, embed: Any, device: torch.device) -> nn.Module:
    embed.to_empty(device=device)
    checkpoint.copy_into(EMBEDDING, embed.weight)
    if hasattr(embed, "embed_scale"):  # Gemma multiplies by a buffer that is in no checkpoint
        embed.embed_scale = torch.tensor(embed.scalar_embed_scale, device=device)
    module: nn.Module = embed
    return module


def _read_norm(checkpoint: Checkpoint, norm: nn.Module, device: torch.device) -> nn.Module:
    norm.to_empty(device=device)
    for name, value in norm.named_parameters():
        checkpoint.copy_into(f"model.norm.{name}", value)
    return norm


def _read_head(
    checkpoint: Checkpoint, head: nn.Linear, embed: nn.Module | None, tied: bool, device: torch.device
) -> nn.Module:
    """A tied head reads the embedding's tensor, and shares it where the slice has an embedding too."""
    if tied and embed is not None:
        shared: Tensor = embed.get_parameter("weight")
        return SharedLinear(shared)
    head.to_empty(device=device)
    checkpoint.copy_into(EMBEDDING if tied else "lm_head.weight", head.weight)
    return PackedLinear(head) if packs(head.weight) else head
