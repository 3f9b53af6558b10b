"""Tensors and sampling parameters cross the wire unchanged; what is off is refused by the name of its field."""

import struct

import pytest
import torch

from shardflow.engine import SamplingParams
from shardflow.engine.wire import element_type, from_proto, sampling_from_proto, to_proto
from shardflow.errors import InvalidArgument
from shardflow.v1 import sampling_pb2, tensor_pb2


def test_bytes_are_little_endian_and_row_major() -> None:
    message = to_proto(torch.tensor([[1.0, -2.0], [0.5, 3.0]]))
    assert (message.dtype, list(message.shape)) == (tensor_pb2.ELEMENT_TYPE_F32, [2, 2])
    assert message.data == struct.pack("<4f", 1.0, -2.0, 0.5, 3.0)


def test_half_precisions() -> None:
    assert to_proto(torch.tensor([[1.0]], dtype=torch.float16)).data == b"\x00\x3c"
    assert to_proto(torch.tensor([[1.0]], dtype=torch.bfloat16)).data == b"\x80\x3f"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_nothing_changes_on_the_way(dtype: torch.dtype) -> None:
    tensor = torch.randn(5, 7).to(dtype).T  # not contiguous
    back = from_proto(to_proto(tensor), field="x", rows=7, width=5)
    assert back.dtype == dtype
    assert torch.equal(back, tensor)


def test_not_a_number_and_infinity_travel() -> None:
    back = from_proto(to_proto(torch.tensor([[float("nan"), float("inf")]])), field="x", rows=1, width=2)
    assert back.isnan().tolist() == [[True, False]]
    assert back.isinf().tolist() == [[False, True]]


def test_no_rows() -> None:
    assert from_proto(to_proto(torch.empty(0, 3)), field="x", rows=0, width=3).shape == (0, 3)


def test_a_dtype_that_does_not_travel() -> None:
    with pytest.raises(KeyError):
        element_type(torch.int64)


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        (tensor_pb2.Tensor(shape=[1, 2], data=bytes(8)), "hidden: dtype 0 is not one that travels"),
        (tensor_pb2.Tensor(dtype=1, shape=[2], data=bytes(8)), "hidden: shape [2] where [1, 2] was expected"),
        (tensor_pb2.Tensor(dtype=1, shape=[2, 1], data=bytes(8)), "hidden: shape [2, 1] where [1, 2] was expected"),
        (tensor_pb2.Tensor(dtype=1, shape=[1, 2], data=bytes(7)), "hidden: 7 bytes where shape and dtype make 8"),
        (tensor_pb2.Tensor(dtype=2, shape=[1, 2], data=bytes(8)), "hidden: 8 bytes where shape and dtype make 4"),
        (
            tensor_pb2.Tensor(dtype=1, shape=[2**31, 2**31]),
            "hidden: shape [2147483648, 2147483648] where [1, 2] was expected",
        ),
    ],
)
def test_refusals(message: tensor_pb2.Tensor, refusal: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        from_proto(message, field="hidden", rows=1, width=2)
    assert str(caught.value) == refusal


def test_unset_sampling_changes_nothing() -> None:
    assert sampling_from_proto(sampling_pb2.SamplingParams()) == SamplingParams()


def test_every_sampling_field() -> None:
    message = sampling_pb2.SamplingParams(
        temperature=0.5, top_k=7, top_p=0.75, min_p=0.25, repetition_penalty=1.5, presence_penalty=-0.5,
        frequency_penalty=0.125, logit_bias={3: -1.5}, seed=2**63,
    )  # fmt: skip
    assert sampling_from_proto(message) == SamplingParams(
        temperature=0.5, top_k=7, top_p=0.75, min_p=0.25, repetition_penalty=1.5, presence_penalty=-0.5,
        frequency_penalty=0.125, logit_bias={3: -1.5}, seed=2**63,
    )  # fmt: skip


@pytest.mark.parametrize(
    "fields", [{"temperature": -1}, {"top_p": 2}, {"min_p": -1}, {"logit_bias": {1: float("inf")}}]
)
def test_sampling_out_of_range(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match=r"^sampling: out of range"):
        sampling_from_proto(sampling_pb2.SamplingParams(**fields))  # type: ignore[arg-type]
