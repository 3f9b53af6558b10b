"""What a shard tells of its work on a slice in the trace of the request."""

from shardflow import tracing
from shardflow.errors import ShardflowError
from shardflow.v1 import verifier_pb2


def stage(piece: verifier_pb2.Slice, timing: verifier_pb2.StageTiming, arrived: float, result: object) -> None:
    """The span of a slice whose pass had this result; `arrived`: in seconds on the monotonic clock."""
    tracing.record(
        "stage",
        piece.traceparent,
        began=arrived,
        attributes={
            "shardflow.shard": timing.shard,
            "shardflow.rows": len(piece.tokens),
            "shardflow.batch_rows": timing.batch_rows,
            "shardflow.queue_ms": timing.queue_ms,
            "shardflow.compute_ms": timing.compute_ms,
            "shardflow.other_ms": timing.other_ms,
        },
        error=result if isinstance(result, ShardflowError) else None,
    )
