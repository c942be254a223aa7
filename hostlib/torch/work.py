"""Torch's view of a collective under way: work objects to wait for."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch._C._dynamo import eval_frame

from hostlib.collectives.handle import Once
from hostlib.errors import NotInitialized
from hostlib.torch.tensors import put

_log: Final = logging.getLogger("hostlib.torch")


class Callbacks:
    """Runs each call at once, in a free thread; threads are reused."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._free = 0
        """Number of idle threads, minus queued calls."""
        self._lock = threading.Lock()

    def run(self, call: Callable[[], None]) -> None:
        """Queue a call for a free thread. Any thread may call this method."""
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


Method = TypeVar("Method", bound=Callable[..., Any])


def untraced(method: Method) -> Method:
    """Exempt a method, with all its calls, from tracing by torch.compile.

    `torch.compiler.disable` would import the compiler, which takes seconds, in programs that do not compile.
    """
    skip = eval_frame._FrameAction.SKIP
    code = method.__code__
    eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(skip, skip))
    return method


_LOOK: Final = timedelta(seconds=0.25)
_TIMED_OUT: Final = "Operation timed out!"
"""Text of the error that torch 2.13 raises if a wait times out earlier than gloo."""


class WaitTimeout(TimeoutError, RuntimeError):
    """A collective did not end within the time given to `wait`; the collective goes on."""


