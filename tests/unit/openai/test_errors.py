"""Which HTTP error stands for which error of the core, and what it calls the field."""

import pytest
from starlette.exceptions import HTTPException

from services.orchestrator.openai.errors import from_error, from_validation
from shardflow.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    NumericError,
    PromptTooLong,
    ResourceExhausted,
    Unavailable,
)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code", "headers"),
    [
        (InvalidArgument("stop: empty text"), 400, "invalid_request_error", None, {}),
        (PromptTooLong("prompt: 9 tokens"), 400, "invalid_request_error", "context_length_exceeded", {}),
        (NotFound("model: 'x'"), 404, "invalid_request_error", "model_not_found", {}),
        (ResourceExhausted("full"), 429, "rate_limit_error", "rate_limit_exceeded", {"retry-after": "1"}),
        (Unavailable("gone"), 503, "server_error", "unavailable", {"retry-after": "1"}),
        (NumericError("nan"), 500, "server_error", "internal_error", {}),
        (FailedPrecondition("gap"), 500, "server_error", "internal_error", {}),
        (HTTPException(405, "Method Not Allowed", {"allow": "GET"}), 405, "invalid_request_error", None,
         {"allow": "GET"}),
    ],
)  # fmt: skip
def test_status_type_and_code(
    error: Exception, status: int, kind: str, code: str | None, headers: dict[str, str]
) -> None:
    found = from_error(error)
    assert (found.status_code, dict(found.headers or {})) == (status, headers)
    assert (found.body["error"]["type"], found.body["error"]["code"]) == (kind, code)


def test_a_bug_tells_nothing_of_itself() -> None:
    assert from_error(KeyError("secret")).body == {
        "error": {"message": "internal error", "type": "server_error", "param": None, "code": "internal_error"}
    }


@pytest.mark.parametrize(
    ("ours", "param", "message"),
    [
        ("sampling.top_p: 2 where", "top_p", "top_p: 2 where"),
        ("chat.messages[3].role: 'x' where", "messages[3].role", "messages[3].role: 'x' where"),
        ("chat: the model's template refuses", "messages", "messages: the model's template refuses"),
        ("text: makes no token", "prompt", "prompt: makes no token"),
        ("token_ids: id 9 is outside", "prompt", "prompt: id 9 is outside"),
        ("no field at all", None, "no field at all"),
        ("shard 1: not a field", None, "shard 1: not a field"),
    ],
)
def test_fields_go_by_the_names_that_the_client_wrote(ours: str, param: str | None, message: str) -> None:
    body = from_error(InvalidArgument(ours)).body["error"]
    assert (body["param"], body["message"]) == (param, message)


def test_the_prompt_goes_by_the_name_that_the_client_wrote() -> None:
    assert from_error(PromptTooLong("prompt: 9 tokens"), "messages").body["error"]["param"] == "messages"


def test_a_body_that_is_no_json() -> None:
    error = {"type": "json_invalid", "loc": ("body", 3), "msg": "JSON decode error", "ctx": {"error": "Extra data"}}
    assert from_validation([error], {}).body["error"]["message"] == "the body is not JSON: Extra data"


def test_a_body_that_is_no_object() -> None:
    error = {"type": "model_attributes_type", "loc": ("body",), "msg": "Input should be a valid dictionary"}
    assert from_validation([error], b"a=b").body["error"]["message"] == (
        "the body: a JSON object with content-type application/json was expected"
    )
