"""Logs: one JSON object a line on standard output, with the fields of the request that the code runs for."""

import contextvars
import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_bound: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("shardflow_log_fields", default=None)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextmanager
def bind(**fields: Any) -> Iterator[None]:
    """Adds fields (such as `request_id`) to every line logged inside the block, in this task and those it starts."""
    before = _bound.get()
    _bound.set({**(before or {}), **fields})
    try:
        yield
    finally:
        _bound.set(before)  # a reset by token would fail where a generator is cleaned up in another context


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: time (UTC), level, service, event, then bound and extra fields."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """One line, without its newline."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "service": self._service,
            "event": record.getMessage(),
            **(_bound.get() or {}),
            **{key: value for key, value in vars(record).items() if key not in _STANDARD},
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, ensure_ascii=False)


def setup(service: str, level: str) -> None:
    """Sends all logs of this process to standard output as JSON."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter(service))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)
