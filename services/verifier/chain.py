"""The next shard of the chain: dialled, checked to continue this one each time its stream comes up, and sent slices."""

import asyncio
import logging
from collections.abc import Callable

from shardflow.config import Peer
from shardflow.errors import FailedPrecondition, ShardflowError
from shardflow.link import Link, describe
from shardflow.v1 import link_pb2, verifier_pb2, verifier_pb2_grpc

logger = logging.getLogger(__name__)

WAITING_LOG_S = 5.0


class NextShard:
    """The shard that holds the layers behind ours."""

    def __init__(
        self,
        mine: verifier_pb2.DescribeResponse,
        where: Peer,
        *,
        peer: str,
        on_lost: Callable[[ShardflowError], None],
    ) -> None:
        """`on_lost` is called with the reason when a link that was up goes down."""
        self._mine = mine
        self._on_lost = on_lost
        self._checked = asyncio.Event()
        self._mismatch: FailedPrecondition | None = None
        self._check: asyncio.Task[None] | None = None
        self._link: Link[verifier_pb2.ConnectRequest, verifier_pb2.ConnectResponse] = Link(
            "the next shard",
            where.address,
            where.relay,
            peer=peer,
            open_stream=lambda channel: verifier_pb2_grpc.VerifierServiceStub(channel).Connect(),
            wrap=verifier_pb2.ConnectRequest,
            on_message=_ignore,
            on_up=self._begin_check,
            on_down=self._lost,
        )

    async def start(self) -> None:
        """Returns when the shard is reached and continues ours; waits for as long as it takes.

        Raises FailedPrecondition if it holds other layers, another model or another dtype.
        """
        self._link.start()
        while not self._checked.is_set():
            try:
                async with asyncio.timeout(WAITING_LOG_S):
                    await self._checked.wait()
            except TimeoutError:
                logger.info("waiting for the next shard: %s", self._link.unavailable())
        if self._mismatch is not None:
            raise self._mismatch

    async def close(self) -> None:
        """Ends the link."""
        if self._check is not None:
            self._check.cancel()
        await self._link.close()

    def status(self, dialler: str) -> link_pb2.LinkStatus:
        """How the link stands."""
        return self._link.status(dialler, "the next shard")

    def send(self, request: verifier_pb2.ConnectRequest) -> None:
        """Queues a slice; Unavailable while the shard can not be reached, FailedPrecondition if it does not fit."""
        if self._mismatch is not None:
            raise FailedPrecondition(str(self._mismatch))
        if not self._checked.is_set():
            raise self._link.unavailable()
        self._link.send(request)

    def _begin_check(self) -> None:
        self._check = asyncio.create_task(self._compare())

    async def _compare(self) -> None:
        theirs = await describe(
            self._link,
            lambda channel: verifier_pb2_grpc.VerifierServiceStub(channel).Describe,
            verifier_pb2.DescribeRequest(),
        )
        if theirs is None:
            return
        self._mismatch = mismatch(self._mine, theirs)
        if self._mismatch is not None:
            logger.error("the next shard does not fit: %s", self._mismatch)
        self._checked.set()

    def _lost(self, reason: str) -> None:
        if self._check is not None:
            self._check.cancel()
        self._checked.clear()
        self._mismatch = None
        self._on_lost(self._link.unavailable())


def mismatch(mine: verifier_pb2.DescribeResponse, theirs: verifier_pb2.DescribeResponse) -> FailedPrecondition | None:
    """Why `theirs` can not follow `mine`, or None if it can."""
    if theirs.first_layer != mine.last_layer:
        return FailedPrecondition(
            f"the next shard holds layers [{theirs.first_layer}, {theirs.last_layer}), ours end at {mine.last_layer}"
        )
    for field in ("model_digest", "num_layers", "hidden_size", "dtype"):
        if getattr(mine, field) != getattr(theirs, field):
            return FailedPrecondition(
                f"the next shard has {field} {getattr(theirs, field)}, ours is {getattr(mine, field)}"
            )
    return None


def _ignore(response: verifier_pb2.ConnectResponse) -> None:
    """The next shard answers orchestrators, not us."""
    logger.warning("the next shard sent an unexpected %s", response.WhichOneof("message"))
