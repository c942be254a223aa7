"""The process group "ina": sums through the switch, everything else through an inner gloo group.

Which way a call takes depends on what all ranks agree on, never on values: operation, type, layout. The
default group's sums go through the switch; groups of some ranks have no job there and use gloo alone.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

import hostlib
from hostlib.collectives import Layer, Numbers
from hostlib.errors import NO_PACKETS, JobBroken, JobFault, NotInitialized, RanksDisagree, UnsupportedArray
from hostlib.paths import SWITCH, Paths
from hostlib.settings import Settings
from hostlib.torch import describe
from hostlib.torch.bytewise import as_bytes, strange
from hostlib.torch.inner import give_back, take
from hostlib.torch.joining import join
from hostlib.torch.staging import can_stage, devices
from hostlib.torch.sums import Sum, SwitchSums
from hostlib.torch.tensors import SUMMED
from hostlib.torch.untraced import untraced
from hostlib.torch.work import GlooWork
from hostlib.torch_autoload import BACKEND
from hostlib.watch import Watch

GLOO: Final = "gloo"
PAIRWISE: Final = ("send", "recv", "recv_anysource")
"""Calls that not all ranks make."""
REDUCING: Final = (
    *("reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced", "_reduce_scatter_base"),
    "reduce_scatter_tensor_coalesced",
)
AROUND: Final = (
    *("broadcast", "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced"),
    *("all_gather_single", "all_gather_single_coalesced", "_allgather_base", "gather", "scatter"),
    *("alltoall", "alltoall_base", "all_to_all_single", "barrier"),
    *PAIRWISE,
    *REDUCING,
)
"""Calls of torch that never go through the switch."""

THREADS_S: Final = 2.0
"""Longest wait for this group's threads to end."""

_CPU: Final = torch.device("cpu")


