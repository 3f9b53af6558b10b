"""All services, real, in this process and on servers as their processes have them; and what they hold."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from prometheus_client import CollectorRegistry
from transformers import LlamaConfig, LlamaForCausalLM

from services.draft.config import DraftSettings
from services.draft.server import DraftService
from services.orchestrator.config import OrchestratorSettings
from services.orchestrator.server import OrchestratorService
from services.verifier.config import VerifierSettings
from services.verifier.server import VerifierService
from shardflow.metrics import DraftMetrics, OrchestratorMetrics, VerifierMetrics
from shardflow.serving import create_server
from shardflow.transport import open_channel
from shardflow.v1 import orchestrator_pb2_grpc
from tests.orchestrating import Answer, ask, until, write_model
from tests.scripts import VOCAB

CONTEXT = 256


class Host:
    """A service on a port that it comes back to."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self.port = 0
        self.service: Any = None
        self._server: Any = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.service = self._make()
        self._server = create_server()
        self.service.register(self._server)
        self.port = self._server.add_insecure_port(self.address)
        await self._server.start()
        await self.service.start()

    async def stop(self) -> None:
        await self._server.stop(None)
        await self.service.close()


@dataclass
class Deployment:
    """Two shards, a draft and an orchestrator."""

    shards: list[Host]
    draft: Host
    orchestrator: Host
    stub: Any = None

    async def generate(self, text: str, **fields: Any) -> Answer:
        """The whole answer to `ask(text, ...)`."""
        return Answer([message async for message in self.stub.Generate(ask(text, **fields), timeout=30)])

    async def tasks(self) -> int:
        """Tasks of the loop, when all links are up."""
        core, first = self.orchestrator.service, self.shards[0].service.shard
        links = [*core._shards.shards, core._draft]
        await until(lambda: all(link.ready for link in links) and first._next._checked.is_set(), 10)
        return await tasks()

    def held(self) -> dict[str, int]:
        """What is held for requests, here and there."""
        core = self.orchestrator.service
        shards = [host.service.shard for host in self.shards]
        return {
            **{f"sessions of {shard.name}": len(shard.table) for shard in shards},
            **{f"queue of {shard.name}": len(shard.pipeline._scheduler) for shard in shards},
            "sessions of the draft": len(self.draft.service._worker._sessions),
            "work of the draft": len(self.draft.service._worker._running),
            "requests": core._active,
            "rounds": len(core._shards._pending) + len(core._shards._queries),
            "questions to the draft": len(core._draft._pending),
        }


@asynccontextmanager
async def deployed(path: Path, relay: str | None = None) -> AsyncIterator[Deployment]:
    """Runs the models that `write_models` wrote to `path`; shards are reached through `relay` if there is one."""

    def shard_at(address: str) -> str:
        return f"{address}@{relay}" if relay else address

    def verifier(layers: str, following: str | None) -> VerifierService:
        settings = VerifierSettings(
            model=path / "target", layers=layers, next=following, threads=1, max_sessions=16,
            max_session_tokens=CONTEXT, origin_grace_seconds=0.0,
        )  # fmt: skip
        return VerifierService(settings, VerifierMetrics(CollectorRegistry()))

    def draft() -> DraftService:
        settings = DraftSettings(model=path / "draft", threads=1, max_sessions=16, max_session_tokens=CONTEXT)
        return DraftService(settings, DraftMetrics(CollectorRegistry()))

    async with AsyncExitStack() as stack:

        async def host(make: Any) -> Host:
            running = Host(make)
            await running.start()
            stack.push_async_callback(running.stop)
            return running

        last = await host(lambda: verifier("1:2", None))
        first = await host(lambda: verifier("0:1", shard_at(last.address)))
        drafting = await host(draft)
        settings = OrchestratorSettings(
            model=path / "tokenizer", shards=f"{shard_at(first.address)},{shard_at(last.address)}",
            draft=drafting.address, patience_s=20.0, round_timeout_s=5.0,
        )  # fmt: skip
        core = await host(lambda: OrchestratorService(settings, OrchestratorMetrics(CollectorRegistry())))
        channel = open_channel(core.address, relay=None)
        stack.push_async_callback(channel.close)
        stub = orchestrator_pb2_grpc.OrchestratorServiceStub(channel)
        yield Deployment([first, last], drafting, core, stub)


def write_models(path: Path) -> Path:
    """A tiny Llama over bytes, a draft that is the same model with noise on its weights, and a tokenizer."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=CONTEXT, initializer_range=0.3, tie_word_embeddings=False,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.save_pretrained(path / "target")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn_like(parameter) * parameter.std() * 0.05
    model.save_pretrained(path / "draft")
    write_model(path / "tokenizer")
    return path


async def tasks() -> int:
    """Tasks of this loop."""
    return _tasks()


def _tasks() -> int:
    # gRPC's client waits on for the status of a call that was ended while the client wrote, until its deadline.
    waiting = "_AioCall._handle_status_once_received"
    return sum(task.get_coro().__qualname__ != waiting for task in asyncio.all_tasks())  # type: ignore[union-attr]


async def settled(before: int) -> None:
    """Returns when this loop has no more tasks than it had before."""
    gc.collect()
    await until(lambda: _tasks() <= before, 15)


def resident_mib() -> float:
    """Resident memory of this process."""
    return float(psutil.Process().memory_info().rss) / 2**20
