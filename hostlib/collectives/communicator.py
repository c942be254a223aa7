"""Blocking collectives in the caller's thread; asynchronous ones in a thread of their own, several at a time.

The ranks agree on the order of asynchronous collectives: they vote on the number of calls that all of them
have submitted. From these calls each rank chooses the same next step (`hostlib.collectives.schedule`). Small
collectives are carried out together, ahead of large ones (`hostlib.collectives.fusion`).
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hostlib.collectives import (
    CallOptions,
    Engine,
    Layer,
    NonFinite,
    Op,
    check_root,
    make_barrier,
    make_collective,
)
from hostlib.collectives.arrays import Output, Tensor
from hostlib.collectives.engine import SwitchEngine
from hostlib.collectives.fusion import FusedCollective, error_of_slice, slice_of
from hostlib.collectives.handle import Handle, Result
from hostlib.collectives.local_ranks import LocalRanks
from hostlib.collectives.moving import MovingCalls, Request, starting, waiting
from hostlib.collectives.schedule import Fused, Limits, Packets, Schedule, Slice, agreed, ballot
from hostlib.config import JobConfig
from hostlib.core import Peers
from hostlib.errors import JobBroken, JobFault, NotInitialized, RendezvousError
from hostlib.meet.rendezvous_peers import RendezvousPeers
from hostlib.wire.encodings import Numbers

GROUP_S: Final = 60.0
"""Longest wait, in seconds, for the other ranks of a group and for the group's admission."""
_MOST_UNASKED: Final = 15


