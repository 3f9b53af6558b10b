"""A JSON body becomes exactly these generations; what is not offered is refused by name."""

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from pydantic import ValidationError

from services.orchestrator.openai.errors import Refusal, from_validation
from services.orchestrator.openai.requests import ChatRequest, CompletionRequest
from services.orchestrator.openai.translate import Asked, read_chat, read_completion

HI = [{"role": "user", "content": "hi"}]


def chat(**fields: Any) -> Asked:
    return read_chat(ChatRequest.model_validate({"messages": HI, **fields}))


def completion(**fields: Any) -> Asked:
    return read_completion(CompletionRequest.model_validate({"prompt": "hi", **fields}))


def refusal(kind: type[ChatRequest] | type[CompletionRequest], body: dict[str, Any]) -> tuple[int, str | None, str]:
    """Status, parameter and message that a body is refused with."""
    try:
        if kind is ChatRequest:
            read_chat(ChatRequest.model_validate(body))
        else:
            read_completion(CompletionRequest.model_validate(body))
    except ValidationError as error:
        found = from_validation([{**each, "loc": ("body", *each["loc"])} for each in error.errors()], body)
        return found.status_code, found.body["error"]["param"], found.body["error"]["message"]
    except Refusal as error:
        return error.status_code, error.body["error"]["param"], error.body["error"]["message"]
    raise AssertionError("not refused")


def test_a_chat_with_nothing_but_messages() -> None:
    asked = chat(seed=5)
    assert [MessageToDict(each) for each in asked.generations] == [
        {
            "chat": {"messages": [{"role": "user", "content": "hi"}]},
            "sampling": {"temperature": 1.0, "topP": 1.0, "seed": "5"},
            "speculation": {},
        }
    ]
    assert (asked.stream, asked.include_usage, asked.n, asked.extras) == (False, False, 1, None)


def test_every_field_of_a_chat() -> None:
    asked = chat(
        model="m", temperature=0, top_p=0.5, top_k=40, min_p=0.25, repetition_penalty=1.5, presence_penalty=-2,
        frequency_penalty=2, logit_bias={"7": -100}, seed=-1, stop=["a", "b"], max_tokens=9, ignore_eos=True,
        stream=True, stream_options={"include_usage": True}, response_format={"type": "text"}, logprobs=True,
        top_logprobs=3, tool_choice="auto", tools=[{}], modalities=["text"],
        shardflow={"speculation": "linear:4", "rounds": True},
    )  # fmt: skip
    assert MessageToDict(asked.generations[0]) == {
        "model": "m",
        "chat": {"messages": [{"role": "user", "content": "hi"}]},
        "sampling": {
            "topP": 0.5, "topK": 40, "minP": 0.25, "repetitionPenalty": 1.5, "presencePenalty": -2.0,
            "frequencyPenalty": 2.0, "logitBias": {"7": -100.0}, "seed": str(2**64 - 1),
        },
        "maxTokens": 9,
        "stop": ["a", "b"],
        "ignoreEos": True,
        "logprobs": True,
        "topLogprobs": 3,
        "speculation": {"linear": {"k": 4}},
        "roundRecords": True,
    }  # fmt: skip
    assert (asked.stream, asked.include_usage) == (True, True)


def test_null_is_the_same_as_left_out() -> None:
    nulls = dict.fromkeys(set(ChatRequest.model_fields) - {"messages", "seed"})
    assert chat(seed=5, **nulls) == chat(seed=5)


def test_unknown_fields_are_ignored() -> None:
    assert chat(seed=5, store=True, user="u", metadata={"a": "b"}, parallel_tool_calls=True) == chat(seed=5)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_tokens": 3}, 3),
        ({"max_completion_tokens": 4}, 4),
        ({"max_tokens": 3, "max_completion_tokens": 4}, 4),
        ({"max_tokens": 3, "max_completion_tokens": None}, 3),
    ],
)
def test_both_limits(fields: dict[str, Any], expected: int) -> None:
    assert chat(**fields).generations[0].max_tokens == expected


