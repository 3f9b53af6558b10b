"""The HTTP routes of the orchestrator."""

import hashlib
import time
import uuid
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import prometheus_client
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from prometheus_client import CollectorRegistry
from pydantic import SecretStr, TypeAdapter
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from services.orchestrator.openai.answers import ChatChunk, ChatCompletion, Completion, Head, Model, ModelList
from services.orchestrator.openai.choices import Choices
from services.orchestrator.openai.core import Core
from services.orchestrator.openai.errors import ErrorBody, Refusal, from_error, from_validation
from services.orchestrator.openai.exchange import Exchange
from services.orchestrator.openai.guard import Guard
from services.orchestrator.openai.requests import ChatRequest, CompletionRequest
from services.orchestrator.openai.shapes import ChatShape, CompletionShape, Shape
from services.orchestrator.openai.translate import Asked, read_chat, read_completion
from services.orchestrator.openai.writing import Writer
from services.orchestrator.playground import HEADERS, PAGE
from shardflow import __version__
from shardflow.errors import ShardflowError

_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorBody, "description": "The request is wrong."},
    "5XX": {"model": ErrorBody, "description": "The same request may work later."},
}


def create_app(api: "Api", keys: Sequence[SecretStr]) -> FastAPI:
    """The ASGI application; with `keys`, everything but the page, its description and /health needs one of them."""
    bearer = HTTPBearer(auto_error=False, description="A key of `http_api_keys`, where there are any.")
    app = FastAPI(
        title="ShardFlow", version=__version__, docs_url=None, redoc_url=None, dependencies=[Depends(bearer)],
        responses=_ERRORS,
    )  # fmt: skip
    app.add_middleware(Guard, keys=keys)
    for kind in (ShardflowError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _answer_error)

    @app.post("/v1/chat/completions", responses=_answers(ChatCompletion, ChatChunk))
    async def chat(body: ChatRequest) -> Response:
        """Continues a conversation."""
        return api.chat(body)

    @app.post("/v1/completions", responses=_answers(Completion, Completion))
    async def completions(body: CompletionRequest) -> Response:
        """Continues a text."""
        return api.completion(body)

    @app.get("/v1/models")
    async def models() -> ModelList:
        """Lists what is served."""
        return api.models()

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Model:
        """Describes a model."""
        return api.model(name)

    @app.get("/health")
    async def health() -> dict[str, str]:
        """200 if a request would be taken, 503 if not."""
        return api.health()

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """All metrics, in the text format of Prometheus."""
        return api.metrics()

    @app.get("/", response_class=HTMLResponse)
    async def playground() -> HTMLResponse:
        """A page to try it."""
        return HTMLResponse(PAGE, headers=HEADERS)

    return app


class Api:
    """Answers requests with what the core generates."""

    def __init__(self, core: Core, registry: CollectorRegistry, keep_alive_s: float) -> None:
        self._core = core
        self._registry = registry
        self._keep_alive_s = keep_alive_s
        self._created = int(time.time())
        self._running: WeakSet[Choices] = WeakSet()

    def chat(self, body: ChatRequest) -> Response:
        """Starts a chat answer."""
        return self._start(ChatShape(self._core.ready().tokenizer, bool(body.logprobs)), read_chat(body))

    def completion(self, body: CompletionRequest) -> Response:
        """Starts a text completion."""
        return self._start(CompletionShape(self._core.ready().tokenizer, body.logprobs), read_completion(body))

    def model(self, name: str) -> Model:
        """The one model that is served; Refusal for any other."""
        served = self._core.ready()
        if name != served.model:
            raise Refusal(404, f"model: {name!r} is not served here", param="model", code="model_not_found")
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "shardflow",
            "context_tokens": served.max_session_tokens,
            "default_speculation": str(served.default_mode),
        }

    def models(self) -> ModelList:
        """All models that are served."""
        return {"object": "list", "data": [self.model(self._core.ready().model)]}

    def health(self) -> dict[str, str]:
        """Unavailable unless a request would be taken."""
        self._core.ready()
        return {"status": "ready"}

    def metrics(self) -> Response:
        """All metrics, in the text format of Prometheus."""
        return Response(
            prometheus_client.generate_latest(self._registry), media_type=prometheus_client.CONTENT_TYPE_LATEST
        )

    def fail(self, error: Exception) -> None:
        """Ends every answer that is under way with `error`."""
        for choices in self._running:
            choices.fail(error)

    def _start(self, shape: Shape, asked: Asked) -> Response:
        request_id = uuid.uuid4().hex
        head: Head = {
            "id": shape.prefix + request_id,
            "object": shape.whole_object,
            "created": int(time.time()),
            "model": self._core.ready().model,
            "system_fingerprint": self._fingerprint(),
        }
        choices = Choices(self._core, asked.generations, request_id)
        self._running.add(choices)
        return Exchange(
            choices,
            Writer(shape, asked, head),
            stream=asked.stream,
            keep_alive_s=self._keep_alive_s,
            request_id=request_id,
        )

    def _fingerprint(self) -> str:
        """Stands for everything but the request that the text of a seed depends on: the weights and this software."""
        digest = self._core.ready().model_digest
        return "fp_" + hashlib.sha256(f"{digest} {__version__}".encode()).hexdigest()[:10]


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        return from_validation(error.errors(), error.body).response()
    return from_error(error).response()


def _answers(body: type, chunk: type) -> dict[int | str, dict[str, Any]]:
    stream = {"text/event-stream": {"schema": TypeAdapter(chunk).json_schema()}}
    return {200: {"model": body, "content": stream, "description": "The answer; a stream of chunks if asked for."}}