class SwitchWork(dist.Work):
    """A collective that `complete` ends, from any thread; its result is `tensors`."""

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        what: str,
        callbacks: Callbacks,
        parts: int = 1,
        *,
        device: torch.device | None = None,
        order: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        """Start the work.

        Args:
            tensors: The tensors that hold the result.
            what: The collective's name in errors.
            callbacks: The threads for callbacks of the work's future.
            parts: Number of parts; the work ends when all parts have ended, or one fails.
            device: Device of the tensors, if the work may end before the device has written the result. Only
                later work on the caller's stream then finds the result. None: the work ends afterwards.
            order: Function that returns a context of the stream on which results become ready.
        """
        super().__init__()
        self._tensors = list(tensors)
        self._what = what
        self._callbacks = callbacks
        self._parts = parts
        self._order = order
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._done = Once()
        self._process = os.getpid()
        self._joins: list[Callable[[], None]] = []
        self._devices = [device] if device is not None and device.type == "cuda" else None
        self._end: torch.futures.Future[list[torch.Tensor]] | None = None
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

    def complete(self, error: BaseException | None = None, join: Callable[[], None] | None = None) -> None:
        """Record that a part has ended. The work ends with its last part, or with the first error.

        Callbacks of the future run in another thread: they may wait for collectives that the calling thread
        still has to carry out. `wait` calls `join`, which makes later work of the waiting thread on the
        device wait for the result.
        """
        with self._lock:
            self._joins += [join] if join else []
            self._parts -= 1
            if self._done.has_happened or (self._parts > 0 and error is None):
                return
            self._error = error
            self._done.happen()
            end = self._end
        if end is not None:
            self._callbacks.run(lambda: self._set(end))

    @untraced
    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the collective's end; a `timeout` of 0 is no limit. Raises its error, or WaitTimeout."""
        if os.getpid() != self._process and not self._done.has_happened:
            raise NotInitialized(
                f"{self._what} is under way in process {self._process}, which alone can wait for it"
            )
        seconds = timeout.total_seconds()
        if not self._done.wait(seconds if seconds > 0 else None):
            raise WaitTimeout(f"{self._what} is not done within {seconds:g} s")
        if self._error:
            raise self._error
        for join in self._joins:
            join()
        return True

    def synchronize(self) -> None:
        """Wait for the end of the collective."""
        self.wait()

    @untraced
    def get_future(self) -> Any:
        """Return a future of the tensors."""
        with self._lock:
            if self._future is not None:
                return self._future
            self._end = end = torch.futures.Future(devices=self._devices)
            # An error raised in a callback reaches waits in C++, such as DDP's; set_exception does not.
            self._future = end.then(self._outcome)
            is_done = self._done.has_happened
        if is_done:
            self._set(end)
        return self._future

    def _set(self, end: torch.futures.Future[list[torch.Tensor]]) -> None:
        with self._order():
            end.set_result(self._tensors)

    def is_completed(self) -> bool:
        """Return whether the collective has ended, with or without an error."""
        return self._done.has_happened

    def is_success(self) -> bool:
        """Return whether the collective has ended without an error."""
        return self._done.has_happened and self._error is None

    def exception(self) -> BaseException | None:
        """Return the error of the call; None if there is none, or the call has not ended."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """Return the tensors."""
        return self._tensors

    def _outcome(self, end: Any) -> list[torch.Tensor]:
        if self._error:
            raise self._error
        return self._tensors


class GlooWork(dist.Work):
    """A work of the inner gloo group; if it fails, and the cause is known, the cause is raised instead."""

    def __init__(
        self,
        inner: dist.Work,
        why: Callable[[bool], BaseException | None],
        messages: set[object] | None,
        outputs: Sequence[tuple[torch.Tensor, torch.Tensor]],
    ) -> None:
        """Wrap the inner group's work.

        Args:
            inner: The inner work.
            why: Function that returns the known cause of a failure, or None; its argument is True if only a
                wait has timed out.
            messages: Set that holds a send or a receive until it has been waited for; None for other calls.
            outputs: The caller's tensors for the result, each with the contiguous one that gloo fills;
                empty if gloo has the caller's own.
        """
        super().__init__()
        self._inner = inner
        self._why = why
        self._messages = messages
        self._mark = object()  # not `self`: the id of a dropped work may be reused
        if messages is not None:
            messages.add(self._mark)
        self._outputs = outputs
        self._lock = threading.Lock()
        self._waited = False

    @untraced
    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the collective's end; a `timeout` of 0 is the group's time-out. Raises its error."""
        deadline = time.monotonic() + timeout.total_seconds() if timeout else None
        while not self._done_within(timeout):
            if deadline is not None and time.monotonic() > deadline:
                raise WaitTimeout(f"the collective is not done within {timeout.total_seconds():g} s")
        self._end()
        if self._messages is not None:
            self._messages.discard(self._mark)
        return True

    def _end(self) -> None:
        """Copy the result to the outputs, once."""
        with self._lock:
            for output, copy in () if self._waited else self._outputs:
                if output is not copy:
                    put(output, copy)
            self._waited = True  # some of gloo's works never count as completed

    def _done_within(self, timeout: timedelta) -> bool:
        """Wait for the collective's end, for `_LOOK` or a shorter `timeout`; return True if it has ended.

        The caller repeats this, because a wait of gloo does not notice that the group was aborted. Only a
        wait for a send or a receive takes up to `timeout`: its time-out would end sends and receives
        for good.
        """
        try:
            if self._messages is not None:  # a time-out would end sends and receives for good
                return bool(self._inner.wait(timeout) if timeout else self._inner.wait())
            return bool(self._inner.wait(min(timeout, _LOOK) if timeout else _LOOK))
        except RuntimeError as error:
            timed_out = _TIMED_OUT in str(error) and self._messages is None
            if known := self._why(timed_out):
                raise known from error
            if timed_out:
                return False
            raise

    def synchronize(self) -> None:
        """Wait for the end of the collective."""
        self.wait()

    @untraced
    def get_future(self) -> Any:
        """Return a future of the result."""
        future = self._inner.get_future()
        return future.then(self._ended) if self._outputs else future

    def _ended(self, done: Any) -> Any:
        done.value()  # raises the call's error
        self._end()
        return self.result()

    def is_completed(self) -> bool:
        """Return whether the collective has ended, with or without an error."""
        if self._outputs and self._inner.is_completed():
            self._end()
        return self._waited or bool(self._inner.is_completed())

    def is_success(self) -> bool:
        """Return whether the collective has ended without an error."""
        return bool(self._inner.is_success())

    def exception(self) -> Any:
        """Return the error of the call."""
        return self._inner.exception()

    def result(self) -> Any:
        """Return the tensors."""
        return [output for output, _ in self._outputs] or self._inner.result()

    def source_rank(self) -> int:
        """Return the rank that sent the message received by `recv_anysource`."""
        return int(self._inner._source_rank())

    _source_rank = source_rank
