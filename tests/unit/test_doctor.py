"""What the doctor finds in a deployment."""

from collections.abc import Callable

import grpc
import pytest

from shardflow.doctor import examine, read
from shardflow.v1 import orchestrator_pb2 as pb
from shardflow.v1 import tensor_pb2
from tests import deployments
from tests.fake_orchestrator import FakeOrchestrator, answer, served

Spoil = Callable[[pb.GetStatusResponse], None]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy variables but those of a test."""
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)


async def found(address: str) -> list[tuple[bool, str]]:
    return [(finding.ok, finding.text) async for finding in examine(address)]


def texts(state: pb.GetStatusResponse, *, ok: bool) -> list[str]:
    return [finding.text for finding in read(state) if finding.ok is ok]


def test_a_healthy_deployment_has_a_line_for_each_part() -> None:
    state = deployments.healthy()
    assert texts(state, ok=False) == []
    assert texts(state, ok=True) == [
        "link orchestrator → shard 0 (v0:50051, direct): round trip 0.5 ms, at least 8000 Mbit/s",
        "link orchestrator → shard 1 (v1:50051, through the relay r:9000): round trip 86.2 ms, at least 100 Mbit/s",
        "link orchestrator → draft (d:50051, direct): round trip 0.4 ms, bandwidth not measured yet",
        "link shard 0 → shard 1 (v1:50051, through the relay r:9000): round trip 86.4 ms, at least 98 Mbit/s",
        "layers 0:15, 15:30 of 30",
        "weights: digest 0123456789ab, BF16 on all shards",
        "versions: 0.1.0 everywhere",
        "draft head fits; 0.300 of its guesses were accepted",
        "clock of shard 0: +2 ms against the orchestrator's, ±1 ms",
        "clock of shard 1: -20 ms against the orchestrator's, ±43 ms",
        "proxy variables of this environment: none would bypass the relay",
    ]


def lost_link(state: pb.GetStatusResponse) -> None:
    state.links[3].connected = False


def gap(state: pb.GetStatusResponse) -> None:
    state.shards[1].describe.first_layer = 16


def missing_end(state: pb.GetStatusResponse) -> None:
    state.shards[1].describe.last_layer = 29


def other_weights(state: pb.GetStatusResponse) -> None:
    state.shards[1].describe.model_digest = "ffffffffffffffff"


def other_dtype(state: pb.GetStatusResponse) -> None:
    state.shards[1].describe.dtype = tensor_pb2.ELEMENT_TYPE_F16


def old_shard(state: pb.GetStatusResponse) -> None:
    state.shards[1].describe.version = "0.0.9"


def old_draft(state: pb.GetStatusResponse) -> None:
    state.draft.describe.version = "0.0.9"


def foreign_draft(state: pb.GetStatusResponse) -> None:
    state.draft.problem = "the draft head has another vocabulary than the target"


def wrong_clock(state: pb.GetStatusResponse) -> None:
    state.shards[1].clock_offset_ms = 1100


def refusing(state: pb.GetStatusResponse) -> None:
    state.problem = "draining"


def silent_shard(state: pb.GetStatusResponse) -> None:
    state.shards[1].ClearField("describe")


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lost_link, "link shard 0 → shard 1 (v1:50051, through the relay r:9000) is down"),
        (gap, "layers 0:15, 16:30 of 30: gaps or overlaps"),
        (missing_end, "layers 0:15, 15:29 of 30: gaps or overlaps"),
        (other_weights, "weights differ: shard 0 0123456789ab BF16, shard 1 ffffffffffff BF16"),
        (other_dtype, "weights differ: shard 0 0123456789ab BF16, shard 1 0123456789ab F16"),
        (
            old_shard,
            "versions differ: this command 0.1.0, orchestrator 0.1.0, shard 0 0.1.0, shard 1 0.0.9, draft 0.1.0",
        ),
        (
            old_draft,
            "versions differ: this command 0.1.0, orchestrator 0.1.0, shard 0 0.1.0, shard 1 0.1.0, draft 0.0.9",
        ),
        (foreign_draft, "draft is not used: the draft head has another vocabulary than the target"),
        (wrong_clock, "clock of shard 1: +1100 ms against the orchestrator's, ±43 ms"),
        (refusing, "requests are refused: draining"),
        (silent_shard, "shard 1 has not said what it holds"),
    ],
)
def test_one_thing_that_is_wrong_is_one_fault(spoil: Spoil, fault: str) -> None:
    state = deployments.healthy()
    spoil(state)
    assert texts(state, ok=False) == [fault]


def test_a_clock_that_may_be_right_is_no_fault() -> None:
    state = deployments.healthy()
    state.shards[1].clock_offset_ms = -1040
    assert texts(state, ok=False) == []


@pytest.mark.parametrize("variable", ["no_proxy", "no_grpc_proxy"])
def test_variables_that_would_bypass_the_relay(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "localhost,v1")
    assert texts(deployments.healthy(), ok=False) == [
        "proxy variables of this environment: no_proxy excludes v1 by 'v1': gRPC would bypass the relay r:9000"
    ]


def test_where_nothing_is_relayed_proxies_are_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "v1")
    state = deployments.healthy()
    for link in state.links:
        link.relay = ""
    assert [finding.text for finding in read(state) if "proxy" in finding.text] == []


def test_no_draft_is_no_fault() -> None:
    state = deployments.healthy()
    state.ClearField("draft")
    assert "draft: none, every token takes a round trip" in texts(state, ok=True)


async def test_it_begins_with_the_orchestrator_and_ends_with_a_token() -> None:
    fake = FakeOrchestrator(answer("x"), state=deployments.healthy())
    async with served(fake) as address:
        findings = await found(address)
    assert all(ok for ok, _ in findings)
    assert findings[0][1].startswith(f"orchestrator {address} is ready, ")
    assert findings[-1][1].startswith("a request for one token is answered after ")
    assert fake.requests[0].max_tokens == 1


async def test_a_request_that_fails_is_a_fault() -> None:
    fake = FakeOrchestrator(failure=(grpc.StatusCode.INTERNAL, "not finite"), state=deployments.healthy())
    async with served(fake) as address:
        assert (await found(address))[-1] == (False, f"a request for one token fails: {address}: not finite")


async def test_nobody_at_the_address_is_the_only_finding() -> None:
    ((ok, text),) = await found("127.0.0.1:1")
    assert not ok
    assert text.startswith("orchestrator 127.0.0.1:1 can not be reached: ")
