"""300 hostile messages to every method: each is answered or refused, nothing stays behind, the next is right."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from shardflow.transport import open_channel
from shardflow.v1 import draft_pb2, link_pb2, orchestrator_pb2, tensor_pb2, verifier_pb2
from tests.contract.messages import MESSAGES
from tests.fuzz.deployment import Deployment, Host, deployed, resident_mib, settled, write_models
from tests.fuzz.mutating import payloads
from tests.integration.verifier.harness import make_setup, make_slice
from tests.orchestrating import ask, until

Request, Propose = verifier_pb2.ConnectRequest, draft_pb2.ProposeRequest
ANSWERS = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}

MESSAGE = settings(
    max_examples=300, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
STREAM = settings(MESSAGE, max_examples=100)


class Bench:
    """A deployment on a loop of its own, and a client that gets its text whatever others send."""

    def __init__(self, runner: asyncio.Runner, deployment: Deployment, expected: str) -> None:
        self.run: Callable[[Coroutine[Any, Any, Any]], Any] = runner.run
        self.deployment = deployment
        self.expected = expected
        self.sent = 0
        self._channels: dict[str, grpc.aio.Channel] = {}

    def host(self, name: str) -> Host:
        """The service of that name."""
        first, last = self.deployment.shards
        return {
            "shard": first, "last shard": last, "draft": self.deployment.draft,
            "orchestrator": self.deployment.orchestrator,
        }[name]  # fmt: skip

    def channel(self, host: Host) -> grpc.aio.Channel:
        """The one channel of the hostile client."""
        if host.address not in self._channels:
            self._channels[host.address] = open_channel(host.address, relay=None)
        return self._channels[host.address]

    async def close(self) -> None:
        """Hangs up."""
        for channel in self._channels.values():
            await channel.close()

    async def unary(self, host: Host, path: str, payload: bytes) -> grpc.StatusCode:
        """The status of a call with one message."""
        self.sent += 1
        method = f"/shardflow.v1.{path}"
        if not path.endswith("Generate"):
            return await self.channel(host).unary_unary(method)(payload, timeout=10).code()
        call = self.channel(host).unary_stream(method)(payload, timeout=10)
        with suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                pass
        return await call.code()

    async def stream(self, host: Host, path: str, payloads: list[bytes]) -> grpc.StatusCode:
        """The status of a stream that says all that and hangs up."""
        self.sent += len(payloads)
        call = self.channel(host).stream_stream(f"/shardflow.v1.{path}")(timeout=20)
        with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):  # the service may end it before
            for payload in payloads:
                await call.write(payload)
            await call.done_writing()
            while await call.read() is not grpc.aio.EOF:
                pass
        if await call.details() == "Internal error from Core":  # the client's, which was still writing at the end
            return grpc.StatusCode.OK
        return await call.code()

    async def text(self) -> str:
        """What a good request brings now."""
        return (await self.deployment.generate("hello", k=4, max_tokens=24)).text


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    models = write_models(tmp_path_factory.mktemp("fuzz"))
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        deployment = runner.run(stack.enter_async_context(deployed(models)))
        expected = runner.run(deployment.generate("hello", k=0, max_tokens=24)).text
        bench = Bench(runner, deployment, expected)
        yield bench
        runner.run(bench.close())
        runner.run(stack.aclose())


@pytest.fixture(autouse=True)
def unharmed(bench: Bench) -> Iterator[None]:
    """Another client's text is right during and after, and what was held for the hostile one is not held any more."""
    before = bench.run(bench.deployment.tasks())
    resident, bench.sent = resident_mib(), 0
    witness = bench.run(_start(bench.text()))
    yield
    assert bench.run(witness) == bench.expected
    assert bench.run(bench.text()) == bench.expected
    bench.run(until(lambda: not any(bench.deployment.held().values()), 15))
    bench.run(settled(before))
    assert resident_mib() - resident < 192
    assert bench.sent >= 300


async def _start(work: Coroutine[Any, Any, Any]) -> Any:
    task = asyncio.create_task(work)

    async def result() -> Any:
        return await task

    return result()


