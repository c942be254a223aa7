"""The job of this process: joined once, left once; `hostlib` has these functions under its own name."""

from __future__ import annotations

import atexit
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
_config: JobConfig | None = None
_left: set[tuple[str, int, int, str | None]] = set()
"""Jobs of this process that are over: the switch still holds their last sums, by packet number."""


def init(
    config: JobConfig | None = None, *, fusion_bytes: int | None = None, slice_bytes: int | None = None
) -> None:
    """Join a job: that of `config`, of ``INA_JOB``, of a launcher (`launched_rank`), or of one process.

    With a rendezvous in the configuration, waits until all ranks are there. Without effect if done before. A
    job that was left with `shutdown` cannot be joined again, but the one of this process alone can.

    Args:
        config: the job; None: as the environment says.
        fusion_bytes: how much of small asynchronous collectives is summed together; the same on all ranks.
            None: as ``INA_FUSION_BYTES`` says, 1 MiB without.
        slice_bytes: how much of a large one is summed at a time; the same on all ranks. None: as
            ``INA_SLICE_BYTES`` says, 32 MiB without. A quarter of it of one that tells its layer.

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
        from hostlib.launch import machines  # most ranks come with a job

        _join(machines.launched(place, settings), limits)


def check_not_left(config: JobConfig | None) -> None:
    """Raise NotInitialized if this process has left the job."""
    if config and _place(config) in _left:
        raise NotInitialized(
            f"job {config.job} was left with shutdown() and cannot be joined again: call init() and "
            "shutdown() once in a process, or start a new job with `ina run`"
        )


def _join(config: JobConfig | None, limits: Limits) -> None:
    global _communicator, _config
    check_not_left(config)
    _communicator = joined(config, limits) if config else Communicator(None, limits=limits)
    _config = config


def shutdown() -> None:
    """Finish what was submitted and leave the job, for good. Without effect before `init`."""
    global _communicator, _config
    if _communicator is not None:
        _communicator.close()
        if hosting := sys.modules.get("hostlib.launch.hosting"):  # else this process has had no job admitted
            hosting.finish()
        if _config:
            _left.add(_place(_config))
        _communicator = _config = None


@atexit.register
def _report() -> None:
    """Report the last counters of a process that ends without `shutdown`: others are sent now and then."""
    if _communicator is not None:
        _communicator.report()


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
    """Return the method as a function of the current communicator."""

    @functools.wraps(method)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
        return method(current(), *args, **kwargs)

    shown = inspect.signature(method)
    call.__signature__ = shown.replace(parameters=[*shown.parameters.values()][1:])  # type: ignore[attr-defined]
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
        largest: the largest magnitude among the elements that share its packet, over all ranks.
        fan_in: number of ranks.
        scale_bits: those of the configuration if its numbers are "fixed"; None: an exponent per packet.
        numbers: "block16", "block8" or "block4" if they are that.
        hierarchical: True if ranks of a machine are summed there first (``INA_HIERARCHICAL``).
        named: True if the call has a name (all of torch's and Horovod's count as named), and no numbers of
            its own: its exponents may be foreseen (`hostlib.core.foresight`).

    Raises ValueError for more ranks than the numbers have room for.
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
    """Return a key that identifies one admission of a job within this process."""
    return config.transport.switch, config.job, config.epoch, config.token


def current() -> Communicator:
    """Return the communicator behind these functions. Raises NotInitialized."""
    if _communicator is None:
        raise NotInitialized("call hostlib.init() first")
    return _communicator
