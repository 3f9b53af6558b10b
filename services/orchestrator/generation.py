"""The loop of one request: draft, verify, commit, round after round, over faults of shards and draft."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from services.orchestrator import traces
from services.orchestrator.deployment import chunk_rows
from services.orchestrator.drafting import DraftClient, DraftSession
from services.orchestrator.guessing.building import Room
from services.orchestrator.guessing.guesser import Learned
from services.orchestrator.guessing.select import select
from services.orchestrator.rounds import Rows, Source, Stage, Timing, Tree, next_base, plan, sources
from services.orchestrator.shards import ShardPool
from services.orchestrator.transcript import Transcript
from shardflow import tracing
from shardflow.errors import FailedPrecondition, ShardflowError, Unavailable
from shardflow.metrics import OrchestratorMetrics
from shardflow.speculation import MAX_NODES, Mode
from shardflow.v1 import sampling_pb2, verifier_pb2

logger = logging.getLogger(__name__)

_RETRY_S = 0.1


@dataclass(frozen=True)
class Plan:
    """What a request asks of the loop."""

    session: str
    sampling: sampling_pb2.SamplingParams
    mode: Mode
    max_session_tokens: int  # of KV: prompt, answer and guesses
    logprobs: bool
    top_logprobs: int


@dataclass(frozen=True)
class Committed:
    """One committed token."""

    token_id: int
    text: str
    source: Source
    choice: verifier_pb2.Choice


@dataclass(frozen=True)
class Round:
    """What one round brought."""

    tokens: Sequence[Committed]
    tree: Tree
    accepted: Sequence[int]  # guesses of the tree that became output, from the first on
    timing: Timing
    prefill: bool
    hidden_ms: float  # model time of the draft for which nobody waited


@dataclass(frozen=True)
class Limits:
    """The operator's settings that bound the loop."""

    prefill_chunk: int
    patience_s: float
    round_timeout_s: float