def test_a_completion_has_sixteen_tokens_unless_it_says() -> None:
    assert [completion(max_tokens=limit).generations[0].max_tokens for limit in (None, 5)] == [16, 5]


def test_contents_and_roles() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    asked = chat(
        messages=[
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": parts, "name": "ann"},
            {"role": "assistant", "content": None},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        ]
    )
    assert [(message.role, message.content) for message in asked.generations[0].chat.messages] == [
        ("system", "be kind"), ("user", "one\ntwo"), ("assistant", ""), ("assistant", "no"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("hi", [{"text": "hi"}]),
        (["a", "b"], [{"text": "a"}, {"text": "b"}]),
        ([1, 2], [{"tokenIds": {"ids": [1, 2]}}]),
        ([[1, 2], [3]], [{"tokenIds": {"ids": [1, 2]}}, {"tokenIds": {"ids": [3]}}]),
    ],
)
def test_prompts(prompt: Any, expected: list[dict[str, Any]]) -> None:
    kinds = ("text", "tokenIds")
    made = [MessageToDict(each) for each in completion(prompt=prompt).generations]
    assert [{kind: each[kind] for kind in kinds if kind in each} for each in made] == expected


def test_several_answers_begin_with_the_one_that_a_single_answer_is() -> None:
    seeds = [each.sampling.seed for each in completion(prompt=["a", "b"], n=3, seed=5).generations]
    assert seeds == [5, 3137727415170620344, 17501246210870913030] * 2


def test_without_a_seed_each_request_draws_its_own() -> None:
    first, second = chat(), chat()
    assert first.generations[0].sampling.seed == first.seed < 2**53
    assert first.seed != second.seed


def test_least_top_p_leaves_one_token_and_not_all() -> None:
    assert chat(top_p=0).generations[0].sampling.top_p == pytest.approx(1e-6)


def test_top_k_of_minus_one_is_all() -> None:
    assert chat(top_k=-1).generations[0].sampling.top_k == 0


@pytest.mark.parametrize(
    ("logprobs", "expected"), [(None, (False, 0)), (0, (True, 0)), (5, (True, 5))], ids=["none", "0", "5"]
)
def test_log_probabilities_of_a_completion(logprobs: int | None, expected: tuple[bool, int]) -> None:
    request = completion(logprobs=logprobs).generations[0]
    assert (request.logprobs, request.top_logprobs) == expected


