"""What a service asks of a peer's long-lived stream, so that no peer fills its memory."""

from shardflow.errors import InvalidArgument
from shardflow.v1 import link_pb2

MAX_NAME_CHARS = 256
MAX_PADDING_BYTES = 1 << 20  # the most that a link warms up with


def check_name(field: str, name: str) -> None:
    """Raises InvalidArgument for a peer's or a session's name that is too long to be remembered."""
    if len(name) > MAX_NAME_CHARS:
        raise InvalidArgument(f"{field}: {len(name)} characters where at most {MAX_NAME_CHARS} were expected")


def pong(ping: link_pb2.Ping) -> link_pb2.Pong:
    """The answer to a ping; InvalidArgument for one that is padded beyond use."""
    if len(ping.padding) > MAX_PADDING_BYTES:
        raise InvalidArgument(
            f"ping.padding: {len(ping.padding)} bytes where at most {MAX_PADDING_BYTES} were expected"
        )
    return link_pb2.Pong(sequence=ping.sequence, padding=ping.padding)