GENERATE = [
    MESSAGES["text"], MESSAGES["token ids"], MESSAGES["chat"], ask("hello", k=4, max_tokens=4),
    ask("hello", max_tokens=2, logprobs=True, top_logprobs=3, stop=["x"], sampling={"temperature": 1, "seed": 3}),
    orchestrator_pb2.GenerateRequest(token_ids={"ids": [1, 2, 3]}, max_tokens=3, round_records=True),
    orchestrator_pb2.GenerateRequest(chat={"messages": [{"role": "user", "content": "hi"}]}, max_tokens=3),
]  # fmt: skip


@MESSAGE
@given(payload=payloads(GENERATE))
def test_generate(bench: Bench, payload: bytes) -> None:
    assert bench.run(bench.unary(bench.deployment.orchestrator, "OrchestratorService/Generate", payload)) in ANSWERS


@pytest.mark.parametrize(
    ("host", "method"),
    [
        ("orchestrator", "OrchestratorService/GetStatus"),
        ("shard", "VerifierService/Describe"),
        ("draft", "DraftService/DescribeDraft"),
    ],
)
@MESSAGE
@given(payload=payloads([MESSAGES["text"], orchestrator_pb2.GetStatusRequest()]))
def test_methods_that_ask_for_nothing(bench: Bench, host: str, method: str, payload: bytes) -> None:
    assert bench.run(bench.unary(bench.host(host), method, payload)) in ANSWERS


def tensor(rows: int) -> tensor_pb2.Tensor:
    """Hidden states of the tiny target."""
    return tensor_pb2.Tensor(dtype=tensor_pb2.ELEMENT_TYPE_F32, shape=[rows, 32], data=bytes(rows * 128))


HELLO_SHARD = Request(hello=link_pb2.Hello(peer="o"))
SETUP = make_setup(max_tokens=60, prompt_tokens=2)
SHARD = [
    Request(slice=make_slice("s", "o", tokens=[1, 2, 3], setup=SETUP)),
    Request(slice=make_slice("s", "o", tokens=[1, 2, 3], setup=SETUP, hidden=tensor(3))),
    Request(slice=make_slice("s", "o", tokens=[4, 5, 6], parents=[-1, 0, 0], round=1, base=3, committed_rows=1)),
    Request(slice=make_slice("s", "o", tokens=[7], keep=[0, 2], round=2, base=5)),
    *(MESSAGES[name] for name in ("slice", "release", "ping to a shard", "query", "hello to a shard")),
]  # fmt: skip
HELLO_DRAFT = Propose(hello=link_pb2.Hello(peer="o"))
EXTEND = draft_pb2.Extend(tokens=[1, 2, 3], max_nodes=4, max_depth=4, max_children=1, prompt_tokens=2)
DRAFT = [
    Propose(request_id=1, session="s", extend=EXTEND),
    *(MESSAGES[name] for name in ("extend", "forget", "ping to a draft", "hello to a draft")),
]


def said(hello: Message, seeds: list[Message]) -> st.SearchStrategy[list[bytes]]:
    """A stream's messages: mostly it begins as it should, and some of them are good."""
    good = st.sampled_from(seeds).map(lambda message: message.SerializeToString())
    message = st.one_of(payloads(seeds), payloads(seeds), good)
    opening = st.sampled_from([[hello.SerializeToString()]] * 7 + [[]])
    return st.builds(lambda first, rest: first + rest, opening, st.lists(message, min_size=3, max_size=6))


@pytest.mark.parametrize("host", ["shard", "last shard"])
@STREAM
@given(messages=said(HELLO_SHARD, SHARD))
def test_connect(bench: Bench, host: str, messages: list[bytes]) -> None:
    assert bench.run(bench.stream(bench.host(host), "VerifierService/Connect", messages)) in ANSWERS


@STREAM
@given(messages=said(HELLO_DRAFT, DRAFT))
def test_propose(bench: Bench, messages: list[bytes]) -> None:
    assert bench.run(bench.stream(bench.host("draft"), "DraftService/Propose", messages)) in ANSWERS