def message(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", **fields}]}


@pytest.mark.parametrize(
    ("body", "param", "text"),
    [
        ({}, "messages", "messages: Field required"),
        ({"messages": "hi"}, "messages", "messages: Input should be a valid list"),
        (message(content=5), "messages[0].content", "messages[0].content: Input should be a valid string, or: "
                                                    "Input should be a valid list"),
        (message(content=None), "messages[0].content", "messages[0].content: null where a text was expected"),
        (message(content=[{"text": "hi"}]), "messages[0].content[0].type",
         "messages[0].content[0].type: Field required"),
        (message(content=[{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]),
         "messages[0].content[1].type",
         "messages[0].content[1].type: 'image_url' where `text` was expected; other kinds are not offered"),
        (message(content=[{"type": "text"}]), "messages[0].content[0].text",
         "messages[0].content[0].text: null where a text was expected"),
        (message(content="\ud800"), "messages[0].content",
         "messages[0].content: half of a surrogate pair, or: Input should be a valid list"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role",
         "messages[0].role: Input should be 'system', 'developer', 'user', 'assistant', 'tool' or 'function'"),
        ({"messages": [{"role": "tool", "content": "4"}]}, "messages[0]",
         "messages[0]: tools are not offered, so there are no calls and no results of any"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": [{}]}]}, "messages[0]",
         "messages[0]: tools are not offered, so there are no calls and no results of any"),
        ({"messages": HI, "temperature": "hot"}, "temperature", "temperature: Input should be a valid number"),
        ({"messages": HI, "temperature": True}, "temperature", "temperature: Input should be a valid number"),
        ({"messages": HI, "max_tokens": 0}, "max_tokens", "max_tokens: Input should be greater than or equal to 1"),
        ({"messages": HI, "max_tokens": 2**40}, "max_tokens",
         "max_tokens: Input should be less than or equal to 2147483647"),
        ({"messages": HI, "n": 9}, "n", "n: Input should be less than or equal to 8"),
        ({"messages": HI, "top_logprobs": 21, "logprobs": True}, "top_logprobs",
         "top_logprobs: Input should be less than or equal to 20"),
        ({"messages": HI, "logit_bias": {"x": 1}}, "logit_bias.x",
         "logit_bias.x: String should match pattern '^[0-9]{1,9}$'"),
        ({"messages": HI, "logit_bias": {"7": float("nan")}}, "logit_bias.7",
         "logit_bias.7: Input should be less than or equal to 100"),
        ({"messages": HI, "temperature": 2.5}, "temperature", "temperature: Input should be less than or equal to 2"),
        ({"messages": HI, "stop": ["a", 1]}, "stop[1]", "stop[1]: Input should be a valid string"),
        ({"messages": HI, "tool_choice": "required"}, "tool_choice",
         "tool_choice: tools are not offered, so none can be required"),
        ({"messages": HI, "tool_choice": {"type": "function"}}, "tool_choice",
         "tool_choice: tools are not offered, so none can be required"),
        ({"messages": HI, "function_call": {"name": "f"}}, "function_call",
         "function_call: functions are not offered, so none can be required"),
        ({"messages": HI, "response_format": {"type": "json_object"}}, "response_format",
         "response_format: only text is offered"),
        ({"messages": HI, "modalities": ["text", "audio"]}, "modalities", "modalities: only text is offered"),
        ({"messages": HI, "shardflow": {"speculation": "tree"}}, "shardflow.speculation",
         "shardflow.speculation: 'tree' is none of `none`, `linear:K`, `tree:N`, `lookup` or `auto`, "
         "with K and N from 1 to 64"),
        ({"messages": HI, "shardflow": {"speculaton": "none"}}, "shardflow.speculaton",
         "shardflow.speculaton: Extra inputs are not permitted"),
    ],
)  # fmt: skip
def test_a_chat_that_is_refused(body: dict[str, Any], param: str, text: str) -> None:
    assert refusal(ChatRequest, body) == (400, param, text)


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"prompt": []}, "prompt", "prompt: an empty list"),
        ({"prompt": None}, "prompt", "prompt: Input should be a valid string, or: Input should be a valid list"),
        ({"prompt": [[1], ["x"]]}, "prompt[1][0]", "prompt[1][0]: Input should be a valid integer"),
        ({"prompt": "\udfff"}, "prompt", "prompt: half of a surrogate pair, or: Input should be a valid list"),
        ({"prompt": "a", "stop": "\ud800"}, "stop", "stop: half of a surrogate pair, or: Input should be a valid list"),
        ({"prompt": [-1]}, "prompt[0]", "prompt[0]: Input should be a valid string, or: "
                                        "Input should be greater than or equal to 0, or: Input should be a valid list"),
        ({"prompt": ["a"] * 5, "n": 2}, "n", "n: 5 prompts of 2 answers each where 8 in all were expected at most"),
        ({"echo": True}, "echo", "echo: only the continuation is returned"),
        ({"suffix": "end"}, "suffix", "suffix: text can not be inserted, only continued"),
        ({"best_of": 2}, "best_of", "best_of: answers are not ranked; ask for them with n"),
        ({"logprobs": 21}, "logprobs", "logprobs: Input should be less than or equal to 20"),
        ({"logprobs": True}, "logprobs", "logprobs: Input should be a valid integer"),
    ],
)  # fmt: skip
def test_a_completion_that_is_refused(fields: dict[str, Any], param: str, text: str) -> None:
    assert refusal(CompletionRequest, {"prompt": "hi", **fields}) == (400, param, text)
