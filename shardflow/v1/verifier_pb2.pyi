from shardflow.v1 import link_pb2 as _link_pb2
from shardflow.v1 import sampling_pb2 as _sampling_pb2
from shardflow.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("model", "model_digest", "first_layer", "last_layer", "num_layers", "hidden_size", "vocab_size", "dtype", "max_session_tokens", "max_sessions", "sessions", "kv_bytes_per_token", "version", "max_slice_rows", "kv_tokens", "next", "unix_time_ms")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_LAYER_FIELD_NUMBER: _ClassVar[int]
    LAST_LAYER_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    KV_BYTES_PER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_SLICE_ROWS_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    UNIX_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    model: str
    model_digest: str
    first_layer: int
    last_layer: int
    num_layers: int
    hidden_size: int
    vocab_size: int
    dtype: _tensor_pb2.ElementType
    max_session_tokens: int
    max_sessions: int
    sessions: int
    kv_bytes_per_token: int
    version: str
    max_slice_rows: int
    kv_tokens: int
    next: _link_pb2.LinkStatus
    unix_time_ms: float
    def __init__(self, model: _Optional[str] = ..., model_digest: _Optional[str] = ..., first_layer: _Optional[int] = ..., last_layer: _Optional[int] = ..., num_layers: _Optional[int] = ..., hidden_size: _Optional[int] = ..., vocab_size: _Optional[int] = ..., dtype: _Optional[_Union[_tensor_pb2.ElementType, str]] = ..., max_session_tokens: _Optional[int] = ..., max_sessions: _Optional[int] = ..., sessions: _Optional[int] = ..., kv_bytes_per_token: _Optional[int] = ..., version: _Optional[str] = ..., max_slice_rows: _Optional[int] = ..., kv_tokens: _Optional[int] = ..., next: _Optional[_Union[_link_pb2.LinkStatus, _Mapping]] = ..., unix_time_ms: _Optional[float] = ...) -> None: ...

