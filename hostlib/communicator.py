"""Collectives in the order of submission, in the caller's thread or else in one of their own."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from numpy.typing import ArrayLike, NDArray

from hostlib.collectives import (
    Collective,
    Engine,
    LocalEngine,
    NonFinite,
    Op,
    SwitchEngine,
    make_barrier,
    make_collective,
)
from hostlib.config import JobConfig
from hostlib.core.kernel import KernelName
from hostlib.errors import NotInitialized
from hostlib.peers import NoPeers, Peers


class Handle:
    """An allreduce on its way."""

    def __init__(self, collective: Collective) -> None:
        self._collective = collective
        self._finished = threading.Event()
        self._value: NDArray[Any] | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Return whether `wait` would return (or raise) at once."""
        return self._finished.is_set()

    def wait(self, timeout: float | None = None) -> NDArray[Any]:
        """Return the result when it is there.

        Raises:
            TimeoutError: not within `timeout` seconds; the allreduce goes on.
            InaError: what the allreduce ran into.
        """
        if not self._finished.wait(timeout):
            raise TimeoutError(f"{self._collective.description} is not done within {timeout} s")
        return self.result()

    def result(self) -> NDArray[Any]:
        """Return the result, or raise what the allreduce ran into. Raises RuntimeError if it is not done."""
        if not self.done():
            raise RuntimeError(f"{self._collective.description} is not done")
        if self._error:
            raise self._error
        assert self._value is not None
        return self._value

    def execute(self, engine: Engine) -> None:
        """Carry the allreduce out and keep what came of it, for `result`; for the communicator only."""
        try:
            engine.run(self._collective)
            self._value = self._collective.staged.finish()
        except BaseException as error:
            self._error = error
        finally:
            self._finished.set()


class Communicator:
    """One rank of a job. All ranks must call the same collectives in the same order.

    Methods may be called from several threads of a rank only if that order is still the same on all ranks.
    """

    def __init__(
        self, config: JobConfig | None, peers: Peers | None = None, *, kernel: KernelName = "auto"
    ) -> None:
        """Join the job that `config` describes; None is a job of this process alone. Raises ConfigError."""
        self.rank = config.rank if config else 0
        self.size = config.size if config else 1
        self._engine: Engine = LocalEngine()
        if config:
            self._engine = SwitchEngine(config, peers or NoPeers(), kernel=kernel)
        self._queue: deque[Handle] = deque()
        self._change = threading.Condition()
        self._busy = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def allreduce(
        self,
        array: ArrayLike,
        op: Op = "sum",
        *,
        out: NDArray[Any] | None = None,
        name: str | None = None,
        nonfinite: NonFinite = "raise",
    ) -> NDArray[Any]:
        """Return the sum (or average) of `array` over all ranks, in its shape and dtype.

        Args:
            array: float32, int32, float64 or float16, any shape; floats are summed as float32 with an
                exponent per packet (`hostlib.quantize.error_bound`), int32 exactly.
            op: "sum", or "average" (floats only).
            out: where to put the result; `array` itself for in place.
            name: if given, ranks that use different names get an error instead of a wrong sum.
            nonfinite: what NaN or infinity in any rank's input does: "raise", after which the job can go on,
                or "propagate": the elements that share its packet become NaN.

        Raises:
            UnsupportedArray: this array or operation is not taken; nothing was sent.
            NonFiniteError, SumOverflow: see there; the contents of `out` are unspecified, the job can go on.
            JobBroken: the job is over.
        """
        collective = make_collective(array, op, out, name, nonfinite)
        return self._run(collective)

    def allreduce_async(
        self,
        array: ArrayLike,
        op: Op = "sum",
        *,
        out: NDArray[Any] | None = None,
        name: str | None = None,
        nonfinite: NonFinite = "raise",
    ) -> Handle:
        """Start `allreduce` and return at once. Leave `array` and `out` alone until it is done."""
        handle = Handle(make_collective(array, op, out, name, nonfinite))
        with self._change:
            self._enqueue(handle)
        return handle

    def barrier(self) -> None:
        """Return when all ranks have called it. Raises JobBroken."""
        self._run(make_barrier())

    def statistics(self) -> dict[str, float]:
        """Return counters since the start: flat, numbers only, SI units in the names."""
        return self._engine.statistics()

    def close(self) -> None:
        """Finish what was submitted, then leave the job. May be called again."""
        with self._change:
            if self._closed:
                return
            self._closed = True
            self._change.notify_all()
            self._change.wait_for(lambda: not self._busy and not self._queue)
        if self._thread:
            self._thread.join()
        self._engine.close()

    def _run(self, collective: Collective) -> NDArray[Any]:
        handle = Handle(collective)
        with self._change:
            inline = not self._busy and not self._queue
            if inline:
                self._check_open()
                self._busy = True
            else:
                self._enqueue(handle)
        if not inline:
            return handle.wait()
        try:
            self._engine.run(collective)
        finally:
            self._release()
        return collective.staged.finish()

    def _enqueue(self, handle: Handle) -> None:
        self._check_open()
        self._queue.append(handle)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="allreduce", daemon=True)
            self._thread.start()
        self._change.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise NotInitialized("the communicator is closed")

    def _release(self) -> None:
        with self._change:
            self._busy = False
            self._change.notify_all()

    def _serve(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: not self._busy and (self._queue or self._closed))
                if not self._queue:
                    return
                handle = self._queue.popleft()
                self._busy = True
            handle.execute(self._engine)
            self._release()
