"""Interrupts that wait while a process is being started, so that nobody's child is forgotten."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP wait for the end of the block, which has to be short.

    Blocking them would not do: another thread takes the signal (NumPy has threads), and Python raises it
    in the main thread all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread only
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(handler := signal.getsignal(number)):
                before[number] = handler
                signal.signal(number, note)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for noted in came:
            signal.raise_signal(noted)