class InaProcessGroup(dist.ProcessGroup):
    """A process group of torch; made by `init_process_group` and `new_group`."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta, *, whole: bool) -> None:
        """Join. `whole`: the group of all ranks, whose sums go through the switch.

        Raises:
            ConfigError, RendezvousError: the job could not be joined.
        """
        super().__init__(rank, size)
        store = _fresh(store, whole=whole)
        settings = Settings.from_environment()
        self._float64 = settings.float64
        self._numbers = settings.numbers
        self._process = os.getpid()
        self._closed = False
        self._broken: JobBroken | None = None
        self._owner = whole and size > 1 and not hostlib.is_initialized()
        self._paths = Paths(level=logging.WARNING if whole and not rank else logging.INFO)  # once per job
        self._watch: Watch | None = None
        self._sums: SwitchSums | None = None
        self._why_never = "it has one rank" if size == 1 else "it is of some ranks only"
        communicator = join(store, rank, size, timeout, settings) if whole and size > 1 else None
        self._job = communicator.job if communicator else 0
        self._gloo_of_all = (rank, size, timeout) if whole else None
        self._gloo_taken = take(store, rank, size, timeout, again=whole)
        self._gloo = self._gloo_taken.gloo
        self._inner = dist.ProcessGroup(store, rank, size)
        kinds = dist.ProcessGroup.BackendType
        for group, kind in ((self._inner, kinds.GLOO), (self, kinds.CUSTOM)):
            for device in devices():
                group._register_backend(torch.device(device), kind, self._gloo)
            group._set_default_backend(kind)
        if communicator:
            self._watch = Watch(
                store.clone(), rank, size, stall_s=settings.stall_s, on_disagreement=self._disagree
            )
            self._sums = SwitchSums(communicator, self._watch, settings.nonfinite)
            atexit.register(self._end_threads)

    def getBackendName(self) -> str:
        """Return "ina"."""
        return BACKEND

    @untraced
    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Reduce a tensor over all ranks, in place."""
        return self._reduce("allreduce", tensors, _options(dist.AllreduceOptions, opts))

    @untraced
    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce several tensors over all ranks, in place."""
        return self._reduce("allreduce_coalesced", tensors, _options(dist.AllreduceCoalescedOptions, opts))

    @untraced
    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: timedelta | None = None) -> Any:
        """Reduce a tensor over all ranks, in place at one of them; see `torch.distributed.reduce`."""
        if isinstance(opts, int):
            root, opts = opts, _options(dist.ReduceOptions, op)
            opts.rootRank = root
        return self._reduce("reduce", tensors, _options(dist.ReduceOptions, opts))

    @untraced
    def allreduce_as(
        self,
        tensor: torch.Tensor,
        op: Any = dist.ReduceOp.AVG,
        *,
        name: str = "",
        layer: Layer | None = None,
        numbers: Numbers | None = None,
        residual: NDArray[np.float32] | None = None,
    ) -> Any:
        """Reduce a tensor over all ranks, in place, asynchronously.

        Args:
            tensor: The tensor.
            op: The operation.
            name: Shown in errors of ranks that differ.
            layer: Determines the priority; see `hostlib.allreduce`.
            numbers: See `hostlib.allreduce`.
            residual: See `hostlib.allreduce`.

        Returns:
            The work, whose future has the tensor in a list.
        """
        opts = dist.AllreduceOptions()
        opts.reduceOp = op
        return self._reduce(
            "allreduce", tensor, opts, label=name, layer=layer, numbers=numbers, residual=residual
        )

    def paths(self) -> dict[str, dict[str, int]]:
        """Return the number of calls by kind and path, as `hostlib.torch.paths`."""
        return self._paths.counts()

    def shutdown(self) -> None:
        """Finish what was submitted, and leave. Without effect if done before, or in a forked process."""
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        if self._watch:
            self._watch.stop()
        if self._owner:
            hostlib.shutdown()
        if self._sums:
            self._sums.stop(THREADS_S)
        atexit.unregister(self._end_threads)
        self._watch = self._sums = None  # with their connections, which the group need not hold any longer
        if self._gloo_of_all and self._broken is None:
            give_back(self._gloo_taken, *self._gloo_of_all)
        else:
            self._gloo.shutdown()

    def _end_threads(self) -> None:
        """End the threads that call torch, if the process ends without `shutdown`.

        One that comes back from torch while the interpreter ends would abort the process.
        """
        if os.getpid() != self._process or self._sums is None or self._watch is None:
            return
        self._watch.stop(THREADS_S)
        if not self._sums.stop(0.0):
            self._give_up("the process ends", JobFault)
            self._sums.stop(THREADS_S)

    def abort(self) -> None:
        """Have all calls under way, and all later ones, fail soon."""
        if os.getpid() == self._process:
            self._give_up("the process group was aborted by this rank", JobFault)

    def _disagree(self, how: str) -> None:
        self._give_up(how, RanksDisagree)

    def _give_up(self, reason: str, kind: type[JobBroken]) -> None:
        self._broken = self._broken or kind(reason, job=self._job, psns=NO_PACKETS)
        if self._sums:
            self._sums.abort(reason, kind)
        self._gloo.abort()

    def _reduce(
        self,
        name: str,
        tensors: Any,
        opts: Any,
        *,
        label: str = "",
        layer: Layer | None = None,
        numbers: Numbers | None = None,
        residual: NDArray[np.float32] | None = None,
    ) -> Any:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        self._check(tensors)
        why_not = self._why_not(tensors, opts.reduceOp)
        if why_not is not None or self._sums is None:
            return self._go_around(name, (tensors, opts), {}, why_not or "", sums=True)
        self._paths.took(describe.kind(name, (opts, tensors)), SWITCH)
        at_once = not opts.asyncOp and len(tensors) == 1 and tensors[0].device == _CPU
        call = [describe.call(name, (opts, tensors)), label]
        what = Sum(
            call=", ".join(filter(None, call)),
            op="average" if opts.reduceOp == dist.ReduceOp.AVG else "sum",
            root=getattr(opts, "rootRank", None),
            label=label,
            layer=layer,
            numbers=numbers or self._numbers,
            residual=residual,
            at_once=at_once,
        )
        return self._sums.start(tensors, what)

    def _why_not(self, tensors: Sequence[torch.Tensor], op: Any) -> str | None:
        """Say why a reduction cannot go through the switch, None if it can."""
        dtypes = {tensor.dtype for tensor in tensors}
        operation = describe.operation(op)
        reasons = (
            (self._sums is None, f"of the group, {self._why_never}"),
            (operation not in ("sum", "avg"), f"it has no {operation}"),
            (any(tensor.layout is not torch.strided for tensor in tensors), "it adds dense tensors only"),
            (not dtypes <= {*SUMMED}, f"it does not add {_names(dtypes - {*SUMMED})}"),
            (
                self._float64 == GLOO and torch.float64 in dtypes,
                "it keeps 24 of 53 bits (INA_FLOAT64=switch)",
            ),
        )
        return next((reason for holds, reason in reasons if holds), None)

    def _go_around(
        self,
        name: str,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        reason: str,
        *,
        sums: bool = False,
    ) -> Any:
        """Call the inner group."""
        self._paths.took(describe.kind(name, arguments), GLOO, reason, sums=sums)
        self._gloo_taken.calls += name not in PAIRWISE
        watched = self._watch if name not in PAIRWISE else None
        number = watched.begin(describe.call(name, arguments)) if watched else 0
        dtype = None if sums or name in REDUCING else strange(arguments)
        try:
            inner = getattr(self._inner, name)(*(as_bytes(arguments) if dtype else arguments), **named)
        except BaseException:
            if watched:
                watched.end(number)
            raise
        work = GlooWork(inner, self._why_broken, pairwise=name in PAIRWISE, dtype=dtype)
        if watched:
            watched.track(number, work.is_completed)
        return work

    def _why_broken(self) -> JobBroken | None:
        if self._broken is None and self._watch and (how := self._watch.found):
            return RanksDisagree(how, job=self._job, psns=NO_PACKETS)
        return self._broken

    def _check(self, values: Iterable[Any]) -> None:
        if os.getpid() != self._process:
            raise NotInitialized(
                f"process {os.getpid()} was forked from process {self._process}, which alone can call "
                "collectives of this process group"
            )
        if self._closed:
            raise NotInitialized("the process group was destroyed")
        for tensor in describe.tensors(values):
            if tensor.device != _CPU and not can_stage(tensor.device):
                raise UnsupportedArray(
                    f"a tensor is on {tensor.device}, must be on the CPU: pass tensor.cpu()"
                )


def paths(group: dist.ProcessGroup | None = None) -> dict[str, dict[str, int]]:
    """Return the number of calls by kind and path: {"allreduce sum float32": {"switch": 12}}.

    Raises TypeError if the group, or the default one, is of another backend.
    """
    group = group or dist.distributed_c10d._get_default_group()
    if not isinstance(group, InaProcessGroup):
        raise TypeError(f'the group is of {type(group).__name__}, must be of backend "ina"')
    return group.paths()


_round = 0
"""How often this process has made a default group; as often as the other ranks have."""


def _fresh(store: dist.Store, *, whole: bool) -> dist.Store:
    """Return a store without keys of earlier groups: torchrun's outlives them, and torch uses names again."""
    global _round
    if whole:
        _round += 1
    return dist.PrefixStore(f"ina/{_round}", store)


def create(options: Any, backend_options: Any) -> InaProcessGroup:
    """Make a process group, as `hostlib.torch_autoload` has torch do. Raises ValueError for `pg_options`."""
    if backend_options is not None:
        raise ValueError(f'pg_options is {backend_options!r}, must be None: backend "ina" has no options')
    return InaProcessGroup(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        whole=not options.global_ranks_in_group,  # torch names none for the default group
    )


def _options(kind: type[Any], given: Any) -> Any:
    """Return options as torch's own calls pass them, also if just an operation is given, or nothing."""
    if isinstance(given, kind | dist.AllreduceOptions):
        return given
    opts = kind()
    if given is not None:
        opts.reduceOp = given
    return opts


def _around(name: str) -> Callable[..., Any]:
    def call(self: InaProcessGroup, *arguments: Any, **named: Any) -> Any:
        self._check((*arguments, *named.values()))
        return self._go_around(name, arguments, named, "the switch adds, and does nothing else")

    call.__name__ = name
    call.__doc__ = f"Do as torch's `ProcessGroup.{name}`, through gloo."
    return untraced(call)


for _name in AROUND:
    setattr(InaProcessGroup, _name, _around(_name))


def _names(dtypes: Iterable[torch.dtype]) -> str:
    return ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
