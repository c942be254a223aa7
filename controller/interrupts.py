"""Delay signals until a block has ended, or end a block by SystemExit so that it releases its resources."""

from __future__ import annotations

import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def delay_interrupts(numbers: Collection[int] = (signal.SIGINT,), *, blocked: bool = True) -> Iterator[None]:
    """Delay these signals until the block has ended; the block should be short.

    Ctrl-C in a terminal sends SIGINT to all processes started from it, including child processes that are
    still importing modules. Here the parent process stops its children instead. Blocking a signal in this
    thread is not enough: another thread, such as a progress bar's or NumPy's, may get the signal, and Python
    then runs its handler in the main thread. So the signals' handlers are also replaced, by a handler that
    only records the signal.

    Args:
        numbers: Numbers of the signals. The handler of a signal is replaced only if it is a Python function.
        blocked: Whether to block the signals, too. Processes started in the block then never get them.
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
    """Raise SystemExit in the block on SIGTERM and SIGHUP, so that the block releases its resources.

    By default these signals end a process at once. A handler that is already installed, such as ``ina``'s,
    stays. A second signal of the same number ends the process.
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
