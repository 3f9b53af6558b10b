"""The one thread that computes, and the sessions it computes on; what nobody waits for gives way, level by level."""

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc

from services.draft.backlog import Backlog
from services.draft.proposing import Outcome, cancelled, grown, propose, refusal
from services.draft.sessions import Held, Sessions
from shardflow import tracing
from shardflow.engine.drafts import Drafter, DraftSession
from shardflow.errors import ResourceExhausted, ShardflowError, Unavailable, from_rpc_code, rpc_code
from shardflow.metrics import DraftMetrics
from shardflow.v1 import draft_pb2

Answering = asyncio.Future[draft_pb2.ProposeResponse]


@dataclass
class Job:
    """A request that waits for the thread, for its next turn if it is in the background."""

    held: Held[DraftSession]
    request: draft_pb2.ProposeRequest
    arrived: float  # seconds on the monotonic clock
    outcome: Future[Outcome] = field(default_factory=Future)
    levels: int = 0  # of all turns
    compute_ms: float = 0.0

    def end(self, outcome: Outcome | None = None) -> None:
        """Gives the answer, after the last turn; without an outcome that of work in the background that must end."""
        if outcome is None:
            outcome = grown(self.request)
        if self.request.extend.background:
            outcome.answer.levels, outcome.answer.compute_ms = self.levels, self.compute_ms
        self.outcome.set_result(outcome)


class Worker:
    """Runs requests against a drafter. Its methods belong to the event loop; `thread` must have one worker."""

    def __init__(self, drafter: Drafter, max_sessions: int, thread: ThreadPoolExecutor, metrics: DraftMetrics) -> None:
        self.drafter = drafter
        self._max_sessions = max_sessions
        self._sessions: Sessions[DraftSession] = Sessions(max_sessions, drafter.new_session)
        self._backlog: Backlog[Job] = Backlog()
        self._thread = thread
        self._metrics = metrics
        self._running: set[Answering] = set()
        self._draining = False

    def submit(self, request: draft_pb2.ProposeRequest, user: object) -> Answering:
        """Queues `user`'s Extend before it returns, so that no Forget overtakes it; the future is the answer."""
        loop = asyncio.get_running_loop()
        if self._draining:
            return _refused(request, Unavailable("the draft is draining"))
        try:
            held = self._sessions.use(request.session, user)
        except RuntimeError as error:  # torch's allocators raise nothing finer on the CPU
            return _refused(request, ResourceExhausted(f"no memory for a session: {error}"))
        self._metrics.sessions.set(len(self._sessions))
        job = Job(held, request, time.monotonic())
        for replaced in self._backlog.put(request.session, job, background=request.extend.background):
            replaced.end()
        self._thread.submit(self._compute_next)
        work = asyncio.wrap_future(job.outcome)
        answering: Answering = loop.create_task(self._finish(request, held, work, job.arrived))
        self._running.add(answering)
        answering.add_done_callback(self._running.discard)
        return answering

    def swap(self, drafter: Drafter) -> None:
        """Goes on with another drafter for the same target; raises ValueError for one of another shape.

        What is queued is still answered by the old one. Sessions start with no text, which is asked for again.
        """
        if (drafter.vocab_size, drafter.hidden_size) != (self.drafter.vocab_size, self.drafter.hidden_size):
            raise ValueError("the new draft reads other tokens or hidden states than the one that serves")
        self.drafter = drafter
        self._sessions = Sessions(self._max_sessions, drafter.new_session)
        self._metrics.sessions.set(0)

    def forget(self, session: str) -> None:
        """Frees a session's memory as soon as no work holds it; what is queued for it is answered CANCELLED.

        Work in the background is answered at once: others' work could keep it waiting, and the memory with it.
        """
        self._sessions.forget(session)
        self._metrics.sessions.set(len(self._sessions))
        for job in self._backlog.drop(session):
            job.end(cancelled(job.request))

    def leave(self, user: object) -> None:
        """Forgets the sessions of one who is gone."""
        for session in self._sessions.of(user):
            self.forget(session)

    async def drain(self) -> None:
        """Refuses what comes from now on, lets the background end, returns when nothing is queued or running."""
        self._draining = True
        while self._running:
            await asyncio.wait(self._running)

    def close(self) -> None:
        """Gives up what is queued."""
        self._draining = True
        while (job := self._backlog.take()) is not None:
            job.outcome.cancel()

    def _compute_next(self) -> None:
        """On the thread: as many turns as jobs were queued, each for the most urgent one of its moment."""
        job = self._backlog.take()
        if job is None or job.outcome.cancelled():
            return
        outcome = propose(self.drafter, job.held, job.request, job.arrived)
        job.levels += outcome.answer.levels
        job.compute_ms += outcome.answer.compute_ms
        unfinished = job.request.extend.background and outcome.answer.levels > 0 and not self._draining
        if unfinished and self._backlog.put_back(job.request.session, job):
            self._thread.submit(self._compute_next)
        else:
            job.end(outcome)

    async def _finish(
        self,
        request: draft_pb2.ProposeRequest,
        held: Held[DraftSession],
        work: asyncio.Future[Outcome],
        arrived: float,
    ) -> draft_pb2.ProposeResponse:
        outcome = await work
        if not outcome.usable:
            self._sessions.discard(request.session, held)
            self._metrics.sessions.set(len(self._sessions))
        if request.extend.traceparent:
            _trace(request.extend.traceparent, outcome.answer, arrived)
        _count(self._metrics, outcome.answer)
        return outcome.answer


def _refused(request: draft_pb2.ProposeRequest, error: ShardflowError) -> Answering:
    answering: Answering = asyncio.get_running_loop().create_future()
    answering.set_result(refusal(request, rpc_code(error), str(error), 0))
    return answering


def _count(metrics: DraftMetrics, answer: draft_pb2.ProposeResponse) -> None:
    metrics.proposals.labels("ok" if answer.HasField("tree") else _code_name(answer.failure.code)).inc()
    metrics.nodes.inc(len(answer.tree.tokens))
    metrics.compute_seconds.observe(answer.compute_ms / 1000)
    if answer.levels:
        metrics.level_seconds.observe(answer.compute_ms / 1000 / answer.levels)


def _trace(parent: str, answer: draft_pb2.ProposeResponse, arrived: float) -> None:
    failed = answer.HasField("failure")
    tracing.record(
        "propose",
        parent,
        began=arrived,
        attributes={
            "shardflow.queue_ms": answer.queue_ms,
            "shardflow.compute_ms": answer.compute_ms,
            "shardflow.nodes": len(answer.tree.tokens),
            "shardflow.levels": answer.levels,
        },
        error=from_rpc_code(answer.failure.code, answer.failure.message) if failed else None,
    )


def _code_name(code: int) -> str:
    return next(status.name for status in grpc.StatusCode if status.value[0] == code)
