"""Tells a supervisor such as systemd that the service is ready, alive, or ending (``sd_notify``).

Each message is a datagram to the socket in ``NOTIFY_SOCKET``; without that variable nothing is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Protocol

LOOK_S = 0.05


class _Serving(Protocol):
    @property
    def ready(self) -> str:
        """Why the service is not ready; "": it is ready."""


def tell(*lines: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send lines such as ``READY=1`` to the supervisor; return False if there is none, or it has ended."""
    path = environment.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return False
    where = "\0" + path[1:] if path.startswith("@") else path
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.sendto("\n".join(lines).encode(), where)
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


async def follow(service: _Serving, where: str) -> None:
    """Tell the supervisor once that the service at address `where` is ready, then regularly that it lives.

    This continues until cancelled. The messages are sent from the service's own loop: if that hangs, the
    supervisor receives none.
    """
    try:
        while service.ready:
            await asyncio.sleep(LOOK_S)
        tell("READY=1", f"STATUS=serving at {where}")
        every_s = watchdog_s()
        while every_s is not None:
            tell("WATCHDOG=1")
            await asyncio.sleep(every_s)
        await asyncio.Event().wait()
    finally:
        tell("STOPPING=1", "STATUS=ending; jobs keep running")
