"""The system in its containers: it answers, its regions are apart, its parts may fail, and it goes without a trace.

Needs the images (`make images`). One stack for all tests, in the order in which they stand: the last one removes it.
"""

import asyncio
import hashlib
import json
import os
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from shardflow.client import Completion, ShardflowClient
from shardflow.cluster import running
from shardflow.errors import Unavailable
from shardflow.topology import DEFAULT_DRAFT, Topology
from tests import containers
from tests.containers import FETCH, PROMPT, Stack

pytestmark = [pytest.mark.compose, pytest.mark.timeout(300)]

TOKENS = 24
SERVICES = ("orchestrator", "draft", "verifier-0", "verifier-1")
DIGEST = "import hashlib, sys; print(hashlib.sha256(b''.join(open(f, 'rb').read() for f in sys.argv[1:])).hexdigest())"
EVERY_CONTAINER = (*SERVICES, "model", "relay", "wanlink")


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with containers.stack(f"shardflow-test-{os.getpid()}") as made:
        asyncio.run(made.up())
        yield made


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[ShardflowClient]:
    async with ShardflowClient(stack.grpc) as made:
        yield made


async def ask(client: ShardflowClient, mode: str = "auto") -> Completion:
    return await client.complete(PROMPT, speculation=mode, max_tokens=TOKENS, timeout=60)


async def test_the_text_is_that_of_local_processes(client: ShardflowClient, tmp_path: Path) -> None:
    async with running(Topology(delay_ms=None), tmp_path) as cluster, ShardflowClient(cluster.address) as local:
        expected = await ask(local)
    answer = await ask(client)
    assert answer.text == expected.text
    assert answer.usage.accepted_tokens > 0


