"""The orchestrator's link to the draft: asks for trees below the committed text, says when a session is over."""

import asyncio
import itertools
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.orchestrator.deployment import Deployment, check_draft
from services.orchestrator.guessing.drafted import Drafted
from services.orchestrator.guessing.reading import read_tree
from shardflow import tracing
from shardflow.config import Peer
from shardflow.errors import FailedPrecondition, Unavailable, from_rpc_code
from shardflow.link import Link, describe
from shardflow.v1 import draft_pb2, draft_pb2_grpc, sampling_pb2, tensor_pb2

logger = logging.getLogger(__name__)

_FAILED_PRECONDITION = FailedPrecondition.rpc_code

_LEFT_ALONE_S = 30.0
_START_WAIT_S = 10.0

DraftLink = Link[draft_pb2.ProposeRequest, draft_pb2.ProposeResponse]


@dataclass(frozen=True)
class Ask:
    """How large a tree is wanted; the fields are those of `Extend` in `draft.proto`."""

    max_nodes: int
    max_depth: int
    max_children: int = 8
    max_levels: int = 0
    min_gain: float = 0.0
    min_probability: float = 0.0
    calibration: Sequence[float] = ()
    background: bool = False


@dataclass(frozen=True)
class Proposal:
    """What the draft has grown, and what the last of it took."""

    drafted: Drafted
    levels: int  # forward passes
    compute_ms: float


@dataclass
class DraftSession:
    """What the orchestrator keeps of one session for the draft's sake."""

    session: str
    sampling: sampling_pb2.SamplingParams
    prompt_tokens: int
    known: int = 0  # tokens of the text that the draft has
    hidden: list[bytes] = field(default_factory=list)  # one per output token: the state that produced it
    hidden_shape: tuple[int, int] = (0, 0)  # element type, width
    silent_until: float = 0.0  # the draft is not asked before, on the monotonic clock

    def add_hidden(self, tensor: tensor_pb2.Tensor, tokens: int) -> None:
        """Takes the rows that produced the next `tokens` output tokens."""
        rows, width = tensor.shape
        size = len(tensor.data) // rows
        self.hidden_shape = (tensor.dtype, width)
        self.hidden += [tensor.data[row * size : (row + 1) * size] for row in range(tokens)]

    def hidden_from(self, start: int) -> tensor_pb2.Tensor | None:
        """States of the output tokens at absolute positions from `start` on, if there are any."""
        rows = self.hidden[max(0, start - self.prompt_tokens) :]
        if not rows:
            return None
        dtype, width = self.hidden_shape
        return tensor_pb2.Tensor(dtype=dtype, shape=[len(rows), width], data=b"".join(rows))  # type: ignore[arg-type]


