from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Hello(_message.Message):
    __slots__ = ("peer",)
    PEER_FIELD_NUMBER: _ClassVar[int]
    peer: str
    def __init__(self, peer: _Optional[str] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("sequence", "padding")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    padding: bytes
    def __init__(self, sequence: _Optional[int] = ..., padding: _Optional[bytes] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("sequence", "padding")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    padding: bytes
    def __init__(self, sequence: _Optional[int] = ..., padding: _Optional[bytes] = ...) -> None: ...

class LinkStatus(_message.Message):
    __slots__ = ("dialler", "peer", "address", "relay", "connected", "rtt_ms", "bytes_per_second")
    DIALLER_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RELAY_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    RTT_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    dialler: str
    peer: str
    address: str
    relay: str
    connected: bool
    rtt_ms: float
    bytes_per_second: float
    def __init__(self, dialler: _Optional[str] = ..., peer: _Optional[str] = ..., address: _Optional[str] = ..., relay: _Optional[str] = ..., connected: _Optional[bool] = ..., rtt_ms: _Optional[float] = ..., bytes_per_second: _Optional[float] = ...) -> None: ...
