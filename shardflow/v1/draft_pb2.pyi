from shardflow.v1 import link_pb2 as _link_pb2
from shardflow.v1 import sampling_pb2 as _sampling_pb2
from shardflow.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DraftKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DRAFT_KIND_UNSPECIFIED: _ClassVar[DraftKind]
    DRAFT_KIND_MODEL: _ClassVar[DraftKind]
    DRAFT_KIND_HEAD: _ClassVar[DraftKind]
DRAFT_KIND_UNSPECIFIED: DraftKind
DRAFT_KIND_MODEL: DraftKind
DRAFT_KIND_HEAD: DraftKind

class DescribeDraftRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeDraftResponse(_message.Message):
    __slots__ = ("model", "kind", "vocab_size", "vocabulary_digest", "hidden_size", "max_session_tokens", "version")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    kind: DraftKind
    vocab_size: int
    vocabulary_digest: str
    hidden_size: int
    max_session_tokens: int
    version: str
    def __init__(self, model: _Optional[str] = ..., kind: _Optional[_Union[DraftKind, str]] = ..., vocab_size: _Optional[int] = ..., vocabulary_digest: _Optional[str] = ..., hidden_size: _Optional[int] = ..., max_session_tokens: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class ProposeRequest(_message.Message):
    __slots__ = ("request_id", "session", "extend", "forget", "hello", "ping")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    session: str
    extend: Extend
    forget: Forget
    hello: _link_pb2.Hello
    ping: _link_pb2.Ping
    def __init__(self, request_id: _Optional[int] = ..., session: _Optional[str] = ..., extend: _Optional[_Union[Extend, _Mapping]] = ..., forget: _Optional[_Union[Forget, _Mapping]] = ..., hello: _Optional[_Union[_link_pb2.Hello, _Mapping]] = ..., ping: _Optional[_Union[_link_pb2.Ping, _Mapping]] = ...) -> None: ...

class Extend(_message.Message):
    __slots__ = ("base", "tokens", "hidden", "max_nodes", "max_depth", "max_children", "sampling", "prompt_tokens", "max_levels", "min_gain", "min_probability", "calibration", "background", "traceparent")
    BASE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    MAX_DEPTH_FIELD_NUMBER: _ClassVar[int]
    MAX_CHILDREN_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_LEVELS_FIELD_NUMBER: _ClassVar[int]
    MIN_GAIN_FIELD_NUMBER: _ClassVar[int]
    MIN_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    base: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    hidden: _tensor_pb2.Tensor
    max_nodes: int
    max_depth: int
    max_children: int
    sampling: _sampling_pb2.SamplingParams
    prompt_tokens: int
    max_levels: int
    min_gain: float
    min_probability: float
    calibration: _containers.RepeatedScalarFieldContainer[float]
    background: bool
    traceparent: str
    def __init__(self, base: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., hidden: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., max_nodes: _Optional[int] = ..., max_depth: _Optional[int] = ..., max_children: _Optional[int] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingParams, _Mapping]] = ..., prompt_tokens: _Optional[int] = ..., max_levels: _Optional[int] = ..., min_gain: _Optional[float] = ..., min_probability: _Optional[float] = ..., calibration: _Optional[_Iterable[float]] = ..., background: _Optional[bool] = ..., traceparent: _Optional[str] = ...) -> None: ...

class Forget(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProposeResponse(_message.Message):
    __slots__ = ("request_id", "session", "tree", "failure", "pong", "queue_ms", "compute_ms", "levels")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_MS_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    session: str
    tree: Tree
    failure: DraftFailure
    pong: _link_pb2.Pong
    queue_ms: float
    compute_ms: float
    levels: int
    def __init__(self, request_id: _Optional[int] = ..., session: _Optional[str] = ..., tree: _Optional[_Union[Tree, _Mapping]] = ..., failure: _Optional[_Union[DraftFailure, _Mapping]] = ..., pong: _Optional[_Union[_link_pb2.Pong, _Mapping]] = ..., queue_ms: _Optional[float] = ..., compute_ms: _Optional[float] = ..., levels: _Optional[int] = ...) -> None: ...

class Tree(_message.Message):
    __slots__ = ("tokens", "parents", "logprobs")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    parents: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, tokens: _Optional[_Iterable[int]] = ..., parents: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ...) -> None: ...

class DraftFailure(_message.Message):
    __slots__ = ("code", "message", "known_tokens")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    known_tokens: int
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., known_tokens: _Optional[int] = ...) -> None: ...
