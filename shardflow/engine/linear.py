"""Matrix products for few rows on a CPU: the same numbers as `nn.Linear` to fp32 rounding, in a better memory layout.

A forward of 1 to 32 rows is bound by reading the weights, and the plain product re-packs each weight matrix at every
call. Packing once, at load time, halves the time of a step and more.
"""

import torch
from torch import Tensor, nn

ROWS_HINT = 32  # the row count oneDNN lays the weights out for; as good for 1 row and for 512


class PackedLinear(nn.Module):
    """Stands in for an `nn.Linear`, with a copy of its weight `[out, in]` in oneDNN's blocked layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS_HINT)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """`[..., in]` to `[..., out]`."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return out


class SharedLinear(nn.Module):
    """The LM head over a matrix `[out, in]` that must stay plain, as the embedding reads it too."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        """`[rows, in]` to `[rows, out]`. A weight on the left needs no packing; two rows are faster than one."""
        columns = x.t() if len(x) > 1 else x.t().expand(-1, 2)
        return (self.weight @ columns).t()[: len(x)]


def packs(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether weights are packed: in fp32, on a CPU, by a torch with oneDNN."""
    return dtype == torch.float32 and device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
