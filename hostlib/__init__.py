"""Allreduce through the switch, the way training code is written.

::

    import hostlib as ina

    ina.init()
    mean = ina.allreduce(gradient, op="average")
    ina.shutdown()

Started by ``ina run``, `init` joins the job described in the environment variable ``INA_JOB``. Without it the
process is a job of its own: size 1, every sum is its input.

A process has one job at a time through these functions; `Communicator` has no such limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hostlib import quantize
from hostlib.collectives import NonFinite, Op
from hostlib.communicator import Communicator, Handle
from hostlib.config import DEFAULT_SLOTS, JobConfig, TransportConfig
from hostlib.errors import (
    ConfigError,
    InaError,
    JobBroken,
    JobFault,
    NonFiniteError,
    NotInitialized,
    PeerLost,
    PeerTimeout,
    RanksDisagree,
    SumOverflow,
    UnsupportedArray,
)
from hostlib.peers import NoPeers, Peers
from hostlib.rendezvous import RendezvousPeers

_communicator: Communicator | None = None


def init(config: JobConfig | None = None) -> None:
    """Join a job: that of `config`, or of ``INA_JOB``, or one of this process alone.

    With a rendezvous in the configuration, waits until all ranks are there. Without effect if done before.

    Raises:
        ConfigError: the configuration is unusable, or the socket cannot be opened.
        hostlib.rendezvous.RendezvousError: the job could not be joined.
    """
    global _communicator
    if _communicator is not None:
        return
    config = config or JobConfig.from_environment()
    peers: Peers = NoPeers()
    if config and config.rendezvous:
        peers = RendezvousPeers(config.rendezvous, job=config.job, rank=config.rank, size=config.size)
    try:
        _communicator = Communicator(config, peers)
    except BaseException:
        peers.close()
        raise


def shutdown() -> None:
    """Finish what was submitted and leave the job. Without effect before `init`."""
    global _communicator
    if _communicator is not None:
        _communicator.close()
        _communicator = None


def is_initialized() -> bool:
    """Return whether `init` has been called."""
    return _communicator is not None


def rank() -> int:
    """Return this worker's number in the job, from 0."""
    return _current().rank


def size() -> int:
    """Return the number of workers of the job."""
    return _current().size


def allreduce(
    array: ArrayLike,
    op: Op = "sum",
    *,
    out: NDArray[Any] | None = None,
    name: str | None = None,
    nonfinite: NonFinite = "raise",
) -> NDArray[Any]:
    """Return the sum or average of `array` over all ranks; see `Communicator.allreduce`."""
    return _current().allreduce(array, op, out=out, name=name, nonfinite=nonfinite)


def allreduce_async(
    array: ArrayLike,
    op: Op = "sum",
    *,
    out: NDArray[Any] | None = None,
    name: str | None = None,
    nonfinite: NonFinite = "raise",
) -> Handle:
    """Start `allreduce` and return at once; see `Communicator.allreduce_async`."""
    return _current().allreduce_async(array, op, out=out, name=name, nonfinite=nonfinite)


def barrier() -> None:
    """Return when all ranks have called it."""
    _current().barrier()


def statistics() -> dict[str, float]:
    """Return counters since `init`: flat, numbers only, SI units in the names."""
    return _current().statistics()


def error_bound(largest: float, fan_in: int) -> float:
    """Return how far one element of a float32 sum may be from the exact sum, absolutely.

    Args:
        largest: the largest magnitude among the elements that share its packet, over all ranks.
        fan_in: number of ranks.
    """
    exponent = int(quantize.exponents(np.array([largest], np.float32)))
    return quantize.error_bound(exponent, fan_in)


def _current() -> Communicator:
    if _communicator is None:
        raise NotInitialized("call hostlib.init() first")
    return _communicator


__all__ = [
    "DEFAULT_SLOTS",
    "Communicator",
    "ConfigError",
    "Handle",
    "InaError",
    "JobBroken",
    "JobConfig",
    "JobFault",
    "NonFiniteError",
    "NotInitialized",
    "PeerLost",
    "PeerTimeout",
    "RanksDisagree",
    "SumOverflow",
    "TransportConfig",
    "UnsupportedArray",
    "allreduce",
    "allreduce_async",
    "barrier",
    "error_bound",
    "init",
    "is_initialized",
    "rank",
    "shutdown",
    "size",
    "statistics",
]
