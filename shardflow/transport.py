"""Channels between services: options that suit a WAN, dialled directly or through the relay."""

import grpc
import grpc.aio
from grpc import __version__ as grpc_version

from shardflow.config import proxy_exclusions, split_address
from shardflow.errors import InvalidArgument, rpc_code

MAX_MESSAGE_BYTES = 64 << 20

# lookahead_bytes and bdp_probe act as a pair, and only from grpcio 1.74 on; before, they cost a round trip per message.
_COMMON_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.http2.lookahead_bytes", 16 << 20),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
]
SERVER_OPTIONS: list[tuple[str, int]] = [
    *_COMMON_OPTIONS,
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.so_reuseport", 0),
]
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    *_COMMON_OPTIONS,
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    # Despite its name the time that one attempt may take: over a WAN, TCP, CONNECT and HTTP/2 need four round trips.
    ("grpc.min_reconnect_backoff_ms", 2_500),
    ("grpc.max_reconnect_backoff_ms", 500),
]

if tuple(int(part) for part in grpc_version.split(".")[:2]) < (1, 74):
    raise ImportError(f"grpcio {grpc_version} is too old: these channel options need 1.74 or newer")


def open_channel(address: str, *, relay: str | None) -> grpc.aio.Channel:
    """A channel to `address` (host:port), dialled directly or by CONNECT through the relay at host:port.

    Raises InvalidArgument for a relay that gRPC would silently bypass: one given as an `https://` URL, or a target that
    `no_proxy` excludes.
    """
    if relay is None:
        return grpc.aio.insecure_channel(address, options=[*CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0)])
    check_relay(address, relay)
    options = [*CHANNEL_OPTIONS, ("grpc.http_proxy", f"http://{relay}")]
    return grpc.aio.insecure_channel(f"dns:///{address}", options=options)


def check_relay(address: str, relay: str) -> None:
    """Raises InvalidArgument if gRPC in this environment would not dial `address` through the relay."""
    try:
        split_address(relay)
    except ValueError as error:
        raise InvalidArgument(f"relay: {error} (a relay is dialled as host:port, without a scheme)") from error
    host, _ = split_address(address)
    for suffix in proxy_exclusions():
        if host == suffix.lstrip(".") or host.endswith("." + suffix.lstrip(".")) or host.endswith(suffix):
            raise InvalidArgument(f"no_proxy excludes {host} by {suffix!r}: gRPC would bypass the relay {relay}")


def status_code(error: BaseException) -> grpc.StatusCode:
    """The gRPC status code of an error; INTERNAL for anything that is not ours."""
    return next(status for status in grpc.StatusCode if status.value[0] == rpc_code(error))
