"""Checks before a route is called: limits on connections, and on a request's headers, size and duration."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import resource
import socket
import sys
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ina.api.problems import Problem

MAX_BODY_BYTES = 16 << 20
"""Enough for 10,000 jobs."""
BODY_S = 30.0
"""Maximum time, in s, in which a request's body must arrive."""

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """ASGI middleware that refuses requests with a wrong Host header or origin, or too large a body.

    Args:
        app: The application that gets the accepted requests.
        hosts: Allowed names in the Host header; None: any. The check protects a service on loopback, which
            may need no token, from DNS rebinding: a web page whose own name resolves to 127.0.0.1.
        answers: Counts the answers by status code.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] | None, answers: Counter[int]) -> None:
        self._app = app
        self._hosts = hosts
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request with a problem document, or pass it on to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._answers[message["status"]] += 1
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(scope)
            body = await _body(scope, receive)
        except Problem as problem:
            await problem.response()(scope, receive, sending)
            return
        if scope["method"] == "HEAD":  # the server sends no body, as it knows the method
            scope = {**scope, "method": "GET"}
        await self._app(scope, _replaying(body, receive), sending)

    def _check(self, scope: Scope) -> None:
        """Raise Problem for a wrong Host header, and if a web page of another site requests a change."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._hosts is not None and (name := _name(host)) not in self._hosts:
            raise Problem(
                421, f"the Host header is {name[:80]!r}; want one of {', '.join(sorted(self._hosts))}"
            )
        if scope["method"] in _SAFE:
            return
        # A browser adds the origin of the page, or states that it belongs to another site.
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise Problem(403, f"a page of {origin[:80]!r} may not send this request")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Problem(403, "a page of another site may not send this request")


def _name(host: str) -> str:
    """Return the name in a Host header, without the port.

    >>> _name("[::1]:80"), _name("localhost:80"), _name("")
    ('::1', 'localhost', '')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


async def _body(scope: Scope, receive: Receive) -> bytes:
    """Receive and return the request's body. Raises Problem if it is too large, or arrives too slowly."""
    length = Headers(scope=scope).get("content-length", "")
    too_large = Problem(
        413, f"the body is too large: want at most {MAX_BODY_BYTES} bytes", headers={"Connection": "close"}
    )
    if length.isascii() and length.isdecimal() and int(length[:20]) > MAX_BODY_BYTES:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    raise too_large
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise Problem(
            408, f"the body took longer than {BODY_S:g} s", headers={"Connection": "close"}
        ) from None


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Return a replacement of `receive` for the application.

    Its first call returns the body, which has been read already; later calls call `receive`.
    """
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


Place = tuple[str, int]
PER_PEER = 128
"""Maximum number of simultaneous connections from one user of this machine, or from one other machine."""
MOST = 1024
"""Maximum number of simultaneous connections, or half of this process's file descriptors if that is less."""
RESERVED = 64
"""Number of connections, of `MOST`, that are reserved for root and the controller's own user."""
UNASKED = 32
"""Number of simultaneous connections up to which every new connection is accepted. Above this number, the
user of each new connection is looked up first. The look-up takes time."""


class Peer:
    """The other end of a connection. Its user is looked up once per connection, not for each request.

    Args:
        client: The address of the other end; None: the other end has no address.
        server: Host and port of this end. A port None means that this end is a Unix socket, to which only the
            socket's owner and root can connect.
    """

    def __init__(self, client: Place | None, server: tuple[str, int | None] | None) -> None:
        self._client = client
        self._server = server
        self._uid: int | None = None

    def uid(self) -> int | None:
        """Return the ID of the user of this machine who made the connection; None: unknown."""
        if self._uid is None:
            if self._client is None or self._server is None or self._server[1] is None:
                self._uid = os.geteuid()
            else:
                self._uid = uid_of(self._client, (self._server[0], self._server[1]))
        return self._uid


class Listener(socket.socket):
    """A listening socket, of TCP or a Unix socket of this user, that limits connections.

    It sends `refusal` on a connection above a limit, and closes the connection. It counts connections as soon
    as they are accepted, because a client may never send a TLS handshake or a request.
    """

    refusal = b""

    def __init__(self, family: int) -> None:
        # asyncio turns Nagle's algorithm off where it knows that a socket is TCP's. With it the body of an
        # answer waits until the other side has acknowledged the header: 40 ms.
        super().__init__(family, socket.SOCK_STREAM, 0 if family == socket.AF_UNIX else socket.IPPROTO_TCP)
        self._taken: list[tuple[socket.socket, object]] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; return its socket and the client's address.

        Raises ConnectionAbortedError if the connection is above a limit, and was refused.
        """
        connection, client = super().accept()
        self._taken = [each for each in self._taken if each[0].fileno() >= 0]
        if len(self._taken) < UNASKED:
            self._taken.append((connection, None))
            return connection, client
        # the client of a Unix socket has no address, and is this user, or root
        uid = uid_of(client[:2], connection.getsockname()[:2]) if client else os.geteuid()
        owner = client[0] if uid is None else uid
        most = min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        own = uid in (0, os.geteuid())
        if len(self._taken) < (most if own else most - RESERVED) and (
            own or Counter(peer for _, peer in self._taken)[owner] < PER_PEER
        ):
            self._taken.append((connection, owner))
            return connection, client
        with connection, contextlib.suppress(OSError):
            connection.setblocking(False)
            connection.send(self.refusal)
        raise ConnectionAbortedError


def uid_of(client: Place, server: Place, tables: Path = Path("/proc/net")) -> int | None:
    """Return the ID of the user whose socket connects `client` to `server`; None: unknown.

    Both ends must be on this machine. The user is found in the kernel's list of the machine's TCP sockets
    (proc_pid_net(5)), in O(connections of the machine).
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        table = "tcp6" if ":" in client[0] else "tcp"
        wanted = [_written(client), _written(server)]
        with (tables / table).open(encoding="ascii") as file:
            for line in file:
                fields = line.split()
                if fields[1:3] == wanted:
                    return int(fields[7])
    return None


def _written(place: Place) -> str:
    """Return a host and a port in the form of /proc/net/tcp: in hexadecimal, the host in host byte order.

    >>> _written(("127.0.0.1", 80)) if sys.byteorder == "little" else "0100007F:0050"
    '0100007F:0050'
    """
    packed = ipaddress.ip_address(place[0]).packed
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words) + f":{place[1]:04X}"
