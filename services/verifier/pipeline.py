"""The way of a slice through the shard: decoded, queued, admitted, run packed with others, answered or passed on."""

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from services.verifier import codec, traces
from services.verifier.deciding import Decision
from services.verifier.peers import Peers
from services.verifier.runner import Result, Runner, Step
from services.verifier.scheduler import Scheduler
from services.verifier.sessions import Apply, Drop, Session, SessionTable
from services.verifier.slices import Head, Key
from shardflow.engine import KVCache, ModelSlice
from shardflow.errors import InternalError, NumericError, ResourceExhausted, ShardflowError, Unavailable
from shardflow.metrics import VerifierMetrics
from shardflow.transport import status_code
from shardflow.v1 import verifier_pb2

logger = logging.getLogger(__name__)

QUEUED_SLICES = 1024  # further ones are refused; on a shard that is not the first each holds up to 2 MiB


class Next(Protocol):
    """The shard that a slice is passed on to."""

    def send(self, request: verifier_pb2.ConnectRequest) -> None:
        """Raises ShardflowError, at once, if the shard can not be reached."""


@dataclass(frozen=True)
class Job:
    """A slice on its way through the shard; times in seconds on the monotonic clock."""

    request: verifier_pb2.ConnectRequest
    head: Head
    hidden: Tensor | None  # [rows, hidden_size]
    arrived: float
    decoded: float


@dataclass(frozen=True)
class Pass:
    """One forward pass, as it went."""

    started: float
    ended: float
    rows: int


