"""A loaded shard: its model slice, sessions, pipeline and link to the next shard, put together."""

import asyncio
import gc
import json
import logging
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from services.verifier.chain import NextShard
from services.verifier.config import VerifierSettings, parse_layers
from services.verifier.peers import Peers
from services.verifier.pipeline import Pipeline
from services.verifier.runner import Runner
from services.verifier.scheduler import Scheduler
from services.verifier.sessions import SessionTable
from services.verifier.slices import Limits
from shardflow import __version__
from shardflow.engine import KVCache, ModelSlice, load_slice
from shardflow.engine.wire import element_type
from shardflow.errors import InvalidArgument, ResourceExhausted
from shardflow.metrics import VerifierMetrics
from shardflow.v1 import verifier_pb2

logger = logging.getLogger(__name__)

SWEEP_S = 1.0


class Shard:
    """Everything of one shard that needs its weights."""

    def __init__(
        self, settings: VerifierSettings, model: ModelSlice, thread: ThreadPoolExecutor, metrics: VerifierMetrics
    ) -> None:
        """Raises InvalidArgument if the settings name a next shard and there is none, or the other way round."""
        if model.is_last == (settings.next is not None):
            raise InvalidArgument(f"next: {settings.next}, but this shard holds {model.name}")
        self.name = f"verifier[{model.start}:{model.stop}]"
        self.peers = Peers()
        self._limits = Limits(
            vocab_size=model.vocab_size,
            max_sessions=settings.max_sessions,
            max_session_tokens=min(settings.max_session_tokens, longest_context(settings.model)),
            max_slice_rows=settings.max_slice_rows,
        )
        self._settings = settings
        self._model = model
        self.table: SessionTable[KVCache] = SessionTable(
            self._limits, self._new_kv, idle_s=settings.session_idle_seconds, grace_s=settings.origin_grace_seconds
        )
        self._holds = self._describe_slice()
        self._next = self._dial()
        self.pipeline = Pipeline(
            self.name, model, self.table, Scheduler(settings.max_batch_rows), thread, self.peers, self._next, metrics
        )
        self.running: asyncio.Task[None] = asyncio.create_task(self._run(), name=self.name)

    async def start(self) -> None:
        """Returns when the next shard, if there is one, is reached and fits."""
        if self._next is not None:
            await self._next.start()

    async def close(self) -> None:
        """Ends the link and the work."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        if self._next is not None:
            await self._next.close()

    def describe(self) -> verifier_pb2.DescribeResponse:
        """What this shard holds, and how it stands now."""
        now = verifier_pb2.DescribeResponse(
            sessions=len(self.table),
            kv_tokens=sum(session.kv.length for session in self.table.values()),
            next=self._next.status(self.name) if self._next is not None else None,
            unix_time_ms=time.time() * 1000,
        )
        now.MergeFrom(self._holds)
        return now

    def _describe_slice(self) -> verifier_pb2.DescribeResponse:
        model, limits = self._model, self._limits
        return verifier_pb2.DescribeResponse(
            model=self._settings.model.name,
            model_digest=model.digest,
            first_layer=model.start,
            last_layer=model.stop,
            num_layers=model.num_layers,
            hidden_size=model.hidden_size,
            vocab_size=model.vocab_size,
            dtype=element_type(model.dtype),
            max_session_tokens=limits.max_session_tokens,
            max_sessions=limits.max_sessions,
            max_slice_rows=limits.max_slice_rows,
            kv_bytes_per_token=model.bytes_per_token,
            version=__version__,
        )

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.pipeline.run())
            tasks.create_task(self._sweep())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.pipeline.sweep()

    def _dial(self) -> NextShard | None:
        if self._settings.next is None:
            return None
        return NextShard(
            self._holds,
            self._settings.next,
            peer=f"{self.name}-{uuid.uuid4().hex[:8]}",
            on_lost=lambda reason: self.pipeline.lost_next(reason),
        )

    def _new_kv(self, max_tokens: int) -> KVCache:
        try:
            return self._model.new_kv(max_tokens)
        except RuntimeError as error:  # torch's allocators raise nothing finer on the CPU
            raise ResourceExhausted(f"no memory for a session of {max_tokens} tokens: {error}") from error


def load(settings: VerifierSettings) -> ModelSlice:
    """Loads the layers that the settings name, and runs them once. Takes seconds; for the model's thread."""
    started = time.monotonic()
    layers = None if settings.layers is None else parse_layers(settings.layers)
    model = load_slice(settings.model, layers, dtype=getattr(torch, settings.dtype), device=settings.device)
    Runner(model).warm_up()
    gc.freeze()  # what torch and transformers have made stays; going through it again would stall a round by 0.1 s
    logger.info("loaded", extra={"slice": model.name, "load_s": round(time.monotonic() - started, 2)})
    return model


def longest_context(model: Path) -> int:
    """Positions that the model was made for."""
    return int(json.loads((model / "config.json").read_text())["max_position_embeddings"])
