"""A whole deployment in this process, every service real, over real gRPC: shards, draft, orchestrator."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from prometheus_client import CollectorRegistry
from transformers import AutoModelForCausalLM

from services.draft.config import DraftSettings
from services.draft.server import DraftService
from services.orchestrator.config import OrchestratorSettings
from services.orchestrator.server import OrchestratorService
from services.verifier.config import VerifierSettings
from services.verifier.server import VerifierService
from shardflow.config import Peer
from shardflow.metrics import DraftMetrics, OrchestratorMetrics, VerifierMetrics
from shardflow.speculation import Mode
from shardflow.topology import split_layers
from shardflow.transport import open_channel
from shardflow.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from tests.fakes import Server
from tests.orchestrating import Answer


@dataclass
class Deployment:
    """What clients reach."""

    stub: Any

    async def generate(
        self, prompt: list[int] | list[dict[str, str]], *, mode: str, tokens: int, **fields: Any
    ) -> Answer:
        """The answer to token ids or a conversation, in a mode of speculation."""
        speculation = Mode.parse(mode).message()
        request = orchestrator_pb2.GenerateRequest(
            max_tokens=tokens, round_records=True, speculation=speculation, **fields
        )
        if isinstance(prompt[0], dict):
            for message in prompt:
                request.chat.messages.add(**message)  # type: ignore[arg-type]
        else:
            request.token_ids.ids.extend(prompt)  # type: ignore[arg-type]
        return Answer([message async for message in self.stub.Generate(request, timeout=60)])


@asynccontextmanager
async def deployed(
    target: Path, tokenizer: Path, *, layers: int, shards: int, draft: Path | None = None
) -> AsyncIterator[Deployment]:
    """Runs `target` over `shards` shards; `tokenizer` is the directory that the orchestrator reads."""
    async with AsyncExitStack() as stack:

        async def serve(service: Any) -> Peer:
            server = Server(service.register)
            await server.start()
            stack.push_async_callback(service.close)
            stack.push_async_callback(server.stop)
            await service.start()
            return server.peer

        peers: list[Peer] = []
        for first, end in reversed(split_layers(layers, shards)):
            settings = VerifierSettings(
                model=target, layers=f"{first}:{end}", next=peers[0] if peers else None, threads=1
            )
            peers.insert(0, await serve(VerifierService(settings, VerifierMetrics(CollectorRegistry()))))
        drafted = None
        if draft is not None:
            drafting = DraftSettings(model=draft, target=target, threads=1)
            drafted = await serve(DraftService(drafting, DraftMetrics(CollectorRegistry())))
        asked = OrchestratorSettings(model=tokenizer, shards=tuple(peers), draft=drafted)
        peer = await serve(OrchestratorService(asked, OrchestratorMetrics(CollectorRegistry())))
        channel = open_channel(peer.address, relay=None)
        stack.push_async_callback(channel.close)
        yield Deployment(orchestrator_pb2_grpc.OrchestratorServiceStub(channel))


def perturbed(target: Path, path: Path, scale: float) -> Path:
    """A draft that is often right: the target with noise on its weights."""
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn_like(parameter) * parameter.std() * scale
    model.save_pretrained(path)
    return path
