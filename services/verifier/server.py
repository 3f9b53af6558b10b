"""The gRPC face of a verifier shard: Describe and Connect, and the life of the process's one shard."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc.aio
import torch

from services.verifier import codec
from services.verifier.config import VerifierSettings
from services.verifier.peers import Stream
from services.verifier.shard import Shard, load
from shardflow.engine import ModelSlice
from shardflow.errors import InvalidArgument, ShardflowError, Unavailable
from shardflow.metrics import VerifierMetrics
from shardflow.refusals import refuse
from shardflow.streams import check_name, pong
from shardflow.v1 import verifier_pb2, verifier_pb2_grpc

logger = logging.getLogger(__name__)

MAX_RELEASED = 4096  # sessions in one message
_LAST_WRITE_S = 1.0

Requests = AsyncIterator[verifier_pb2.ConnectRequest]
Context = grpc.aio.ServicerContext[Any, Any]


class VerifierService(verifier_pb2_grpc.VerifierServiceServicer):
    """Serves one shard; see `shardflow.serving.Service`."""

    name = "verifier"
    service_names = (verifier_pb2.DESCRIPTOR.services_by_name["VerifierService"].full_name,)

    def __init__(
        self,
        settings: VerifierSettings,
        metrics: VerifierMetrics,
        load_model: Callable[[VerifierSettings], ModelSlice] = load,
    ) -> None:
        """`load_model` runs on the thread that will compute."""
        self._settings = settings
        self._load_model = load_model
        self._metrics = metrics
        threads = settings.threads or torch.get_num_threads()
        self._thread = ThreadPoolExecutor(1, "forward", torch.set_num_threads, (threads,))
        self.shard: Shard | None = None

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the service to a server."""
        verifier_pb2_grpc.add_VerifierServiceServicer_to_server(self, server)

    async def start(self) -> None:
        """Loads the weights, then waits for the next shard; raises if the one or the other does not fit."""
        model = await asyncio.get_running_loop().run_in_executor(self._thread, self._load_model, self._settings)
        self.shard = Shard(self._settings, model, self._thread, self._metrics)
        await self.shard.start()

    async def drain(self) -> None:
        """Returns when all sessions have been released; further ones are refused."""
        if self.shard is not None:
            await self.shard.pipeline.drain()

    async def close(self) -> None:
        """Ends everything."""
        if self.shard is not None:
            await self.shard.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def Describe(self, request: verifier_pb2.DescribeRequest, context: Context) -> verifier_pb2.DescribeResponse:
        """What this shard holds."""
        try:
            return self._loaded().describe()
        except Unavailable as error:
            await refuse(context, error)

    async def Connect(self, requests: Requests, context: Context) -> None:
        """One peer's stream, for as long as it lasts; a message that is no part of the protocol ends it."""
        try:
            await Conversation(self._loaded()).run(requests, context)
        except ShardflowError as error:
            logger.warning("stream ended: %s", error)
            await refuse(context, error)

    def _loaded(self) -> Shard:
        if self.shard is None:
            raise Unavailable("the weights are being loaded")
        return self.shard


class Conversation:
    """One stream with one peer."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._stream = Stream()
        self._peer = ""

    async def run(self, requests: Requests, context: Context) -> None:
        """Reads and writes until the peer ends the stream; raises ShardflowError for a peer that breaks the rules."""
        writing = asyncio.create_task(self._stream.write_to(context.write))
        tasks = [asyncio.create_task(self._read(requests)), writing, asyncio.create_task(self._stream.watch())]
        try:
            done, _ = await asyncio.wait([*tasks, self._shard.running], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            # gRPC can not send the status of a stream that it is still writing to: the peer would wait for ever.
            self._stream.end()
            await asyncio.wait([writing], timeout=_LAST_WRITE_S)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._leave()

    async def _read(self, requests: Requests) -> None:
        async for request in requests:
            kind = request.WhichOneof("message")
            if not self._peer:
                self._greet(request)
            elif kind == "slice":
                check_name("slice.origin", request.slice.origin)
                check_name("slice.session", request.slice.session)
                self._shard.pipeline.submit(request)
            elif kind == "ping":
                self._stream.send(verifier_pb2.ConnectResponse(pong=pong(request.ping)))
            elif kind == "release":
                self._release(request.release.sessions)
            elif kind == "query":
                self._tell(request.query.session)
            else:
                raise InvalidArgument(f"{kind or 'an unknown message'} has no place here")

    def _release(self, sessions: Sequence[str]) -> None:
        if len(sessions) > MAX_RELEASED:
            raise InvalidArgument(f"release.sessions: {len(sessions)} where at most {MAX_RELEASED} were expected")
        for session in sessions:
            check_name("release.sessions", session)
            self._shard.pipeline.release((self._peer, session))

    def _tell(self, session: str) -> None:
        check_name("query.session", session)
        state = codec.session_state(session, self._shard.table.get((self._peer, session)))
        self._stream.send(verifier_pb2.ConnectResponse(session_state=state))

    def _greet(self, request: verifier_pb2.ConnectRequest) -> None:
        if not request.hello.peer:
            raise InvalidArgument("the first message of a stream must be a Hello with the name of the peer")
        check_name("hello.peer", request.hello.peer)
        self._peer = request.hello.peer
        self._shard.peers.join(self._peer, self._stream)
        self._shard.table.connect(self._peer)
        logger.info("peer connected", extra={"peer": self._peer})

    def _leave(self) -> None:
        if self._peer and self._shard.peers.leave(self._peer, self._stream):
            self._shard.table.disconnect(self._peer, time.monotonic())
            logger.info("peer gone", extra={"peer": self._peer})
