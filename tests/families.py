"""Tiny random models of every supported family, in the shape of the real ones, and the plain transformers answer."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.gemma2 import Gemma2Config
from transformers.models.gemma3 import Gemma3TextConfig
from transformers.models.llama import LlamaConfig
from transformers.models.mistral import MistralConfig
from transformers.models.qwen2 import Qwen2Config
from transformers.models.qwen3 import Qwen3Config

FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3")
LAYERS = 5
VOCAB = 199
WINDOW = 7

_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.25,  # far from the usual 0.02: attention, softcaps and windows must show in the logits
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_MIXED = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"]
_CONFIGS: dict[str, tuple[type, dict[str, Any]]] = {
    "llama": (LlamaConfig, {}),
    "qwen2": (Qwen2Config, {"use_sliding_window": True, "sliding_window": WINDOW, "layer_types": _MIXED}),
    "qwen3": (Qwen3Config, {}),
    "mistral": (MistralConfig, {"sliding_window": WINDOW}),
    "gemma2": (
        Gemma2Config,
        {
            "sliding_window": WINDOW,
            "layer_types": _MIXED,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 5.0,
        },
    ),
    "gemma3": (
        Gemma3TextConfig,
        {"sliding_window": WINDOW, "layer_types": _MIXED, "query_pre_attn_scalar": 24, "final_logit_softcapping": 5.0},
    ),
}


def tiny_model(family: str, path: Path, *, tied: bool, **changes: Any) -> Path:
    """Write a model of 5 layers, 6 heads on 2 KV heads, into `path`; weights differ by family. Returns `path`."""
    kind, extra = _CONFIGS[family]
    config = kind(**_SHAPE | extra | {"tie_word_embeddings": tied} | changes)
    torch.manual_seed(FAMILIES.index(family) * 2 + tied)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:  # norms and biases start as constants, which would hide one taken for another
            parameter.data += torch.randn_like(parameter) * (0.1 if "norm" in name else 0.5)
    model.save_pretrained(path)
    return path


@cache
def reference(path: Path) -> PreTrainedModel:
    """The whole model by transformers alone, eager attention, fp32."""
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


@torch.inference_mode()
def plain_logits(path: Path, ids: list[int]) -> Tensor:
    """`[len(ids), vocab]`: one forward of transformers over the whole text."""
    logits: Tensor = reference(path)(input_ids=torch.tensor([ids])).logits[0]
    return logits.float()


def plain_greedy(path: Path, prompt: list[int], count: int) -> list[int]:
    """`count` greedy tokens, each from a forward over the whole text, so that no cache is involved."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(plain_logits(path, ids)[-1].argmax()))
    return ids[len(prompt) :]
