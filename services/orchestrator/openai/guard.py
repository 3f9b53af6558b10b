"""What every HTTP request must pass: a key where keys are configured, and a body of a size that can be."""

import hmac
from collections.abc import Sequence

from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.orchestrator.openai.errors import Refusal
from shardflow import tracing

MAX_BODY_BYTES = 4 * 1024 * 1024

_OPEN = frozenset({"/", "/health", "/openapi.json"})


class Guard:
    """ASGI middleware; refuses before the body is read."""

    def __init__(self, app: ASGIApp, keys: Sequence[SecretStr]) -> None:
        """No `keys`: everybody may come in."""
        self._app = app
        self._keys = [key.get_secret_value().encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers it with an error body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            if scope["path"] not in _OPEN:
                self._check_key(headers.get("authorization", ""))
            _check_size(int(headers.get("content-length", 0)))
            tracing.join(headers)
            await self._app(scope, _limited(receive), send)
        except Refusal as refusal:
            await refusal.response()(scope, receive, send)

    def _check_key(self, authorization: str) -> None:
        scheme, _, given = authorization.partition(" ")
        # All of them are compared, each in constant time: how long it takes says nothing about any.
        matches = [hmac.compare_digest(given.strip().encode(), key) for key in self._keys]
        if self._keys and (scheme.lower() != "bearer" or not any(matches)):
            message = "the key is not known here" if given else "a key is needed: Authorization: Bearer KEY"
            raise Refusal(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})


def _limited(receive: Receive) -> Receive:
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        _check_size(size)
        return message

    return limited


def _check_size(size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise Refusal(413, f"the body is longer than {MAX_BODY_BYTES} bytes", code="request_too_large")
