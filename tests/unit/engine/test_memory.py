"""A process that serves a slice holds its own layers and little else: peak resident memory, measured by the kernel."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from tests.families import tiny_model

MIB = 1 << 20

# VmHWM is the peak of this process image; ru_maxrss would be that of the process which started it, if greater.
SCRIPT = """
import sys, torch
from pathlib import Path
from shardflow.engine import Segment, load_slice
part = load_slice(Path(sys.argv[1]), (int(sys.argv[2]), int(sys.argv[3])))
kv = part.new_kv(100_000)  # 12.8 MiB of address space a layer, of which 16 rows are used
rows = dict(tokens=range(16)) if part.is_first else dict(hidden=torch.ones(16, part.hidden_size))
out = part.forward([Segment(kv, 0, range(-1, 15), **rows)])
if part.is_last:
    part.logits(out[-1:])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def peak(path: Path, layers: tuple[int, int]) -> int:
    """Bytes, of a fresh process, as a peak never falls."""
    command = [sys.executable, "-c", SCRIPT, str(path), *map(str, layers)]
    return 1024 * int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout)


def own_bytes(path: Path, layers: tuple[int, int]) -> int:
    """What the slice needs of the file; the tied table is on both ends, and once on a slice that is the whole."""
    names = tuple(f"model.layers.{i}." for i in range(*layers))
    if layers[0] == 0 or layers[1] == 5:
        names += ("model.embed_tokens.",)
    with safe_open(path / "model.safetensors", "pt") as file:
        return sum(4 * math.prod(file.get_slice(n).get_shape()) for n in file.keys() if n.startswith(names))  # noqa: SIM118


@pytest.fixture(scope="module")
def big_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    big = {"hidden_size": 768, "intermediate_size": 3072, "vocab_size": 24_000}
    return tiny_model("llama", tmp_path_factory.mktemp("big"), tied=True, **big)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> int:
    """The same process with a model of some kilobytes: what Python, torch and transformers take."""
    return peak(tiny_model("llama", tmp_path_factory.mktemp("tiny"), tied=True), (0, 5))


@pytest.mark.slow
@pytest.mark.parametrize("layers", [(0, 2), (1, 4), (3, 5), (0, 5)])
def test_a_process_holds_its_own_layers_only(big_model: Path, bare: int, layers: tuple[int, int]) -> None:
    own, used = own_bytes(big_model, layers), peak(big_model, layers) - bare
    assert own > 80 * MIB
    assert 0.9 * own < used < 1.2 * own, f"{used / MIB:.0f} MiB for {own / MIB:.0f} MiB of weights"
