"""The process group "ina": calls go through the switch if it supports them, else through an inner gloo group.

The path of a call depends on properties on which all ranks agree, never on values: operation, type, layout,
device, sizes. The default group's calls can use the switch. A group of some ranks can use it if the job's
launcher admits the group as a job of its own; otherwise all its calls use gloo.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch._C._distributed_c10d import AllgatherOptions

import hostlib
from hostlib.collectives import Kind, Layer
from hostlib.collectives.communicator import Communicator
from hostlib.collectives.paths import SWITCH, CallPaths
from hostlib.collectives.watch import Watch
from hostlib.config import JobConfig
from hostlib.errors import NO_PACKETS, JobBroken, JobFault, NotInitialized, RanksDisagree, UnsupportedArray
from hostlib.job import check_not_left
from hostlib.settings import Settings
from hostlib.torch import describe
from hostlib.torch.calls import (
    SCATTER,
    Plan,
    Plans,
    SwitchCall,
    SwitchCalls,
    start,
    why_not_switch,
)
from hostlib.torch.describe import as_bytes, contiguous, strange
from hostlib.torch.joining import StoreTexts, give_back, join, join_group, take
from hostlib.torch.staging import can_stage, devices
from hostlib.torch.work import Callbacks, GlooWork, untraced
from hostlib.torch_autoload import BACKEND
from hostlib.wire.encodings import Numbers

GLOO: Final = "gloo"
PAIRWISE: Final = ("send", "recv", "recv_anysource")
"""Names of torch's calls that only two ranks make, not all."""
GATHERING: Final = (
    *("allgather", "_allgather_base", "all_gather_single"),
    *("allgather_into_tensor_coalesced", "all_gather_single_coalesced"),
)
SCATTERING: Final = (
    *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single"),
    *("reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"),
)
AROUND: Final = (
    *("allgather_coalesced", "gather", "scatter"),
    *("alltoall", "alltoall_base", "all_to_all_single", "barrier"),
    *PAIRWISE,
)
"""Torch's calls that never go through the switch."""

THREADS_S: Final = 2.0
"""Longest wait, in seconds, for this group's threads to end."""

_CPU: Final = torch.device("cpu")