class ConnectRequest(_message.Message):
    __slots__ = ("hello", "slice", "release", "ping", "query")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    hello: _link_pb2.Hello
    slice: Slice
    release: Release
    ping: _link_pb2.Ping
    query: Query
    def __init__(self, hello: _Optional[_Union[_link_pb2.Hello, _Mapping]] = ..., slice: _Optional[_Union[Slice, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., ping: _Optional[_Union[_link_pb2.Ping, _Mapping]] = ..., query: _Optional[_Union[Query, _Mapping]] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("verdict", "failure", "pong", "session_state")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    SESSION_STATE_FIELD_NUMBER: _ClassVar[int]
    verdict: Verdict
    failure: Failure
    pong: _link_pb2.Pong
    session_state: SessionState
    def __init__(self, verdict: _Optional[_Union[Verdict, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., pong: _Optional[_Union[_link_pb2.Pong, _Mapping]] = ..., session_state: _Optional[_Union[SessionState, _Mapping]] = ...) -> None: ...

class Slice(_message.Message):
    __slots__ = ("session", "epoch", "round", "base", "keep", "tokens", "parents", "hidden", "want_verdict", "origin", "setup", "stages", "committed_rows", "traceparent")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    WANT_VERDICT_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    SETUP_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_ROWS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    session: str
    epoch: int
    round: int
    base: int
    keep: _containers.RepeatedScalarFieldContainer[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    parents: _containers.RepeatedScalarFieldContainer[int]
    hidden: _tensor_pb2.Tensor
    want_verdict: bool
    origin: str
    setup: SessionSetup
    stages: _containers.RepeatedCompositeFieldContainer[StageTiming]
    committed_rows: int
    traceparent: str
    def __init__(self, session: _Optional[str] = ..., epoch: _Optional[int] = ..., round: _Optional[int] = ..., base: _Optional[int] = ..., keep: _Optional[_Iterable[int]] = ..., tokens: _Optional[_Iterable[int]] = ..., parents: _Optional[_Iterable[int]] = ..., hidden: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., want_verdict: _Optional[bool] = ..., origin: _Optional[str] = ..., setup: _Optional[_Union[SessionSetup, _Mapping]] = ..., stages: _Optional[_Iterable[_Union[StageTiming, _Mapping]]] = ..., committed_rows: _Optional[int] = ..., traceparent: _Optional[str] = ...) -> None: ...

class SessionSetup(_message.Message):
    __slots__ = ("sampling", "prompt_tokens", "top_logprobs", "want_logprobs", "want_hidden", "max_tokens")
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    WANT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    WANT_HIDDEN_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    sampling: _sampling_pb2.SamplingParams
    prompt_tokens: int
    top_logprobs: int
    want_logprobs: bool
    want_hidden: bool
    max_tokens: int
    def __init__(self, sampling: _Optional[_Union[_sampling_pb2.SamplingParams, _Mapping]] = ..., prompt_tokens: _Optional[int] = ..., top_logprobs: _Optional[int] = ..., want_logprobs: _Optional[bool] = ..., want_hidden: _Optional[bool] = ..., max_tokens: _Optional[int] = ...) -> None: ...

class StageTiming(_message.Message):
    __slots__ = ("shard", "queue_ms", "compute_ms", "other_ms", "batch_rows")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_MS_FIELD_NUMBER: _ClassVar[int]
    OTHER_MS_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    shard: str
    queue_ms: float
    compute_ms: float
    other_ms: float
    batch_rows: int
    def __init__(self, shard: _Optional[str] = ..., queue_ms: _Optional[float] = ..., compute_ms: _Optional[float] = ..., other_ms: _Optional[float] = ..., batch_rows: _Optional[int] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("session", "epoch", "round", "base", "accepted_rows", "next_token", "choices", "hidden", "stages")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_ROWS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    session: str
    epoch: int
    round: int
    base: int
    accepted_rows: _containers.RepeatedScalarFieldContainer[int]
    next_token: int
    choices: _containers.RepeatedCompositeFieldContainer[Choice]
    hidden: _tensor_pb2.Tensor
    stages: _containers.RepeatedCompositeFieldContainer[StageTiming]
    def __init__(self, session: _Optional[str] = ..., epoch: _Optional[int] = ..., round: _Optional[int] = ..., base: _Optional[int] = ..., accepted_rows: _Optional[_Iterable[int]] = ..., next_token: _Optional[int] = ..., choices: _Optional[_Iterable[_Union[Choice, _Mapping]]] = ..., hidden: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., stages: _Optional[_Iterable[_Union[StageTiming, _Mapping]]] = ...) -> None: ...

class Choice(_message.Message):
    __slots__ = ("token_id", "logprob", "top", "top_ids")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    TOP_IDS_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    logprob: float
    top: _containers.RepeatedCompositeFieldContainer[_sampling_pb2.TokenLogprob]
    top_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, token_id: _Optional[int] = ..., logprob: _Optional[float] = ..., top: _Optional[_Iterable[_Union[_sampling_pb2.TokenLogprob, _Mapping]]] = ..., top_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("session", "epoch", "round", "code", "message", "state")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    session: str
    epoch: int
    round: int
    code: int
    message: str
    state: SessionState
    def __init__(self, session: _Optional[str] = ..., epoch: _Optional[int] = ..., round: _Optional[int] = ..., code: _Optional[int] = ..., message: _Optional[str] = ..., state: _Optional[_Union[SessionState, _Mapping]] = ...) -> None: ...

class SessionState(_message.Message):
    __slots__ = ("session", "epoch", "round", "base")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    session: str
    epoch: int
    round: int
    base: int
    def __init__(self, session: _Optional[str] = ..., epoch: _Optional[int] = ..., round: _Optional[int] = ..., base: _Optional[int] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("sessions",)
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sessions: _Optional[_Iterable[str]] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...
