"""Threads for callbacks of futures, which may themselves wait for collectives."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

_log: Final = logging.getLogger("hostlib.torch")


class Callbacks:
    """Runs calls at once, each in a thread that no other call holds; threads are reused."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._free = 0
        """Threads that wait for a call, less the calls that wait for one of them."""
        self._lock = threading.Lock()

    def run(self, call: Callable[[], None]) -> None:
        """Have a call made. Any thread may ask."""
        with self._lock:
            if self._free:
                self._free -= 1
            else:
                thread = threading.Thread(target=self._serve, name="callbacks", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._calls.put(call)

    def stop(self, timeout_s: float) -> bool:
        """End the threads; return whether all have ended within the time. No call may follow."""
        until_s = time.monotonic() + timeout_s
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception:
                _log.exception("a callback failed")
            with self._lock:
                self._free += 1
