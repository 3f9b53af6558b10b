"""What `shardflow.engine.fetch` brings from a hub, and what it leaves behind when the hub breaks."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from transformers import LlamaConfig, LlamaForCausalLM

from shardflow.engine import load_slice
from shardflow.engine.fetch import FetchError, Wanted, fetch, weight_files
from tests.fake_hub import REPO, FakeHub, serving

INDEX = {
    "model.embed_tokens.weight": "w-1",
    "model.layers.0.x": "w-1",
    "model.layers.1.x": "w-2",
    "model.layers.1.y": "w-3",
    "model.layers.2.x": "w-3",
    "model.layers.10.x": "w-4",
    "model.norm.weight": "w-4",
    "lm_head.weight": "w-5",
}
UNTIED = {"num_hidden_layers": 11, "tie_word_embeddings": False}


@pytest.mark.parametrize(
    ("layers", "config", "files"),
    [
        ((0, 1), UNTIED, {"w-1"}),
        ((1, 2), UNTIED, {"w-2", "w-3"}),
        ((2, 11), UNTIED, {"w-3", "w-4", "w-5"}),
        ((10, 11), UNTIED | {"tie_word_embeddings": True}, {"w-1", "w-4", "w-5"}),
        ((0, 11), UNTIED, {"w-1", "w-2", "w-3", "w-4", "w-5"}),
    ],
)
def test_which_files_hold_the_layers(layers: tuple[int, int], config: dict[str, object], files: set[str]) -> None:
    assert weight_files(INDEX, config, layers) == files


FIRST, SECOND = b"a" * 5000, b"b" * 6000
TWO_LAYERS = {
    "config.json": b'{"num_hidden_layers": 2, "tie_word_embeddings": false}',
    "tokenizer.json": b"{}",
    "README.md": b"not wanted",
    "onnx/model.json": b"not wanted",
    "one.safetensors": FIRST,
    "two.safetensors": SECOND,
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"model.layers.0.w": "one.safetensors", "model.layers.1.w": "two.safetensors"}}
    ).encode(),
}


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with serving(dict(TWO_LAYERS)) as hub:
        yield hub


def bring(hub: FakeHub, out: Path, layers: str, revision: str = "main") -> None:
    fetch(HfApi(endpoint=hub.url), Wanted(REPO, revision, layers), out)


def held(out: Path) -> list[str]:
    return sorted(path.name for path in out.iterdir())


def record(out: Path) -> dict[str, str]:
    return json.loads((out / "fetched.json").read_text())


def test_a_shard_gets_its_own_weights(hub: FakeHub, tmp_path: Path) -> None:
    bring(hub, tmp_path / "m", "0:1")
    names = ["config.json", "fetched.json", "model.safetensors.index.json", "one.safetensors", "tokenizer.json"]
    assert held(tmp_path / "m") == names
    assert (tmp_path / "m" / "one.safetensors").read_bytes() == FIRST
    index = json.loads((tmp_path / "m" / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == {"model.layers.0.w": "one.safetensors"}
    assert held(tmp_path) == ["m"]


def test_no_layers_means_no_weights(hub: FakeHub, tmp_path: Path) -> None:
    bring(hub, tmp_path / "m", "none")
    assert held(tmp_path / "m") == ["config.json", "fetched.json", "tokenizer.json"]


def test_a_model_in_one_file(tmp_path: Path) -> None:
    files = {"config.json": TWO_LAYERS["config.json"], "model.safetensors": FIRST}
    with serving(files) as hub:
        bring(hub, tmp_path / "m", "1:2")
    assert held(tmp_path / "m") == ["config.json", "fetched.json", "model.safetensors"]


def test_every_shard_names_the_model_alike(hub: FakeHub, tmp_path: Path) -> None:
    bring(hub, tmp_path / "a", "0:1")
    bring(hub, tmp_path / "b", "1:2")
    hub.files["one.safetensors"] = b"c" * 5000
    bring(hub, tmp_path / "c", "1:2")
    assert record(tmp_path / "a")["digest"] == record(tmp_path / "b")["digest"]
    assert record(tmp_path / "b")["digest"] != record(tmp_path / "c")["digest"]


def test_what_is_there_is_not_asked_for_again(hub: FakeHub, tmp_path: Path) -> None:
    bring(hub, tmp_path / "m", "0:1")
    hub.down = True
    bring(hub, tmp_path / "m", "0:1")


def test_a_directory_that_was_not_fetched_is_left_alone(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "thesis.txt").write_text("mine")
    with pytest.raises(FetchError, match="is there already and was not fetched"):
        bring(hub, tmp_path / "m", "0:1")
    assert (tmp_path / "m" / "thesis.txt").read_text() == "mine"


def test_a_hub_that_is_down_costs_nothing_that_is_there(hub: FakeHub, tmp_path: Path) -> None:
    bring(hub, tmp_path / "m", "0:1")
    before = held(tmp_path / "m")
    hub.down = True
    with pytest.raises(Exception, match=r".+"):
        bring(hub, tmp_path / "m", "1:2")
    assert held(tmp_path / "m") == before


def test_a_file_that_is_not_the_hubs_stays(hub: FakeHub, tmp_path: Path) -> None:
    bring(hub, tmp_path / "m", "0:1")
    (tmp_path / "m" / "notes.txt").write_text("mine")
    bring(hub, tmp_path / "m", "1:2")
    assert (tmp_path / "m" / "notes.txt").read_text() == "mine"


def test_other_layers_reuse_what_they_share(hub: FakeHub, tmp_path: Path) -> None:
    bring(hub, tmp_path / "m", "0:1")
    hub.served.clear()
    bring(hub, tmp_path / "m", "0:2")
    assert hub.names() == ["model.safetensors.index.json", "two.safetensors"]
    bring(hub, tmp_path / "m", "1:2")
    assert [name for name in held(tmp_path / "m") if name.endswith(".safetensors")] == ["two.safetensors"]


def test_goes_on_where_a_broken_try_stopped(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The client writes whole chunks, of 10 MB: what is lost at a break.
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 500)
    hub.cut["two.safetensors"] = 2000
    with pytest.raises(Exception, match="500"):
        bring(hub, tmp_path / "m", "all")
    assert not (tmp_path / "m").exists()
    hub.cut.clear()
    hub.down = False
    hub.served.clear()
    bring(hub, tmp_path / "m", "all")
    assert hub.served == [("two.safetensors", "bytes=2000-")]
    assert (tmp_path / "m" / "two.safetensors").read_bytes() == SECOND


@pytest.mark.parametrize("name", ["two.safetensors", "tokenizer.json"])
def test_a_file_that_is_not_what_was_announced(hub: FakeHub, tmp_path: Path, name: str) -> None:
    hub.corrupt.add(name)
    with pytest.raises(FetchError, match=f"{name}: what came is not what the hub announced"):
        bring(hub, tmp_path / "m", "1:2")
    assert not (tmp_path / "m").exists()
    hub.corrupt.clear()
    bring(hub, tmp_path / "m", "1:2")
    assert (tmp_path / "m" / name).read_bytes() == TWO_LAYERS[name]


@pytest.mark.parametrize("layers", ["1:3", "1:1", "1", "-1:2", "some"])
def test_layers_that_the_model_lacks(hub: FakeHub, tmp_path: Path, layers: str) -> None:
    with pytest.raises(FetchError, match="within the model's 2 layers"):
        bring(hub, tmp_path / "m", layers)


def test_a_repository_without_a_model(tmp_path: Path) -> None:
    with serving({"README.md": b"data"}) as hub, pytest.raises(FetchError, match=r"no config\.json"):
        bring(hub, tmp_path / "m", "all")


def test_the_log_says_how_far_it_is(
    hub: FakeHub, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardflow.engine.fetch.REPORT_S", 0)
    with caplog.at_level(logging.INFO, "shardflow.engine.fetch"):
        bring(hub, tmp_path / "m", "0:1")
    lines = [vars(line) for line in caplog.records if vars(line).get("file") == "one.safetensors"]
    assert [(line["done_bytes"], line["size_bytes"], line["percent"]) for line in lines] == [
        (0, 5000, 0.0),
        (5000, 5000, 100.0),
    ]


def test_the_engine_loads_what_was_fetched(tmp_path: Path) -> None:
    source = tmp_path / "source"
    config = LlamaConfig(
        num_hidden_layers=2, hidden_size=32, intermediate_size=64, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=64, tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(source, max_shard_size="20KB")
    with serving({path.name: path.read_bytes() for path in source.iterdir()}) as hub:
        for layers in ("0:1", "1:2"):
            bring(hub, tmp_path / layers[0], layers)
        assert len(hub.names()) == len(set(hub.names())) + 3  # both need configuration, generation, and index
    first, last = (load_slice(tmp_path / str(index), (index, index + 1)) for index in (0, 1))
    assert (first.is_first, first.is_last, last.is_first, last.is_last) == (True, False, False, True)
    assert first.digest == last.digest  # else the shards would not take each other for parts of one model