def test_one_http_request_streams_an_answer(stack: Stack) -> None:
    question = {"messages": [{"role": "user", "content": "Say hello."}], "stream": True, "max_tokens": 8}
    request = urllib.request.Request(
        f"http://{stack.http}/v1/chat/completions", json.dumps(question).encode(), {"content-type": "application/json"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as response:
        events = [line.decode().removeprefix("data: ").strip() for line in response if line.startswith(b"data: ")]
    assert events[-1] == "[DONE]"
    deltas = [json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events[:-1]]
    assert len([delta for delta in deltas if delta]) > 1


@pytest.mark.parametrize(
    ("service", "counter"),
    [
        ("orchestrator", 'shardflow_rounds_total{phase="decode"}'),
        ("draft", 'shardflow_draft_proposals_total{result="ok"}'),
        ("verifier-0", "shardflow_rows_total"),
        ("verifier-1", "shardflow_rows_total"),
    ],
)
def test_every_service_has_counted_its_work(stack: Stack, service: str, counter: str) -> None:
    page = stack.python(service, FETCH, "http://127.0.0.1:9090/metrics")
    assert value(page, counter) > 0


async def test_activations_cross_the_relay(stack: Stack, client: ShardflowClient) -> None:
    counter = 'shardflow_relay_bytes_total{route="verifier-1.shardflow.internal:50051",direction="up"}'
    before = value(stack.python("orchestrator", FETCH, "http://relay:9001/metrics"), counter)
    answer = await ask(client)
    after = value(stack.python("orchestrator", FETCH, "http://relay:9001/metrics"), counter)
    hidden_bytes = 576 * 4
    assert after - before >= (answer.usage.prompt_tokens + TOKENS - 1) * hidden_bytes


async def test_a_round_trip_to_the_other_region_takes_86_ms(client: ShardflowClient) -> None:
    shards = (await client.status()).shards
    assert shards[0].rtt_ms < shards[1].rtt_ms / 4
    assert shards[1].rtt_ms >= 86


def listeners(stack: Stack, *services: str) -> set[str]:
    """Where these services listen, on each of their networks."""
    ports = {"relay": 9000, "wanlink": 9100}
    return {f"{host}:{ports.get(service, 50051)}" for service in services for host in stack.addresses(service)}


@pytest.mark.parametrize("service", ["orchestrator", "draft", "verifier-0"])
def test_region_a_reaches_the_relay_but_not_what_is_behind_it(stack: Stack, service: str) -> None:
    beyond = listeners(stack, "verifier-1", "wanlink")
    assert len(beyond) == 3
    near = {"relay:9000", "verifier-0:50051"}
    assert stack.reached(service, *near, *beyond, "verifier-1:50051", "wanlink:9100") == near


def test_region_b_reaches_nothing_of_region_a(stack: Stack) -> None:
    beyond = listeners(stack, "orchestrator", "draft", "verifier-0", "relay")
    assert len(beyond) == 6
    assert stack.reached("verifier-1", "wanlink:9100", *beyond, "verifier-0:50051", "relay:9000") == {"wanlink:9100"}


@pytest.mark.parametrize("service", SERVICES)
def test_no_shard_is_published(stack: Stack, service: str) -> None:
    published = json.loads(stack.inspect(service, "{{json .NetworkSettings.Ports}}"))
    assert bool(any(published.values())) is (service == "orchestrator")


@pytest.mark.parametrize("service", EVERY_CONTAINER)
def test_every_container_is_confined(stack: Stack, service: str) -> None:
    state = json.loads(stack.inspect(service, "{{json .}}"))
    host = state["HostConfig"]
    assert state["Config"]["User"] == "10001:10001"
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["Memory"] > 0
    assert host["PidsLimit"] > 0


def test_the_orchestrator_has_no_torch(stack: Stack) -> None:
    spec = "import importlib.util as u; print(u.find_spec('torch'))"
    assert stack.python("orchestrator", spec) == "None"
    assert stack.python("verifier-0", spec) != "None"


def test_the_images_are_within_their_budgets() -> None:
    assert containers.run("scripts/image-sizes.sh").count("\n") == 3


@pytest.mark.parametrize(
    ("service", "named"), [("relay", "relay"), ("verifier-0", "shard 0"), ("verifier-1", "shard 1")]
)
async def test_a_lost_part_is_told_and_comes_back(
    stack: Stack, client: ShardflowClient, service: str, named: str
) -> None:
    expected = await ask(client)
    outage = await stack.outage(service)
    assert isinstance(outage.error, Unavailable)
    assert named in str(outage.error)
    assert (await ask(client)).text == expected.text


async def test_without_the_draft_the_text_goes_on(stack: Stack, client: ShardflowClient) -> None:
    expected = await ask(client, "linear:2")
    assert expected.usage.drafted_tokens > 0
    async with aclosing(client.generate(PROMPT, speculation="linear:2", max_tokens=TOKENS, timeout=60)) as chunks:
        texts = [(await anext(chunks)).text]
        containers.run("docker", "kill", stack.container("draft"))
        texts += [chunk.text async for chunk in chunks]
    assert "".join(texts) == expected.text
    assert (await ask(client, "linear:2")).usage.drafted_tokens == 0
    containers.run("docker", "start", stack.container("draft"))
    async with asyncio.timeout(60):
        while (await ask(client, "linear:2")).usage.drafted_tokens == 0:
            pass
    assert (await ask(client)).text == expected.text


async def test_a_shard_with_a_new_address_is_found(stack: Stack, client: ShardflowClient) -> None:
    expected = await ask(client)
    stack.compose("up", "--detach", "--force-recreate", "--no-deps", "verifier-1")
    await stack.first_token()
    assert (await ask(client)).text == expected.text


def test_the_volume_gets_the_head_of_the_repository_whatever_it_holds(stack: Stack) -> None:
    def held() -> str:
        return stack.python("draft", DIGEST, *(f"/models/smollm2-eagle/{name}" for name in names))

    names = ("config.json", "head.safetensors")
    files = (DEFAULT_DRAFT / name for name in names)
    expected = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    assert held() == expected
    spoil = "echo old >/models/smollm2-eagle/config.json"
    stack.compose("run", "--rm", "-T", "--entrypoint", "sh", "model", "-c", spoil)
    assert held() != expected
    stack.compose("run", "--rm", "-T", "model")
    assert held() == expected


def test_up_again_changes_nothing(stack: Stack) -> None:
    before = {service: stack.inspect(service, "{{.Id}} {{.State.StartedAt}}") for service in SERVICES}
    stack.compose("up", "--detach")
    assert {service: stack.inspect(service, "{{.Id}} {{.State.StartedAt}}") for service in SERVICES} == before
    assert "is there already" in stack.compose("logs", "model")


def test_down_leaves_nothing(stack: Stack) -> None:
    assert len(stack.left()) == len(EVERY_CONTAINER) + 4 + 1
    stack.compose("down", "--volumes")
    assert stack.left() == []


def value(page: str, series: str) -> float:
    """Value of one series of a Prometheus page."""
    line = next((line for line in page.splitlines() if line.startswith(f"{series} ")), None)
    assert line is not None, f"no {series} in\n{page}"
    return float(line.rsplit(" ", 1)[1])
