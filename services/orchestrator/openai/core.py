"""What the HTTP layer needs of the orchestrator: what is served, and the same iterator that gRPC serves."""

from collections.abc import AsyncGenerator
from typing import Protocol

from services.orchestrator.requests import Served
from shardflow.v1 import orchestrator_pb2


class Core(Protocol):
    """The orchestrator without a wire."""

    def ready(self) -> Served:
        """What is served; Unavailable while starting or draining."""

    def generate(
        self, request: orchestrator_pb2.GenerateRequest, request_id: str
    ) -> AsyncGenerator[orchestrator_pb2.GenerateResponse, None]:
        """One generation; raises the typed error that ends it."""