class Generation:
    """One request on its way through the shards."""

    def __init__(
        self,
        request: Plan,
        transcript: Transcript,
        shards: ShardPool,
        draft: DraftClient | None,
        learned: Learned,
        limits: Limits,
        metrics: OrchestratorMetrics,
        arrived: float,
    ) -> None:
        """`arrived`: when the request came, in seconds on the monotonic clock."""
        self._request = request
        self._transcript = transcript
        self._shards = shards
        self._limits = limits
        self._metrics = metrics
        self._want_hidden = draft is not None and draft.wants_hidden and request.mode.drafts
        self._last_commit = arrived
        self._draft_session = DraftSession(request.session, request.sampling, transcript.prompt_tokens)
        self._costs = learned.costs
        self._guesser = select(request.mode, draft, self._draft_session, transcript.tokens, learned, metrics)
        self._epoch = 0
        self._round = 0
        self._base = 0
        self._keep: list[int] = []
        self._chunk = 1  # committed rows in one slice at most; set with every epoch

    async def rounds(self) -> AsyncGenerator[Round, None]:
        """The rounds of the request until its text ends; frees the session everywhere when it is left."""
        try:
            await self._open_epoch(time.monotonic() + self._limits.patience_s)
            number = 0
            while self._transcript.finish is None:
                number += 1
                yield await traces.run_round(number, self._last_commit, self._run_round())
        finally:
            self._shards.release(self._request.session)
            self._guesser.close()

    async def _run_round(self) -> Round:
        started = time.monotonic()
        prefill = self._transcript.output_tokens == 0
        tree = Tree() if prefill else await self._guesser.tree(self._room())
        drafted = time.monotonic()
        rows, verdict, sent, arrived = await self._verify(tree)
        tokens = self._commit(rows, verdict)
        round_began, self._last_commit = self._last_commit, time.monotonic()
        timing = Timing(
            round_ms=(self._last_commit - round_began) * 1000,
            draft_ms=(drafted - started) * 1000,
            flight_ms=(arrived - sent) * 1000,
            stages=[Stage(s.shard, s.queue_ms, s.compute_ms, s.other_ms, s.batch_rows) for s in verdict.stages],
        )
        accepted = tree.path([token.token_id for token in tokens if token.source is Source.ACCEPTED])
        self._learn(rows, timing, tokens, prefill)
        hidden_ms, self._guesser.hidden_ms = self._guesser.hidden_ms, 0.0
        return Round(tokens, tree, accepted, timing, prefill, hidden_ms)

    def _room(self) -> Room:
        """Guesses worth sending: a path of n brings n + 1 tokens, and all must fit the session's KV cache."""
        free = self._request.max_session_tokens - len(self._transcript.tokens)
        return Room(max(0, min(free, MAX_NODES)), max(0, min(free, self._transcript.remaining - 1)))

    def _learn(self, rows: Rows, timing: Timing, tokens: Sequence[Committed], prefill: bool) -> None:
        self._costs.learn_pass(timing, len(rows.tokens), self._last_commit)
        if not prefill:
            self._costs.learn_round(timing, len(rows.tokens), len(tokens))
        start = len(self._transcript.tokens) - len(tokens)
        self._guesser.learn(start, [token.choice.top_ids for token in tokens])

    async def _verify(self, tree: Tree) -> tuple[Rows, verifier_pb2.Verdict, float, float]:
        """One round on the shards; rebuilds the session on them after a fault, for as long as patience lasts."""
        deadline: float | None = None
        while True:
            rows = plan(self._transcript.tokens, self._base, tree, self._chunk)
            slices = [self._slice(piece, self._round + index) for index, piece in enumerate(rows)]
            slices[0].keep.extend(self._keep)
            slices[-1].want_verdict = True
            self._round += len(slices)
            try:
                self._guesser.ahead()
                verdict, sent, arrived = await self._shards.verify(slices, self._limits.round_timeout_s)
                return rows[-1], verdict, sent, arrived
            except (Unavailable, FailedPrecondition) as error:
                deadline = deadline or time.monotonic() + self._limits.patience_s
                await self._recover(error, deadline)

    async def _recover(self, error: ShardflowError, deadline: float) -> None:
        cause = type(error).__name__.lower()
        self._metrics.recoveries.labels(cause=cause).inc()
        logger.warning("rebuilding the session: %s", error, extra={"session": self._request.session})
        tracing.event("fault", cause=cause, reason=str(error))
        if time.monotonic() + _RETRY_S > deadline:
            raise Unavailable(str(error)) from error
        await asyncio.sleep(_RETRY_S)
        try:
            await self._open_epoch(deadline)
        except Unavailable as again:
            if time.monotonic() + _RETRY_S > deadline:
                raise
            await self._recover(again, deadline)
        else:
            tracing.event("recovered", epoch=self._epoch, base=self._base)

    async def _open_epoch(self, deadline: float) -> None:
        """Starts over from what every shard surely holds; returns when all shards are up."""
        try:
            deployment = await self._shards.wait_ready(max(0.0, deadline - time.monotonic()))
        except FailedPrecondition as error:  # the operator's affair: for a client the model is not there
            raise Unavailable(str(error)) from error
        self._chunk = chunk_rows(deployment, self._limits.prefill_chunk)
        held = await self._shards.committed_base(self._request.session) if self._epoch else 0
        self._epoch += 1
        self._round = 0
        self._base = min(held, len(self._transcript.tokens) - 1)
        self._keep = []

    def _slice(self, rows: Rows, number: int) -> verifier_pb2.Slice:
        chain = list(rows.parents) == list(range(-1, len(rows.tokens) - 1))
        return verifier_pb2.Slice(
            session=self._request.session,
            epoch=self._epoch,
            round=number,
            base=rows.base,
            tokens=rows.tokens,
            parents=[] if chain else rows.parents,
            committed_rows=rows.committed,
            origin=self._shards.name,
            traceparent=tracing.traceparent(),
            setup=self._setup() if number == 0 else None,
        )

    def _setup(self) -> verifier_pb2.SessionSetup:
        request = self._request
        return verifier_pb2.SessionSetup(
            sampling=request.sampling,
            prompt_tokens=self._transcript.prompt_tokens,
            top_logprobs=request.top_logprobs,
            want_logprobs=request.logprobs,
            want_hidden=self._want_hidden,
            max_tokens=request.max_session_tokens,
        )

    def _commit(self, rows: Rows, verdict: verifier_pb2.Verdict) -> list[Committed]:
        """Commits a verdict's tokens one by one until the text ends."""
        accepted = list(verdict.accepted_rows)
        ids = [*(rows.tokens[row] for row in accepted[1:]), verdict.next_token]
        committed = []
        for token_id, source, choice in zip(ids, sources(rows, accepted), verdict.choices, strict=True):
            committed.append(Committed(token_id, self._transcript.commit(token_id), source, choice))
            if self._transcript.finish is not None:
                break
        if verdict.HasField("hidden"):
            self._draft_session.add_hidden(verdict.hidden, len(committed))
        self._base, self._keep = next_base(rows, accepted)
        return committed
