"""The far end of a switch's UDP port, in the middle of a link: passes on, and sends what it likes."""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import threading
from typing import Self

ARP = b"\x08\x06"
FRAMES_KEPT = 500
"""Fewer than one array has: what is sent again is old then."""


class Tap:
    """What it sends comes from the address that the switch knows; a context manager."""

    def __init__(self) -> None:
        self.outer = _socket()
        """Towards the switch."""
        self._inner = _socket()
        self._wake, self._woken = socket.socketpair()
        self._worker: tuple[str, int] | None = None
        self.sent: list[bytes] = []
        """The first frames of the worker."""
        self.arp: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        """ARP frames from the switch."""
        self._thread = threading.Thread(target=self._serve)

    @property
    def number(self) -> int:
        """The UDP port that the switch is to have for its peer."""
        return int(self.outer.getsockname()[1])

    @property
    def address(self) -> str:
        """What the worker is to take for the switch."""
        return f"127.0.0.1:{self._inner.getsockname()[1]}"

    def start(self, switch: str) -> None:
        """Connect to the switch's port, and pass frames both ways from now on."""
        host, _, number = switch.rpartition(":")
        self.outer.connect((host, int(number)))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wake.send(b"x")
        if self._thread.ident:
            self._thread.join()
        for each in (self.outer, self._inner, self._wake, self._woken):
            each.close()

    def _serve(self) -> None:
        while True:
            ready = select.select([self.outer, self._inner, self._woken], [], [])[0]
            if self._woken in ready:
                return
            with contextlib.suppress(OSError):  # an end that is not there
                if self.outer in ready:
                    self._from_switch(self.outer.recv(65536))
                if self._inner in ready:
                    frame, self._worker = self._inner.recvfrom(65536)
                    if len(self.sent) < FRAMES_KEPT:
                        self.sent.append(frame)
                    self.outer.send(frame)

    def _from_switch(self, frame: bytes) -> None:
        if frame[12:14] == ARP:
            self.arp.put(frame)
        elif self._worker is not None:
            self._inner.sendto(frame, self._worker)


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    made.bind(("127.0.0.1", 0))
    return made
