"""Shards and draft that do not fit together are refused, and the message says what does not fit."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from services.orchestrator.deployment import Deployment, check_draft, check_shards, check_unchanged, chunk_rows
from shardflow.errors import FailedPrecondition
from shardflow.v1 import draft_pb2, tensor_pb2, verifier_pb2

Shards = list[verifier_pb2.DescribeResponse]
TARGET = Deployment(
    model_digest="d", dtype=tensor_pb2.ELEMENT_TYPE_F32, num_layers=30, hidden_size=576, vocab_size=49152,
    max_session_tokens=4096, max_slice_rows=256,
)  # fmt: skip


def shards() -> Shards:
    common = {
        "model_digest": "d", "num_layers": 30, "hidden_size": 576, "vocab_size": 49152,
        "dtype": tensor_pb2.ELEMENT_TYPE_F32, "max_session_tokens": 4096, "max_slice_rows": 256,
    }  # fmt: skip
    return [
        verifier_pb2.DescribeResponse(first_layer=first, last_layer=last, **common)  # type: ignore[arg-type]
        for first, last in ((0, 10), (10, 20), (20, 30))
    ]


def test_shards_that_fit() -> None:
    assert check_shards(shards()) == TARGET


def test_the_least_capable_shard_sets_the_limits() -> None:
    fitting = shards()
    fitting[1].max_session_tokens, fitting[2].max_slice_rows = 1000, 65
    served = check_shards(fitting)
    assert (served.max_session_tokens, served.max_slice_rows) == (1000, 65)


MISFITS: list[tuple[Callable[[Shards], object], str]] = [
    (lambda s: setattr(s[1], "model_digest", "e"), "shard 1 has model_digest e where shard 0 has d"),
    (lambda s: setattr(s[2], "num_layers", 31), "shard 2 has num_layers 31 where shard 0 has 30"),
    (lambda s: setattr(s[1], "hidden_size", 64), "shard 1 has hidden_size 64 where shard 0 has 576"),
    (lambda s: setattr(s[1], "vocab_size", 9), "shard 1 has vocab_size 9 where shard 0 has 49152"),
    (lambda s: setattr(s[1], "dtype", 2), "shard 1 has dtype 2 where shard 0 has 1"),
    (lambda s: setattr(s[0], "first_layer", 1), "shard 0 begins at layer 1, not at 0"),
    (lambda s: setattr(s[1], "first_layer", 11), "shard 1 begins at layer 11, not at 10"),
    (lambda s: setattr(s[1], "first_layer", 9), "shard 1 begins at layer 9, not at 10"),
    (lambda s: s.reverse(), "shard 0 begins at layer 20, not at 0"),
    (lambda s: s.pop(), "the shards end at layer 20 of 30"),
    (lambda s: setattr(s[1], "max_slice_rows", 64), "shard 1 takes slices of 64 rows; 65 are needed for a full tree"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "message"), MISFITS, ids=[message for _, message in MISFITS])
def test_shards_that_do_not_fit(spoil: Callable[[Shards], object], message: str) -> None:
    spoilt = shards()
    spoil(spoilt)
    with pytest.raises(FailedPrecondition) as caught:
        check_shards(spoilt)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "fields",
    [
        {"vocabulary_digest": "v", "vocab_size": 49000},  # a smaller head of the same vocabulary is fine
        {"vocab_size": 49152},
        {"vocab_size": 49152, "hidden_size": 576},
    ],
)
def test_drafts_that_fit(fields: dict[str, object]) -> None:
    check_draft(draft_pb2.DescribeDraftResponse(model="m", **fields), TARGET, "v")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vocabulary_digest": "w", "vocab_size": 49152}, "the draft m has another vocabulary than the target"),
        ({"vocab_size": 49151}, "the draft m knows 49151 ids, the target 49152"),
        ({"vocab_size": 49152, "hidden_size": 64}, "the draft m feeds on hidden states 64 wide, not 576"),
    ],
)
def test_drafts_that_do_not_fit(fields: dict[str, object], message: str) -> None:
    with pytest.raises(FailedPrecondition) as caught:
        check_draft(draft_pb2.DescribeDraftResponse(model="m", **fields), TARGET, "v")  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_digest": "e"}, "the shards have model_digest e now; d is served since the start"),
        ({"dtype": tensor_pb2.ELEMENT_TYPE_BF16}, "the shards have dtype 3 now; 1 is served since the start"),
        ({"max_session_tokens": 9}, "the shards have max_session_tokens 9 now; 4096 is served since the start"),
    ],
)
def test_a_text_is_not_continued_on_another_target(change: dict[str, object], message: str) -> None:
    check_unchanged(TARGET, TARGET)
    with pytest.raises(FailedPrecondition, match=message):
        check_unchanged(TARGET, replace(TARGET, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "wanted", "rows"),
    [
        ({}, 256, 192),  # 256 rows less a tree of 64
        ({}, 100, 100),
        ({"hidden_size": 5120, "max_slice_rows": 1024}, 256, 102),  # 20 KiB a row
        ({"hidden_size": 5120, "dtype": tensor_pb2.ELEMENT_TYPE_F16, "max_slice_rows": 1024}, 256, 204),
        ({"hidden_size": 1 << 20}, 256, 1),
    ],
)
def test_a_prefill_chunk_fits_the_shards_and_the_wire(change: dict[str, object], wanted: int, rows: int) -> None:
    assert chunk_rows(replace(TARGET, **change), wanted) == rows  # type: ignore[arg-type]
