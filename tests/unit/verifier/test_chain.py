"""Whether a shard continues another."""

from typing import Any

import pytest

from services.verifier.chain import mismatch
from shardflow.v1 import verifier_pb2


def shard(**fields: Any) -> verifier_pb2.DescribeResponse:
    values = {"first_layer": 2, "last_layer": 6, "num_layers": 6, "hidden_size": 32, "dtype": 1, "model_digest": "d"}
    return verifier_pb2.DescribeResponse(**{**values, **fields})


def test_a_shard_that_continues() -> None:
    assert mismatch(shard(first_layer=0, last_layer=2), shard()) is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"first_layer": 3}, "the next shard holds layers [3, 6), ours end at 2"),
        ({"first_layer": 1}, "the next shard holds layers [1, 6), ours end at 2"),
        ({"model_digest": "e"}, "the next shard has model_digest e, ours is d"),
        ({"num_layers": 7}, "the next shard has num_layers 7, ours is 6"),
        ({"hidden_size": 64}, "the next shard has hidden_size 64, ours is 32"),
        ({"dtype": 2}, "the next shard has dtype 2, ours is 1"),
    ],
)
def test_a_shard_that_does_not(fields: dict[str, Any], message: str) -> None:
    assert str(mismatch(shard(first_layer=0, last_layer=2), shard(**fields))) == message
