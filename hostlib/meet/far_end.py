"""Connections that notice within `SILENT_S` that the machine at the far end is gone.

A machine that loses its power, or its cable, closes nothing: without these probes of the kernel a connection
to it stays open for ever. They say nothing of the process there, for which its kernel answers.
"""

from __future__ import annotations

import errno
import socket
from typing import Final

SILENT_S: Final = 10
"""Time without any answer after which the far end is gone; longer than a switch may be busy."""
_PROBES: Final = 6
GONE: Final = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
"""Errors of a connection whose far end has not answered."""


def notice_its_end(connection: socket.socket) -> None:
    """Have the kernel ask the far end of a TCP connection whether it is there."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, SILENT_S - _PROBES),
        (socket.TCP_KEEPINTVL, 1),
        (socket.TCP_KEEPCNT, _PROBES),
        (socket.TCP_USER_TIMEOUT, 1000 * SILENT_S),  # what was sent is not acknowledged
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
