"""A draft that knows nothing: a tiny model with random weights and the target's vocabulary."""

from pathlib import Path

import torch
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

_SEED = 0


def random_draft(target: Path, directory: Path) -> Path:
    """Writes it to `directory`."""
    served = AutoConfig.from_pretrained(target)
    config = LlamaConfig(
        vocab_size=served.vocab_size, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=served.max_position_embeddings,
        bos_token_id=served.bos_token_id, eos_token_id=served.eos_token_id, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(_SEED)
    LlamaForCausalLM(config).save_pretrained(directory)
    return directory
