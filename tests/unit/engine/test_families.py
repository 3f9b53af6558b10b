"""An architecture that can not be sliced or rewound exactly is refused by name, with the reason."""

from typing import Any

import pytest
from transformers import AutoConfig

from shardflow.engine import UnsupportedModelError
from shardflow.engine.families import SUPPORTED, check_supported

ROPE = {"rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize("kind", SUPPORTED)
def test_a_supported_family_passes(kind: str) -> None:
    check_supported(AutoConfig.for_model(kind))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("mamba", "recurrent state"),
        ("mamba2", "recurrent state"),
        ("falcon_mamba", "recurrent state"),
        ("falcon_h1", "recurrent state"),
        ("mixtral", "mixture-of-experts"),
        ("qwen3_moe", "mixture-of-experts"),
        ("deepseek_v3", "mixture-of-experts"),
        ("jamba", "mixture-of-experts"),
        ("t5", "encoder-decoder"),
        ("bart", "encoder-decoder"),
        ("gpt2", "not one of the supported model types"),
        ("granite", "not one of the supported model types"),
        ("gemma3", "not one of the supported model types"),
    ],
)
def test_another_family_is_refused(kind: str, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"\(model type {kind}\): .*{reason}"):
        check_supported(AutoConfig.for_model(kind))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rope_parameters": {"rope_type": "dynamic", **ROPE}}, r"RoPE type \['dynamic'\] depends on the longest"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "the checkpoint is quantised"),
    ],
)
def test_a_setting_that_breaks_exactness_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        check_supported(AutoConfig.for_model("llama", **changes))


def test_bidirectional_attention_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="bidirectional"):
        check_supported(AutoConfig.for_model("gemma3_text", use_bidirectional_attention=True))


def test_an_unknown_layer_type_is_refused() -> None:
    config = AutoConfig.for_model("qwen2")
    config.layer_types[1] = "linear_attention"
    with pytest.raises(UnsupportedModelError, match=r"layer types \['linear_attention'\]"):
        check_supported(config)


def test_the_architecture_is_named() -> None:
    config = AutoConfig.for_model("mixtral", architectures=["MixtralForCausalLM"])
    with pytest.raises(UnsupportedModelError, match=r"^MixtralForCausalLM"):
        check_supported(config)
