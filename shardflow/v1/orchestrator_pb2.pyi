from shardflow.v1 import draft_pb2 as _draft_pb2
from shardflow.v1 import link_pb2 as _link_pb2
from shardflow.v1 import sampling_pb2 as _sampling_pb2
from shardflow.v1 import verifier_pb2 as _verifier_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TokenSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOKEN_SOURCE_UNSPECIFIED: _ClassVar[TokenSource]
    TOKEN_SOURCE_TARGET: _ClassVar[TokenSource]
    TOKEN_SOURCE_ACCEPTED: _ClassVar[TokenSource]
    TOKEN_SOURCE_CORRECTED: _ClassVar[TokenSource]
    TOKEN_SOURCE_BONUS: _ClassVar[TokenSource]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]

class GuessSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GUESS_SOURCE_UNSPECIFIED: _ClassVar[GuessSource]
    GUESS_SOURCE_DRAFT: _ClassVar[GuessSource]
    GUESS_SOURCE_TEXT: _ClassVar[GuessSource]
    GUESS_SOURCE_RECYCLED: _ClassVar[GuessSource]
TOKEN_SOURCE_UNSPECIFIED: TokenSource
TOKEN_SOURCE_TARGET: TokenSource
TOKEN_SOURCE_ACCEPTED: TokenSource
TOKEN_SOURCE_CORRECTED: TokenSource
TOKEN_SOURCE_BONUS: TokenSource
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
GUESS_SOURCE_UNSPECIFIED: GuessSource
GUESS_SOURCE_DRAFT: GuessSource
GUESS_SOURCE_TEXT: GuessSource
GUESS_SOURCE_RECYCLED: GuessSource

class Speculation(_message.Message):
    __slots__ = ("none", "linear", "tree", "lookup", "auto")
    NONE_FIELD_NUMBER: _ClassVar[int]
    LINEAR_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    none: NoSpeculation
    linear: LinearSpeculation
    tree: TreeSpeculation
    lookup: LookupSpeculation
    auto: AutoSpeculation
    def __init__(self, none: _Optional[_Union[NoSpeculation, _Mapping]] = ..., linear: _Optional[_Union[LinearSpeculation, _Mapping]] = ..., tree: _Optional[_Union[TreeSpeculation, _Mapping]] = ..., lookup: _Optional[_Union[LookupSpeculation, _Mapping]] = ..., auto: _Optional[_Union[AutoSpeculation, _Mapping]] = ...) -> None: ...

