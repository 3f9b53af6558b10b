"""The JSON of answers, as OpenAI's API describes it, and the one object that only ShardFlow adds."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict  # pydantic can not read that of typing before Python 3.12

FinishReason = Literal["stop", "length"]


class Usage(TypedDict):
    """Tokens of a request; a prompt that got several answers counts once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Logprob(TypedDict):
    """A token, the natural logarithm of its probability under the target, and its bytes (null: it stands for none)."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(Logprob):
    """A chosen token and its alternatives, best first."""

    top_logprobs: list[Logprob]


class ChatLogprobs(TypedDict):
    """One entry per generated token, one that ended the text included."""

    content: list[TokenLogprob]
    refusal: None


class CompletionLogprobs(TypedDict):
    """The same, as `/v1/completions` writes it: one entry per generated token in each list."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class SourcedToken(TypedDict):
    """A generated token and where it came from; its text is empty while a character is incomplete."""

    id: int
    text: str
    source: Literal["target", "accepted", "corrected", "bonus"]


class Stage(TypedDict):
    """One shard's share of a round, in milliseconds on its own clock."""

    shard: str
    queue_ms: float
    compute_ms: float
    other_ms: float


class Guess(TypedDict):
    """One guess of a round; `parent` is its index among them, -1 below the text so far."""

    id: int
    parent: int
    source: Literal["draft", "text", "recycled"]
    probability: float
    accepted: bool


class Round(TypedDict):
    """One round: round_ms = draft_ms + network_ms + orchestrator_ms + all that the stages took.

    `draft_hidden_ms` is the draft's work meanwhile, for which nobody waited.
    """

    choice: int
    prefill: bool
    round_ms: float
    draft_ms: float
    draft_hidden_ms: float
    network_ms: float
    orchestrator_ms: float
    stages: list[Stage]
    drafted_tokens: int
    accepted_tokens: int
    guesses: list[Guess]
    tokens: list[SourcedToken]


class Statistics(TypedDict):
    """What ShardFlow adds where it was asked to: at the end of an answer, all but `round`; during a stream, `round`."""

    seed: NotRequired[int]
    num_rounds: NotRequired[int]
    drafted_tokens: NotRequired[int]
    accepted_tokens: NotRequired[int]
    rounds: NotRequired[list[Round]]
    round: NotRequired[Round]


class ChatMessage(TypedDict):
    """The answer."""

    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(TypedDict):
    """One answer of a chat."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class Delta(TypedDict):
    """What a chunk adds to an answer."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str]


class ChatChunkChoice(TypedDict):
    """One answer's part of a chunk."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class CompletionChoice(TypedDict):
    """One continuation, or a chunk of one."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None


class Head(TypedDict):
    """What every answer and every chunk of it begins with."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str


class _Tail(Head):
    shardflow: NotRequired[Statistics]


class ChatCompletion(_Tail):
    """Body of a whole chat answer."""

    choices: list[ChatChoice]
    usage: Usage


class ChatChunk(_Tail):
    """One event of a streamed chat answer."""

    choices: list[ChatChunkChoice]
    usage: NotRequired[Usage | None]


class Completion(_Tail):
    """Body of a whole text completion, or one event of a streamed one."""

    choices: list[CompletionChoice]
    usage: NotRequired[Usage | None]


class Model(TypedDict):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_tokens: int
    default_speculation: str


class ModelList(TypedDict):
    """All models that are served."""

    object: Literal["list"]
    data: list[Model]
