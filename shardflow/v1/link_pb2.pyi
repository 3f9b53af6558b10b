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
