"""The job of this process: joined once, left once; `hostlib` has these functions under its own name."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hostlib import quantize
from hostlib.arrays import Output, Tensor
from hostlib.collectives import Layer, NonFinite, Op
from hostlib.communicator import Communicator, joined
from hostlib.config import JobConfig
from hostlib.errors import NotInitialized
from hostlib.handle import Handle
from hostlib.launched_rank import launched_rank
from hostlib.quantize import Numbers
from hostlib.schedule import Limits
from hostlib.settings import Settings

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
        fusion_bytes: how much of small asynchronous collectives is summed together (`hostlib.schedule`); the
            same on all ranks. None: as ``INA_FUSION_BYTES`` says, 1 MiB without.
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
    elif place.local_size == place.size:
        from hostlib import hosting  # most ranks come with a job

        with hosting.launched(place, settings) as found:
            _join(found, limits)
    else:
        from hostlib import machines

        _join(machines.launched(place, settings), limits)


def _join(config: JobConfig | None, limits: Limits) -> None:
    global _communicator, _config
    if config and _place(config) in _left:
        raise NotInitialized(
            f"job {config.job} was left with shutdown() and cannot be joined again: call init() and "
            "shutdown() once in a process, or start a new job with `ina run`"
        )
    _communicator = joined(config, limits) if config else Communicator(None, limits=limits)
    _config = config


def shutdown() -> None:
    """Finish what was submitted and leave the job, for good. Without effect before `init`."""
    global _communicator, _config
    if _communicator is not None:
        _communicator.close()
        if hosting := sys.modules.get("hostlib.hosting"):  # else this process has had no job admitted
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


def allreduce(
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
) -> NDArray[Any]:
    """Return the sum or average of `array` over all ranks; see `Communicator.allreduce`."""
    return current().allreduce(
        array,
        op,
        out=out,
        name=name,
        nonfinite=nonfinite,
        layer=layer,
        priority=priority,
        numbers=numbers,
        residual=residual,
    )


def allreduce_async(
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
) -> Handle[NDArray[Any]]:
    """Start `allreduce` and return at once; see `Communicator.allreduce_async`."""
    return current().allreduce_async(
        array,
        op,
        out=out,
        name=name,
        nonfinite=nonfinite,
        layer=layer,
        priority=priority,
        numbers=numbers,
        residual=residual,
    )


def reduce(
    array: ArrayLike | Tensor,
    root: int = 0,
    op: Op = "sum",
    *,
    out: Output | None = None,
    name: str | None = None,
    nonfinite: NonFinite = "raise",
    layer: Layer | None = None,
    priority: int | None = None,
) -> NDArray[Any] | None:
    """Return the sum or average of `array` at rank `root`, None at others; see `Communicator.reduce`."""
    return current().reduce(
        array, root, op, out=out, name=name, nonfinite=nonfinite, layer=layer, priority=priority
    )


def reduce_async(
    array: ArrayLike | Tensor,
    root: int = 0,
    op: Op = "sum",
    *,
    out: Output | None = None,
    name: str | None = None,
    nonfinite: NonFinite = "raise",
    layer: Layer | None = None,
    priority: int | None = None,
) -> Handle[NDArray[Any] | None]:
    """Start `reduce` and return at once; see `Communicator.reduce_async`."""
    return current().reduce_async(
        array, root, op, out=out, name=name, nonfinite=nonfinite, layer=layer, priority=priority
    )


def reduce_scatter(
    array: ArrayLike | Tensor,
    op: Op = "sum",
    *,
    out: Output | None = None,
    name: str | None = None,
    nonfinite: NonFinite = "raise",
    layer: Layer | None = None,
    priority: int | None = None,
    numbers: Numbers | None = None,
) -> NDArray[Any]:
    """Return this rank's shard of the sum or average of `array`; see `Communicator.reduce_scatter`."""
    return current().reduce_scatter(
        array,
        op,
        out=out,
        name=name,
        nonfinite=nonfinite,
        layer=layer,
        priority=priority,
        numbers=numbers,
    )


