"""The orchestrator's links to all shards: sends slices to the first, hears verdicts and failures, releases sessions."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from services.orchestrator.deployment import Deployment, check_shards, check_unchanged
from shardflow.config import Peer
from shardflow.errors import FailedPrecondition, Unavailable, from_rpc_code
from shardflow.link import Link, describe
from shardflow.v1 import verifier_pb2, verifier_pb2_grpc

logger = logging.getLogger(__name__)

_QUERY_TIMEOUT_S = 2.0
_REMEMBERED_SESSIONS = 1024

VerifierLink = Link[verifier_pb2.ConnectRequest, verifier_pb2.ConnectResponse]


@dataclass(frozen=True)
class Clock:
    """How far a shard's wall clock is ahead of ours, and by how much that may be wrong, in milliseconds."""

    offset_ms: float
    error_ms: float

    @classmethod
    def compare(cls, sent_ms: float, theirs_ms: float, arrived_ms: float) -> "Clock":
        """From the times of a question, of its answer at the shard, and of its arrival here."""
        error_ms = (arrived_ms - sent_ms) / 2
        return cls(theirs_ms - sent_ms - error_ms, error_ms)


@dataclass
class Shard:
    """One shard as the orchestrator sees it."""

    index: int
    link: VerifierLink
    describe: verifier_pb2.DescribeResponse | None = None
    ready: bool = False  # its link is up and it has described itself on it
    clock: Clock | None = None  # as it was when the shard described itself last


@dataclass
class _Pending:
    epoch: int
    round: int
    done: asyncio.Future[tuple[verifier_pb2.Verdict, float]]


