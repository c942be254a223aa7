"""Blocking collectives in the caller's thread; asynchronous ones in a thread of their own, several at a time.

The ranks agree on the order of asynchronous collectives: they vote on the number of calls that all of them
have submitted. From these calls each rank chooses the same next step (`hostlib.collectives.schedule`). Small
collectives are carried out together, ahead of large ones (`hostlib.collectives.fusion`).
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from hostlib.collectives import Collective, Engine
from hostlib.collectives.fusion import FusedCollective, error_of_slice, slice_of
from hostlib.collectives.handle import Handle, Result
from hostlib.collectives.schedule import Fused, Limits, Packets, Schedule, Slice, agreed, ballot
from hostlib.config import JobConfig
from hostlib.errors import JobFault, NotInitialized

Request = tuple[Collective, Callable[[], Result]]
"""A requested collective, and the function that returns its result when it is done."""
Given = ParamSpec("Given")
Ours = TypeVar("Ours", bound="CallOrder")
_MOST_UNASKED: Final = 15


class CallOrder:
    """Carries out the requests of one rank, in an order on which all ranks agree."""

    def __init__(self, config: JobConfig | None, engine: Engine, limits: Limits) -> None:
        """Start without requests.

        Args:
            config: The job; None: a job of this process alone.
            engine: Carries out the collectives.
            limits: Sizes of fused and sliced collectives.
        """
        self.rank = config.rank if config else 0
        self.size = config.size if config else 1
        self._engine = engine
        self._limits = limits
        self._lanes = config.lanes if config else 1
        self._packets = Packets(self._lanes, config.numbers if config else "exponent")
        self._queue: deque[Handle[Any]] = deque()
        """Submitted calls that are not in the schedule yet."""
        self._schedule = Schedule(limits, self._packets)
        """Calls that all ranks have submitted. For the library's thread only; empty unless `_busy`."""
        self._agreed = 0
        """Number of calls that have been added to the schedule so far."""
        self._unasked = self._unasked_next = 0
        """`_unasked`: how many of the next calls are carried out without a vote of the ranks on whether all
        ranks wait for the call. `_unasked_next`: the value that `_unasked` gets if the next vote finds that
        all wait. See `_all_wait`."""
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        """Condition on `_lock`. Methods acquire `_lock` itself: a condition releases it by code in Python,
        which an interrupt can skip."""
        self._busy = False
        self._closed = False
        self._process = os.getpid()
        self._thread: threading.Thread | None = None

    def finish(self) -> bool:
        """Refuse further requests, carry out the submitted ones, and end the library's thread.

        Return False, at once, if this method was called before.
        """
        with self._lock:
            if self._closed:
                return False
            self._closed = True
            self._change.notify_all()
            self.drain()
        if self._thread:
            self._thread.join()
        return True

    def drain(self, timeout_s: float | None = None) -> bool:
        """Wait for submitted calls, `timeout_s` at most; return whether all have ended."""
        with self._lock:
            return self._change.wait_for(lambda: not self._busy and not self._queue, timeout_s)

    def _run(self, request: Request[Result]) -> Result:
        self._check_process()
        collective, finish = request
        inline = False
        try:
            with self._lock:
                if self._busy or self._queue:
                    handle = Handle(collective, finish, is_waited_for=True)
                    self._enqueue(handle)
                else:
                    self._check_open()
                    inline = self._busy = True
            if not inline:
                return handle.wait()
            self._engine.run(collective)
        finally:
            if inline:
                # Before any call: each can be interrupted (Ctrl-C that the caller catches, an alarm), and
                # then no thread would ever have a turn again.
                self._busy = False
                self._serve_the_rest()
        return finish()

    def start(self, request: Request[Result]) -> Handle[Result]:
        """Submit a request as an asynchronous collective; return its handle.

        Return at once, unless the option `inline` is set and this thread carries out the call.
        """
        self._check_process()
        collective, finish = request
        handle, may_inline, inline = Handle(collective, finish), collective.options.inline, False
        try:
            with self._lock:
                if may_inline and not self._busy and not self._queue:
                    self._check_open()
                    self._queue.append(handle)
                    inline = self._busy = True
                else:
                    self._enqueue(handle)
            if inline:
                self._carry_out(waits=True)
        finally:
            if inline:  # before any call, as in `_run`
                self._busy = False
                self._serve_the_rest()
        return handle

    def _enqueue(self, handle: Handle[Any]) -> None:
        self._check_open()
        self._queue.append(handle)
        self._serve_the_rest()

    def _serve_the_rest(self) -> None:
        """Wake all waiting threads; start the library's thread if it must carry out submitted collectives."""
        with self._lock:
            if self._queue and self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="allreduce", daemon=True)
                self._thread.start()
            self._change.notify_all()

    def _check_process(self) -> None:
        # before any lock is acquired: a thread may have held it when the process was forked
        if os.getpid() != self._process:
            raise NotInitialized(
                f"process {os.getpid()} was forked from rank {self.rank}, process {self._process}, which "
                "alone can call collectives"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise NotInitialized("the communicator is closed")

    def _serve(self) -> None:
        while True:
            with self._lock:
                self._change.wait_for(lambda: not self._busy and (self._queue or self._closed))
                if not self._queue:
                    return
                self._busy = True
            self._carry_out()
            self._busy = False
            self._serve_the_rest()

    def _carry_out(self, *, waits: bool = False) -> None:
        """Carry out the oldest call, and all calls that all ranks have submitted meanwhile.

        `waits` is True if this thread waits for the oldest call. If all ranks wait for that call, or if it is
        a step of its own, it is carried out alone and whole.
        """
        first = self._queue[0]
        alone = self.size == 1 or first.is_waited_for or self._schedule.is_one_step(first.collective)
        try:
            if alone or self._all_wait(waits=waits):
                self._execute(self._queue.popleft())
                return
            while self._schedule:
                self._step()
                if self._schedule:
                    self._agree()
        except BaseException as error:  # no submitted call can be carried out any more
            for handle in self._all_submitted():
                handle.fail(error)
                handle.end()

    def _all_wait(self, *, waits: bool) -> bool:
        """Return whether to carry out the oldest call alone, because all ranks wait for it.

        A vote decides this. If several votes in a row found that all ranks wait, the next calls need no vote:
        all ranks are assumed to wait for them, too. Each such vote about doubles the number of these calls,
        up to `_MOST_UNASKED`. All ranks know the votes, and so decide alike. If a rank does not wait for such
        a call, the only loss is that the call is not fused with later calls.
        """
        if self._unasked:
            self._unasked -= 1
            return True
        if all_wait := self._agree(waits=waits):
            self._unasked = self._unasked_next
        self._unasked_next = min(2 * self._unasked_next + 1, _MOST_UNASKED) if all_wait else 0
        return all_wait

    def _execute(self, handle: Handle[Any]) -> None:
        self._await_arrival([handle])
        handle.execute(self._engine)

    def _agree(self, *, waits: bool = False) -> bool:
        """Vote on the submitted calls. Return True if all ranks wait for the first call.

        Otherwise schedule the calls that all ranks have submitted, and return False.
        """
        with self._lock:
            ready = min(len(self._queue), self._lanes - 1)
        number, description = self._agreed, "what comes next"
        if not self._schedule:
            number, description = self._queue[0].collective.number, self._queue[0].collective.description
        part = f"asynchronous, {self._limits}"
        vote = ballot(ready, self._lanes, waits=waits, number=number, description=description, part=part)
        self._engine.run(vote)
        count, all_wait = agreed(vote, self.size)
        if all_wait:
            return True
        self._agreed += count
        with self._lock:
            for _ in range(count):
                self._schedule.add(self._queue.popleft())
        return False

    def _step(self) -> None:
        match self._schedule.next():
            case Slice(handle, first, count, is_last):
                self._await_arrival([handle] if first == 0 else [])
                self._carry_out_slice(handle, first, count, is_last=is_last)
            case Fused([handle]):
                self._execute(handle)
            case Fused(handles):
                self._await_arrival(handles)
                self._carry_out_fused(handles)

    def _await_arrival(self, handles: Sequence[Handle[Any]]) -> None:
        """Wait until the sources of these calls are copied from devices; if a copy fails, end the job."""
        for handle in handles:
            try:
                if handle.collective.options.arrived:
                    handle.collective.options.arrived()
            except Exception as error:
                reason = (
                    f"{handle.collective.description}: its array was not copied from the device: {error!r}"
                )
                self._engine.abort(reason, JobFault)

    def _carry_out_slice(self, handle: Handle[Any], first: int, count: int, *, is_last: bool) -> None:
        try:
            self._engine.run(slice_of(handle.collective, first, count, is_last=is_last))
        except BaseException as error:
            handle.fail(error_of_slice(error, first))
        if is_last:
            handle.end()

    def _carry_out_fused(self, handles: Sequence[Handle[Any]]) -> None:
        fused = FusedCollective([handle.collective for handle in handles], self._packets)
        outcomes: Sequence[BaseException | None]
        try:
            outcomes = fused.carry_out(self._engine.run)
        except BaseException as error:
            outcomes = [error] * len(handles)
        self._schedule.put_back(handles[len(outcomes) :])
        for handle, outcome in zip(handles, outcomes, strict=False):
            if outcome:
                handle.fail(outcome)
            handle.end()

    def _all_submitted(self) -> list[Handle[Any]]:
        with self._lock:
            submitted = [*self._schedule.drain(), *self._queue]
            self._queue.clear()
        return submitted


def waiting(
    make: Callable[Concatenate[Ours, Given], Request[Result]],
) -> Callable[Concatenate[Ours, Given], Result]:
    """Return a method that makes a request by `make`, carries it out, and returns its result."""

    @functools.wraps(make)
    def call(self: Ours, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        return self._run(make(self, *args, **kwargs))

    _show(call, make, "{}")
    return call


def starting(
    waits: Callable[Concatenate[Ours, Given], Result],
) -> Callable[Concatenate[Ours, Given], Handle[Result]]:
    """Return the asynchronous version of `waits`, a method made by `waiting`; it returns a handle."""
    make: Callable[Concatenate[Ours, Given], Request[Result]] = waits.__wrapped__  # type: ignore[attr-defined]

    @functools.wraps(make)
    def call(self: Ours, /, *args: Given.args, **kwargs: Given.kwargs) -> Handle[Result]:
        return self.start(make(self, *args, **kwargs))

    _show(call, make, "Handle[{}]")
    call.__name__ = f"{make.__name__}_async"
    call.__qualname__ = f"{make.__qualname__}_async"
    call.__doc__ = f"Start `{make.__name__}` and return at once; do not use its arrays until it is done."
    return call


def _show(call: Any, make: Callable[..., object], form: str) -> None:
    """Set the signature that `help` shows for `call`: the arguments of `make`, and its result type.

    `form` is a format string into which the name of the result type is inserted, such as ``Handle[{}]``.
    """
    signature = inspect.signature(make)
    result = str(signature.return_annotation).removeprefix("Request[").removesuffix("]")
    call.__signature__ = signature.replace(return_annotation=form.format(result))
