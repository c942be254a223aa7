"""One rank of a job: collectives as methods, each blocking and asynchronous."""

from __future__ import annotations

import atexit
import itertools
import os
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hostlib.collectives import (
    CallOptions,
    Engine,
    Kind,
    Layer,
    NonFinite,
    Op,
    check_root,
    make_barrier,
    make_collective,
    make_move,
)
from hostlib.collectives.arrays import Output, Tensor, nothing
from hostlib.collectives.engine import SwitchEngine
from hostlib.collectives.local_ranks import LocalRanks
from hostlib.collectives.order import CallOrder, Request, starting, waiting
from hostlib.collectives.schedule import Limits
from hostlib.config import JobConfig
from hostlib.core import Peers
from hostlib.errors import JobBroken, JobFault, RendezvousError, UnsupportedArray
from hostlib.meet.rendezvous_peers import RendezvousPeers
from hostlib.wire.encodings import Numbers

GROUP_S: Final = 60.0
"""Longest wait, in seconds, for the other ranks of a group and for the group's admission."""


_open: Final = weakref.WeakSet["Communicator"]()
"""Communicators that have not been closed."""


class Communicator(CallOrder):
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
        self.why_no_shards = _why_no_shards(config)
        self.config = config
        self._peers = peers or Peers()
        self._calls = itertools.count()
        self._workers = config.workers if config else 1
        engine = Engine()
        if config:
            engine = (LocalRanks if config.hosts else SwitchEngine)(config, self._peers)
        super().__init__(config, engine, limits or Limits())
        _open.add(self)

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
        options = CallOptions(out, name, nonfinite, layer, priority, numbers, residual)
        return self.request("allreduce", array, options, op)

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
        return self.request("reduce", array, CallOptions(out, name, nonfinite, layer, priority), op, root)

    reduce_async = starting(reduce)
    """Start a reduce and return at once. For the arguments see `reduce`; for the rules on their use see
    `allreduce_async`."""

    @waiting
    def reduce_scatter(
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
    ) -> Request[NDArray[Any]]:
        """Return this rank's shard of the sum (or average) of `array` over all ranks.

        The shard of rank r is the r-th of `size` equal parts of the first dimension. An `allreduce` of this
        shard alone would return the same bits. `out` may be this rank's part of `array`. For the other
        arguments and the errors see `allreduce`.
        """
        options = CallOptions(out, name, nonfinite, layer, priority, numbers)
        return self.request("reduce_scatter", array, options, op)

    reduce_scatter_async = starting(reduce_scatter)
    """Start a reduce-scatter and return at once; for the arguments see `reduce_scatter`."""

    @waiting
    def all_gather(
        self,
        array: ArrayLike | Tensor,
        *,
        out: Output | None = None,
        name: str | None = None,
        layer: Layer | None = None,
        priority: int | None = None,
    ) -> Request[NDArray[Any]]:
        """Return the arrays of all ranks, one behind the other in the first dimension.

        Args:
            array: this rank's shard: of any type of a fixed size, of the same shape and type on all ranks.
                Its bytes are sent unchanged.
            out: where to put all shards; `array` may be this rank's part of it.
            name: see `allreduce`.
            layer: see `allreduce`.
            priority: see `allreduce`.

        Raises:
            UnsupportedArray: this array or argument is not supported; nothing was sent.
            JobBroken: the job is over.
        """
        return self.request("all_gather", array, CallOptions(out, name, "propagate", layer, priority))

    all_gather_async = starting(all_gather)
    """Start an all-gather and return at once; for the arguments see `all_gather`."""

    @waiting
    def broadcast(
        self,
        array: ArrayLike | Tensor,
        root: int = 0,
        *,
        out: Output | None = None,
        name: str | None = None,
        layer: Layer | None = None,
        priority: int | None = None,
    ) -> Request[NDArray[Any]]:
        """Return the array of rank `root`, on all ranks.

        Args:
            array: at the root the array to send, of any type of a fixed size; its bytes are sent unchanged.
                At other ranks only its shape and type are used, which must be the same on all ranks.
            root: the rank that sends; the same on all ranks.
            out: array for the result; `array` itself to overwrite it. None: a new array.
            name: see `allreduce`.
            layer: see `allreduce`.
            priority: see `allreduce`.

        Raises:
            UnsupportedArray: this array or argument is not supported; nothing was sent.
            JobBroken: the job is over.
        """
        options = CallOptions(out, name, "propagate", layer, priority)
        return self.request("broadcast", array, options, root=root)

    broadcast_async = starting(broadcast)
    """Start a broadcast and return at once; for the arguments see `broadcast`."""

    def request(
        self,
        kind: Kind,
        array: ArrayLike | Tensor,
        options: CallOptions,
        op: Op = "sum",
        root: int | None = None,
    ) -> Request[Any]:
        """Return the request of a collective, which `start` carries out.

        Args:
            kind: The kind of the collective.
            array: The array to sum or to move.
            options: The call's other arguments.
            op: "sum" or "average", if `kind` sums.
            root: The rank that gets the sum of a reduce, or whose array is broadcast.

        Raises UnsupportedArray, and ValueError if `root` is no rank.
        """
        number = next(self._calls)
        if kind in ("allreduce", "reduce"):
            root = check_root(root, self.size) if kind == "reduce" else None
            summed = make_collective(array, op, options, number=number, root=root, terms=self._workers)
            return summed, summed.staged.finish if root in (None, self.rank) else nothing
        if self.why_no_shards is not None:
            raise UnsupportedArray(f"{kind} is not available in this job: {self.why_no_shards}")
        if kind == "broadcast":
            root = check_root(root, self.size)
        moved = make_move(kind, array, options, self.rank, self.size, op=op, root=root)
        return moved._replace(number=number), moved.staged.finish

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
        if self.config is None or not isinstance(self._peers, RendezvousPeers):
            raise RendezvousError("this job has no launcher that could admit groups of its ranks")
        admitted = JobConfig.from_json(self._peers.group(key, ranks, timeout_s))
        patience_s = self.config.straggler_timeout_s if patience_s is None else patience_s
        config = replace(
            admitted, timeout_s=min(self.config.timeout_s, patience_s), straggler_timeout_s=patience_s
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

    def abort(self, reason: str, kind: type[JobBroken] = JobFault) -> None:
        """Make submitted collectives, and all later ones, raise an error of class `kind`; thread-safe."""
        self._check_process()
        self._engine.abort(reason, kind)

    def close(self) -> None:
        """Finish the submitted collectives, then leave the job. May be called again."""
        if os.getpid() != self._process:
            return  # the job, its connections and submitted calls belong to the parent
        if self.finish():
            _open.discard(self)
            self._engine.close()


@atexit.register
def _report() -> None:
    """Send the last counters of a process that ends without closing its communicators."""
    for each in _open:
        if os.getpid() == each._process:
            each._peers.report(each._engine.statistics())


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