class ShardPool:
    """All shards of the target, first one first."""

    def __init__(self, peers: Sequence[Peer], name: str) -> None:
        """`name` is the peer name of this orchestrator, unique per process start."""
        self.name = name
        self.deployment: Deployment | None = None
        self.problem: FailedPrecondition | None = None
        self.shards = [Shard(index, self._link(index, peer)) for index, peer in enumerate(peers)]
        self._ended: deque[str] = deque(maxlen=_REMEMBERED_SESSIONS)
        self._pending: dict[str, _Pending] = {}
        self._queries: dict[tuple[int, str], asyncio.Future[verifier_pb2.SessionState]] = {}
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begins to dial all shards."""
        for shard in self.shards:
            shard.link.start()

    async def close(self) -> None:
        """Ends all links."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(shard.link.close() for shard in self.shards))

    async def wait_ready(self, timeout_s: float) -> Deployment:
        """The target, once every shard is up; FailedPrecondition if they do not fit, Unavailable after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self.problem is not None:
                raise FailedPrecondition(str(self.problem))  # a fresh one: a raised exception keeps its frames alive
            missing = [shard for shard in self.shards if not shard.ready]
            if not missing and self.deployment is not None:
                return self.deployment
            self._changed.clear()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                raise missing[0].link.unavailable() from None

    async def refresh(self) -> None:
        """Asks every shard that is up how it stands now; one that does not answer within 2 s stays as it was."""
        asked = [shard for shard in self.shards if shard.ready]
        answers = await asyncio.gather(*map(self._ask, asked), return_exceptions=True)
        for shard, answer in zip(asked, answers, strict=True):
            if answer is not None:
                logger.info("shard does not say how it stands", extra={"link": shard.link.name, "reason": str(answer)})

    async def verify(
        self, slices: Sequence[verifier_pb2.Slice], timeout_s: float
    ) -> tuple[verifier_pb2.Verdict, float, float]:
        """Sends the slices of one round of one session; (verdict, time sent, time of arrival on the monotonic clock).

        Raises the typed error behind a shard's Failure, or Unavailable if a link is lost or the round times out.
        """
        last = slices[-1]
        pending = _Pending(last.epoch, last.round, asyncio.get_running_loop().create_future())
        self._pending[last.session] = pending
        try:
            sent = time.monotonic()
            for piece in slices:
                self.shards[0].link.send(verifier_pb2.ConnectRequest(slice=piece))
            async with asyncio.timeout(timeout_s):
                verdict, arrived = await pending.done
            return verdict, sent, arrived
        except TimeoutError:
            raise Unavailable(f"no verdict within {timeout_s:g} s") from None
        finally:
            del self._pending[last.session]

    async def committed_base(self, session: str) -> int:
        """Committed tokens that every shard surely holds of a session."""
        queries = (self._query(shard, session) for shard in self.shards)
        # Waits for all of them, so that none is left behind to meet the queries of the next attempt.
        answers = await asyncio.gather(*queries, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return min(answer.base for answer in answers if not isinstance(answer, BaseException))

    def release(self, session: str) -> None:
        """Frees a session on every shard at once, or as soon as a lost shard is back."""
        self._ended.append(session)
        for shard in self.shards:
            if shard.link.connected:
                shard.link.send(_release([session]))

    async def _query(self, shard: Shard, session: str) -> verifier_pb2.SessionState:
        answer: asyncio.Future[verifier_pb2.SessionState] = asyncio.get_running_loop().create_future()
        self._queries[shard.index, session] = answer
        try:
            shard.link.send(verifier_pb2.ConnectRequest(query=verifier_pb2.Query(session=session)))
            async with asyncio.timeout(_QUERY_TIMEOUT_S):
                return await answer
        except TimeoutError:
            raise Unavailable(f"{shard.link.name} does not answer") from None
        finally:
            del self._queries[shard.index, session]

    async def _ask(self, shard: Shard) -> None:
        channel = shard.link.channel
        assert channel is not None  # the shard is ready
        sent = time.time()
        method = verifier_pb2_grpc.VerifierServiceStub(channel).Describe
        answer = await method(verifier_pb2.DescribeRequest(), timeout=_QUERY_TIMEOUT_S)
        if shard.link.is_up_on(channel):
            shard.describe = answer
            shard.clock = Clock.compare(sent * 1000, answer.unix_time_ms, time.time() * 1000)

    def _link(self, index: int, peer: Peer) -> VerifierLink:
        return Link(
            f"shard {index}",
            peer.address,
            peer.relay,
            peer=self.name,
            open_stream=lambda channel: verifier_pb2_grpc.VerifierServiceStub(channel).Connect(),
            wrap=verifier_pb2.ConnectRequest,
            on_message=lambda message: self._take(self.shards[index], message),
            on_up=lambda: self._came_up(self.shards[index]),
            on_down=lambda reason: self._went_down(self.shards[index]),
        )

    def _take(self, shard: Shard, message: verifier_pb2.ConnectResponse) -> None:
        if message.HasField("verdict"):
            self._take_verdict(message.verdict)
        elif message.HasField("failure"):
            self._take_failure(message.failure)
        elif message.HasField("session_state"):
            answer = self._queries.get((shard.index, message.session_state.session))
            if answer is not None and not answer.done():
                answer.set_result(message.session_state)

    def _take_verdict(self, verdict: verifier_pb2.Verdict) -> None:
        pending = self._pending.get(verdict.session)
        if pending and (pending.epoch, pending.round) == (verdict.epoch, verdict.round) and not pending.done.done():
            pending.done.set_result((verdict, time.monotonic()))

    def _take_failure(self, failure: verifier_pb2.Failure) -> None:
        pending = self._pending.get(failure.session)
        # A failed prefill chunk fails the round that it belongs to, so any round up to the pending one counts.
        if pending and pending.epoch == failure.epoch and failure.round <= pending.round and not pending.done.done():
            pending.done.set_exception(from_rpc_code(failure.code, failure.message))

    def _came_up(self, shard: Shard) -> None:
        task = asyncio.create_task(self._describe(shard))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _describe(self, shard: Shard) -> None:
        described = await describe(
            shard.link,
            lambda channel: verifier_pb2_grpc.VerifierServiceStub(channel).Describe,
            verifier_pb2.DescribeRequest(),
        )
        if described is None:
            return
        shard.describe, shard.ready = described, True
        # Also those that were released just before the link was lost: nobody knows what of it still arrived.
        if self._ended:
            shard.link.send(_release(list(self._ended)))
        self._check()

    def _check(self) -> None:
        described = [shard.describe for shard in self.shards if shard.describe is not None]
        if len(described) == len(self.shards):
            try:
                now = check_shards(described)
                check_unchanged(self.deployment or now, now)
                self.deployment, self.problem = now, None
            except FailedPrecondition as error:
                logger.error("shards do not fit together: %s", error)
                self.problem = error
        self._changed.set()

    def _went_down(self, shard: Shard) -> None:
        shard.ready = False
        waiting: list[asyncio.Future[Any]] = [pending.done for pending in self._pending.values()]
        waiting += [answer for (index, _), answer in self._queries.items() if index == shard.index]
        for future in waiting:
            if not future.done():
                future.set_exception(shard.link.unavailable())


def _release(sessions: list[str]) -> verifier_pb2.ConnectRequest:
    return verifier_pb2.ConnectRequest(release=verifier_pb2.Release(sessions=sessions))