class Communicator(MovingCalls):
    """One rank of a job.

    All ranks must make the same calls in the same order. A call must be blocking (`allreduce`) on all ranks,
    or asynchronous (`allreduce_async`) on all ranks.

    Asynchronous collectives are carried out when all ranks have submitted them: small ones together and ahead
    of large ones, which are carried out in slices. So they may end in another order than they were submitted.

    Several threads of a rank may call methods only if the order of calls is still the same on all ranks.

    A process that is forked from a rank (`multiprocessing`, data loaders) is no rank: its collectives raise
    `NotInitialized`, and `close` has no effect there. Otherwise it would use the rank's packet numbers, and
    its values would be summed in place of the rank's.

    Every packet carries a digest of the properties on which ranks must agree: the number of the call (calls
    that raised count), operation, shape, dtype, root, layer and name. Ranks that differ in any of these raise
    `RanksDisagree`. Two arrays with the same properties are summed wrongly, without an error, if ranks submit
    them in different orders, say each rank in the order in which its arrays become ready: give them names.
    """

    def __init__(
        self, config: JobConfig | None, peers: Peers | None = None, limits: Limits | None = None
    ) -> None:
        """Join the job that `config` describes; None: a job of this process alone.

        `limits` sets the sizes of fused and sliced collectives; it must be the same on all ranks.

        A rank can join an admission only once: if it joined again, the switch would answer with old sums.

        Raises:
            ConfigError: the socket cannot be opened.
            NativeMissing: the library's compiled part is missing, or of another version.
        """
        self.job = config.job if config else 0
        self.rank = config.rank if config else 0
        self.size = config.size if config else 1
        self.why_no_shards = _why_no_shards(config)
        self._config = config
        self._peers = peers or Peers()
        self._engine: Engine = Engine()
        if config:
            self._engine = (LocalRanks if config.hosts else SwitchEngine)(config, self._peers)
        self._limits = limits or Limits()
        self._lanes = config.lanes if config else 1
        self._terms = config.workers if config else 1
        self._packets = Packets(self._lanes, config.numbers if config else "exponent")
        self._queue: deque[Handle[Any]] = deque()
        """Submitted calls that are not in the schedule yet."""
        self._schedule = Schedule(self._limits, self._packets)
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
        self._calls = itertools.count()
        self._thread: threading.Thread | None = None

    @waiting
    def allreduce(
        self,
        array: ArrayLike | Tensor,
        op: Op = "sum",
        *,
        out: Output | None = None,
        name: str | None = None,
        nonfinite: NonFinite = "raise",
        layer: Layer | None = None,
        priority: int | None = None,
        numbers: Numbers | None = None,
        residual: NDArray[np.float32] | None = None,
    ) -> Request[NDArray[Any]]:
        """Return the sum (or average) of `array` over all ranks, in its shape and dtype.

        Args:
            array: float32, int32, float64 or float16, any shape; floats are summed as float32, with an
                exponent per packet (`hostlib.wire.encodings.error_bound`) or on a fixed scale, int32 exactly.
                float64 loses bits (`PrecisionWarning`, once), and a number beyond 3.4e38 counts as infinite.
                For a torch tensor on the CPU without gradient (`tensor.detach()`) the result is a tensor,
                too. Subclasses of NumPy's arrays count as plain arrays, but masked arrays are refused.
            op: "sum", or "average" (floats only).
            out: array or tensor for the result; `array` itself to overwrite it. None: a new array.
            name: name of the array, the same on all ranks. If the n-th call has different names on different
                ranks, all ranks raise an error. Without names, arrays of equal shape and dtype would be
                summed.
            nonfinite: effect of NaN or infinity in any rank's input: "raise", after which the job can go on,
                or "propagate": all elements of its packet become NaN.
            layer: (position, number of layers): the position of the tensor's layer, counted from the front of
                the network, 0 for the first layer; and the number of layers. The same on all ranks. Where
                jobs share a switch, front layers get its memory first.
            priority: 0 to 255; None: `hostlib.core.priority` computes it from layer, communication share and
                remaining time. Ranks should agree.
            numbers: encoding of floats in packets, the same on all ranks: "exponent" is the most precise;
                "block16", "block8" and "block4" take a half, a quarter and an eighth of its bytes, for at
                most 1,024, 127 and 7 ranks (`hostlib.wire.encodings`). None: the job's configuration decides.
            residual: with a "block" encoding, a float32 array of the array's shape, zero at first. It holds
                the rounding error of earlier sums, which is added to `array`; the error of this sum replaces
                it.

        Raises:
            UnsupportedArray: this array or argument is not supported; nothing was sent.
            NonFiniteError, SumOverflow: see these classes; the contents of `out` are unspecified, and the job
                can go on.
            JobBroken: the job is over.
        """
        return self.sum(array, op, CallOptions(out, name, nonfinite, layer, priority, numbers, residual))

    allreduce_async = starting(allreduce)
    """Start an allreduce and return at once; for the arguments see `allreduce`.

    Do not use `array` and `out` until it is done. Give a `name` wherever the order of several such calls
    could differ between ranks (see `Communicator`).
    """

    @waiting
    def reduce(
        self,
        array: ArrayLike | Tensor,
        root: int = 0,
        op: Op = "sum",
        *,
        out: Output | None = None,
        name: str | None = None,
        nonfinite: NonFinite = "raise",
        layer: Layer | None = None,
        priority: int | None = None,
    ) -> Request[NDArray[Any] | None]:
        """Return the sum (or average) of `array` over all ranks at rank `root`, and None at all others.

        At the other ranks neither `array` nor `out` changes; only the shape and dtype of `out` are checked.
        These ranks return when the sum is complete, and raise the same errors as the root. `root` must be the
        same at all ranks, or every rank raises an error. For the other arguments and errors see `allreduce`.
        Raises ValueError if `root` is no rank.
        """
        return self.sum_at(array, root, op, CallOptions(out, name, nonfinite, layer, priority))

    reduce_async = starting(reduce)
    """Start a reduce and return at once. For the arguments see `reduce`; for the rules on their use see
    `allreduce_async`."""

    def sum(self, array: ArrayLike | Tensor, op: Op, options: CallOptions) -> Request[NDArray[Any]]:
        """Return the request of an allreduce, which `start` carries out. Raises UnsupportedArray."""
        number = next(self._calls)
        collective = make_collective(array, op, options, number=number, terms=self._terms)
        return collective, collective.staged.finish

    def sum_at(
        self, array: ArrayLike | Tensor, root: int, op: Op, options: CallOptions
    ) -> Request[NDArray[Any] | None]:
        """Return a request for a reduce to one rank; pass the request to `start`, which runs it.

        Args:
            array: The array to sum.
            root: The rank that gets the sum.
            op: "sum" or "average".
            options: The call's other arguments.

        Raises UnsupportedArray, and ValueError if `root` is no rank.
        """
        number = next(self._calls)
        check_root(root, self.size)
        collective = make_collective(array, op, options, number=number, root=int(root))
        return collective, collective.staged.finish if root == self.rank else _nothing

    def barrier(self) -> None:
        """Wait until all ranks have called this method. Raises JobBroken."""
        barrier = make_barrier(next(self._calls))
        self._run((barrier, barrier.staged.finish))

    def group(
        self, ranks: Sequence[int], key: str, *, timeout_s: float = GROUP_S, patience_s: float | None = None
    ) -> Communicator:
        """Request that some ranks be admitted to the same switch as a job of their own; join that job.

        All ranks in `ranks` must call this, and no other rank. Close the group before this communicator.

        Args:
            ranks: The ranks, in the order of their ranks in the group, this one among them.
            key: Text of at most 100 characters, the same on these ranks and different for every group.
            timeout_s: Longest wait for the group's other ranks and its admission.
            patience_s: Longest wait of the group in a collective for ranks that are known to be alive;
                None: as in this job.

        Raises:
            RendezvousError: the group was not admitted, for lack of room or because each rank of this job has
                only one port. All ranks of the group raise the error, and this job can go on. Also raised, by
                this rank alone, if an argument is wrong.
            ConfigError: the socket cannot be opened.
        """
        self._check_process()
        if self._config is None or not isinstance(self._peers, RendezvousPeers):
            raise RendezvousError("this job has no launcher that could admit groups of its ranks")
        admitted = JobConfig.from_json(self._peers.group(key, ranks, timeout_s))
        patience_s = self._config.straggler_timeout_s if patience_s is None else patience_s
        config = replace(
            admitted, timeout_s=min(self._config.timeout_s, patience_s), straggler_timeout_s=patience_s
        )
        return joined(config, self._limits)

    def progress(self, done: int, total: int) -> None:
        """Record that `done` of `total` iterations are over; call this once per iteration, from the start on.

        The job's communication share and remaining time are computed from these calls; together with a
        tensor's layer they determine its priority. Raises ValueError unless 0 <= done <= total, total >= 1.
        """
        self._check_process()
        self._engine.progress(done, total)

    def statistics(self) -> dict[str, float]:
        """Return counters since the start by name, with the SI unit in the name."""
        return self._engine.statistics()

    def report(self) -> None:
        """Send the counters to the launcher; for a process that ends without a call of `close`."""
        if not self._closed and os.getpid() == self._process:
            self._peers.report(self._engine.statistics())

    def abort(self, reason: str, kind: type[JobBroken] = JobFault) -> None:
        """Make submitted collectives, and all later ones, raise an error of class `kind`; thread-safe."""
        self._check_process()
        self._engine.abort(reason, kind)

    def close(self) -> None:
        """Finish the submitted collectives, then leave the job. May be called again."""
        if os.getpid() != self._process:
            return  # the job, its connections and submitted calls belong to the parent
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._change.notify_all()
            self.drain()
        if self._thread:
            self._thread.join()
        self._engine.close()

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
                self._notify()
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
        """Start the library's thread, which carries out the submitted collectives."""
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

    def _notify(self) -> None:
        with self._lock:
            self._change.notify_all()

    def _serve(self) -> None:
        while True:
            with self._lock:
                self._change.wait_for(lambda: not self._busy and (self._queue or self._closed))
                if not self._queue:
                    return
                self._busy = True
            self._carry_out()
            self._busy = False
            self._notify()

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


def joined(config: JobConfig, limits: Limits) -> Communicator:
    """Join a job; if it has a rendezvous, wait there for the other ranks.

    Args:
        config: The job.
        limits: Sizes of fused and sliced collectives.

    Raises RendezvousError, and the errors of `Communicator`.
    """
    peers = Peers()
    if config.rendezvous and config.token:
        peers = RendezvousPeers(
            config.rendezvous, job=config.job, rank=config.rank, size=config.size, token=config.token
        )
    try:
        return Communicator(config, peers, limits)
    except BaseException:
        peers.close()
        raise


def _why_no_shards(config: JobConfig | None) -> str | None:
    """Return the reason why a job cannot move shards; None if it can."""
    if config is None:
        return None
    if config.hosts:
        return "each machine first sums the arrays of its ranks"
    return None if config.bare else "its switch program takes no contributions without lanes"


def _nothing() -> None:
    """Return None, the result of a reduce at every rank except the root."""
