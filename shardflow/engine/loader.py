"""Loads layers [a, b) of a local Hugging Face directory, reading no other weight."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from shardflow.engine.attention import ATTENTION
from shardflow.engine.checkpoint import Checkpoint
from shardflow.engine.errors import CheckpointError, LayersError, UnsupportedModelError
from shardflow.engine.families import check_supported, slice_config
from shardflow.engine.linear import PackedLinear, SharedLinear, packs
from shardflow.engine.model import ModelSlice, Parts

EMBEDDING = "model.embed_tokens."


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
    config = read_config(path)
    check_supported(config)
    start, stop = layers or (0, config.num_hidden_layers)
    if not 0 <= start < stop <= config.num_hidden_layers:
        raise LayersError(f"[{start}, {stop}) is no range of the model's {config.num_hidden_layers} layers")
    checkpoint = Checkpoint(path)
    parts = _read_parts(checkpoint, config, start, stop, dtype, torch.device(device))
    return ModelSlice(config, parts, start, dtype, torch.device(device), checkpoint.digest())


def read_config(path: Path) -> Any:
    """The configuration of directory `path`; raises CheckpointError or UnsupportedModelError."""
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
    body, first, last = model.model, start == 0, stop == config.num_hidden_layers
    embed = _read_embedding(Reader(checkpoint, device), body.embed_tokens) if first else None
    # The head comes before the layers: while it is packed it is held twice, and then little else is held yet.
    head = _read_head(Reader(checkpoint, device), model, embed) if last else None
    reader = Reader(checkpoint, device)
    norm = reader.read(body.norm, "model.norm.") if last else None
    for index, layer in enumerate(body.layers, start):
        _refuse_unknown(checkpoint, layer, f"model.layers.{index}.")
        reader.read(layer, f"model.layers.{index}.")
    # The rotary tables are in no checkpoint: computed anew outside the meta device, and fp32 whatever the dtype.
    rotary = type(body.rotary_emb)(config=part).to(device)
    by_type = any(isinstance(value, dict) for value in part.rope_parameters.values())
    return Parts(body.layers, rotary, part.layer_types if by_type else None, embed, norm, head)


class Reader:
    """Fills modules that were built on the meta device, packing matrices where that pays.

    Every matrix passes through one plain buffer: to free one for each would leave holes that nothing fits again.
    """

    def __init__(self, checkpoint: Checkpoint, device: torch.device) -> None:
        self._checkpoint = checkpoint
        self._device = device
        self._plain = torch.empty(0)

    def read(self, module: nn.Module, prefix: str) -> nn.Module:
        """Read the parameters of `module` and all below it; returns it, or what takes its place."""
        if isinstance(module, nn.Linear) and packs(module.weight.dtype, self._device):
            return self._read_packed(module, prefix)
        module.to_empty(device=self._device, recurse=False)
        for name, value in module.named_parameters(recurse=False):
            self._checkpoint.copy_into(prefix + name, value)
        for name, child in module.named_children():
            setattr(module, name, self.read(child, f"{prefix}{name}."))
        return module

    def _read_packed(self, linear: nn.Linear, prefix: str) -> nn.Module:
        if self._plain.numel() < linear.weight.numel():
            self._plain = torch.empty(linear.weight.numel())
        weight = self._plain[: linear.weight.numel()].view(linear.weight.shape)
        self._checkpoint.copy_into(f"{prefix}weight", weight)
        bias = torch.empty(linear.out_features) if "bias" in dict(linear.named_parameters()) else None
        if bias is not None:
            self._checkpoint.copy_into(f"{prefix}bias", bias)
        return PackedLinear(weight, bias)


def _read_embedding(reader: Reader, embed: Any) -> nn.Module:
    module = reader.read(embed, EMBEDDING)
    if hasattr(embed, "embed_scale"):  # Gemma multiplies by a buffer that is in no checkpoint
        embed.embed_scale = torch.tensor(embed.scalar_embed_scale, device=embed.weight.device)
    return module


def _read_head(reader: Reader, model: Any, embed: nn.Module | None) -> nn.Module:
    """A tied head reads the embedding's tensor, and shares it where the slice has an embedding too."""
    tied = model.config.tie_word_embeddings
    if tied and embed is not None:
        return SharedLinear(embed.get_parameter("weight"))
    return reader.read(model.lm_head, EMBEDDING if tied else "lm_head.")


def _refuse_unknown(checkpoint: Checkpoint, layer: nn.Module, prefix: str) -> None:
    """Raises CheckpointError for tensors that the architecture has no place for: it is not the one meant."""
    known = {prefix + name for name, _ in layer.named_parameters()}
    # Old checkpoints carry the rotary table, which is computed here.
    stored = {n for n in checkpoint.entries if n.startswith(prefix) and not n.endswith("rotary_emb.inv_freq")}
    if unknown := stored - known:
        raise CheckpointError(f"the architecture has no place for {', '.join(sorted(unknown))}")
