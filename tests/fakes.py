"""A scripted target and draft as real gRPC servers without torch; each can be stopped, restarted, made to misbehave."""

import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc.aio

from shardflow.config import Peer
from shardflow.serving import create_server
from shardflow.v1 import draft_pb2, draft_pb2_grpc, link_pb2, verifier_pb2_grpc
from tests.fake_shards import MAX_SESSION_TOKENS, FakeShard
from tests.scripts import VOCAB, NextToken, letters


class Server:
    """One servicer on a port that stays the same over stops and starts."""

    def __init__(self, register: Callable[[grpc.aio.Server], None]) -> None:
        self.register = register
        self.port = 0
        self._server: grpc.aio.Server | None = None

    @property
    def running(self) -> bool:
        return self._server is not None

    @property
    def peer(self) -> Peer:
        return Peer(f"127.0.0.1:{self.port}")

    async def start(self) -> None:
        self._server = create_server()
        self.register(self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(grace=None)


class Target:
    """The shards of one scripted target, each behind its own port."""

    def __init__(self, next_token: NextToken = letters, shards: int = 2) -> None:
        self._next_token = next_token
        self.shards = [self._shard(index, shards) for index in range(shards)]
        self.servers = [Server(self._register(index)) for index in range(shards)]
        self.gone: list[FakeShard] = []

    @property
    def peers(self) -> tuple[Peer, ...]:
        return tuple(server.peer for server in self.servers)

    @property
    def last(self) -> FakeShard:
        return self.shards[-1]

    @property
    def violations(self) -> list[str]:
        return [violation for shard in [*self.shards, *self.gone] for violation in shard.violations]

    async def start(self) -> None:
        for server in self.servers:
            await server.start()

    async def stop(self) -> None:
        for server in self.servers:
            await server.stop()

    async def restart(self, index: int) -> None:
        """A shard dies, and a fresh one with no sessions takes its port."""
        await self.servers[index].stop()
        self.gone.append(self.shards[index])
        self.shards[index] = self._shard(index, len(self.shards))
        await self.servers[index].start()

    def _shard(self, index: int, count: int) -> FakeShard:
        shard = FakeShard(f"shard-{index}", (index, index + 1), count, self._next_token)
        shard.following = lambda: self._running(index + 1)
        return shard

    def _running(self, index: int) -> FakeShard | None:
        return self.shards[index] if index < len(self.shards) and self.servers[index].running else None

    def _register(self, index: int) -> Callable[[grpc.aio.Server], None]:
        return lambda server: verifier_pb2_grpc.add_VerifierServiceServicer_to_server(self.shards[index], server)


class FakeDraft(draft_pb2_grpc.DraftServiceServicer):
    """A draft that guesses a chain by `guess`; with `hidden_size` 1 it insists on the states that the shards sent."""

    def __init__(self, guess: NextToken = letters, *, hidden_size: int = 0) -> None:
        self.description = draft_pb2.DescribeDraftResponse(
            model="guess", vocab_size=VOCAB, hidden_size=hidden_size, max_session_tokens=MAX_SESSION_TOKENS
        )
        self.failing = False
        self.silent = False
        self.shape: Callable[[draft_pb2.Tree], None] = lambda tree: None  # a last change to every tree
        self.sessions: dict[str, list[int]] = {}
        self.extends: list[draft_pb2.Extend] = []
        self.violations: list[str] = []
        self.server = Server(lambda server: draft_pb2_grpc.add_DraftServiceServicer_to_server(self, server))
        self._guess = guess

    async def DescribeDraft(self, request: Any, context: Any) -> draft_pb2.DescribeDraftResponse:
        return self.description

    async def Propose(self, requests: AsyncIterator[draft_pb2.ProposeRequest], context: Any) -> None:
        async for request in requests:
            kind = request.WhichOneof("action")
            if kind == "ping":
                pong = link_pb2.Pong(sequence=request.ping.sequence, padding=request.ping.padding)
                await context.write(draft_pb2.ProposeResponse(pong=pong))
            elif kind == "forget":
                self.sessions.pop(request.session, None)
            elif kind == "extend":
                self.extends.append(request.extend)
                if not self.silent:
                    answer = self._extend(request.session, request.extend)
                    answer.request_id, answer.session = request.request_id, request.session
                    await context.write(answer)

    def _extend(self, session: str, extend: draft_pb2.Extend) -> draft_pb2.ProposeResponse:
        known = self.sessions.get(session, [])
        if self.failing:
            return draft_pb2.ProposeResponse(failure=draft_pb2.DraftFailure(code=13, message="broken"))
        if extend.base > len(known):
            failure = draft_pb2.DraftFailure(code=9, message="a gap", known_tokens=len(known))
            return draft_pb2.ProposeResponse(failure=failure)
        text = self.sessions[session] = [*known[: extend.base], *extend.tokens]
        self._check(extend, len(text))
        tree = draft_pb2.Tree()
        for node in range(min(extend.max_nodes, extend.max_depth)):
            tree.tokens.append(self._guess([*text, *tree.tokens]))
            tree.parents.append(node - 1)
            tree.logprobs.append(-0.5)
        self.shape(tree)
        return draft_pb2.ProposeResponse(tree=tree)

    def _check(self, extend: draft_pb2.Extend, length: int) -> None:
        if not extend.tokens and extend.base != length:
            self.violations.append("draft: no token")
        if self.description.hidden_size:
            count = length - max(extend.base, extend.prompt_tokens)  # of output tokens told
            wanted = [float(position) for position in range(length - count - 1, length - 1)]
            got = list(struct.unpack(f"<{len(extend.hidden.data) // 4}f", extend.hidden.data))
            if got != wanted:
                self.violations.append(f"draft: states of positions {got}, not {wanted}")


StartDraft = Callable[[FakeDraft], Awaitable[FakeDraft]]
"""A fixture that starts a draft and stops it in the end."""
