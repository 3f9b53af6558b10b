"""From rounds to the messages that clients read, and to metrics."""

from services.orchestrator.generation import Committed, Round
from services.orchestrator.rounds import GuessSource, Source
from services.orchestrator.transcript import Finish
from shardflow.metrics import OrchestratorMetrics
from shardflow.v1 import orchestrator_pb2, verifier_pb2

_SOURCES = {
    Source.TARGET: orchestrator_pb2.TOKEN_SOURCE_TARGET,
    Source.ACCEPTED: orchestrator_pb2.TOKEN_SOURCE_ACCEPTED,
    Source.CORRECTED: orchestrator_pb2.TOKEN_SOURCE_CORRECTED,
    Source.BONUS: orchestrator_pb2.TOKEN_SOURCE_BONUS,
}
_GUESS_SOURCES = {
    GuessSource.DRAFT: orchestrator_pb2.GUESS_SOURCE_DRAFT,
    GuessSource.TEXT: orchestrator_pb2.GUESS_SOURCE_TEXT,
    GuessSource.RECYCLED: orchestrator_pb2.GUESS_SOURCE_RECYCLED,
}
FINISH_REASONS = {
    Finish.STOP: orchestrator_pb2.FINISH_REASON_STOP,
    Finish.LENGTH: orchestrator_pb2.FINISH_REASON_LENGTH,
}


def token(committed: Committed, top: int) -> orchestrator_pb2.Token:
    """One token as clients see it."""
    choice = committed.choice
    return orchestrator_pb2.Token(
        id=committed.token_id,
        text=committed.text,
        source=_SOURCES[committed.source],
        logprob=choice.logprob if choice.HasField("logprob") else None,
        top=choice.top[:top],
    )


def record(done: Round) -> orchestrator_pb2.RoundRecord:
    """One round as clients see it."""
    timing = done.timing
    return orchestrator_pb2.RoundRecord(
        round_ms=timing.round_ms,
        draft_ms=timing.draft_ms,
        network_ms=timing.network_ms,
        orchestrator_ms=timing.orchestrator_ms,
        stages=[
            verifier_pb2.StageTiming(
                shard=stage.shard,
                queue_ms=stage.queue_ms,
                compute_ms=stage.compute_ms,
                other_ms=stage.other_ms,
                batch_rows=stage.batch_rows,
            )
            for stage in timing.stages
        ],
        drafted_tokens=len(done.tree.tokens),
        accepted_tokens=len(done.accepted),
        prefill=done.prefill,
        draft_tokens=done.tree.tokens,
        draft_parents=done.tree.parents,
        draft_sources=[_GUESS_SOURCES[source] for source in done.tree.sources],
        draft_probabilities=done.tree.probabilities,
        accepted_guesses=done.accepted,
        draft_hidden_ms=done.hidden_ms,
    )


def observe(metrics: OrchestratorMetrics, done: Round) -> None:
    """Counts one round."""
    metrics.rounds.labels(phase="prefill" if done.prefill else "decode").inc()
    for committed in done.tokens:
        metrics.output_tokens.labels(source=committed.source.value).inc()
    if done.prefill:
        return
    metrics.tokens_per_round.observe(len(done.tokens))
    depths = [str(depth) for depth in done.tree.depths()]
    for depth, source in zip(depths, done.tree.sources, strict=True):
        metrics.draft_tokens.labels(depth=depth, source=source.value).inc()
    for guess in done.accepted:
        metrics.accepted_tokens.labels(depth=depths[guess], source=done.tree.sources[guess].value).inc()
    _observe_timing(metrics, done)


def _observe_timing(metrics: OrchestratorMetrics, done: Round) -> None:
    timing = done.timing
    metrics.round_seconds.observe(timing.round_ms / 1000)
    parts = {
        ("network", ""): timing.network_ms,
        ("draft", ""): timing.draft_ms,
        ("orchestration", ""): timing.orchestrator_ms,
    }
    for stage in timing.stages:
        parts["compute", stage.shard] = stage.compute_ms
        parts["queue", stage.shard] = stage.queue_ms
        parts["other", stage.shard] = stage.other_ms
    for (part, shard), value_ms in parts.items():
        metrics.round_part_seconds.labels(part=part, shard=shard).observe(value_ms / 1000)
