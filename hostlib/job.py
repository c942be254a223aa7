"""The job of this process, joined once and left once; `hostlib` exports these functions."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from hostlib.collectives.communicator import Communicator, joined
from hostlib.collectives.schedule import Limits
from hostlib.config import JobConfig
from hostlib.errors import NotInitialized
from hostlib.launch.launched_rank import launched_rank
from hostlib.settings import Settings
from hostlib.wire import encodings
from hostlib.wire.encodings import Numbers

Given = ParamSpec("Given")
Returned = TypeVar("Returned")

_communicator: Communicator | None = None
_left: set[tuple[str, int, int, str | None]] = set()
"""Jobs that this process has left, and cannot join again: the switch still holds their last sums."""


def init(
    config: JobConfig | None = None, *, fusion_bytes: int | None = None, slice_bytes: int | None = None
) -> None:
    """Join the job of `config`, ``INA_JOB`` or a launcher; without these, a job of this process alone.

    With a rendezvous in the configuration, wait until all ranks have joined. Without effect if this process
    has joined a job already. A job that was left with `shutdown` cannot be joined again, except the job of
    this process alone.

    Args:
        config: the job; None: from the environment.
        fusion_bytes: maximum number of bytes of small asynchronous collectives to sum together; the same on
            all ranks. None: ``INA_FUSION_BYTES``, or 1 MiB.
        slice_bytes: maximum number of bytes of a larger collective to sum at a time, a quarter of this for a
            collective with a layer; the same on all ranks. None: ``INA_SLICE_BYTES``, or 32 MiB.

    Raises:
        ConfigError: the configuration is unusable, or the socket cannot be opened.
        RendezvousError: the job could not be joined.
        NotInitialized: this process has left that job.
    """
    if _communicator is not None:
        return
    settings = Settings.from_environment()
    limits = Limits(
        settings.limits.fusion_bytes if fusion_bytes is None else fusion_bytes,
        settings.limits.slice_bytes if slice_bytes is None else slice_bytes,
    )
    config = config or JobConfig.from_environment()
    place = None if config else launched_rank()
    if place is None or place.size == 1:
        _join(config, limits)
    else:
        from hostlib.launch import machines  # most ranks are started with a job

        _join(machines.launched(place, settings), limits)


def check_not_left(config: JobConfig | None) -> None:
    """Raise NotInitialized if this process has left the job."""
    if config and _place(config) in _left:
        raise NotInitialized(
            f"job {config.job} was left with shutdown() and cannot be joined again: call init() and "
            "shutdown() once in a process, or start a new job with `ina run`"
        )


def _join(config: JobConfig | None, limits: Limits) -> None:
    global _communicator
    check_not_left(config)
    _communicator = joined(config, limits) if config else Communicator(None, limits=limits)


def shutdown() -> None:
    """Finish the submitted collectives and leave the job, for good. Without effect before `init`."""
    global _communicator
    if _communicator is not None:
        _communicator.close()
        if hosting := sys.modules.get("hostlib.launch.hosting"):  # else this process has admitted no job
            hosting.finish()
        if _communicator.config:
            _left.add(_place(_communicator.config))
        _communicator = None


def is_initialized() -> bool:
    """Return whether `init` has been called."""
    return _communicator is not None


def rank() -> int:
    """Return this worker's number in the job, from 0."""
    return current().rank


def size() -> int:
    """Return the number of workers of the job."""
    return current().size


def _ours(method: Callable[Concatenate[Communicator, Given], Returned]) -> Callable[Given, Returned]:
    """Return a function that calls `method` on the current communicator."""

    @functools.wraps(method)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
        return method(current(), *args, **kwargs)

    signature = inspect.signature(method)
    call.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
    call.__qualname__, call.__module__ = method.__name__, __name__
    return call


allreduce = _ours(Communicator.allreduce)
allreduce_async = _ours(Communicator.allreduce_async)
reduce = _ours(Communicator.reduce)
reduce_async = _ours(Communicator.reduce_async)
reduce_scatter = _ours(Communicator.reduce_scatter)
reduce_scatter_async = _ours(Communicator.reduce_scatter_async)
all_gather = _ours(Communicator.all_gather)
all_gather_async = _ours(Communicator.all_gather_async)
broadcast = _ours(Communicator.broadcast)
broadcast_async = _ours(Communicator.broadcast_async)
barrier = _ours(Communicator.barrier)
progress = _ours(Communicator.progress)
statistics = _ours(Communicator.statistics)


def error_bound(
    largest: float,
    fan_in: int,
    *,
    scale_bits: int | None = None,
    numbers: Numbers = "exponent",
    hierarchical: bool = False,
    named: bool = False,
) -> float:
    """Return the largest absolute error of one element of a float32 sum.

    Args:
        largest: the largest magnitude among the elements of its packet, over all ranks.
        fan_in: number of ranks.
        scale_bits: `JobConfig.scale_bits`, if the job's numbers are "fixed"; None: an exponent per packet.
        numbers: encoding with an exponent per packet: "exponent", "block16", "block8" or "block4".
        hierarchical: True if ranks of a machine are summed there first (``INA_HIERARCHICAL``).
        named: True if the call has a name (all of torch's and Horovod's calls count as named), and no
            encoding of its own: its exponents may be foreseen (`hostlib.core.foresight`).

    Raises ValueError for more ranks than the encoding supports.
    """
    if scale_bits is not None:
        local = encodings.local_error_bound(largest, fan_in) if hierarchical else 0.0
        return encodings.fixed_error_bound(largest, scale_bits, fan_in) + local
    bound: Callable[[int, int], float] = functools.partial(encodings.error_bound, foreseen=named)
    if numbers in encodings.BLOCKS:
        bound = functools.partial(encodings.block_error_bound, numbers=numbers)
    if hierarchical:
        return encodings.hierarchical_error_bound(largest, fan_in, bound, encodings.most_ranks(numbers))
    return bound(encodings.exponent_of(largest), fan_in)


def _place(config: JobConfig) -> tuple[str, int, int, str | None]:
    """Return a key that identifies an admission of a job within this process."""
    return config.transport.switch, config.job, config.epoch, config.token


def current() -> Communicator:
    """Return the communicator that these functions use. Raises NotInitialized."""
    if _communicator is None:
        raise NotInitialized("call hostlib.init() first")
    return _communicator
