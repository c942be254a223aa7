"""Collectives through the switch, for training code.

::

    import hostlib as ina

    ina.init()
    mean = ina.allreduce(gradient, op="average")
    ina.shutdown()

Under ``ina run``, `init` joins the job described in the environment variable ``INA_JOB``. Under torchrun,
mpirun or srun, rank 0 admits a job for the ranks (`hostlib.launch.hosting`). Otherwise the process is a job
of its own with one rank: every sum is equal to its input.

A process has one job at a time through these functions; `Communicator` has no such limit.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hostlib.collectives.communicator import Communicator
    from hostlib.collectives.handle import Handle
    from hostlib.collectives.schedule import Limits
    from hostlib.config import DEFAULT_SLOTS, JobConfig, TransportConfig
    from hostlib.core.congestion import window_for
    from hostlib.errors import (
        ConfigError,
        InaError,
        JobBroken,
        JobFault,
        NativeMissing,
        NonFiniteError,
        NotInitialized,
        PeerLost,
        PeerTimeout,
        PrecisionWarning,
        RanksDisagree,
        RendezvousError,
        SumOverflow,
        UnsupportedArray,
    )
    from hostlib.job import (
        all_gather,
        all_gather_async,
        allreduce,
        allreduce_async,
        barrier,
        broadcast,
        broadcast_async,
        current,
        error_bound,
        init,
        is_initialized,
        progress,
        rank,
        reduce,
        reduce_async,
        reduce_scatter,
        reduce_scatter_async,
        shutdown,
        size,
        statistics,
    )

__all__ = [
    "DEFAULT_SLOTS",
    "Communicator",
    "ConfigError",
    "Handle",
    "InaError",
    "JobBroken",
    "JobConfig",
    "JobFault",
    "Limits",
    "NativeMissing",
    "NonFiniteError",
    "NotInitialized",
    "PeerLost",
    "PeerTimeout",
    "PrecisionWarning",
    "RanksDisagree",
    "RendezvousError",
    "SumOverflow",
    "TransportConfig",
    "UnsupportedArray",
    "all_gather",
    "all_gather_async",
    "allreduce",
    "allreduce_async",
    "barrier",
    "broadcast",
    "broadcast_async",
    "current",
    "error_bound",
    "init",
    "is_initialized",
    "progress",
    "rank",
    "reduce",
    "reduce_async",
    "reduce_scatter",
    "reduce_scatter_async",
    "shutdown",
    "size",
    "statistics",
    "window_for",
]

_HOMES: Final = {
    "collectives.communicator": ("Communicator",),
    "collectives.handle": ("Handle",),
    "config": ("DEFAULT_SLOTS", "JobConfig", "TransportConfig"),
    "core.congestion": ("window_for",),
    "errors": (
        "ConfigError",
        "InaError",
        "JobBroken",
        "JobFault",
        "NativeMissing",
        "NonFiniteError",
        "NotInitialized",
        "PeerLost",
        "PeerTimeout",
        "PrecisionWarning",
        "RanksDisagree",
        "RendezvousError",
        "SumOverflow",
        "UnsupportedArray",
    ),
    "job": (
        "all_gather",
        "all_gather_async",
        "allreduce",
        "allreduce_async",
        "barrier",
        "broadcast",
        "broadcast_async",
        "current",
        "error_bound",
        "init",
        "is_initialized",
        "progress",
        "rank",
        "reduce",
        "reduce_async",
        "reduce_scatter",
        "reduce_scatter_async",
        "shutdown",
        "size",
        "statistics",
    ),
    "collectives.schedule": ("Limits",),
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use, so that launchers, which use no arrays, start fast."""
    for module, names in _HOMES.items():
        if name in names:
            found: object = getattr(importlib.import_module(f"hostlib.{module}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
