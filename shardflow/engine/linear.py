"""Matrix products for few rows on a CPU: the same numbers as `nn.Linear` to fp32 rounding, in a better memory layout.

A forward of 1 to 32 rows is bound by reading the weights, and the plain product re-packs each weight matrix at every
call. Packing once, at load time, halves the time of a step and more.
"""

import torch
from torch import Tensor, nn

ROWS_HINT = 32  # the row count oneDNN lays the weights out for; as good for 1 row and for 512


class PackedLinear(nn.Module):
    """An `nn.Linear` whose weight lies in oneDNN's blocked layout; the given one loses its matrix."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.data, ROWS_HINT)
        del linear.weight  # whoever still refers to the module shall not keep the matrix alive
        self.bias = dict(linear.named_parameters()).get("bias")

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


def packs(weight: Tensor) -> bool:
    """Whether this machine's torch can pack such a weight: fp32, on a CPU, with oneDNN."""
    return weight.dtype == torch.float32 and weight.device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def pack_linears(module: nn.Module) -> None:
    """Replace every `nn.Linear` below `module`, one by one, so that at most one matrix is held twice."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear) and packs(child.weight):
            setattr(module, name, PackedLinear(child))
        else:
            pack_linears(child)
