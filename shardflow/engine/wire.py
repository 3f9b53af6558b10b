"""Tensors and sampling parameters as they cross the wire: raw little-endian bytes, checked before use."""

import math

import torch

from shardflow.engine.sampling import SamplingParams
from shardflow.errors import InvalidArgument
from shardflow.v1 import sampling_pb2, tensor_pb2

_DTYPES = {
    tensor_pb2.ELEMENT_TYPE_F32: torch.float32,
    tensor_pb2.ELEMENT_TYPE_F16: torch.float16,
    tensor_pb2.ELEMENT_TYPE_BF16: torch.bfloat16,
}
_ELEMENT_TYPES = {dtype: element_type for element_type, dtype in _DTYPES.items()}


def element_type(dtype: torch.dtype) -> tensor_pb2.ElementType:
    """The wire's name of a dtype; KeyError for one that does not travel."""
    return _ELEMENT_TYPES[dtype]


def to_proto(tensor: torch.Tensor) -> tensor_pb2.Tensor:
    """A tensor as row-major bytes in its own dtype, so that the wire changes nothing."""
    data = tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return tensor_pb2.Tensor(dtype=_ELEMENT_TYPES[tensor.dtype], shape=tensor.shape, data=data)


def from_proto(message: tensor_pb2.Tensor, *, field: str, rows: int, width: int) -> torch.Tensor:
    """`[rows, width]` on the CPU, in the dtype that it travelled in; InvalidArgument names `field` if it is off."""
    dtype = _DTYPES.get(message.dtype)
    if dtype is None:
        raise InvalidArgument(f"{field}: dtype {message.dtype} is not one that travels")
    if tuple(message.shape) != (rows, width):
        raise InvalidArgument(f"{field}: shape {list(message.shape)} where {[rows, width]} was expected")
    expected = math.prod(message.shape) * dtype.itemsize
    if len(message.data) != expected:
        raise InvalidArgument(f"{field}: {len(message.data)} bytes where shape and dtype make {expected}")
    if not expected:
        return torch.empty(rows, width, dtype=dtype)  # there is no buffer of no bytes
    # A bytearray, because torch warns of memory that it must not write to.
    return torch.frombuffer(bytearray(message.data), dtype=dtype).view(rows, width)


def sampling_from_proto(message: sampling_pb2.SamplingParams) -> SamplingParams:
    """The engine's parameters; unset fields take the values that change nothing. InvalidArgument if out of range."""
    try:
        return SamplingParams(
            temperature=message.temperature,
            top_k=message.top_k,
            top_p=message.top_p or 1.0,
            min_p=message.min_p,
            repetition_penalty=message.repetition_penalty or 1.0,
            presence_penalty=message.presence_penalty,
            frequency_penalty=message.frequency_penalty,
            logit_bias=dict(message.logit_bias),
            seed=message.seed,
        )
    except ValueError as error:
        raise InvalidArgument(f"sampling: {error}") from error