class DraftClient:
    """One draft service."""

    def __init__(self, peer: Peer, name: str, timeout_s: float) -> None:
        """`name` is the peer name of this orchestrator; a draft that answers later than `timeout_s` is left alone."""
        self.describe: draft_pb2.DescribeDraftResponse | None = None
        self.ready = False  # its link is up and it has described itself on it
        self.problem: FailedPrecondition | None = None
        self._vocabulary_digest = ""
        self._timeout_s = timeout_s
        self._silent_until = 0.0  # on the monotonic clock
        self._target: Deployment | None = None
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[draft_pb2.ProposeResponse]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._described = asyncio.Event()
        self.link: DraftLink = Link(
            "draft",
            peer.address,
            peer.relay,
            peer=name,
            open_stream=lambda channel: draft_pb2_grpc.DraftServiceStub(channel).Propose(),
            wrap=draft_pb2.ProposeRequest,
            on_message=self._take,
            on_up=self._came_up,
            on_down=self._went_down,
        )

    async def start(self, target: Deployment, vocabulary_digest: str) -> None:
        """Returns when the draft is up, or after 10 s: the text does not need it, and it may come later.

        Raises FailedPrecondition if it does not fit the target or its vocabulary.
        """
        self._target, self._vocabulary_digest = target, vocabulary_digest
        self.link.start()
        try:
            async with asyncio.timeout(_START_WAIT_S):
                await self._described.wait()
        except TimeoutError:
            logger.warning("serving without guesses until the draft is up: %s", self.link.unavailable())
        if self.problem is not None:
            raise FailedPrecondition(str(self.problem))

    async def close(self) -> None:
        """Ends the link."""
        for task in self._tasks:
            task.cancel()
        await self.link.close()

    @property
    def wants_hidden(self) -> bool:
        """Whether the draft feeds on the target's hidden states."""
        return self.describe is not None and self.describe.hidden_size > 0

    @property
    def max_session_tokens(self) -> int:
        """Longest text, guesses included, that the draft can take."""
        return self.describe.max_session_tokens if self.describe is not None else 0

    @property
    def trouble(self) -> str:
        """Why its guesses are not used now; empty if they are."""
        if self.problem is not None:
            return str(self.problem)
        if not self.ready:
            return str(self.link.unavailable())
        return self._silence if time.monotonic() < self._silent_until else ""

    @property
    def _silence(self) -> str:
        return f"the draft did not answer within {self._timeout_s:g} s and is left alone for a while"

    async def propose(self, session: DraftSession, tokens: Sequence[int], ask: Ask) -> Proposal:
        """The tree below `tokens`; a typed error if there is none to be had. Asked again, it grows on.

        In the background the draft grows on below the text that it has, until that is asked for; there is no tree then.
        """
        assert self._target is not None  # started
        if trouble := self.trouble:
            raise Unavailable(trouble)
        if time.monotonic() < session.silent_until:
            raise Unavailable(self._silence)
        text = list(tokens)  # as it is now: it may have grown when the answer comes
        answer = await self._extend(session, text, ask)
        if (
            not ask.background
            and answer.failure.code == _FAILED_PRECONDITION
            and answer.failure.known_tokens < session.known
        ):
            session.known = answer.failure.known_tokens
            answer = await self._extend(session, text, ask)
        if answer.HasField("failure"):
            raise from_rpc_code(answer.failure.code, f"draft: {answer.failure.message}")
        if not ask.background:
            session.known = len(text)
        drafted = read_tree(answer.tree, ask.max_nodes, self._target.vocab_size)
        return Proposal(drafted, answer.levels, answer.compute_ms)

    def forget(self, session: str) -> None:
        """Frees the draft's state of a session, if the draft is there; a lost draft has lost it anyway."""
        if self.link.connected:
            self.link.send(draft_pb2.ProposeRequest(session=session, forget=draft_pb2.Forget()))

    async def _extend(self, session: DraftSession, tokens: Sequence[int], ask: Ask) -> draft_pb2.ProposeResponse:
        base = min(session.known, len(tokens))
        request = draft_pb2.ProposeRequest(
            request_id=next(self._ids),
            session=session.session,
            extend=draft_pb2.Extend(
                base=base,
                tokens=tokens[base:],
                hidden=session.hidden_from(base) if self.wants_hidden else None,
                max_nodes=ask.max_nodes,
                max_depth=ask.max_depth,
                max_children=ask.max_children,
                sampling=session.sampling,
                prompt_tokens=session.prompt_tokens,
                max_levels=ask.max_levels,
                min_gain=ask.min_gain,
                min_probability=ask.min_probability,
                calibration=ask.calibration,
                background=ask.background,
                traceparent=tracing.traceparent(),
            ),
        )
        answer: asyncio.Future[draft_pb2.ProposeResponse] = asyncio.get_running_loop().create_future()
        self._pending[request.request_id] = answer
        try:
            self.link.send(request)
            async with asyncio.timeout(None if ask.background else self._timeout_s):
                return await answer
        except TimeoutError:
            # Every round would wait as long; without guesses they are slower, but not by seconds. A text that the draft
            # has not seen yet may just be long, so that is no reason to leave it alone for the others' sake.
            session.silent_until = time.monotonic() + _LEFT_ALONE_S
            if session.known:
                self._silent_until = session.silent_until
            raise Unavailable(f"the draft does not answer within {self._timeout_s:g} s") from None
        finally:
            del self._pending[request.request_id]

    def _take(self, message: draft_pb2.ProposeResponse) -> None:
        answer = self._pending.get(message.request_id)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _came_up(self) -> None:
        task = asyncio.create_task(self._check())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _check(self) -> None:
        assert self._target is not None  # started
        described = await describe(
            self.link,
            lambda channel: draft_pb2_grpc.DraftServiceStub(channel).DescribeDraft,
            draft_pb2.DescribeDraftRequest(),
        )
        if described is None:
            return
        self.describe, self._silent_until = described, 0.0
        try:
            check_draft(described, self._target, self._vocabulary_digest)
            self.problem = None
        except FailedPrecondition as error:
            self.problem = error
        self.ready = self.link.connected and self.problem is None
        self._described.set()

    def _went_down(self, reason: str) -> None:
        self.ready = False
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(self.link.unavailable())
