"""Typed errors and the codes that stand for them on the wire."""

import grpc
import pytest

from shardflow import errors
from shardflow.transport import status_code

CODES = [
    (errors.InvalidArgument, 3, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.NotFound, 5, grpc.StatusCode.NOT_FOUND),
    (errors.ResourceExhausted, 8, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.FailedPrecondition, 9, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.InternalError, 13, grpc.StatusCode.INTERNAL),
    (errors.Unavailable, 14, grpc.StatusCode.UNAVAILABLE),
]


@pytest.mark.parametrize(("kind", "code", "status"), CODES)
def test_codes(kind: type[errors.ShardflowError], code: int, status: grpc.StatusCode) -> None:
    assert errors.rpc_code(kind("x")) == code
    assert status_code(kind("x")) is status
    back = errors.from_rpc_code(code, "x")
    assert (type(back), str(back)) == (kind, "x")


@pytest.mark.parametrize("error", [ValueError("x"), errors.ShardflowError("x"), errors.NumericError("x")])
def test_anything_else_is_internal(error: Exception) -> None:
    assert (errors.rpc_code(error), status_code(error)) == (13, grpc.StatusCode.INTERNAL)


@pytest.mark.parametrize("code", [0, 1, 2, 4, 99])
def test_a_code_that_stands_for_no_error_of_ours(code: int) -> None:
    assert type(errors.from_rpc_code(code, "x")) is errors.InternalError