class NoSpeculation(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LinearSpeculation(_message.Message):
    __slots__ = ("k",)
    K_FIELD_NUMBER: _ClassVar[int]
    k: int
    def __init__(self, k: _Optional[int] = ...) -> None: ...

class TreeSpeculation(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: int
    def __init__(self, nodes: _Optional[int] = ...) -> None: ...

class LookupSpeculation(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AutoSpeculation(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ("model", "text", "token_ids", "chat", "sampling", "max_tokens", "stop", "ignore_eos", "logprobs", "top_logprobs", "speculation", "round_records")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    SPECULATION_FIELD_NUMBER: _ClassVar[int]
    ROUND_RECORDS_FIELD_NUMBER: _ClassVar[int]
    model: str
    text: str
    token_ids: TokenIds
    chat: Chat
    sampling: _sampling_pb2.SamplingParams
    max_tokens: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    ignore_eos: bool
    logprobs: bool
    top_logprobs: int
    speculation: Speculation
    round_records: bool
    def __init__(self, model: _Optional[str] = ..., text: _Optional[str] = ..., token_ids: _Optional[_Union[TokenIds, _Mapping]] = ..., chat: _Optional[_Union[Chat, _Mapping]] = ..., sampling: _Optional[_Union[_sampling_pb2.SamplingParams, _Mapping]] = ..., max_tokens: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., ignore_eos: _Optional[bool] = ..., logprobs: _Optional[bool] = ..., top_logprobs: _Optional[int] = ..., speculation: _Optional[_Union[Speculation, _Mapping]] = ..., round_records: _Optional[bool] = ...) -> None: ...

class TokenIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Chat(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ...) -> None: ...

class ChatMessage(_message.Message):
    __slots__ = ("role", "content")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("id", "text", "source", "logprob", "top")
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    id: int
    text: str
    source: TokenSource
    logprob: float
    top: _containers.RepeatedCompositeFieldContainer[_sampling_pb2.TokenLogprob]
    def __init__(self, id: _Optional[int] = ..., text: _Optional[str] = ..., source: _Optional[_Union[TokenSource, str]] = ..., logprob: _Optional[float] = ..., top: _Optional[_Iterable[_Union[_sampling_pb2.TokenLogprob, _Mapping]]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "rounds", "drafted_tokens", "accepted_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    rounds: int
    drafted_tokens: int
    accepted_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., rounds: _Optional[int] = ..., drafted_tokens: _Optional[int] = ..., accepted_tokens: _Optional[int] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("request_id", "tokens", "text", "finish_reason", "usage", "rounds", "seed")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tokens: _containers.RepeatedCompositeFieldContainer[Token]
    text: str
    finish_reason: FinishReason
    usage: Usage
    rounds: _containers.RepeatedCompositeFieldContainer[RoundRecord]
    seed: int
    def __init__(self, request_id: _Optional[str] = ..., tokens: _Optional[_Iterable[_Union[Token, _Mapping]]] = ..., text: _Optional[str] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., rounds: _Optional[_Iterable[_Union[RoundRecord, _Mapping]]] = ..., seed: _Optional[int] = ...) -> None: ...

class RoundRecord(_message.Message):
    __slots__ = ("round_ms", "draft_ms", "network_ms", "orchestrator_ms", "stages", "drafted_tokens", "accepted_tokens", "prefill", "draft_tokens", "draft_parents", "draft_sources", "draft_probabilities", "accepted_guesses", "draft_hidden_ms")
    ROUND_MS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_MS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_MS_FIELD_NUMBER: _ClassVar[int]
    ORCHESTRATOR_MS_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_PARENTS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_SOURCES_FIELD_NUMBER: _ClassVar[int]
    DRAFT_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_GUESSES_FIELD_NUMBER: _ClassVar[int]
    DRAFT_HIDDEN_MS_FIELD_NUMBER: _ClassVar[int]
    round_ms: float
    draft_ms: float
    network_ms: float
    orchestrator_ms: float
    stages: _containers.RepeatedCompositeFieldContainer[_verifier_pb2.StageTiming]
    drafted_tokens: int
    accepted_tokens: int
    prefill: bool
    draft_tokens: _containers.RepeatedScalarFieldContainer[int]
    draft_parents: _containers.RepeatedScalarFieldContainer[int]
    draft_sources: _containers.RepeatedScalarFieldContainer[GuessSource]
    draft_probabilities: _containers.RepeatedScalarFieldContainer[float]
    accepted_guesses: _containers.RepeatedScalarFieldContainer[int]
    draft_hidden_ms: float
    def __init__(self, round_ms: _Optional[float] = ..., draft_ms: _Optional[float] = ..., network_ms: _Optional[float] = ..., orchestrator_ms: _Optional[float] = ..., stages: _Optional[_Iterable[_Union[_verifier_pb2.StageTiming, _Mapping]]] = ..., drafted_tokens: _Optional[int] = ..., accepted_tokens: _Optional[int] = ..., prefill: _Optional[bool] = ..., draft_tokens: _Optional[_Iterable[int]] = ..., draft_parents: _Optional[_Iterable[int]] = ..., draft_sources: _Optional[_Iterable[_Union[GuessSource, str]]] = ..., draft_probabilities: _Optional[_Iterable[float]] = ..., accepted_guesses: _Optional[_Iterable[int]] = ..., draft_hidden_ms: _Optional[float] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("model", "num_layers", "max_session_tokens", "shards", "draft", "active_requests", "version", "default_speculation", "problem", "links", "output_tokens", "drafted_tokens", "accepted_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_SPECULATION_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: str
    num_layers: int
    max_session_tokens: int
    shards: _containers.RepeatedCompositeFieldContainer[ShardStatus]
    draft: DraftStatus
    active_requests: int
    version: str
    default_speculation: str
    problem: str
    links: _containers.RepeatedCompositeFieldContainer[_link_pb2.LinkStatus]
    output_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    def __init__(self, model: _Optional[str] = ..., num_layers: _Optional[int] = ..., max_session_tokens: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[ShardStatus, _Mapping]]] = ..., draft: _Optional[_Union[DraftStatus, _Mapping]] = ..., active_requests: _Optional[int] = ..., version: _Optional[str] = ..., default_speculation: _Optional[str] = ..., problem: _Optional[str] = ..., links: _Optional[_Iterable[_Union[_link_pb2.LinkStatus, _Mapping]]] = ..., output_tokens: _Optional[int] = ..., drafted_tokens: _Optional[int] = ..., accepted_tokens: _Optional[int] = ...) -> None: ...

class ShardStatus(_message.Message):
    __slots__ = ("address", "connected", "relay", "rtt_ms", "describe", "clock_offset_ms", "clock_error_ms")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    RELAY_FIELD_NUMBER: _ClassVar[int]
    RTT_MS_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    CLOCK_OFFSET_MS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_ERROR_MS_FIELD_NUMBER: _ClassVar[int]
    address: str
    connected: bool
    relay: str
    rtt_ms: float
    describe: _verifier_pb2.DescribeResponse
    clock_offset_ms: float
    clock_error_ms: float
    def __init__(self, address: _Optional[str] = ..., connected: _Optional[bool] = ..., relay: _Optional[str] = ..., rtt_ms: _Optional[float] = ..., describe: _Optional[_Union[_verifier_pb2.DescribeResponse, _Mapping]] = ..., clock_offset_ms: _Optional[float] = ..., clock_error_ms: _Optional[float] = ...) -> None: ...

class DraftStatus(_message.Message):
    __slots__ = ("address", "connected", "model", "acceptance", "describe", "problem")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    address: str
    connected: bool
    model: str
    acceptance: float
    describe: _draft_pb2.DescribeDraftResponse
    problem: str
    def __init__(self, address: _Optional[str] = ..., connected: _Optional[bool] = ..., model: _Optional[str] = ..., acceptance: _Optional[float] = ..., describe: _Optional[_Union[_draft_pb2.DescribeDraftResponse, _Mapping]] = ..., problem: _Optional[str] = ...) -> None: ...
