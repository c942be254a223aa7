"""Messages between the ranks of a job and the server of their launcher where they meet, over TCP.

Messages are JSON objects, one per line. `Lines` and `encode` are the codec of all servers derived from `Door`
(`hostlib.meet.connections`), which tell each other their version first (`hostlib.version.PROTOCOL`).

===========  =========================================================  ==================================
from worker  ``{"join": rank, "size": n, "job": id}``                    once, first, with its proof
             (`hostlib.meet.connections`)
             ``{"report": {name: number}}``                              progress, any time
             ``{"group": key, "ranks": [rank, …]}``                      it requests a job of these ranks; all
                                                                         of them do, with the same key
             ``{"waited": s}``                                           it has waited for s seconds, and not
                                                                         all have joined; a fault follows
             ``{"bye": n}``                                              farewell: it has the results of its n
                                                                         collectives, and begins no other; an
                                                                         orderly close follows
to worker    ``{"go": true}``                                            all ranks have joined
             ``{"gone": {rank: reason}}``                                these ranks died
             ``{"left": {rank: n}}``                                     these ranks left, each after its n
                                                                         collectives
             ``{"fault": reason}``                                       the job cannot go on
             ``{"granted": n}``                                          packets that the job may have in
                                                                         flight from now on; 0: no limit
             ``{"group": key, "config": text}``                          the group is admitted: this worker's
                                                                         `hostlib.JobConfig` in it
             ``{"group": key, "reason": text}``                          the group is not admitted
===========  =========================================================  ==================================

This module checks every message before use: length and depth of a line before it is parsed, then every field.
A `MessageError` names the fault, and never contains the token.

A machine that loses its power, or its cable, closes no connection: without probes of the kernel
(`notice_its_end`) a connection to that machine stays open forever. Probes do not show whether the process
there still works, because the machine's kernel answers them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from hostlib.core import News
from hostlib.errors import refuse

FROM_WORKER_BYTES: Final = 16 * 1024
"""Maximum bytes of a line from a worker: enough for a report of `MAX_NUMBERS` numbers."""
TO_WORKER_BYTES: Final = 1024 * 1024
"""Maximum bytes of a line to a worker: enough for the reasons why a thousand ranks are gone."""
MAX_NUMBERS: Final = 128
"""Maximum number of numbers in a report."""
MAX_KEY: Final = 100
"""Maximum number of characters of a group's key."""
MAX_BRACKETS: Final = 4
"""Maximum number of objects and lists in a message, itself included; no valid message has more than two."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?')  # an unterminated string ends with the line: linear time


class MessageError(ValueError):
    """A line is no message of this protocol; the text gives the reason."""


class Lines:
    """Splits a byte stream into JSON objects."""

    def __init__(self, longest: int, *, brackets: int = MAX_BRACKETS) -> None:
        """Start without data; limit lines to `longest` bytes, and to `brackets` objects and lists."""
        self._longest = longest
        self._brackets = brackets
        self._buffer = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the objects completed by `data`. Raises MessageError at the first invalid one."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > self._longest:
            raise MessageError(f"a line is longer than {self._longest} bytes")
        return [self._parse(line) for line in lines]

    def received(self, connection: socket.socket) -> Iterator[dict[str, Any]]:
        """Yield the objects received over a connection until it ends. Raises MessageError."""
        with contextlib.suppress(OSError):
            while data := connection.recv(65536):
                yield from self.feed(data)

    def _parse(self, line: bytes) -> dict[str, Any]:
        if len(line) > self._longest:
            raise MessageError(f"a line has {len(line)} bytes, must have {self._longest} at most")
        try:
            text = line.decode()
            plain = _STRING.sub("", text)
            if plain.count("{") + plain.count("[") > self._brackets:  # before the parser, which recurses
                raise MessageError(f"a line has more than {self._brackets} objects and lists")
            message = json.loads(text)
        except MessageError:
            raise
        except ValueError:
            raise MessageError("a line is not JSON") from None
        if not isinstance(message, dict):
            raise MessageError("a line is JSON, but not an object")
        return message


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as the bytes of its line."""
    return json.dumps(message).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Report:
    """Message: progress of a worker, numbers by name."""

    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Farewell:
    """Message: a worker has the results of this number of collectives, and begins no other."""

    collectives: int


