"""What a virtual testbed is told besides its topology and its jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hostlib.core.congestion import Congestion
from hostlib.core.kernel import KernelName
from hostlib.core.state import RtoLimits

Program = Literal["shared", "exclusive"]

DEFAULT_WINDOW = 128
"""Packets in flight; at 10 Gb/s and 64 lanes twice what is under way in a round trip of 17 µs."""


_RTO = RtoLimits(initial_s=0.002, margin_s=0.0001, max_s=0.02)


class TestbedError(Exception):
    """The testbed cannot run, or found something that must not be.

    TestbedError
    ├── WrongSum    a worker was handed a result that is not the sum
    └── Stalled     nothing has moved for `VirtualSettings.patience_s`
    """

    __test__ = False  # pytest takes classes called Test* for tests


class WrongSum(TestbedError):
    """A worker was handed a result that is not the sum of all ranks' contributions."""


class Stalled(TestbedError):
    """Workers wait for results that do not come; says which, and for whom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualSettings:
    """The same settings, topology, jobs and faults give the same report, whatever machine runs them."""

    program: Program = "shared"
    lanes: int = 64
    slots: int = 8192
    """Aggregator slots of every switch that aggregates. Exclusive: divided equally among the jobs."""
    max_age_s: float = 0.02
    """After this a slot that nobody adds to may be taken by anybody (shared)."""
    ecn_depth: int | None = None
    """Packets in a switch's queue from which on it marks; None: the program's own."""
    seed: int = 0
    coalesce_us: int = 5
    """Hosts look at what has arrived this often: interrupt coalescing of a network card. It adds up to as
    much to every round trip; the simulation's time goes down in proportion."""
    rto: RtoLimits = _RTO
    """A real worker's default allows for the scheduler of a real machine."""
    remind_s: float = 0.0001
    """Least wait of a fallback server before it reminds."""
    remind_max_s: float = 0.02
    fallback_capacity: int = 65536
    """Memory of a fallback server, packets."""
    forward_share: float = 1 / 3
    """Part of an iteration's computing that is the forward pass: a backward pass costs twice as much."""
    overflow_every: int = 0
    """Every so many iterations one rank's tensors hold a value that is too large for a fixed scale, which the
    fallback server repairs with raw values (numbers fixed, program shared). 0: never."""
    patience_s: float = 10.0
    """Virtual time without any result to any worker, and without anybody computing, that ends the run."""
    limit_s: float = 3600.0
    """Virtual time that ends the run at the latest."""
    samples: int = 100
    """Samples of the slots in use over a run: at least half as many, at most this many. 0: none."""
    kernel: KernelName = "auto"
    make_congestion: Callable[[str], Congestion] | None = None
    """Makes the congestion control of every worker from the name in the job file; None: the library's own."""

    def __post_init__(self) -> None:
        if self.coalesce_us < 1:
            raise TestbedError(f"coalesce_us is {self.coalesce_us}, must be 1 or more")
        if self.slots < 0:
            raise TestbedError(f"slots is {self.slots}, must be 0 or more")
        if self.overflow_every and self.program == "exclusive":
            raise TestbedError("overflow_every needs the program shared: nobody else repairs an overflow")
        if not 0 <= self.forward_share <= 1:
            raise TestbedError(f"forward_share is {self.forward_share:g}, must be a fraction, 0 to 1")
