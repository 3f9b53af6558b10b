"""A link says hello first, keeps the order, measures the round trip, notices a dead peer, and comes back."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from shardflow.errors import InvalidArgument, Unavailable
from shardflow.link import Link, describe
from shardflow.v1 import link_pb2, verifier_pb2, verifier_pb2_grpc
from tests.fakes import Server
from tests.orchestrating import until


class Peer(verifier_pb2_grpc.VerifierServiceServicer):
    """Notes what it hears; pongs after `delay_s` unless it is dumb."""

    def __init__(self) -> None:
        self.heard: list[verifier_pb2.ConnectRequest] = []
        self.dumb = False
        self.delay_s = 0.0
        self.padded_delay_s = 0.0
        self.describable = True
        self.describes = 0
        self.server = Server(lambda server: verifier_pb2_grpc.add_VerifierServiceServicer_to_server(self, server))

    def kinds(self) -> list[str | None]:
        return [message.WhichOneof("message") for message in self.heard]

    def paddings(self) -> list[int]:
        return [len(message.ping.padding) for message in self.heard if message.HasField("ping")]

    async def Describe(self, request: Any, context: Any) -> verifier_pb2.DescribeResponse:
        self.describes += 1
        if not self.describable:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "loading")
        return verifier_pb2.DescribeResponse(model="m")

    async def Connect(self, requests: AsyncIterator[verifier_pb2.ConnectRequest], context: Any) -> None:
        async for request in requests:
            self.heard.append(request)
            if self.dumb:
                continue
            if request.HasField("ping"):
                await asyncio.sleep(self.padded_delay_s if request.ping.padding else self.delay_s)
                pong = link_pb2.Pong(sequence=request.ping.sequence, padding=request.ping.padding)
                await context.write(verifier_pb2.ConnectResponse(pong=pong))
            if request.HasField("query"):
                state = verifier_pb2.SessionState(session=request.query.session)
                await context.write(verifier_pb2.ConnectResponse(session_state=state))


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.server.start()
    yield peer
    await peer.server.stop()


LinkMaker = Callable[..., Link[Any, Any]]


@pytest.fixture
async def link_to() -> AsyncIterator[LinkMaker]:
    links: list[Link[Any, Any]] = []

    def make(address: str, relay: str | None = None, **callbacks: Any) -> Link[Any, Any]:
        link: Link[Any, Any] = Link(
            "the peer", address, relay, peer="me", wrap=verifier_pb2.ConnectRequest,
            open_stream=lambda channel: verifier_pb2_grpc.VerifierServiceStub(channel).Connect(),
            on_message=callbacks.pop("on_message", lambda message: None), **callbacks,
        )  # fmt: skip
        link.start()
        links.append(link)
        return link

    yield make
    for link in links:
        await link.close()


def query(session: str) -> verifier_pb2.ConnectRequest:
    return verifier_pb2.ConnectRequest(query=verifier_pb2.Query(session=session))


def test_a_relay_that_would_be_bypassed_is_refused_at_the_start(
    link_to: LinkMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", ".internal")
    with pytest.raises(InvalidArgument, match=r"no_proxy excludes v1\.internal"):
        link_to("v1.internal:1", relay="127.0.0.1:1")


async def test_hello_comes_first(peer: Peer, link_to: LinkMaker) -> None:
    await link_to(peer.server.peer.address).wait_connected(3)
    assert peer.heard[0].hello.peer == "me"
    assert peer.kinds()[:2] == ["hello", "ping"]


async def test_messages_keep_their_order(peer: Peer, link_to: LinkMaker) -> None:
    answers: list[str] = []
    link = link_to(peer.server.peer.address, on_message=lambda message: answers.append(message.session_state.session))
    await link.wait_connected(3)
    for number in range(200):
        link.send(query(str(number)))
    await until(lambda: len(answers) == 200)
    assert answers == [str(number) for number in range(200)]


async def test_the_first_pings_are_padded_more_and_more_and_later_ones_are_not(peer: Peer, link_to: LinkMaker) -> None:
    await link_to(peer.server.peer.address).wait_connected(3)
    await until(lambda: len(peer.paddings()) >= 8)
    assert [padding for padding in peer.paddings() if padding] == [65536, 131072, 262144, 524288, 1048576]
    assert peer.paddings()[0] == 0
    assert peer.paddings()[-1] == 0


async def test_a_slow_path_is_not_filled_with_padding(peer: Peer, link_to: LinkMaker) -> None:
    peer.padded_delay_s = 0.9
    link = link_to(peer.server.peer.address)
    await link.wait_connected(3)
    await until(lambda: len(peer.paddings()) >= 10)
    assert [padding for padding in peer.paddings() if padding] == [65536]
    assert link.connected


async def test_round_trip(peer: Peer, link_to: LinkMaker) -> None:
    peer.delay_s = 0.03
    link = link_to(peer.server.peer.address)
    assert link.rtt_ms == 0
    await link.wait_connected(3)
    assert 30 <= link.rtt_ms < 60


async def test_nothing_can_be_sent_while_it_is_down(peer: Peer, link_to: LinkMaker) -> None:
    await peer.server.stop()
    link = link_to(peer.server.peer.address)
    with pytest.raises(
        Unavailable, match=f"the peer at 127.0.0.1:{peer.server.port} can not be reached: not tried yet"
    ):
        link.send(query("x"))
    with pytest.raises(Unavailable, match="can not be reached: UNAVAILABLE"):
        await link.wait_connected(0.3)


async def test_it_comes_back(peer: Peer, link_to: LinkMaker) -> None:
    events: list[str] = []
    link = link_to(
        peer.server.peer.address, on_up=lambda: events.append("up"), on_down=lambda reason: events.append("down")
    )
    await link.wait_connected(3)
    for _ in range(2):
        await peer.server.stop()
        await until(lambda: not link.connected)
        peer.heard.clear()
        await peer.server.start()
        await link.wait_connected(3)
        assert peer.kinds()[:2] == ["hello", "ping"]
    assert events == ["up", "down", "up", "down", "up"]


async def test_it_is_there_when_the_peer_is(peer: Peer, link_to: LinkMaker) -> None:
    await peer.server.stop()
    link = link_to(peer.server.peer.address)
    with pytest.raises(Unavailable):
        await link.wait_connected(0.5)
    await peer.server.start()
    await link.wait_connected(4)


async def test_a_peer_that_falls_silent(peer: Peer, link_to: LinkMaker) -> None:
    reasons: list[str] = []
    link = link_to(peer.server.peer.address, on_down=reasons.append)
    await link.wait_connected(3)
    began = time.monotonic()
    peer.dumb = True
    await until(lambda: reasons)
    assert reasons == ["no answer for 3 s"]
    assert 2.5 < time.monotonic() - began < 4


async def test_a_peer_that_accepts_and_says_nothing(link_to: LinkMaker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the kernel accepts, nobody reads
        link = link_to(f"127.0.0.1:{listener.getsockname()[1]}")
        await until(lambda: "timed out" in link.last_error, timeout_s=4.5)
        assert not link.connected
        await link.close()


async def test_a_message_that_can_not_be_taken(peer: Peer, link_to: LinkMaker) -> None:
    taken: list[str] = []

    def take(message: verifier_pb2.ConnectResponse) -> None:
        if message.session_state.session == "bad":
            raise ValueError("not understood")
        taken.append(message.session_state.session)

    reasons: list[str] = []
    link = link_to(peer.server.peer.address, on_message=take, on_down=reasons.append)
    await link.wait_connected(3)
    link.send(query("bad"))
    await until(lambda: reasons)
    await link.wait_connected(3)
    link.send(query("good"))
    await until(lambda: taken == ["good"])
    assert reasons == ["ValueError: not understood"]


async def test_what_is_queued_is_written_before_it_closes(peer: Peer, link_to: LinkMaker) -> None:
    link = link_to(peer.server.peer.address)
    await link.wait_connected(3)
    for number in range(50):
        link.send(query(str(number)))
    await link.close()
    await until(lambda: peer.kinds().count("query") == 50)
    assert not link.connected


async def test_describe_asks_until_the_peer_is_ready(peer: Peer, link_to: LinkMaker) -> None:
    peer.describable = False
    link = link_to(peer.server.peer.address)
    await link.wait_connected(3)
    asking = asyncio.create_task(describe(link, stub_describe, verifier_pb2.DescribeRequest()))
    await until(lambda: peer.describes == 1)
    peer.describable = True
    answer = await asking
    assert answer.model == "m"


async def test_describe_gives_up_with_its_stream(peer: Peer, link_to: LinkMaker) -> None:
    peer.describable = False
    link = link_to(peer.server.peer.address)
    await link.wait_connected(3)
    asking = asyncio.create_task(describe(link, stub_describe, verifier_pb2.DescribeRequest()))
    await until(lambda: peer.describes == 1)
    await peer.server.stop()
    assert await asking is None


def stub_describe(channel: Any) -> Any:
    return verifier_pb2_grpc.VerifierServiceStub(channel).Describe
