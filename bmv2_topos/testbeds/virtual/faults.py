"""Faults of a testbed, as data with their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bmv2_topos.testbeds.virtual.errors import TestbedError
from controller.vocabulary import Topology


@dataclass(frozen=True, slots=True)
class RestartJob:
    """All workers of a job start anew, from the last iteration that all of them finished.

    The job is removed from the switches and admitted again under the same id, with another epoch: what it
    left in slots, queues and the fallback server is still there.
    """

    at_s: float
    job: str
    down_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RestartFallback:
    """A job's fallback server loses all it knows of packets, and hears nothing for a while."""

    at_s: float
    job: str
    down_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ChangeRegion:
    """A shared job gets other slots."""

    at_s: float
    job: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ChangeLoss:
    """The link between two nodes loses packets with this probability from now on, besides its own."""

    at_s: float
    a: str
    b: str
    loss: float


@dataclass(frozen=True, slots=True)
class Straggle:
    """A rank computes for another time from now on."""

    at_s: float
    job: str
    rank: int
    compute_s: float


@dataclass(frozen=True, slots=True)
class RemoveJob:
    """A job is ended, whatever it is doing; one that has not arrived yet never will."""

    at_s: float
    job: str


Fault = RestartJob | RestartFallback | ChangeRegion | ChangeLoss | Straggle | RemoveJob


def check_fault(fault: Fault, topology: Topology, jobs: Sequence[str]) -> None:
    """Raise TestbedError if there is no such link or job; `jobs` are their names."""
    if isinstance(fault, ChangeLoss):
        ends = {frozenset((link.a, link.b)) for link in topology.links}
        if frozenset((fault.a, fault.b)) not in ends:
            raise TestbedError(f"there is no link {fault.a}-{fault.b}")
    elif fault.job not in jobs:
        raise TestbedError(f"there is no job {fault.job!r}; there are {', '.join(jobs)}")
