"""From a GGUF file to a Hugging Face directory: names, rotary order, all or nothing, and what the check refuses."""

import json
from pathlib import Path

import pytest
import torch

from shardflow.engine import prepare as prepare_module
from shardflow.engine.prepare import PrepareError, find_gguf, half_split, hf_name, prepare, verify

MODEL = Path(__file__).parents[2] / "models" / "smollm2-135m-instruct"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
        ("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight"),
        ("blk.29.ffn_norm.weight", "model.layers.29.post_attention_layernorm.weight"),
    ],
)
def test_names_of_tensors(name: str, expected: str) -> None:
    assert hf_name(name) == expected


@pytest.mark.parametrize("name", ["blk.0.attn_q.bias", "blk.0.ffn_gate_inp.weight", "rope_freqs.weight"])
def test_unknown_tensor_is_refused(name: str) -> None:
    with pytest.raises(PrepareError, match=f"unknown tensor {name}"):
        hf_name(name)


def test_half_split_undoes_the_pairs_of_each_head() -> None:
    weight = torch.arange(8.0).unsqueeze(1)  # 2 heads of 4 rows, hidden 1
    assert half_split(weight, heads=2).flatten().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_package_that_is_not_there() -> None:
    with pytest.raises(PrepareError, match="no_such_package is not installed"):
        find_gguf("no_such_package")


def test_package_without_a_gguf_file() -> None:
    with pytest.raises(PrepareError, match="rich holds 0 GGUF files"):
        find_gguf("rich")


def test_existing_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(PrepareError, match="exists; remove it"):
        prepare(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(source: Path, out: Path) -> None:
        out.mkdir()
        (out / "config.json").write_text("{}")
        raise OSError("disk full")

    monkeypatch.setattr(prepare_module, "find_gguf", lambda: Path("model.gguf"))
    monkeypatch.setattr(prepare_module, "convert", convert)
    with pytest.raises(OSError, match="disk full"):
        prepare(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def altered(tmp_path: Path, file: str, **changes: object) -> Path:
    """The prepared model with other values in one of its JSON files."""
    for source in MODEL.iterdir():
        (tmp_path / source.name).symlink_to(source)
    (tmp_path / file).unlink()
    (tmp_path / file).write_text(json.dumps(json.loads((MODEL / file).read_text()) | changes))
    return tmp_path


@pytest.mark.model
def test_prepared_model_is_right() -> None:
    verify(MODEL)


@pytest.mark.model
@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_other_end_token_is_refused(tmp_path: Path, file: str) -> None:
    with pytest.raises(PrepareError, match="is not the end token"):
        verify(altered(tmp_path, file, eos_token_id=0))


@pytest.mark.slow
@pytest.mark.model
def test_weights_left_in_ggufs_rotary_order_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_module, "half_split", lambda weight, heads: weight)
    with pytest.raises(PrepareError, match=r"'1, 2, 3, 4, 5,' goes on with .* instead of ' 6, 7, 8,'"):
        prepare(tmp_path / "model")


@pytest.mark.model
def test_logits_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PrepareError, match="not finite"):
        verify(altered(tmp_path, "config.json", rms_norm_eps=float("nan")))
