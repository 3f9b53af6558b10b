"""Makes the tiny models of the draft's tests: a random Llama, and a random head; nothing is downloaded."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB = 97
HIDDEN = 32
SPOKEN = 61  # ids that the head can say


def save_model(path: Path, seed: int, context: int = 4096) -> Path:
    """A Llama of two layers; weights large enough that its next tokens are far from uniform."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=context, initializer_range=0.3,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(path)
    return path


def save_head(path: Path, seed: int, *, hidden: int = HIDDEN, vocab: int = VOCAB) -> Path:
    """An EAGLE head of the target's width with random weights."""
    path.mkdir()
    config = {
        "kind": "eagle_head", "target": "tiny", "hidden_size": hidden, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48, "rms_norm_eps": 1e-5, "rope_theta": 1000.0,
        "vocab_size": vocab, "draft_vocab_size": SPOKEN, "temperature": 1.25,
    }  # fmt: skip
    shapes = {
        "fc": (hidden, 2 * hidden), "q_proj": (32, hidden), "k_proj": (16, hidden), "v_proj": (16, hidden),
        "o_proj": (hidden, 32), "gate_proj": (48, hidden), "up_proj": (48, hidden), "down_proj": (hidden, 48),
    }  # fmt: skip
    make = torch.Generator().manual_seed(seed)
    tensors = {f"{name}.weight": torch.randn(shape, generator=make) * 0.3 for name, shape in shapes.items()}
    for name in ("input_norm.weight", "post_attention_norm.weight", "embed_std", "feature_std"):
        tensors[name] = torch.rand(hidden, generator=make) + 0.5
    for name in ("embed_mean", "feature_mean"):
        tensors[name] = torch.randn(hidden, generator=make) * 0.1
    tensors["draft_vocab"] = torch.randperm(vocab, generator=make)[:SPOKEN].sort().values.int()
    save_file(tensors, path / "head.safetensors")
    (path / "config.json").write_text(json.dumps(config))
    return path
