"""A slice holds exactly its own tensors, in the asked dtype, from one file or several; a bad directory is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from shardflow.engine import CheckpointError, ModelSlice, Segment, UnsupportedModelError, load_slice
from tests.families import FAMILIES, reference, tiny_model
from tests.unit.engine.conftest import Pipeline, Rows

Models = dict[tuple[str, bool], Path]
PROMPT = [11, 42, 7, 190, 3, 55, 120, 8, 64]


def tensors(each: ModelSlice) -> list[torch.Tensor]:
    parts = each._parts
    modules = [parts.layers, parts.rotary, *(m for m in (parts.embed, parts.norm, parts.head) if m is not None)]
    return [t for module in modules for t in (*module.parameters(), *module.buffers())]


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_left_on_the_meta_device(models: Models, family: str) -> None:
    for layers in [(0, 2), (2, 4), (4, 5), None]:
        assert not any(t.is_meta for t in tensors(load_slice(models[family, True], layers)))


def test_an_inner_slice_has_neither_embedding_nor_head(models: Models) -> None:
    inner = load_slice(models["llama", True], (1, 3))
    assert (inner._parts.embed, inner._parts.norm, inner._parts.head) == (None, None, None)
    assert len(inner._parts.layers) == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_rotary_tables_are_those_of_transformers_in_any_dtype(models: Models, family: str) -> None:
    ours = load_slice(models[family, False], (0, 5), dtype=torch.bfloat16)._parts.rotary
    theirs = reference(models[family, False]).model.rotary_emb
    for name, table in theirs.named_buffers():
        assert torch.equal(ours.get_buffer(name), table)
        assert ours.get_buffer(name).dtype == torch.float32


@pytest.mark.parametrize("family", FAMILIES)
def test_the_digest_is_that_of_the_model(models: Models, family: str) -> None:
    path = models[family, True]
    assert len({load_slice(path, layers).digest for layers in [(0, 2), (2, 5), None]}) == 1


def test_the_digest_tells_weights_apart(tmp_path: Path, models: Models) -> None:
    other = shutil.copytree(models["llama", True], tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    weights["model.layers.4.mlp.up_proj.weight"][0, 0] += 1
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    assert load_slice(other, (0, 1)).digest != load_slice(models["llama", True], (0, 1)).digest


def test_several_files_with_an_index_are_one_model(tmp_path: Path, models: Models) -> None:
    weights = load_file(models["qwen3", False] / "model.safetensors")
    shutil.copy(models["qwen3", False] / "config.json", tmp_path)
    names = sorted(weights)
    files = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in files.items():
        save_file({name: weights[name] for name in part}, tmp_path / file)
    index = {"weight_map": {name: file for file, part in files.items() for name in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    split, whole = Pipeline(tmp_path, (2,)), Pipeline(models["qwen3", False], (2,))
    assert torch.equal(*(p.run(Rows(p.session(), 0, PROMPT))[0] for p in (split, whole)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_are_converted_as_they_are_read(models: Models, dtype: torch.dtype) -> None:
    first = load_slice(models["gemma2", False], (0, 1), dtype=dtype)
    weights = load_file(models["gemma2", False] / "model.safetensors")
    assert torch.equal(
        first._parts.layers[0].get_parameter("self_attn.q_proj.weight"),
        weights["model.layers.0.self_attn.q_proj.weight"].to(dtype),
    )
    assert first.forward([Segment(first.new_kv(8), 0, [-1, 0], tokens=[1, 2])]).dtype == dtype


def changed(
    models: Models, tmp_path: Path, drop: str | None = None, add: dict[str, torch.Tensor] | None = None
) -> Path:
    weights = load_file(models["llama", False] / "model.safetensors") | (add or {})
    weights = {name: value for name, value in weights.items() if name != drop}
    shutil.copy(models["llama", False] / "config.json", tmp_path)
    save_file(weights, tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.parametrize(
    ("drop", "layers"),
    [
        ("model.layers.3.mlp.down_proj.weight", (3, 4)),
        ("model.embed_tokens.weight", (0, 1)),
        ("model.norm.weight", (4, 5)),
        ("lm_head.weight", (4, 5)),
    ],
)
def test_a_missing_tensor_is_named(models: Models, tmp_path: Path, drop: str, layers: tuple[int, int]) -> None:
    path = changed(models, tmp_path, drop=drop)
    load_slice(path, (1, 2))  # which does not need it
    with pytest.raises(CheckpointError, match=f"holds no tensor {drop}"):
        load_slice(path, layers)


def test_a_tensor_without_a_place_is_named(models: Models, tmp_path: Path) -> None:
    path = changed(models, tmp_path, add={"model.layers.1.self_attn.q_proj.bias": torch.zeros(96)})
    with pytest.raises(CheckpointError, match=r"no place for model\.layers\.1\.self_attn\.q_proj\.bias"):
        load_slice(path, (0, 2))


def test_a_tensor_of_another_shape_is_named(models: Models, tmp_path: Path) -> None:
    path = changed(models, tmp_path, add={"model.norm.weight": torch.zeros(47)})
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight has shape \(47,\), expected \(48,\)"):
        load_slice(path, (4, 5))


def test_a_tensor_in_a_quantised_type_is_refused(models: Models, tmp_path: Path) -> None:
    path = changed(models, tmp_path, add={"model.norm.weight": torch.zeros(48, dtype=torch.int8)})
    with pytest.raises(CheckpointError, match="stored as I8"):
        load_slice(path, (4, 5))


def test_a_file_cut_short_is_refused(models: Models, tmp_path: Path) -> None:
    path = shutil.copytree(models["llama", False], tmp_path / "cut")
    whole = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match="ends early"):
        load_slice(path, None)


def test_an_empty_directory_is_refused(tmp_path: Path, models: Models) -> None:
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        load_slice(tmp_path, None)
    shutil.copy(models["llama", True] / "config.json", tmp_path)
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor"):
        load_slice(tmp_path, None)


@pytest.mark.parametrize("layers", [(-1, 2), (2, 2), (3, 6)])
def test_layers_outside_the_model_are_refused(models: Models, layers: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="no range of the model's 5 layers"):
        load_slice(models["llama", True], layers)


def test_a_model_is_refused_before_its_weights_are_looked_for(tmp_path: Path) -> None:
    config = {"architectures": ["MambaForCausalLM"], "model_type": "mamba", "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match="MambaForCausalLM"):
        load_slice(tmp_path, None)


def test_a_model_type_that_transformers_does_not_know_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no_such_model"}))
    with pytest.raises(UnsupportedModelError, match="no_such_model"):
        load_slice(tmp_path, None)


@pytest.mark.parametrize("scaling", ["linear", "llama3", "yarn"])
def test_static_rope_scalings_give_the_logits_of_transformers(tmp_path: Path, scaling: str) -> None:
    rope = {
        "rope_type": scaling,
        "rope_theta": 100.0,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        **({"low_freq_factor": 1.0, "high_freq_factor": 4.0} if scaling == "llama3" else {}),
    }
    path = tiny_model("llama", tmp_path, tied=True, rope_parameters=rope)
    pipeline = Pipeline(path, (2,))
    (logits,) = pipeline.run(Rows(pipeline.session(), 0, PROMPT))
    expected = reference(path)(input_ids=torch.tensor([PROMPT])).logits[0]
    torch.testing.assert_close(logits, expected.detach(), atol=2e-4, rtol=1e-4)