class InaProcessGroup(dist.ProcessGroup):
    """A process group of torch; `init_process_group` and `new_group` create it."""

    def __init__(
        self, store: dist.Store, rank: int, size: int, timeout: timedelta, ranks: Sequence[int] = ()
    ) -> None:
        """Join the group's job.

        Args:
            store: The group's store.
            rank: This rank in the group.
            size: Number of ranks of the group.
            timeout: Longest time that ranks wait for each other.
            ranks: The group's ranks in the default group; empty: this is the default group.

        Raises:
            ConfigError, RendezvousError: the job could not be joined, or a rank of the group is late.
        """
        super().__init__(rank, size)
        whole = not ranks
        self._owner = whole and size > 1 and not hostlib.is_initialized()
        if self._owner:
            check_not_left(JobConfig.from_environment())  # the store may have ended with its rank
        store = _fresh(store, rank, size)
        settings = Settings.from_environment()
        self._numbers = settings.numbers
        self._process = os.getpid()
        self._closed = False
        self._broken: JobBroken | None = None
        self._own: Communicator | None = None
        """Communicator of this group's own job; None: the group uses the job of `hostlib.current`, or no
        job."""
        self._beside: StoreTexts | None = None
        """The group's store, over an additional connection, so that blocking calls over the first connection
        do not delay the watch. Groups of some ranks share the default group's additional connection."""
        self._calls: SwitchCalls | None = None
        self._plans = Plans()
        self._why_never = "it has one rank"
        communicator = None
        if whole and size > 1:
            communicator = join(store, rank, size, timeout, settings)
        elif size > 1:
            found = join_group(store, rank, ranks, timeout)
            if isinstance(found, str):
                self._why_never = found
                named = f"the group of ranks {', '.join(map(str, ranks))}"
                CallPaths.note(logging.INFO if rank else logging.WARNING, named, GLOO, found)
            else:
                communicator = self._own = found
        self.job = communicator.job if communicator else 0
        """Id of the group's job in the switch; 0 without a job."""
        speaks = not rank and (whole or communicator)  # log once per job
        self._paths = CallPaths(level=logging.WARNING if speaks else logging.INFO)
        self._place = (*ranks,), rank, size, timeout
        self._gloo_taken = take(store, self._place)
        self._gloo = self._gloo_taken.gloo
        self._inner = dist.ProcessGroup(store, rank, size)
        kinds = dist.ProcessGroup.BackendType
        for group, kind in ((self._inner, kinds.GLOO), (self, kinds.CUSTOM)):
            for device in devices():
                group._register_backend(torch.device(device), kind, self._gloo)
            group._set_default_backend(kind)
        if communicator:
            self._beside = _beside(store, whole=whole)
            watch = Watch(
                self._beside,
                rank,
                size,
                stall_s=settings.stall_s,
                on_disagreement=lambda how: self._give_up(how, RanksDisagree),
                patience_s=timeout.total_seconds(),
            )
            adds_float64 = settings.float64 != GLOO
            self._calls = SwitchCalls(communicator, watch, settings.nonfinite, adds_float64, Callbacks())
            atexit.register(self._end_threads)

    def getBackendName(self) -> str:
        """Return "ina"."""
        return BACKEND

    @untraced
    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Reduce a tensor over all ranks, in place."""
        return self._call(
            "allreduce", "allreduce", *_in_place(tensors), _options(dist.AllreduceOptions, opts)
        )

    @untraced
    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce several tensors over all ranks, in place."""
        options = _options(dist.AllreduceCoalescedOptions, opts)
        return self._call("allreduce_coalesced", "allreduce", *_in_place(tensors), options)

    @untraced
    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: timedelta | None = None) -> Any:
        """Reduce a tensor over all ranks; only the root's tensor changes. See `torch.distributed.reduce`."""
        options = _options(dist.ReduceOptions, opts)
        if op is not None:
            options.reduceOp = op
        return self._call("reduce", "reduce", *_in_place(tensors), options)

    @untraced
    def broadcast(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Copy one rank's tensor to all ranks, in place; see `torch.distributed.broadcast`."""
        return self._call(
            "broadcast", "broadcast", *_in_place(tensors), _options(dist.BroadcastOptions, opts)
        )

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
            op: The reduce operation of torch.
            name: Name of the tensor for errors.
            layer: The tensor's layer, which determines the priority; see `hostlib.allreduce`.
            numbers: See `hostlib.allreduce`.
            residual: See `hostlib.allreduce`.

        Returns:
            The work, whose future has the tensor in a list.
        """
        opts = dist.AllreduceOptions()
        opts.reduceOp = op

        def named(what: SwitchCall) -> SwitchCall:
            return replace(
                what,
                call=", ".join(filter(None, [what.call, name])),
                label=name,
                layer=layer,
                numbers=numbers or self._numbers,
                residual=residual,
            )

        return self._call("allreduce", "allreduce", *_in_place(tensor), opts, named)

    def paths(self) -> dict[str, dict[str, int]]:
        """Return the number of calls by kind and path; see `hostlib.torch.paths`."""
        return self._paths.counts()

    def shutdown(self) -> None:
        """Finish the submitted calls, and leave the job. No effect a second time, or in a forked process."""
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        if self._calls:
            self._calls.watch.stop()
        if self._own:
            self._own.close()
        if self._owner:
            hostlib.shutdown()
        if self._calls:
            self._calls.callbacks.stop(THREADS_S)
        atexit.unregister(self._end_threads)
        # Their connections close when these objects are freed.
        self._beside = self._calls = None
        if self._broken is None:
            give_back(self._gloo_taken, self._place)
        else:
            self._gloo.shutdown()

    def _end_threads(self) -> None:
        """End the threads that call torch, if the process ends without `shutdown`.

        A thread that returns from torch while the interpreter ends would abort the process.
        """
        if os.getpid() != self._process or self._calls is None:
            return
        self._calls.watch.stop(THREADS_S)
        if not self._calls.end(THREADS_S):  # this process does not wait for these calls, but other ranks may
            self._give_up("the process ends", JobFault)
            self._calls.end(THREADS_S)

    def abort(self) -> None:
        """Make all calls under way, and all later ones, fail soon."""
        if os.getpid() == self._process:
            self._give_up("the process group was aborted by this rank", JobFault)

    def _give_up(self, reason: str, kind: type[JobBroken]) -> None:
        self._broken = self._broken or kind(reason, job=self.job, psns=NO_PACKETS)
        if self._calls:
            self._calls.communicator.abort(reason, kind)
        self._gloo.abort()

    def _call(
        self,
        name: str,
        kind: Kind,
        outputs: Any,
        inputs: Any,
        opts: Any,
        change: Callable[[SwitchCall], SwitchCall] = lambda what: what,
    ) -> Any:
        """Carry out a call through the switch, or by gloo if the switch cannot.

        Args:
            name: Name of torch's method.
            kind: What the call does.
            outputs: As in torch.
            inputs: As in torch; `outputs` itself for a call in place.
            opts: Torch's options.
            change: Function that adds to the call's description.
        """
        self._check_process()
        arguments = (outputs, opts) if outputs is inputs else (outputs, inputs, opts)
        if isinstance(outputs if kind == SCATTER else inputs, torch.Tensor):  # a single pair
            outputs, inputs = [outputs], [inputs]
        key = name, describe.likeness(arguments)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(name, kind, outputs, inputs, arguments)
        if plan.what is None or self._calls is None:
            return self._go_around(name, arguments, {}, plan.why_not, loud=True)
        self._paths.took(plan.kind, SWITCH)
        return start(self._calls, outputs, inputs, change(plan.what))

    def _plan(self, name: str, kind: Kind, outputs: Any, inputs: Any, arguments: Sequence[Any]) -> Plan:
        self._check_devices(arguments)
        opts = arguments[-1]
        op = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
        why_not: str | None = f"the group cannot use the switch: {self._why_never}"
        if self._calls:
            why_not = why_not_switch(self._calls, kind, outputs, inputs, op)
        if why_not is not None:
            return Plan(describe.kind(name, arguments), why_not=why_not)
        on_cpu = all(tensor.device == _CPU for tensor in describe.tensors(outputs))
        what = SwitchCall(
            kind=kind,
            call=describe.call(name, arguments),
            op="average" if op == dist.ReduceOp.AVG else "sum",
            root=getattr(opts, "rootRank", None),
            numbers=self._numbers if kind in ("allreduce", SCATTER) else None,
            at_once=not opts.asyncOp and len(outputs) == 1 and on_cpu,
        )
        return Plan(describe.kind(name, arguments), what)

    def _go_around(
        self,
        name: str,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        reason: str,
        *,
        loud: bool = False,
    ) -> Any:
        """Carry out a call by the inner gloo group; `loud`: whether the switch could have carried it out."""
        self._paths.took(describe.kind(name, arguments), GLOO, reason, loud=loud)
        self._gloo_taken.calls += name not in PAIRWISE
        watched = self._calls.watch if self._calls and name not in PAIRWISE else None
        number = watched.begin(describe.call(name, arguments)) if watched else 0
        plain = arguments if name in PAIRWISE else contiguous(arguments)  # gloo reads others wrongly
        outputs = [*zip(describe.tensors(arguments[:1]), describe.tensors(plain[:1]), strict=True)]
        reduces = any(hasattr(each, "reduceOp") for each in arguments)
        given = as_bytes(plain) if not reduces and strange(plain) else plain
        try:
            inner = getattr(self._inner, name)(*given, **named)
        except BaseException:
            self._gloo_taken.failed = True
            if watched:
                watched.end(number)
            raise
        messages = self._gloo_taken.messages if name in PAIRWISE else None
        is_same = given is plain and all(output is copy for output, copy in outputs)
        work = GlooWork(inner, self._why_failed, messages, () if is_same else outputs)
        if watched:
            watched.track(number, work.is_completed)
        return work

    def _why_failed(self, timed_out: bool) -> JobBroken | None:
        """Return the cause of a failed gloo call; None if it is unknown.

        With `timed_out`, the call has not failed: only a wait for it has lasted long.
        """
        self._gloo_taken.failed |= not timed_out
        if self._broken is None and self._calls and (how := self._calls.watch.found()):
            return RanksDisagree(how, job=self.job, psns=NO_PACKETS)
        return self._broken

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise NotInitialized(
                f"process {os.getpid()} was forked from process {self._process}, which alone can call "
                "collectives of this process group"
            )
        if self._closed:
            raise NotInitialized("the process group was destroyed")

    def _check_devices(self, values: Iterable[Any]) -> None:
        for tensor in describe.tensors(values):
            if tensor.device != _CPU and not can_stage(tensor.device):
                raise UnsupportedArray(
                    f"a tensor is on {tensor.device}, must be on the CPU: pass tensor.cpu()"
                )


def paths(group: dist.ProcessGroup | None = None) -> dict[str, dict[str, int]]:
    """Return the number of calls by kind and path: {"allreduce sum float32": {"switch": 12}}.

    Raises TypeError if the group, or the default one, is of another backend.
    """
    return of_ina(group).paths()


def of_ina(group: dist.ProcessGroup | None) -> InaProcessGroup:
    """Return `group`, or the default group if it is None. Raises TypeError for another backend's group."""
    group = group or dist.distributed_c10d._get_default_group()
    if not isinstance(group, InaProcessGroup):
        raise TypeError(f'the group is of backend "{dist.get_backend(group)}", must be of backend "ina"')
    return group


def _fresh(store: dist.Store, rank: int, size: int) -> dist.Store:
    """Return a store without keys of earlier groups, also of earlier processes (``torchrun --max-restarts``).

    torchrun's store and a store's file outlive processes, and torch reuses names of groups. So keys get a
    prefix with the number of groups of this name and size made so far, which is the same at all ranks.
    """
    attempt = f"ina/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{size}"
    return dist.PrefixStore(f"{attempt}/{store.add(f'{attempt}/made/{rank}', 1)}", store)


def _beside(store: dist.Store, *, whole: bool) -> StoreTexts:
    """Return a group's store over another connection: the default group's connection, or else a new one.

    A new connection may take long: torch looks up the names of both its ends in the DNS.
    """
    default = None if whole else dist.group.WORLD
    if isinstance(default, InaProcessGroup) and default._beside:
        return default._beside.under(store.get("key").decode())  # `join_group` has set it
    return StoreTexts(store.clone())


def create(options: Any, backend_options: Any) -> InaProcessGroup:
    """Create a process group; `hostlib.torch_autoload` registers this. Raises ValueError for `pg_options`."""
    if backend_options is not None:
        raise ValueError(f'pg_options is {backend_options!r}, must be None: backend "ina" has no options')
    return InaProcessGroup(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.global_ranks_in_group,  # empty for the default group
    )


def _in_place(tensors: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the outputs and the inputs, the same list, of a call with a tensor or several in place."""
    found = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    return found, found


def _options(kind: type[Any], argument: Any) -> Any:
    """Convert a call's argument to torch's options of type `kind`.

    The argument is such options, a root rank, a reduce operation, or None.
    """
    if isinstance(argument, (kind, dist.AllreduceOptions)):
        return argument
    opts = kind()
    if isinstance(argument, int):
        opts.rootRank = argument
    elif argument is not None and not isinstance(argument, timedelta):
        opts.reduceOp = argument
    return opts


def _around(name: str) -> Callable[..., Any]:
    def call(self: InaProcessGroup, *arguments: Any, **named: Any) -> Any:
        self._check_process()
        self._check_devices((*arguments, *named.values()))
        return self._go_around(name, arguments, named, "the switch only adds and moves tensors")

    call.__name__ = name
    call.__doc__ = f"Carry out torch's `ProcessGroup.{name}`, through gloo."
    return untraced(call)


def _moving(name: str, kind: Kind, options_of: type[Any]) -> Callable[..., Any]:
    def call(
        self: InaProcessGroup, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> Any:
        return self._call(name, kind, outputs, inputs, _options(options_of, opts))

    call.__name__ = name
    call.__doc__ = f"Carry out, through the switch if possible, torch's `ProcessGroup.{name}`."
    return untraced(call)


for _name in AROUND:
    setattr(InaProcessGroup, _name, _around(_name))
for _name in GATHERING:
    setattr(InaProcessGroup, _name, _moving(_name, "all_gather", AllgatherOptions))
for _name in SCATTERING:
    setattr(InaProcessGroup, _name, _moving(_name, SCATTER, dist.ReduceScatterOptions))
