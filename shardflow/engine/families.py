"""Which models the engine can slice and rewind exactly, and the configuration of one slice."""

import copy
from typing import Any

from shardflow.engine.errors import UnsupportedModelError

# Each of these is tested against plain transformers. Others may carry multipliers outside their layers, or state
# that can not be rewound, and would be wrong without an error: so the list is closed.
SUPPORTED = ("gemma2", "gemma3_text", "llama", "mistral", "qwen2", "qwen3")

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
LAYER_TYPES = ("full_attention", "sliding_attention")


def check_supported(config: Any) -> None:
    """Raises UnsupportedModelError, by name and with the reason, for a model this engine can not serve."""
    reason = _why_not(config)
    if reason:
        name = ", ".join(getattr(config, "architectures", None) or [type(config).__name__])
        raise UnsupportedModelError(f"{name} (model type {config.model_type}): {reason}")


def slice_config(config: Any, start: int, stop: int) -> Any:
    """The configuration of layers [start, stop) alone, so that local layer 0 is the model's layer `start`."""
    part = copy.deepcopy(config)
    if getattr(config, "layer_types", None) is not None:
        part.layer_types = config.layer_types[start:stop]
    part.num_hidden_layers = stop - start
    return part


def _why_not(config: Any) -> str | None:
    if config.is_encoder_decoder:
        return "an encoder-decoder has no single stack of layers to slice"
    if any(hasattr(config, name) for name in ("num_experts", "num_local_experts", "n_routed_experts")):
        return "mixture-of-experts layers are not supported"
    if any(hasattr(config, name) for name in ("state_size", "ssm_state_size", "mamba_d_state", "linear_num_key_heads")):
        return "recurrent state can not be rewound when drafted tokens are rejected"
    if config.model_type not in SUPPORTED:
        return f"not one of the supported model types {', '.join(SUPPORTED)}"
    if getattr(config, "quantization_config", None) is not None:
        return "the checkpoint is quantised; full-precision safetensors are needed"
    if getattr(config, "use_bidirectional_attention", False):
        return "bidirectional attention can not be decoded token by token"
    if unknown := set(getattr(config, "layer_types", None) or ()) - set(LAYER_TYPES):
        return f"layer types {sorted(unknown)} are not supported"
    if unknown := _rope_types(config) - set(ROPE_TYPES):
        return f"RoPE type {sorted(unknown)} depends on the longest position seen, so a rewind would change the text"
    return None


def _rope_types(config: Any) -> set[str]:
    """The RoPE types in use: one for the model, or one for each layer type."""
    parameters = config.rope_parameters
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    return {each["rope_type"] for each in nested or [parameters]}
