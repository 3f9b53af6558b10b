"""The gRPC face of the orchestrator: reads requests, runs generations, streams replies, says how things stand."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc.aio

from services.orchestrator import replies, state, traces
from services.orchestrator.config import OrchestratorSettings
from services.orchestrator.drafting import DraftClient
from services.orchestrator.generation import Generation, Limits, Plan, Round
from services.orchestrator.guessing.guesser import Learned
from services.orchestrator.openai.server import HttpServer
from services.orchestrator.requests import Request, Served, read_request
from services.orchestrator.shards import ShardPool
from services.orchestrator.transcript import Transcript
from shardflow import logs, tracing
from shardflow.errors import ShardflowError, Unavailable
from shardflow.link import Link
from shardflow.metrics import OrchestratorMetrics
from shardflow.refusals import refuse
from shardflow.speculation import MAX_NODES
from shardflow.tokenizer import Tokenizer, vocabulary_digest
from shardflow.transport import status_code
from shardflow.v1 import orchestrator_pb2, orchestrator_pb2_grpc

logger = logging.getLogger(__name__)

_LOG_WAIT_S = 5.0
_SHORT_BYTES = 8 << 10  # of a request that is read in a few milliseconds


class OrchestratorService(orchestrator_pb2_grpc.OrchestratorServiceServicer):
    """Serves Generate and GetStatus; run by shardflow.serving."""

    name = "orchestrator"
    service_names = (orchestrator_pb2.DESCRIPTOR.services_by_name["OrchestratorService"].full_name,)

    def __init__(self, settings: OrchestratorSettings, metrics: OrchestratorMetrics) -> None:
        peer = f"orchestrator-{uuid.uuid4().hex}"
        self._settings = settings
        self._metrics = metrics
        self._limits = Limits(settings.prefill_chunk, settings.patience_s, settings.round_timeout_s)
        self._shards = ShardPool(settings.shards, peer)
        self._draft = DraftClient(settings.draft, peer, settings.draft_timeout_s) if settings.draft else None
        for shard in self._shards.shards:
            _export(metrics, shard.link)
        if self._draft is not None:
            _export(metrics, self._draft.link)
        self.http = HttpServer.of(self, settings, metrics)
        self._name = settings.model_name or settings.model.name
        self._served: Served | None = None
        self._draining = False
        self._active = 0
        self._idle = asyncio.Event()
        self._totals = state.Totals()
        self._learned = Learned()

    def register(self, server: grpc.aio.Server) -> None:
        """Adds this servicer."""
        orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server(self, server)

    async def start(self) -> None:
        """Waits for all shards and the draft; raises FailedPrecondition if they do not fit together."""
        tokenizer = Tokenizer(self._settings.model)
        if self.http is not None:
            await self.http.start()
        self._shards.start()
        while True:
            try:
                deployment = await self._shards.wait_ready(_LOG_WAIT_S)
                break
            except Unavailable as error:
                logger.info("waiting: %s", error)
        if self._draft is not None:
            await self._draft.start(deployment, vocabulary_digest(self._settings.model))
        self._served = Served(
            model=self._name,
            model_digest=deployment.model_digest,
            tokenizer=tokenizer,
            vocab_size=deployment.vocab_size,
            max_session_tokens=deployment.max_session_tokens,
            default_mode=self._settings.speculation,
        )

    async def drain(self) -> None:
        """Refuses new requests and waits for the running ones."""
        self._draining = True
        while self._active:
            self._idle.clear()
            await self._idle.wait()

    async def close(self) -> None:
        """Ends all links."""
        if self.http is not None:
            await self.http.close()
        await self._shards.close()
        if self._draft is not None:
            await self._draft.close()

    async def Generate(self, request: orchestrator_pb2.GenerateRequest, context: Any) -> None:
        """Streams one generation. Not a generator: one that a client leaves would be cleaned up whenever it is."""
        tracing.join(dict(context.invocation_metadata()))
        try:
            async with aclosing(self.generate(request, uuid.uuid4().hex)) as answer:
                async for reply in answer:
                    await context.write(reply)
        except Exception as error:
            await refuse(context, error)

    async def GetStatus(
        self, request: orchestrator_pb2.GetStatusRequest, context: Any
    ) -> orchestrator_pb2.GetStatusResponse:
        """Says how things stand."""
        await self._shards.refresh()
        return self.status()

    def ready(self) -> Served:
        """What is served; Unavailable while starting or draining."""
        if self._draining:
            raise Unavailable("draining")
        return self._started()

    def status(self) -> orchestrator_pb2.GetStatusResponse:
        """How things stand, while starting too."""
        answer = state.status(self._shards, self._draft, self._totals)
        answer.model = self._name
        answer.default_speculation = str(self._settings.speculation)
        answer.active_requests = self._active
        answer.problem = "draining" if self._draining else state.problem(self._shards, self._draft, self._served)
        return answer

    async def generate(
        self, request: orchestrator_pb2.GenerateRequest, request_id: str
    ) -> AsyncGenerator[orchestrator_pb2.GenerateResponse, None]:
        """One generation, whatever wire asks for it; raises the typed error that ends it."""
        arrived = time.monotonic()
        outcome = "cancelled"
        self._active += 1
        self._metrics.active_requests.set(self._active)
        try:
            with logs.bind(request_id=request_id), traces.request(request, request_id, self._name) as span:
                async with aclosing(self._generate(request, request_id, arrived)) as answer:
                    async for reply in answer:
                        yield reply
                traces.answered(span, reply)
            outcome = orchestrator_pb2.FinishReason.Name(reply.finish_reason)
        except Exception as error:
            if not isinstance(error, ShardflowError):
                logger.exception("request failed", extra={"request_id": request_id})
            outcome = status_code(error).name
            raise
        finally:
            self._end(request_id, outcome, arrived)

    def _started(self) -> Served:
        if self._served is None:
            raise Unavailable("starting: not all shards are up")
        return self._served

    async def _generate(
        self, message: orchestrator_pb2.GenerateRequest, request_id: str, arrived: float
    ) -> AsyncGenerator[orchestrator_pb2.GenerateResponse, None]:
        served = self.ready()
        if message.ByteSize() <= _SHORT_BYTES:
            request = read_request(message, served)
        else:  # elsewhere: the others' rounds go on meanwhile
            request = await asyncio.to_thread(read_request, message, served)
        transcript = Transcript(
            request.prompt,
            max_tokens=request.max_tokens,
            eos_ids=request.eos_ids,
            stops=request.stops,
            decoder=served.tokenizer.stream(),
        )
        self._metrics.prompt_tokens.inc(len(request.prompt))
        usage = orchestrator_pb2.Usage(prompt_tokens=len(request.prompt))
        last = arrived
        async with aclosing(self._generation(request, request_id, transcript, arrived).rounds()) as rounds:
            async for done in rounds:
                last = self._observe(done, usage, arrived, last)
                yield self._reply(request, request_id, transcript, usage, done)

    def _generation(self, request: Request, session: str, transcript: Transcript, arrived: float) -> Generation:
        assert self._served is not None
        needed = len(request.prompt) + request.max_tokens + MAX_NODES
        plan = Plan(
            session=session,
            sampling=request.sampling,
            mode=request.mode,
            max_session_tokens=min(needed, self._served.max_session_tokens),
            logprobs=request.logprobs,
            top_logprobs=request.top_logprobs,
        )
        return Generation(
            plan, transcript, self._shards, self._draft, self._learned, self._limits, self._metrics, arrived
        )

    def _observe(self, done: Round, usage: orchestrator_pb2.Usage, arrived: float, last: float) -> float:
        """Counts one round; returns the time of its commit."""
        now = time.monotonic()
        replies.observe(self._metrics, done)
        if done.prefill:
            self._metrics.first_token_seconds.observe(now - arrived)
        else:
            self._metrics.inter_token_seconds.observe(now - last)
            for _ in done.tokens[1:]:
                self._metrics.inter_token_seconds.observe(0.0)
        usage.rounds += 1
        usage.completion_tokens += len(done.tokens)
        usage.drafted_tokens += len(done.tree.tokens)
        usage.accepted_tokens += len(done.accepted)
        self._totals.add(done)
        return now

    def _reply(
        self,
        request: Request,
        request_id: str,
        transcript: Transcript,
        usage: orchestrator_pb2.Usage,
        done: Round,
    ) -> orchestrator_pb2.GenerateResponse:
        reply = orchestrator_pb2.GenerateResponse(
            request_id=request_id,
            tokens=[replies.token(committed, request.top_logprobs) for committed in done.tokens],
            text="".join(committed.text for committed in done.tokens),
            rounds=[replies.record(done)] if request.round_records else [],
        )
        if transcript.finish is not None:
            reply.finish_reason = replies.FINISH_REASONS[transcript.finish]
            reply.usage.CopyFrom(usage)
            reply.seed = request.sampling.seed
        return reply

    def _end(self, request_id: str, outcome: str, arrived: float) -> None:
        self._active -= 1
        self._metrics.active_requests.set(self._active)
        if not self._active:
            self._idle.set()
        seconds = time.monotonic() - arrived
        outcome = outcome.removeprefix("FINISH_REASON_").lower()
        self._metrics.requests.labels(outcome=outcome).inc()
        self._metrics.request_seconds.observe(seconds)
        logger.info("request ended", extra={"request_id": request_id, "outcome": outcome, "seconds": round(seconds, 3)})


def _export(metrics: OrchestratorMetrics, link: Link[Any, Any]) -> None:
    metrics.link_rtt_seconds.labels(link=link.name).set_function(lambda: link.rtt_ms / 1000)
    metrics.link_up.labels(link=link.name).set_function(lambda: link.connected)
