"""Who is answered where."""

import asyncio

import pytest

from services.verifier.peers import OUTBOX_MESSAGES, Peers, Stream
from shardflow.errors import ResourceExhausted
from shardflow.v1 import verifier_pb2

A = verifier_pb2.ConnectResponse(session_state=verifier_pb2.SessionState(session="a"))
B = verifier_pb2.ConnectResponse(session_state=verifier_pb2.SessionState(session="b"))


async def written(stream: Stream) -> list[verifier_pb2.ConnectResponse]:
    """What the stream has to write now."""
    messages: list[verifier_pb2.ConnectResponse] = []

    async def write(message: verifier_pb2.ConnectResponse) -> None:
        messages.append(message)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await stream.write_to(write)
    return messages


async def test_answers_keep_their_order() -> None:
    peers, stream = Peers(), Stream()
    peers.join("o", stream)
    peers.send("o", A)
    peers.send("o", B)
    assert await written(stream) == [A, B]


async def test_a_newer_stream_takes_over_and_the_older_ones_end_does_not_matter() -> None:
    peers, old, new = Peers(), Stream(), Stream()
    peers.join("o", old)
    peers.join("o", new)
    assert not peers.leave("o", old)
    peers.send("o", A)
    assert (await written(old), await written(new)) == ([], [A])
    assert peers.leave("o", new)
    assert not peers.has("o")


async def test_an_answer_without_a_stream_is_lost_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    Peers().send("nobody", A)
    assert [record.message for record in caplog.records] == ["an answer has no stream"]


async def test_too_much_unread_is_an_error() -> None:
    stream = Stream()
    watching = asyncio.create_task(stream.watch())
    for _ in range(OUTBOX_MESSAGES):
        stream.send(A)
    await asyncio.sleep(0)
    assert not watching.done()
    stream.send(A)
    with pytest.raises(ResourceExhausted, match="1024 messages were left unread"):
        await watching
