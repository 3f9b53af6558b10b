"""How a gRPC method says no: a status with the standard details, and INVALID_ARGUMENT for bytes that are no message."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NoReturn, TypeVar

import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from shardflow.errors import InvalidArgument, ShardflowError, rpc_code, split_field

# Status, message and details travel as trailers, of which clients take no more than 8 KiB in all.
MAX_MESSAGE_BYTES = 1000

_LENGTH_DELIMITED = 2  # the wire type of texts, bytes and messages
_Kind = TypeVar("_Kind", bound=Message)
_Handler = Any  # grpc.RpcMethodHandler, whose type stubs lack what the named tuple has


async def refuse(context: Any, error: Exception) -> NoReturn:
    """Ends a call with the status that stands for `error`; raises what gRPC needs for that."""
    await context.abort_with_status(rpc_status.to_status(status_of(error)))
    raise AssertionError("abort raises")


def status_of(error: Exception) -> status_pb2.Status:
    """The status of an error: RetryInfo where repeating may help, BadRequest where a field is at fault."""
    status = status_pb2.Status(code=rpc_code(error), message=_shortened(str(error) or type(error).__name__))
    if isinstance(error, ShardflowError) and error.retry_after_s is not None:
        advice = error_details_pb2.RetryInfo()
        advice.retry_delay.FromMilliseconds(round(error.retry_after_s * 1000))
        status.details.append(_packed(advice))
    field, rest = split_field(status.message)
    if isinstance(error, InvalidArgument) and field is not None:
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=rest)
        status.details.append(_packed(error_details_pb2.BadRequest(field_violations=[violation])))
    return status


class Decoding(grpc.aio.ServerInterceptor):
    """Answers bytes that are no message of the method INVALID_ARGUMENT, where gRPC would say UNKNOWN and log a bug.

    A method that takes one message must be a coroutine function, one that takes many raises what its iterator raises.
    """

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[_Handler]], handler_call_details: Any
    ) -> _Handler:
        """The method's own handler with its decoding replaced."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        decode = partial(decoded, handler.request_deserializer.__self__)
        if handler.request_streaming:
            return handler._replace(request_deserializer=decode)
        kind = "unary_stream" if handler.response_streaming else "unary_unary"
        return handler._replace(request_deserializer=None, **{kind: _decoding(decode, getattr(handler, kind))})


def decoded(kind: type[_Kind], raw: bytes) -> _Kind:
    """The message that `raw` is; InvalidArgument names the field at fault as far as that can be told."""
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        fault = _fault(kind.DESCRIPTOR, raw) or f": the bytes are no {kind.DESCRIPTOR.full_name}"
        raise InvalidArgument(fault.lstrip(".: ")) from error


def _decoding(decode: Callable[[bytes], Message], method: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    async def run(raw: bytes, context: Any) -> Any:
        try:
            request = decode(raw)
        except InvalidArgument as error:
            await refuse(context, error)
        return await method(request, context)

    return run


def _fault(kind: Any, raw: bytes) -> str:
    """`.path.to[2].field: ...` for the first text in `raw` that is not UTF-8 or part that can not be read, or nothing.

    `kind` is the descriptor of the message that `raw` should be.
    """
    try:
        fields: Any = UnknownFieldSet(Empty.FromString(raw))  # every field is unknown to an empty message
    except DecodeError:
        return f": the bytes are no {kind.full_name}"
    seen: dict[str, int] = {}
    for found in fields:
        field = kind.fields_by_number.get(found.field_number)
        if field is None or found.wire_type != _LENGTH_DELIMITED:
            continue
        index = seen[field.name] = seen.get(field.name, -1) + 1
        if fault := _fault_of_field(field, found.data):
            return f".{field.name}[{index}]{fault}" if field.is_repeated else f".{field.name}{fault}"
    return ""


def _fault_of_field(field: FieldDescriptor, data: bytes) -> str:
    if field.message_type is not None:
        return _fault(field.message_type, data)
    if field.type == FieldDescriptor.TYPE_STRING:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            return f": UTF-8 was expected; byte {error.start} is none"
    return ""


def _packed(detail: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(detail)
    return packed


def _shortened(message: str) -> str:
    raw = message.encode(errors="backslashreplace")
    return raw.decode() if len(raw) <= MAX_MESSAGE_BYTES else raw[:MAX_MESSAGE_BYTES].decode(errors="ignore") + " ..."