@dataclass(frozen=True, slots=True)
class Waited:
    """Message: a worker has waited for this number of seconds for all to join, and gives up."""

    seconds: float

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> Self:
        """Return the message that a JSON object holds. Raises MessageError."""
        _check_fields(message, {"waited"})
        return cls(_number("waited", message["waited"]))


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """Message: a worker requests a new job for some ranks of its job, its own rank included."""

    key: str
    """Text that is the same for all these ranks, and different for every other request."""
    ranks: tuple[int, ...]
    """The ranks, in the order of their ranks in the new job."""

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> Self:
        """Return the message that a JSON object holds. Raises MessageError."""
        _check_fields(message, {"group", "ranks"})
        key, ranks = message["group"], message["ranks"]
        refuse(
            not isinstance(key, str) or not 0 < len(key) <= MAX_KEY,
            f"group must be a text of 1 to {MAX_KEY} characters",
            MessageError,
        )
        refuse(
            not isinstance(ranks, list) or not ranks, "ranks must be a list of one rank or more", MessageError
        )
        return cls(key, tuple(_whole("a rank", rank) for rank in ranks))


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """Message: a group was admitted, or not."""

    key: str
    config: str | None = field(default=None, repr=False)
    """The worker's configuration in the group, secret like its token; None: the group was not admitted."""
    reason: str = ""
    """Reason why the group was not admitted; "": it was admitted."""

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> Self:
        """Return the message that a JSON object holds. Raises MessageError."""
        key = _reason("group", message) or ""
        return cls(key, _reason("config", message), _reason("reason", message) or "")


def parse_from_member(message: Mapping[str, Any]) -> Report | Farewell | GroupRequest | Waited:
    """Return the message in a JSON object from a worker that has joined. Raises MessageError."""
    if "group" in message:
        return GroupRequest.parse(message)
    if "waited" in message:
        return Waited.parse(message)
    if "bye" in message:
        _check_fields(message, {"bye"})
        return Farewell(_whole("bye", message["bye"]))
    _check_fields(message, {"report"})
    numbers = message["report"]
    if not isinstance(numbers, dict) or len(numbers) > MAX_NUMBERS:
        raise MessageError(f"report must be an object of at most {MAX_NUMBERS} numbers")
    return Report({name: _number(f"report: {name[:40]!r}", number) for name, number in numbers.items()})


def parse_news(message: Mapping[str, Any]) -> News:
    """Return the news that a JSON object from the meeting point holds. Raises MessageError."""
    gone, left = message.get("gone", {}), message.get("left", {})
    refuse(
        not isinstance(gone, dict)
        or not all(rank.isdecimal() and isinstance(why, str) for rank, why in gone.items()),
        "gone must be an object with a reason for each rank",
        MessageError,
    )
    refuse(
        not isinstance(left, dict) or not all(rank.isdecimal() for rank in left),
        "left must be an object with a number for each rank",
        MessageError,
    )
    return News(
        go=message.get("go") is True,
        gone={int(rank): why for rank, why in gone.items()},
        left={int(rank): _whole("left", number) for rank, number in left.items()},
        fault=_reason("fault", message),
        granted=_whole("granted", message["granted"]) if "granted" in message else None,
    )


def _check_fields(message: Mapping[str, Any], expected: set[str]) -> None:
    if message.keys() != expected:
        raise MessageError(f"a message must have the fields {', '.join(sorted(expected))} and no others")


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise MessageError(f"{name} must be a finite number")
    return float(value)


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise MessageError(f"{name} must be a whole number, 0 or more")
    return value


def _reason(name: str, message: Mapping[str, Any]) -> str | None:
    reason = message.get(name)
    if reason is not None and not isinstance(reason, str):
        raise MessageError(f"{name} must be a text")
    return reason


SILENT_S: Final = 10
"""Seconds without an answer after which the far end counts as gone. No switch is so busy that it does not
answer for this time."""
_PROBES: Final = 6
GONE: Final = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
"""Error numbers of a connection whose far end has not answered."""


def shut_down(connection: socket.socket) -> None:
    """End a connection, so that threads at both ends notice; it may have ended already."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def notice_its_end(connection: socket.socket) -> None:
    """Turn on the kernel's keep-alive probes of a TCP connection; do nothing for other connections."""
    if connection.family != socket.AF_INET:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, SILENT_S - _PROBES),
        (socket.TCP_KEEPINTVL, 1),
        (socket.TCP_KEEPCNT, _PROBES),
        (socket.TCP_USER_TIMEOUT, 1000 * SILENT_S),  # limit for sent data without an acknowledgement
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
