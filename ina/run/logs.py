"""The service's own log, and its messages to a supervisor such as systemd.

The log has a line for each decision and each warning, as text or JSON.

A line names the jobs, the switch and the run that it is about, if there are any. A line about a decision also
has the decision's number in the log of decisions (``GET /v1/events``). Lines never contain tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import socket
import time
from collections.abc import Mapping
from typing import Literal, TextIO

from ina.run.daemon import Daemon

KINDS = ("text", "json")
FIELDS = ("decision", "event", "jobs", "switch", "run")
"""Names of the fields of a line besides its time, level and text, in this order."""

_log = logging.getLogger("ina.run.decisions")
_SWITCH = re.compile(r"\bswitch '([^']+)'")
_RUN = re.compile(r"^run (\d+)\b")


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


async def log_decisions(service: Daemon) -> None:
    """Write each decision to the log that is made after the service is ready, until cancelled.

    An earlier service has logged the decisions that this service found in its state.
    """
    while service.ready:
        await asyncio.sleep(READY_S)
    async for number, entry in service.watch(service.ledger.recovered_lines):
        _log.info(
            "%s",
            entry.text,
            extra={"decision": number, "event": entry.event, "jobs": list(entry.jobs)},
        )


def _one_line(text: str) -> str:
    """Return a text with escaped line breaks, so that it cannot imitate another log line."""
    return text.replace("\r", "\\r").replace("\n", "\\n  ")


READY_S = 0.05


def tell(*lines: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send lines such as ``READY=1`` to the supervisor; return False if there is none, or it has ended."""
    path = environment.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return False
    where = "\0" + path[1:] if path.startswith("@") else path
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto("\n".join(lines).encode(), where)
        return True
    return False


def watchdog_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return the interval, in s, at which the supervisor must learn that the service lives.

    None: the supervisor expects no such messages. The interval is half of the supervisor's time limit, as
    sd_watchdog_enabled(3) recommends.
    """
    allowed = environment.get("WATCHDOG_USEC", "")
    of_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(allowed) / 2e6 if of_us and allowed.isdecimal() and int(allowed) else None


async def notify(service: Daemon, where: str) -> None:
    """Tell the supervisor once that the service at address `where` is ready, then regularly that it lives.

    This continues until cancelled. The messages are sent from the service's own loop: if that hangs, the
    supervisor receives none.
    """
    try:
        while service.ready:
            await asyncio.sleep(READY_S)
        tell("READY=1", f"STATUS=serving at {where}")
        every_s = watchdog_s()
        while every_s is not None:
            tell("WATCHDOG=1")
            await asyncio.sleep(every_s)
        await asyncio.Event().wait()
    finally:
        tell("STOPPING=1", "STATUS=ending; jobs keep running")
