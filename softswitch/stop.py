"""What ends a process that runs until it is told to stop."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from typing import Final, Self

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_SOMEBODY: Final = 0
"""Written where a signal writes its number."""


class Stop:
    """An event that is set by SIGTERM, SIGINT, or any thread; used in a ``with``, by the main thread.

    A signal writes into a socket as it comes (`signal.set_wakeup_fd`), and the main thread waits for that.
    If it waited for a `threading.Event`, a signal that came while it was about to would go unnoticed for
    ever, and a handler that sets the event would wait for a lock that the thread it interrupts may hold.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._heard, self._told = socket.socketpair()
        self._told.setblocking(False)  # a full one has been told

    def __enter__(self) -> Self:
        """Take over the two signals. Raises ValueError in another thread than the main one."""
        self._woke = signal.set_wakeup_fd(self._told.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _only_wake) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signals back to their earlier handlers, and let all who wait go on."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._woke)
        self._event.set()
        self._heard.close()
        self._told.close()

    def set(self) -> None:
        """Stop, from any thread; without effect once it has ended."""
        self._event.set()
        with contextlib.suppress(OSError):
            self._told.send(bytes((_SOMEBODY,)))

    def wait(self, timeout_s: float) -> bool:
        """Wait so long, in another thread than the main one; return whether it is to stop."""
        return self._event.wait(timeout_s)

    def wait_in_main_thread(self) -> None:
        """Wait until it is to stop; other signals go on to their handlers."""
        while self._heard.recv(1)[0] not in (_SOMEBODY, *SIGNALS):
            pass
        self._event.set()


def _only_wake(number: int, frame: object) -> None:
    """Do nothing: what matters is that the signal wakes up whoever reads."""
