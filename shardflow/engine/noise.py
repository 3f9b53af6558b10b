"""Gumbel noise that is a pure function of (seed, position, token id), from an integer hash.

The hash is the output function of SplitMix64, `mix`:

    x ^= x >> 30; x *= 0xBF58476D1CE4E5B9; x ^= x >> 27; x *= 0x94D049BB133111EB; x ^= x >> 31     (mod 2**64)

    stream = mix(mix(seed) + G * position)        G = 0x9E3779B97F4A7C15
    bits   = mix(stream + G * (id + 1))
    u      = ((bits >> 12) + 1/2) / 2**52         exact in fp64, never 0 or 1
    gumbel = -log(-log(u))

Multiplication and addition of int64 wrap alike on every device, so the bits are the same wherever they are computed;
`>>` on int64 copies the sign bit, which is masked off. The logarithms may differ between devices in the last bit.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
MASK = (1 << 64) - 1


def gumbel(seed: int, position: int | Sequence[int], ids: Tensor) -> Tensor:
    """Standard Gumbel noise, fp64 and shaped like `ids` (int64 token ids), for the token at absolute `position`.

    Several positions are one for each row of `ids` `[rows, n]`.
    """
    uniform = ((bits(seed, position, ids) >> 12 & (1 << 52) - 1).double() + 0.5) * 2.0**-52
    return -torch.log(-torch.log(uniform))


def bits(seed: int, position: int | Sequence[int], ids: Tensor) -> Tensor:
    """64 random bits for each id, as int64."""
    base = _mix(seed & MASK)
    if isinstance(position, int):
        x = (ids + 1) * _signed(GOLDEN) + _stream(base, position)
    else:
        streams = torch.tensor([_stream(base, each) for each in position], device=ids.device)
        x = (ids + 1) * _signed(GOLDEN) + streams[:, None]
    x = (x ^ _shift(x, 30)) * _signed(MIX_1)
    x = (x ^ _shift(x, 27)) * _signed(MIX_2)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, by: int) -> Tensor:
    """Logical right shift of 64-bit patterns."""
    return x >> by & (1 << (64 - by)) - 1


def _stream(base: int, position: int) -> int:
    return _signed(_mix(base + GOLDEN * position))


def _mix(x: int) -> int:
    x &= MASK
    x = (x ^ x >> 30) * MIX_1 & MASK
    x = (x ^ x >> 27) * MIX_2 & MASK
    return x ^ x >> 31


def _signed(x: int) -> int:
    """The two's complement reading of a 64-bit pattern."""
    x &= MASK
    return x - (1 << 64) if x >> 63 else x
