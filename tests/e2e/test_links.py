"""What a link finds out about its path, over an emulated one of known delay and rate."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shardflow.link import Link
from shardflow.topology import relay_binary
from shardflow.v1 import draft_pb2, draft_pb2_grpc
from tests.fakes import FakeDraft

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@asynccontextmanager
async def wanlink(to: str, *flags: str) -> AsyncIterator[str]:
    """An emulated link to `to`; gives its address."""
    process = await asyncio.create_subprocess_exec(
        relay_binary(), "wanlink", "--listen", "127.0.0.1:0", "--to", to, *flags, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(10):
            while (line := json.loads(await process.stdout.readline())).get("message") != "listening":
                pass
        yield line["address"]
    finally:
        process.kill()
        await process.communicate()


@pytest.mark.parametrize("megabits", [20, 100])
async def test_a_link_measures_round_trip_and_bandwidth(megabits: int) -> None:
    draft = FakeDraft()
    await draft.server.start()
    async with wanlink(draft.server.peer.address, "--delay-ms", "20", "--rate-mbit", str(megabits)) as address:
        link: Link[draft_pb2.ProposeRequest, draft_pb2.ProposeResponse] = Link(
            "draft", address, None, peer="me", wrap=draft_pb2.ProposeRequest, on_message=lambda message: None,
            open_stream=lambda channel: draft_pb2_grpc.DraftServiceStub(channel).Propose(),
        )  # fmt: skip
        link.start()
        await link.wait_connected(5)
        await asyncio.sleep(4)  # the warm-up: five padded heartbeats, 0.2 s and one exchange each
        status = link.status("orchestrator", "draft")
        await link.close()
    await draft.server.stop()
    assert (status.dialler, status.peer, status.connected) == ("orchestrator", "draft", True)
    assert 40 <= status.rtt_ms < 50
    assert 0.7 * megabits < status.bytes_per_second / 125_000 < 1.05 * megabits
