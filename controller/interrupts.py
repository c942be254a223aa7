"""Delay signals to the end of a block, or exit from it in good order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def delay_interrupts(numbers: Collection[int] = (signal.SIGINT,), *, blocked: bool = True) -> Iterator[None]:
    """Delay these signals to the end of the block, which has to be short.

    An interrupt reaches all processes of a terminal, also those that are still importing; the parent stops
    them. A signal that this thread has blocked may still reach another one, such as a progress bar's or
    NumPy's, and then Python interrupts the main thread all the same: so handlers only note it, too.

    Args:
        numbers: Numbers of the signals; those without a handler in Python are not delayed by noting them.
        blocked: Block them as well: processes that are started in the block never see one.
    """
    came: list[int] = []
    before = {}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers if blocked else ())
    try:
        if threading.current_thread() is threading.main_thread():  # handlers run nowhere else
            for number in numbers:
                if callable(handler := signal.getsignal(number)):
                    before[number] = handler
                    signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in dict.fromkeys(came):
            signal.raise_signal(number)


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise SystemExit in the block on SIGTERM and SIGHUP, so that it releases its resources.

    By themselves they end a process at once. Other handlers stay, such as ``ina``'s; a second signal of the
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
