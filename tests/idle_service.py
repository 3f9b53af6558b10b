"""A service that serves nothing, run as a process: `python -m tests.idle_service well|fails|hangs`."""

import asyncio
import logging
import sys

import grpc.aio

from shardflow import serving, tracing
from shardflow.config import ServiceSettings, load

logger = logging.getLogger(__name__)


class IdleService:
    """Logs what is done to it."""

    name = "idle"
    service_names = ("shardflow.v1.Idle",)

    def __init__(self, mode: str) -> None:
        self._mode = mode

    def register(self, server: grpc.aio.Server) -> None:
        """Adds nothing."""

    async def start(self) -> None:
        if self._mode == "fails":
            raise RuntimeError("no weights")
        with tracing.span("idling"):
            logger.info("started")

    async def drain(self) -> None:
        logger.info("drain")
        if self._mode == "hangs":
            await asyncio.Event().wait()

    async def close(self) -> None:
        logger.info("close")


if __name__ == "__main__":
    serving.main(load(ServiceSettings, sys.argv[2:], "idle"), IdleService(sys.argv[1]))
