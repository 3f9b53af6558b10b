"""The draft's gRPC face and its life as a process: loads, describes itself, serves streams, drains."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc.aio
import torch
from safetensors import SafetensorError

from services.draft.config import DraftSettings
from services.draft.stream import Stream
from services.draft.worker import Worker
from shardflow import __version__
from shardflow.engine import EngineError
from shardflow.engine.drafts import Drafter, load_drafter
from shardflow.errors import ShardflowError, Unavailable
from shardflow.metrics import DraftMetrics
from shardflow.refusals import refuse
from shardflow.tokenizer import vocabulary_digest
from shardflow.v1 import draft_pb2, draft_pb2_grpc

logger = logging.getLogger(__name__)


class DraftService(draft_pb2_grpc.DraftServiceServicer):
    """The deployable; see `shardflow.serving.Service`."""

    name = "draft"
    service_names = ("shardflow.v1.DraftService",)

    def __init__(
        self, settings: DraftSettings, metrics: DraftMetrics, load: Callable[[DraftSettings], Drafter] | None = None
    ) -> None:
        """`load` opens the draft, on the thread that will compute; None: what the settings say."""
        self._settings = settings
        self._load = load or _load
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="draft")
        self._worker: Worker | None = None
        self._digest = ""

    def register(self, server: grpc.aio.Server) -> None:
        draft_pb2_grpc.add_DraftServiceServicer_to_server(self, server)

    async def start(self) -> None:
        self._digest = vocabulary_digest(self._settings.target or self._settings.model)
        drafter = await asyncio.get_running_loop().run_in_executor(self._thread, self._load, self._settings)
        self._worker = Worker(drafter, self._settings.max_sessions, self._thread, self._metrics)
        logger.info("loaded", extra={"model": str(self._settings.model), "kind": type(drafter).__name__})
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(self.reload()))

    async def reload(self) -> None:
        """Reads the model's directory again, beside what runs, and goes on with what is there now, if it is of use."""
        worker = self._worker
        assert worker is not None
        try:
            worker.swap(await asyncio.to_thread(self._load, self._settings))
        except (EngineError, OSError, SafetensorError, ValueError):
            logger.exception("not reloaded: the draft that was there goes on")
        else:
            logger.info("reloaded", extra={"model": str(self._settings.model)})

    async def drain(self) -> None:
        if self._worker is not None:
            await self._worker.drain()

    async def close(self) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        if self._worker is not None:
            self._worker.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def DescribeDraft(
        self, request: draft_pb2.DescribeDraftRequest, context: Any
    ) -> draft_pb2.DescribeDraftResponse:
        """See the contract."""
        drafter = (await self._ready(context)).drafter
        return draft_pb2.DescribeDraftResponse(
            model=self._settings.model.name,
            kind=draft_pb2.DRAFT_KIND_HEAD if drafter.hidden_size else draft_pb2.DRAFT_KIND_MODEL,
            vocab_size=drafter.vocab_size,
            vocabulary_digest=self._digest,
            hidden_size=drafter.hidden_size,
            max_session_tokens=drafter.max_tokens,
            version=__version__,
        )

    async def Propose(
        self, requests: AsyncIterator[draft_pb2.ProposeRequest], context: Any
    ) -> AsyncIterator[draft_pb2.ProposeResponse]:
        """See the contract."""
        stream = Stream(await self._ready(context))
        try:
            async for answer in stream.answers(requests):
                yield answer
        except ShardflowError as error:
            await refuse(context, error)

    async def _ready(self, context: Any) -> Worker:
        if self._worker is None:
            await refuse(context, Unavailable("the draft is still loading"))
        return self._worker


def _load(settings: DraftSettings) -> Drafter:
    """Runs on the thread that will compute, for whom the number of threads counts."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    return load_drafter(
        settings.model,
        settings.target,
        max_tokens=settings.max_session_tokens,
        dtype=getattr(torch, settings.dtype),
        device=settings.device,
    )
