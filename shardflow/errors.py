"""Typed errors of the services, each with its google.rpc.Code."""

import re
from typing import ClassVar

_INTERNAL = 13
_FIELD = re.compile(r"(?P<field>[a-z_]+(?:\.[a-z_]+|\[\d+\])*): (?P<rest>.*)", re.DOTALL)


class ShardflowError(Exception):
    """Base of all errors that a peer or a client may see; the message names the field or the part at fault."""

    rpc_code: ClassVar[int] = _INTERNAL
    retry_after_s: ClassVar[float | None] = None
    """When to repeat the request, in seconds; None if that does not help."""


class InvalidArgument(ShardflowError):
    """The request is wrong in itself; repeating it does not help."""

    rpc_code = 3


class PromptTooLong(InvalidArgument):
    """The prompt leaves no room for an answer."""


class NotFound(ShardflowError):
    """What the request names does not exist."""

    rpc_code = 5


class ResourceExhausted(ShardflowError):
    """No room for another session, or a session longer than the cache."""

    rpc_code = 8
    retry_after_s = 1.0


class FailedPrecondition(ShardflowError):
    """The receiver's state does not fit the request (a gap, another digest); repeating it as it is does not help."""

    rpc_code = 9


class InternalError(ShardflowError):
    """A peer failed in a way that is not the caller's fault."""

    rpc_code = _INTERNAL


class NumericError(InternalError):
    """A model produced numbers that are not finite."""


class Unavailable(ShardflowError):
    """A peer can not be reached or is draining; the same request may work later."""

    rpc_code = 14
    retry_after_s = 1.0


def rpc_code(error: BaseException) -> int:
    """The google.rpc.Code of an error; INTERNAL for anything that is not ours."""
    return error.rpc_code if isinstance(error, ShardflowError) else _INTERNAL


def from_rpc_code(code: int, message: str) -> ShardflowError:
    """The typed error behind a google.rpc.Code that a peer sent."""
    kinds = (InvalidArgument, NotFound, ResourceExhausted, FailedPrecondition, Unavailable)
    return next((kind for kind in kinds if kind.rpc_code == code), InternalError)(message)


def split_field(message: str) -> tuple[str | None, str]:
    """The field that the message of an error names, and what is said of it; (None, message) if it names none."""
    match = _FIELD.fullmatch(message)
    return (match["field"], match["rest"]) if match else (None, message)
