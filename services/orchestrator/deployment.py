"""Whether shards and draft fit together, and what they serve as a whole. Pure but for the messages it reads."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from shardflow.errors import FailedPrecondition
from shardflow.speculation import MAX_NODES
from shardflow.v1 import draft_pb2, tensor_pb2, verifier_pb2

MAX_SLICE_BYTES = 2 << 20  # of hidden states; longer messages cost a WAN an extra round trip
_ELEMENT_BYTES: dict[int, int] = {
    tensor_pb2.ELEMENT_TYPE_F32: 4,
    tensor_pb2.ELEMENT_TYPE_F16: 2,
    tensor_pb2.ELEMENT_TYPE_BF16: 2,
}


@dataclass(frozen=True)
class Deployment:
    """The target as a whole."""

    model_digest: str
    dtype: int  # a shardflow.v1.ElementType
    num_layers: int
    hidden_size: int
    vocab_size: int
    max_session_tokens: int
    max_slice_rows: int


def check_shards(shards: Sequence[verifier_pb2.DescribeResponse]) -> Deployment:
    """What the shards serve together; FailedPrecondition names the first thing that does not fit."""
    first = shards[0]
    expected_layer = 0
    for index, shard in enumerate(shards):
        for field in ("model_digest", "num_layers", "hidden_size", "vocab_size", "dtype"):
            ours, theirs = getattr(first, field), getattr(shard, field)
            if ours != theirs:
                raise FailedPrecondition(f"shard {index} has {field} {theirs} where shard 0 has {ours}")
        if shard.first_layer != expected_layer:
            raise FailedPrecondition(f"shard {index} begins at layer {shard.first_layer}, not at {expected_layer}")
        if shard.max_slice_rows <= MAX_NODES:
            raise FailedPrecondition(
                f"shard {index} takes slices of {shard.max_slice_rows} rows; {MAX_NODES + 1} are needed for a full tree"
            )
        expected_layer = shard.last_layer
    if expected_layer != first.num_layers:
        raise FailedPrecondition(f"the shards end at layer {expected_layer} of {first.num_layers}")
    return Deployment(
        model_digest=first.model_digest,
        dtype=first.dtype,
        num_layers=first.num_layers,
        hidden_size=first.hidden_size,
        vocab_size=first.vocab_size,
        max_session_tokens=min(shard.max_session_tokens for shard in shards),
        max_slice_rows=min(shard.max_slice_rows for shard in shards),
    )


def check_unchanged(served: Deployment, now: Deployment) -> None:
    """Raises FailedPrecondition if shards that came back are not those that texts have been begun on."""
    for field in fields(Deployment):
        ours, theirs = getattr(served, field.name), getattr(now, field.name)
        if ours != theirs:
            raise FailedPrecondition(f"the shards have {field.name} {theirs} now; {ours} is served since the start")


def chunk_rows(target: Deployment, wanted: int) -> int:
    """Committed rows of one slice: at most `wanted`, with room for a tree, and hidden states of at most 2 MiB."""
    row_bytes = target.hidden_size * _ELEMENT_BYTES[target.dtype]
    return max(1, min(wanted, target.max_slice_rows - MAX_NODES, MAX_SLICE_BYTES // row_bytes))


def check_draft(draft: draft_pb2.DescribeDraftResponse, target: Deployment, vocabulary_digest: str) -> None:
    """Raises FailedPrecondition if the draft speaks another vocabulary or feeds on other hidden states."""
    if draft.vocabulary_digest and draft.vocabulary_digest != vocabulary_digest:
        raise FailedPrecondition(f"the draft {draft.model} has another vocabulary than the target")
    if not draft.vocabulary_digest and draft.vocab_size != target.vocab_size:
        raise FailedPrecondition(
            f"the draft {draft.model} knows {draft.vocab_size} ids, the target {target.vocab_size}"
        )
    if draft.hidden_size and draft.hidden_size != target.hidden_size:
        raise FailedPrecondition(
            f"the draft {draft.model} feeds on hidden states {draft.hidden_size} wide, not {target.hidden_size}"
        )
