"""The service's own log: a line for each decision and each warning, as text or JSON.

A line names the jobs, the switch and the run that it is about, if there are any. A line about a decision also
has the decision's number in the log of decisions (``GET /v1/events``). Lines never contain tokens.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import AsyncIterator
from typing import Literal, Protocol, TextIO

from ina.service.views import LogLine

KINDS = ("text", "json")
FIELDS = ("decision", "event", "jobs", "switch", "run")
"""Names of the fields of a line besides its time, level and text, in this order."""

_log = logging.getLogger("ina.service.decisions")
_SWITCH = re.compile(r"\bswitch '([^']+)'")
_RUN = re.compile(r"^run (\d+)\b")


class _Watched(Protocol):
    def watch(self, after: int = 0) -> AsyncIterator[LogLine]:
        """Yield the lines of the log of decisions with numbers above `after`, then each new line.

        The iteration does not end.
        """


class _Format(logging.Formatter):
    """Formats log records as lines of JSON, or as lines of text with the fields in brackets."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a log record."""
        text = record.getMessage()
        found = {name: getattr(record, name) for name in FIELDS if getattr(record, name, None)}
        for name, pattern in (("switch", _SWITCH), ("run", _RUN)):
            if name not in found and (match := pattern.search(text)):
                found[name] = int(match[1]) if name == "run" else match[1]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        when = f"{stamp}.{record.msecs:03.0f}Z"
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        if self._kind == "json":
            return json.dumps({"time": when, "level": record.levelname.lower(), **found, "text": text})
        beside = " ".join(
            f"{name}={','.join(value) if isinstance(value, list) else value}" for name, value in found.items()
        )
        return f"{when} {record.levelname.lower():<7} {f'[{beside}] ' if beside else ''}{_one_line(text)}"


def write_to(stream: TextIO, kind: Literal["text", "json"] = "text") -> None:
    """Write the service's log to a stream, one line per record."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Format(kind))
    log = logging.getLogger("ina")
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False


async def follow(service: _Watched, after: int) -> None:
    """Write each decision with a number above `after`, and each new one, to the log, until cancelled."""
    async for number, entry in service.watch(after):
        _log.info(
            "%s",
            entry.text,
            extra={"decision": number, "event": entry.event, "jobs": list(entry.jobs)},
        )


def _one_line(text: str) -> str:
    """Return a text with escaped line breaks, so that it cannot imitate another log line."""
    return text.replace("\r", "\\r").replace("\n", "\\n  ")