def reduce_scatter_async(
    array: ArrayLike | Tensor,
    op: Op = "sum",
    *,
    out: Output | None = None,
    name: str | None = None,
    nonfinite: NonFinite = "raise",
    layer: Layer | None = None,
    priority: int | None = None,
    numbers: Numbers | None = None,
) -> Handle[NDArray[Any]]:
    """Start `reduce_scatter` and return at once; see `Communicator.reduce_scatter_async`."""
    return current().reduce_scatter_async(
        array,
        op,
        out=out,
        name=name,
        nonfinite=nonfinite,
        layer=layer,
        priority=priority,
        numbers=numbers,
    )


def all_gather(
    array: ArrayLike | Tensor,
    *,
    out: Output | None = None,
    name: str | None = None,
    layer: Layer | None = None,
    priority: int | None = None,
) -> NDArray[Any]:
    """Return the arrays of all ranks, one behind the other; see `Communicator.all_gather`."""
    return current().all_gather(array, out=out, name=name, layer=layer, priority=priority)


def all_gather_async(
    array: ArrayLike | Tensor,
    *,
    out: Output | None = None,
    name: str | None = None,
    layer: Layer | None = None,
    priority: int | None = None,
) -> Handle[NDArray[Any]]:
    """Start `all_gather` and return at once; see `Communicator.all_gather_async`."""
    return current().all_gather_async(array, out=out, name=name, layer=layer, priority=priority)


def broadcast(
    array: ArrayLike | Tensor,
    root: int = 0,
    *,
    out: Output | None = None,
    name: str | None = None,
    layer: Layer | None = None,
    priority: int | None = None,
) -> NDArray[Any]:
    """Return the array of rank `root`, on all ranks; see `Communicator.broadcast`."""
    return current().broadcast(array, root, out=out, name=name, layer=layer, priority=priority)


def broadcast_async(
    array: ArrayLike | Tensor,
    root: int = 0,
    *,
    out: Output | None = None,
    name: str | None = None,
    layer: Layer | None = None,
    priority: int | None = None,
) -> Handle[NDArray[Any]]:
    """Start `broadcast` and return at once; see `Communicator.broadcast_async`."""
    return current().broadcast_async(array, root, out=out, name=name, layer=layer, priority=priority)


def barrier() -> None:
    """Return when all ranks have called it."""
    current().barrier()


def progress(done: int, total: int) -> None:
    """Report that `done` of `total` iterations are over; see `Communicator.progress`."""
    current().progress(done, total)


def statistics() -> dict[str, float]:
    """Return counters since `init`: flat, numbers only, SI units in the names."""
    return current().statistics()


def error_bound(
    largest: float,
    fan_in: int,
    *,
    scale_bits: int | None = None,
    numbers: Numbers = "exponent",
    hierarchical: bool = False,
) -> float:
    """Return the largest absolute error of one element of a float32 sum.

    Args:
        largest: the largest magnitude among the elements that share its packet, over all ranks.
        fan_in: number of ranks.
        scale_bits: those of the configuration if its numbers are "fixed"; None: an exponent per packet.
        numbers: "block16", "block8" or "block4" if they are that.
        hierarchical: True if ranks of a machine are summed there first (``INA_HIERARCHICAL``).

    Raises ValueError for more ranks than the numbers have room for.
    """
    if scale_bits is not None:
        local = quantize.local_error_bound(largest, fan_in) if hierarchical else 0.0
        return quantize.fixed_error_bound(largest, scale_bits, fan_in) + local
    bound: Callable[[int, int], float] = quantize.error_bound
    if numbers in quantize.BLOCKS:
        bound = partial(quantize.block_error_bound, numbers=numbers)
    if hierarchical:
        return quantize.hierarchical_error_bound(largest, fan_in, bound, quantize.most_ranks(numbers))
    return bound(int(quantize.exponents(np.array([largest], np.float32))), fan_in)


def _place(config: JobConfig) -> tuple[str, int, int, str | None]:
    """Return a key that identifies one admission of a job within this process."""
    return config.transport.switch, config.job, config.epoch, config.token


def current() -> Communicator:
    """Return the communicator behind these functions. Raises NotInitialized."""
    if _communicator is None:
        raise NotInitialized("call hostlib.init() first")
    return _communicator
