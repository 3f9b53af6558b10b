"""A process that serves a slice holds its own layers and little else: peak resident memory, measured by the kernel."""

import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from tests.families import tiny_model

MIB = 1 << 20
LAYERS, BIG = 6, {"hidden_size": 768, "intermediate_size": 3072, "vocab_size": 24_000}

BARE = """
import resource, sys, torch, transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.llama import modeling_llama
torch.ones(64, 64) @ torch.ones(64, 64)
"""
LOAD = """
from pathlib import Path
from shardflow.engine import Segment, load_slice
layers = (int(sys.argv[2]), int(sys.argv[3]))
part = load_slice(Path(sys.argv[1]), layers)
kv = part.new_kv(100_000)  # address space: 0.6 GiB and more, of which 16 rows are used
rows = dict(tokens=range(16)) if part.is_first else dict(hidden=torch.ones(16, part.hidden_size))
out = part.forward([Segment(kv, 0, range(-1, 15), **rows)])
if part.is_last:
    part.logits(out[-1:])
"""
PEAK = "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"


def peak(script: str, *arguments: str) -> int:
    """Bytes; in a fresh process, as a peak never falls."""
    command = [sys.executable, "-c", script + PEAK, *arguments]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout)


@pytest.fixture(scope="module")
def big_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("llama", tmp_path_factory.mktemp("big"), tied=True, **BIG)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [(0, 2), (2, 4), (3, 5), (0, 5)])
def test_a_process_holds_its_own_layers_only(big_model: Path, layers: tuple[int, int]) -> None:
    with safe_open(big_model / "model.safetensors", "pt") as file:
        sizes = {name: 4 * file.get_slice(name).get_shape()[0] * (file.get_slice(name).get_shape() + [1])[1] for name in file.keys()}
    own = sum(size for name, size in sizes.items() if name.startswith(tuple(f"model.layers.{i}." for i in range(*layers))))
    if layers[0] == 0 or layers[1] == 5:
        own += sizes["model.embed_tokens.weight"]
    assert own > 50 * MIB
    used = peak(BARE + LOAD, str(big_model), *map(str, layers)) - peak(BARE)
    assert used <= 1.2 * own, f"{used / MIB:.0f} MiB for {own / MIB:.0f} MiB of weights"
