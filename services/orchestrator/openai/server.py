"""Serves the HTTP application in the event loop of the orchestrator."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

import uvicorn

from services.orchestrator.config import OrchestratorSettings
from services.orchestrator.openai.app import Api, create_app
from services.orchestrator.openai.core import Core
from shardflow.config import split_address
from shardflow.errors import FailedPrecondition, Unavailable
from shardflow.metrics import OrchestratorMetrics

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 15.0
_IDLE_CONNECTION_S = 75  # longer than what clients keep in their pools, so that they do not write into a closed one
_GRACE_S = 1
_BACKLOG = 1024


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals of the process to shardflow.serving."""
        yield


class HttpServer:
    """One HTTP listener."""

    def __init__(self, address: str, api: Api, settings: OrchestratorSettings) -> None:
        """Listens at `address`, host:port, once started."""
        host, port = split_address(address)
        self.address = address
        self._where = (host, port)
        self._api = api
        self._server = _Uvicorn(
            uvicorn.Config(
                create_app(api, settings.http_api_keys),
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=_IDLE_CONNECTION_S,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self._serving: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, core: Core, settings: OrchestratorSettings, metrics: OrchestratorMetrics) -> "HttpServer | None":
        """The listener that the settings ask for, if they do."""
        if settings.http_listen is None:
            return None
        return cls(settings.http_listen, Api(core, metrics.registry, KEEP_ALIVE_S), settings)

    async def start(self) -> None:
        """Binds the address and serves; FailedPrecondition if it can not be bound."""
        host, port = self._where
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise FailedPrecondition(f"http_listen: {self.address} can not be bound: {error.strerror}") from error
        self.address = f"{host}:{listener.getsockname()[1]}"
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        logger.info("http listening", extra={"address": self.address})

    async def close(self) -> None:
        """Tells the clients of running answers that it is over, and stops listening."""
        self._api.fail(Unavailable("the server is shutting down"))
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
