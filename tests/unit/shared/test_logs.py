"""Every log line is one JSON object, with the fields that are bound where it was written."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncGenerator
from typing import Any

from shardflow import logs


def line(message: str, *arguments: object, **extra: Any) -> dict[str, Any]:
    """What a record becomes."""
    record = logging.getLogger("x").makeRecord("x", logging.WARNING, "f", 1, message, arguments, None, extra=extra)
    record.created, record.msecs = 0.25, 250
    fields: dict[str, Any] = json.loads(logs.JsonFormatter("svc").format(record))
    return fields


def test_a_line() -> None:
    assert line("lost %s", "it", session="s", count=2) == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "warning",
        "service": "svc",
        "event": "lost it",
        "session": "s",
        "count": 2,
    }


def test_a_line_stays_one_line() -> None:
    record = logging.makeLogRecord({"msg": "a\nb\u00e9"})
    assert "\n" not in logs.JsonFormatter("svc").format(record)
    assert "\u00e9" in logs.JsonFormatter("svc").format(record)


def test_what_is_not_json_becomes_its_text() -> None:
    assert line("x", where=sys)["where"] == str(sys)


def test_an_exception_is_told_whole() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        record = logging.getLogger("x").makeRecord("x", logging.ERROR, "f", 1, "x", (), sys.exc_info())
    assert json.loads(logs.JsonFormatter("svc").format(record))["error"].endswith("ValueError: broken")


def test_bound_fields() -> None:
    with logs.bind(request_id="r"):
        with logs.bind(round=1):
            assert {"request_id": "r", "round": 1}.items() <= line("x").items()
        assert "round" not in line("x")
    assert "request_id" not in line("x")


async def test_bound_fields_belong_to_a_task() -> None:
    async def one(request_id: str) -> str:
        with logs.bind(request_id=request_id):
            await asyncio.sleep(0)
            return str(line("x")["request_id"])

    assert await asyncio.gather(one("a"), one("b")) == ["a", "b"]


async def test_a_generator_that_is_closed_in_another_task() -> None:
    async def generate() -> AsyncGenerator[int, None]:
        with logs.bind(request_id="r"):
            yield 1

    generator = generate()
    await asyncio.create_task(anext(generator))
    await asyncio.create_task(generator.aclose())
