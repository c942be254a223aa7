"""Interrupts and what they leave behind: nobody's child is forgotten, and no testbed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
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


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise SystemExit in the block, so that what it holds is given back.

    By themselves they end a process at once. Other handlers stay, as those of ``ina``; a second signal of the
    same number ends the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread only
        return

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise SystemExit(128 + number)

    numbers = [
        number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL
    ]
    try:
        for number in numbers:
            signal.signal(number, end)
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
