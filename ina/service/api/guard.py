"""What holds for every request before it is looked at: names, origins, sizes, times, headers of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ina.service.api.problems import Problem

MAX_BODY_BYTES = 16 << 20
"""Enough for 10,000 jobs."""
BODY_S = 30.0
"""Within which a whole body has to come."""

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
    """ASGI middleware around the application.

    Args:
        app: What requests that pass are given to.
        hosts: The names that a request may have in its Host header; None: any. On loopback no token may be
            needed, and a page of another site could have its own name lead to 127.0.0.1 (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
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
        await self._app(scope, _replaying(body, receive), sending)

    def _check(self, scope: Scope) -> None:
        """Raise Problem for what no request of ours would be."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._hosts is not None and (name := _name(host)) not in self._hosts:
            raise Problem(
                421, f"the Host header is {name[:80]!r}; want one of {', '.join(sorted(self._hosts))}"
            )
        if scope["method"] in _SAFE:
            return
        # What another site's page sends carries its origin, or says that it comes from there.
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise Problem(403, f"a page of {origin[:80]!r} may not send this request")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Problem(403, "a page of another site may not send this request")


def _name(host: str) -> str:
    """Return a Host header's name without the port.

    >>> _name("[::1]:80"), _name("localhost:80"), _name("")
    ('::1', 'localhost', '')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


async def _body(scope: Scope, receive: Receive) -> bytes:
    """Return the whole body. Raises Problem for one that is too large or too slow."""
    told = Headers(scope=scope).get("content-length", "")
    too_large = Problem(
        413, f"the body is too large: want at most {MAX_BODY_BYTES} bytes", headers={"Connection": "close"}
    )
    if told.isascii() and told.isdecimal() and int(told[:20]) > MAX_BODY_BYTES:
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
    """Return a `receive` that gives the body once more, and then what comes after it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
