"""An orchestrator that says what a test wrote down, on a real socket."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from shardflow.v1 import orchestrator_pb2 as pb
from shardflow.v1 import orchestrator_pb2_grpc as rpc


class FakeOrchestrator(rpc.OrchestratorServiceServicer):
    """Streams `replies`, then fails with `failure`, or hangs if told so."""

    def __init__(
        self,
        replies: Sequence[pb.GenerateResponse] = (),
        failure: tuple[grpc.StatusCode, str] | None = None,
        hang: bool = False,
        state: pb.GetStatusResponse | None = None,
    ) -> None:
        self.replies = replies
        self.failure = failure
        self.hang = hang
        self.state = state or pb.GetStatusResponse()
        self.requests: list[pb.GenerateRequest] = []
        self.cancelled = asyncio.Event()

    async def Generate(self, request: pb.GenerateRequest, context: Any) -> AsyncIterator[pb.GenerateResponse]:
        self.requests.append(request)
        try:
            for reply in self.replies:
                yield reply
            if self.hang:
                await asyncio.Event().wait()
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise
        if self.failure is not None:
            await context.abort(*self.failure)

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        return self.state


@asynccontextmanager
async def served(orchestrator: FakeOrchestrator) -> AsyncIterator[str]:
    """Serves it; gives its address."""
    server = grpc.aio.server()
    servicer = health.aio.HealthServicer()
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    rpc.add_OrchestratorServiceServicer_to_server(orchestrator, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(grace=None)


def answer(*texts: str, source: int = pb.TOKEN_SOURCE_TARGET) -> list[pb.GenerateResponse]:
    """One message for each text, a token each, ids from 1 on; the last one ends the answer."""
    replies = [
        pb.GenerateResponse(request_id="r1", text=text, tokens=[pb.Token(id=index, text=text, source=source)])
        for index, text in enumerate(texts, start=1)
    ]
    usage = pb.Usage(prompt_tokens=3, completion_tokens=len(texts), rounds=2, drafted_tokens=8, accepted_tokens=1)
    replies[-1].MergeFrom(pb.GenerateResponse(finish_reason=pb.FINISH_REASON_STOP, usage=usage, seed=7))
    return replies
