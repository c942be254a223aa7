"""Interrupts while the processes of a pool start."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Delay interrupts to the end of the block; processes started in it never see one.

    An interrupt reaches all processes of a terminal, also those that are still importing; the parent stops
    them. Blocked here, it may still reach another thread, such as a progress bar's, and then this one is
    interrupted: between a process and what it is to be told.
    """
    held: list[int] = []
    handler = None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    if threading.current_thread() is threading.main_thread():
        handler = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if held:
            signal.raise_signal(signal.SIGINT)
