"""A collective under way, and its result or error."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from hostlib.collectives import Collective, Engine
from hostlib.errors import NotInitialized


class Once:
    """Like `threading.Event`, but creates the event, which takes time, only when a thread waits."""

    __slots__ = ("_event", "_lock", "has_happened")

    def __init__(self) -> None:
        self.has_happened = False
        self._lock = threading.Lock()
        self._event: threading.Event | None = None

    def happen(self) -> None:
        """Record that the event has happened, and wake all waiting threads; later waits end at once."""
        with self._lock:
            self.has_happened = True
        if self._event:
            self._event.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the event has happened, `timeout_s` at most (None: no limit); return whether it has."""
        with self._lock:
            if self.has_happened:
                return True
            if self._event is None:
                self._event = threading.Event()
        return self._event.wait(timeout_s)


_log = logging.getLogger("hostlib")

Result = TypeVar("Result", bound=NDArray[Any] | None)
"""Result of a collective: an array; None at ranks other than the root of a reduce."""


class Handle(Generic[Result]):
    """A collective under way."""

    def __init__(
        self, collective: Collective, finish: Callable[[], Result], *, is_waited_for: bool = False
    ) -> None:
        self.collective = collective
        self.is_waited_for = is_waited_for
        """True if the call blocks its caller until it is done."""
        self._finish = finish
        self._process = os.getpid()
        self._finished = Once()
        self._outcome: list[Result] = []
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Handle[Result]], None]] = []
        self._lock = threading.Lock()

    def done(self) -> bool:
        """Return whether `wait` would return (or raise) at once."""
        return self._finished.has_happened

    def wait(self, timeout: float | None = None) -> Result:
        """Wait for the result and return it.

        Raises:
            TimeoutError: the collective has not ended within `timeout` seconds; it goes on.
            NotInitialized: this process was forked from the rank's process, which alone gets the result.
            InaError: the collective failed.
        """
        if os.getpid() != self._process and not self.done():
            raise NotInitialized(
                f"process {os.getpid()} was forked from process {self._process} while "
                f"{self.collective.description} was under way: only that parent process gets the result"
            )
        if not self._finished.wait(timeout):
            raise TimeoutError(f"{self.collective.description} is not done within {timeout} s")
        return self.result()

    def result(self) -> Result:
        """Return the result, or raise the collective's error. Raises RuntimeError until `done` is True."""
        if not self.done():
            raise RuntimeError(f"{self.collective.description} is not done")
        if self._error:
            raise self._error
        return self._outcome[0]

    def on_done(self, callback: Callable[[Handle[Result]], None]) -> None:
        """Call `callback` with this handle once the collective is done: now or in the library's thread.

        The next asynchronous collective begins only after the callback has returned. Exceptions of the
        callback are logged.
        """
        with self._lock:
            if not self._finished.has_happened:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def execute(self, engine: Engine) -> None:
        """Carry out the collective and keep its outcome for `result`; for the communicator only."""
        try:
            engine.run(self.collective)
        except BaseException as error:
            self.fail(error)
        self.end()

    def fail(self, error: BaseException) -> None:
        """Keep the first error for `result`; for the communicator only."""
        self._error = self._error or error

    def end(self) -> None:
        """Mark the collective done, with or without an error; for the communicator only."""
        try:
            if self._error is None:
                self._outcome.append(self._finish())
        except BaseException as error:
            self._error = error
        with self._lock:
            self._finished.happen()
        for callback in self._callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[Handle[Result]], None]) -> None:
        try:
            callback(self)
        except Exception:
            _log.exception("a callback of %s failed", self.collective.description)
