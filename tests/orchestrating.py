"""Runs an orchestrator in this process against the fakes, with a tokenizer whose ids are the bytes of the text."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
from prometheus_client import CollectorRegistry
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from services.orchestrator.config import OrchestratorSettings
from services.orchestrator.server import OrchestratorService
from shardflow.metrics import OrchestratorMetrics
from shardflow.transport import open_channel
from shardflow.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from tests.fakes import FakeDraft, Server, Target
from tests.scripts import EOS

CHAT_TEMPLATE = """\
{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}{% if add_generation_prompt %}> {% endif %}"""


def write_model(path: Path) -> Path:
    """A model directory without weights: id b is the byte b, id 256 ends a text."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    vocab = {chr(byte): byte for byte in visible} | {chr(256 + index): byte for index, byte in enumerate(hidden)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<eos>", special=True)])
    path.mkdir(exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>", "chat_template": CHAT_TEMPLATE}))
    (path / "config.json").write_text(json.dumps({"eos_token_id": EOS}))
    return path


@dataclass
class Answer:
    """A finished stream."""

    messages: list[orchestrator_pb2.GenerateResponse] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(message.text for message in self.messages)

    @property
    def tokens(self) -> list[orchestrator_pb2.Token]:
        return [token for message in self.messages for token in message.tokens]

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def rounds(self) -> list[orchestrator_pb2.RoundRecord]:
        return [record for message in self.messages for record in message.rounds]

    @property
    def last(self) -> orchestrator_pb2.GenerateResponse:
        return self.messages[-1]

    @property
    def usage(self) -> tuple[int, int, int, int, int]:
        """Prompt, completion, rounds, drafted, accepted."""
        usage = self.last.usage
        return (usage.prompt_tokens, usage.completion_tokens, usage.rounds, usage.drafted_tokens, usage.accepted_tokens)


def ask(text: str, *, k: int | None = None, **fields: Any) -> orchestrator_pb2.GenerateRequest:
    """A request for the continuation of a raw text; `k` guesses a round."""
    request = orchestrator_pb2.GenerateRequest(text=text, **fields)
    if k == 0:
        request.speculation.none.SetInParent()
    elif k is not None:
        request.speculation.linear.k = k
    return request


class System:
    """An orchestrator on a port, with the fakes that it talks to."""

    def __init__(self, service: OrchestratorService, registry: CollectorRegistry, target: Target) -> None:
        self.service = service
        self.registry = registry
        self.target = target
        self.stub: Any = None
        self.starting: asyncio.Task[None]

    def call(self, request: orchestrator_pb2.GenerateRequest, timeout: float = 10.0) -> Any:
        """The running stream."""
        return self.stub.Generate(request, timeout=timeout)

    async def generate(self, text: str, **fields: Any) -> Answer:
        """The whole answer to `ask(text, ...)`."""
        return Answer([message async for message in self.call(ask(text, **fields))])

    async def refusal(self, request: orchestrator_pb2.GenerateRequest) -> tuple[grpc.StatusCode, str]:
        """The status that a request ends with, and its message."""
        try:
            async for _ in self.call(request):
                pass
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        return grpc.StatusCode.OK, ""

    async def status(self) -> orchestrator_pb2.GetStatusResponse:
        """How things stand."""
        response: orchestrator_pb2.GetStatusResponse = await self.stub.GetStatus(orchestrator_pb2.GetStatusRequest())
        return response

    def sample(self, name: str, **labels: str) -> float | None:
        """A metric's value now."""
        return self.registry.get_sample_value(name, labels)


async def rest(call: Any) -> Answer:
    """What a stream still brings, after reads of its beginning."""
    messages = []
    while (message := await call.read()) is not grpc.aio.EOF:
        messages.append(message)
    return Answer(messages)


async def until(condition: Callable[[], object], timeout_s: float = 5.0) -> None:
    """Waits until `condition()` holds, wherever it comes true."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@asynccontextmanager
async def system(
    model: Path, target: Target, draft: FakeDraft | None = None, *, ready: bool = True, **settings: Any
) -> AsyncIterator[System]:
    """An orchestrator against a running target and draft; `ready=False` does not wait for its start."""
    registry = CollectorRegistry()
    values = {"patience_s": 2.0, "round_timeout_s": 0.5, **settings}
    orchestrator = OrchestratorService(
        OrchestratorSettings(model=model, shards=target.peers, draft=draft and draft.server.peer, **values),
        OrchestratorMetrics(registry),
    )
    running = System(orchestrator, registry, target)
    server = Server(orchestrator.register)
    await server.start()
    channel = open_channel(server.peer.address, relay=None)
    running.stub = orchestrator_pb2_grpc.OrchestratorServiceStub(channel)
    running.starting = asyncio.create_task(orchestrator.start())
    try:
        if ready:
            async with asyncio.timeout(5.0):
                await running.starting
        yield running
    finally:
        running.starting.cancel()
        await channel.close()
        await server.stop()
        await orchestrator.close()