class Pipeline:
    """All slices of a shard. Runs on the event loop; only the forward pass runs elsewhere, on `thread`."""

    def __init__(
        self,
        shard: str,
        model: ModelSlice,
        table: SessionTable[KVCache],
        scheduler: Scheduler[Job],
        thread: Executor,
        peers: Peers,
        following: Next | None,
        metrics: VerifierMetrics,
    ) -> None:
        self._shard = shard
        self._model = model
        self._table = table
        self._scheduler = scheduler
        self._thread = thread
        self._peers = peers
        self._next = following
        self._metrics = metrics
        self._runner = Runner(model)
        self._work = asyncio.Event()
        self._passed_on: dict[Key, Head] = {}
        self._draining = False
        self._drained = asyncio.Event()

    def submit(self, request: verifier_pb2.ConnectRequest) -> None:
        """Takes a slice in, or tells its origin what is wrong with it; never waits, or heartbeats would wait too."""
        arrived = time.monotonic()
        message = request.slice
        try:
            head = codec.read_head(message, self._table.limits)
            hidden = codec.read_hidden(message, self._model)
            if len(self._scheduler) >= QUEUED_SLICES:
                raise ResourceExhausted(f"{QUEUED_SLICES} slices wait already")
        except ShardflowError as error:
            self._fail(message, error)
            return
        message.ClearField("hidden")
        self._discard(head.key, older_than=head.epoch)
        self._scheduler.add(head.key, len(head.tokens), Job(request, head, hidden, arrived, time.monotonic()))
        self._work.set()

    def release(self, key: Key) -> None:
        """Forgets a session and what waits for it; its KV goes at once, or with the pass that is using it."""
        self._table.release(key)
        self._passed_on.pop(key, None)
        self._discard(key, older_than=None)
        self._observe()

    def sweep(self) -> None:
        """Forgets the sessions that nobody uses."""
        for key in self._table.expire(time.monotonic()):
            logger.info("session expired", extra={"origin": key[0], "session": key[1]})
            self._passed_on.pop(key, None)
        self._observe()

    def lost_next(self, reason: ShardflowError) -> None:
        """The link to the next shard is down: whoever may be waiting for a slice that was on it is told so."""
        for key, head in self._passed_on.items():
            if self._table.get(key) is not None:
                self._fail(head, reason)
        self._passed_on.clear()

    async def drain(self) -> None:
        """Takes no further sessions, and returns when those whose orchestrator is still there have been released."""
        self._draining = True
        self._observe()
        await self._drained.wait()

    async def run(self) -> None:
        """Runs pass after pass, until it is cancelled."""
        while True:
            await self._work.wait()
            jobs = self._scheduler.take()
            if not jobs:
                self._work.clear()
                continue
            admitted = [(job, session) for job in jobs if (session := self._admit(job.head)) is not None]
            if admitted:
                try:
                    await self._run_pass(admitted)
                except Exception as error:  # a bug costs the sessions of one pass, not the shard
                    logger.exception("a pass failed")
                    self._give_up(admitted, InternalError(f"{type(error).__name__}: {error}"))

    def _give_up(self, admitted: Sequence[tuple[Job, Session[KVCache]]], error: ShardflowError) -> None:
        for job, session in admitted:
            if self._table.get(job.head.key) is session:
                self._table.forget(job.head.key)
                self._fail(job.head, error)

    def _discard(self, key: Key, *, older_than: int | None) -> None:
        self._scheduler.discard(key, lambda job: older_than is None or job.head.epoch < older_than)

    def _admit(self, head: Head) -> Session[KVCache] | None:
        if self._draining and self._table.get(head.key) is None:
            self._fail(head, Unavailable("draining: no further sessions are taken"))
            return None
        outcome = self._table.admit(head, time.monotonic())
        if isinstance(outcome, Apply):
            return outcome.session
        if isinstance(outcome, Drop):
            self._metrics.slices.labels("dropped").inc()
            logger.debug("slice dropped: %s", outcome.reason, extra=_names(head))
        else:
            self._fail(head, outcome.error)
        return None

    async def _run_pass(self, admitted: Sequence[tuple[Job, Session[KVCache]]]) -> None:
        steps = [Step(job.head, session, job.hidden) for job, session in admitted]
        started = time.monotonic()
        results = await asyncio.get_running_loop().run_in_executor(self._thread, self._runner.run, steps)
        done = Pass(started, time.monotonic(), sum(len(step.head.tokens) for step in steps))
        for (job, session), result in zip(admitted, results, strict=True):
            if self._table.get(job.head.key) is session:  # else it was released meanwhile
                self._settle(job, session, result, done)
                if job.request.slice.traceparent:
                    traces.stage(job.request.slice, self._stage(job, done), job.arrived, result)
            self._metrics.queue_seconds.observe(started - job.arrived)
        self._metrics.rows.inc(done.rows)
        self._metrics.batch_rows.observe(done.rows)
        self._metrics.forward_seconds.observe(done.ended - done.started)
        self._observe()

    def _settle(self, job: Job, session: Session[KVCache], result: Result, done: Pass) -> None:
        if not isinstance(result, ShardflowError):
            self._metrics.slices.labels("applied").inc()
        if isinstance(result, ShardflowError):
            if isinstance(result, NumericError):
                session.forget_rows()
            else:  # nobody knows how far the pass came
                self._table.forget(job.head.key)
            self._fail(job.head, result)
        elif isinstance(result, Decision):
            answer = codec.verdict(job.head, session.setup, result)
            answer.verdict.stages.extend([*job.request.slice.stages, self._stage(job, done)])
            self._peers.send(job.head.origin, answer)
        elif result is not None:
            self._pass_on(job, result, done)

    def _pass_on(self, job: Job, hidden: Tensor, done: Pass) -> None:
        assert self._next is not None
        codec.set_hidden(job.request.slice, hidden)
        job.request.slice.stages.append(self._stage(job, done))
        try:
            self._next.send(job.request)
        except ShardflowError as error:
            self._fail(job.head, error)
        else:
            self._passed_on[job.head.key] = job.head

    def _stage(self, job: Job, done: Pass) -> verifier_pb2.StageTiming:
        decoding, encoding = job.decoded - job.arrived, time.monotonic() - done.ended
        return verifier_pb2.StageTiming(
            shard=self._shard,
            queue_ms=(done.started - job.decoded) * 1e3,
            compute_ms=(done.ended - done.started) * 1e3,
            other_ms=(decoding + encoding) * 1e3,
            batch_rows=done.rows,
        )

    def _fail(self, slice_: Head | verifier_pb2.Slice, error: ShardflowError) -> None:
        self._metrics.slices.labels(status_code(error).name).inc()
        if isinstance(error, NumericError):
            self._metrics.non_finite.inc()
        logger.warning("slice failed: %s", error, extra=_names(slice_))
        session = self._table.get((slice_.origin, slice_.session))
        self._peers.send(slice_.origin, codec.failure(slice_, self._shard, error, session))

    def _observe(self) -> None:
        if self._draining and not any(self._peers.has(origin) for origin, _ in self._table):
            self._drained.set()
        caches = [session.kv for session in self._table.values()]
        self._metrics.queue_depth.set(len(self._scheduler))
        self._metrics.sessions.set(len(caches))
        self._metrics.kv_tokens.set(sum(kv.length for kv in caches))
        self._metrics.kv_bytes.set(sum(kv.length * kv.bytes_per_token for kv in caches))


def _names(slice_: Head | verifier_pb2.Slice) -> dict[str, object]:
    """What a log line says about a slice."""
    return {
        "origin": slice_.origin, "session": slice_.session, "epoch": slice_.epoch, "round": slice_.round,
    }  # fmt: skip
