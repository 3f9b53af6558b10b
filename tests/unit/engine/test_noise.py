"""The noise is a fixed function of (seed, position, id): literal bits, and the Gumbel law."""

import math

import pytest
import torch

from shardflow.engine import gumbel
from shardflow.engine.noise import bits

MASK = (1 << 64) - 1


def mix(x: int) -> int:
    """SplitMix64's output function, in Python's own integers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63, 2**64 - 1, 0xDEADBEEF])
@pytest.mark.parametrize("position", [0, 1, 4095, 2**31])
def test_bits_are_the_documented_hash(seed: int, position: int) -> None:
    ids = [0, 1, 2, 151_935]
    stream = mix((mix(seed & MASK) + 0x9E3779B97F4A7C15 * position) & MASK)
    expected = [mix((stream + 0x9E3779B97F4A7C15 * (each + 1)) & MASK) for each in ids]
    assert [each & MASK for each in bits(seed, position, torch.tensor(ids)).tolist()] == expected


def test_literal_values() -> None:
    """Seed 0, position 0 is SplitMix64 started at 0: its published first outputs."""
    assert [each & MASK for each in bits(0, 0, torch.arange(3)).tolist()] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]
    assert gumbel(1, 2, torch.tensor([3])).item() == pytest.approx(-0.6905211116065997, abs=1e-12)


def test_one_id_alone_has_the_noise_it_has_among_others() -> None:
    assert gumbel(7, 9, torch.arange(100))[41] == gumbel(7, 9, torch.tensor([41]))[0]


def test_rows_have_the_noise_of_their_own_positions() -> None:
    ids = torch.tensor([[3, 41], [41, 5], [0, 1]])
    rows = gumbel(7, [9, 2**40, 9], ids)
    assert torch.equal(rows, torch.stack([gumbel(7, 9, ids[0]), gumbel(7, 2**40, ids[1]), gumbel(7, 9, ids[2])]))


def test_the_ends_of_the_range_are_finite() -> None:
    """The smallest and the greatest uniform the hash can give."""
    ends = torch.tensor([0.5, 2**52 - 0.5], dtype=torch.float64) * 2.0**-52
    assert torch.isfinite(-torch.log(-torch.log(ends))).all()


def test_the_law_is_gumbels() -> None:
    """Kolmogorov-Smirnov distance over 10^6 values, at a level of 10^-4; also along seeds and along positions."""
    along_ids = gumbel(3, 5, torch.arange(1_000_000))
    along_seeds = torch.stack([gumbel(seed, 0, torch.tensor([0])) for seed in range(4000)]).flatten()
    along_positions = torch.stack([gumbel(0, position, torch.tensor([0])) for position in range(4000)]).flatten()
    for sample in (along_ids, along_seeds, along_positions):
        n = len(sample)
        law = torch.exp(-torch.exp(-sample.sort().values))
        distance = (law - (torch.arange(n, dtype=torch.float64) + 0.5) / n).abs().max().item()
        assert distance < math.sqrt(-0.5 * math.log(1e-4 / 2) / n)
