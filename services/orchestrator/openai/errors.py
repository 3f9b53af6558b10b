"""Errors as OpenAI clients read them: which status, type, code and parameter stand for which of ours."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from typing_extensions import TypedDict

from shardflow.errors import (
    InvalidArgument,
    NotFound,
    PromptTooLong,
    ResourceExhausted,
    ShardflowError,
    Unavailable,
    split_field,
)

_INVALID = "invalid_request_error"
# Where the core's name of a field differs from the one that the HTTP client wrote.
_FIELDS = {"text": "prompt", "token_ids": "prompt", "chat": "messages"}
_PREFIXES = ("sampling.", "chat.")


class ErrorDetail(TypedDict):
    """What is wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(TypedDict):
    """The body of every error, and the event that ends a stream which failed."""

    error: ErrorDetail


class Refusal(HTTPException):
    """An error on its way to an HTTP client."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = _INVALID,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`kind` is what OpenAI calls the type."""
        super().__init__(status, message, headers)
        detail: ErrorDetail = {"message": _printable(message), "type": kind, "param": param, "code": code}
        self.body: ErrorBody = {"error": detail}

    def response(self) -> JSONResponse:
        """The answer that it is."""
        return JSONResponse(self.body, self.status_code, dict(self.headers or {}))


def not_offered(param: str, message: str) -> Refusal:
    """A 400 for something that the API knows and this server does not do."""
    return Refusal(400, f"{param}: {message}", param=param, code="unsupported_parameter")


def wrong(param: str, message: str) -> Refusal:
    """A 400 for a value that does not fit."""
    return Refusal(400, f"{param}: {message}", param=param)


def from_error(error: Exception, prompt: str = "prompt") -> Refusal:
    """What stands for any exception; what is not meant for clients tells them nothing but that it happened.

    `prompt` is what the client calls the prompt.
    """
    if isinstance(error, Refusal):
        return error
    if isinstance(error, HTTPException):
        return Refusal(error.status_code, error.detail, headers=error.headers)
    param, message = _named(str(error))
    match error:
        case PromptTooLong():
            return Refusal(400, message, param=prompt, code="context_length_exceeded")
        case InvalidArgument():
            return Refusal(400, message, param=param)
        case NotFound():
            return Refusal(404, message, param=param, code="model_not_found")
        case ResourceExhausted():
            return Refusal(429, message, "rate_limit_error", code="rate_limit_exceeded", headers=_retry(error))
        case Unavailable():
            return Refusal(503, message, "server_error", code="unavailable", headers=_retry(error))
        case ShardflowError():
            return Refusal(500, message, "server_error", code="internal_error")
    return Refusal(500, "internal error", "server_error", code="internal_error")


def from_validation(errors: Sequence[Mapping[str, Any]], body: Any) -> Refusal:
    """What stands for a body that does not fit: the deepest of pydantic's complaints, by the client's names."""
    if not isinstance(body, dict) and errors[0]["type"] != "json_invalid":
        return Refusal(400, "the body: a JSON object with content-type application/json was expected")
    if errors[0]["type"] == "json_invalid":
        return Refusal(400, f"the body is not JSON: {errors[0]['ctx']['error']}", code="invalid_json")
    paths = [_path(error, body) for error in errors]
    path = max(paths, key=len)
    # Where a field has several types, each of them has its own complaint about the same place.
    complaints = dict.fromkeys(str(error["msg"]) for error, its in zip(errors, paths, strict=True) if its == path)
    param = _printable("".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip("."))
    return wrong(param, ", or: ".join(complaints))


def _path(error: Mapping[str, Any], body: Any) -> list[str | int]:
    """The place of a complaint in the body; pydantic mixes names of its own into it where a field has several types."""
    place: list[str | int] = []
    parts = list(error["loc"])[1:]
    for index, part in enumerate(parts):
        is_missing = error["type"] == "missing" and index == len(parts) - 1
        if isinstance(body, dict):
            is_there = part in body
        else:
            is_there = isinstance(body, list) and isinstance(part, int) and part < len(body)
        if is_there:
            body = body[part]
        if is_there or is_missing:
            place.append(part)
    return place


def _printable(text: str) -> str:
    """The text, where a client's own words in it are no text."""
    return text.encode(errors="backslashreplace").decode()


def _retry(error: ShardflowError) -> dict[str, str]:
    """The header that says when to try again: whole seconds."""
    return {} if error.retry_after_s is None else {"retry-after": str(math.ceil(error.retry_after_s))}


def _named(message: str) -> tuple[str | None, str]:
    """The field that a message of the core names, by the client's name, and the message with that name."""
    field, rest = split_field(message)
    if field is None:
        return None, message
    name = _FIELDS.get(field, field)
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name, f"{name}: {rest}"
