"""Faults of a testbed: as data with their times, and schedules of them drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from bmv2_topos.testbeds.virtual.settings import TestbedError
from controller.vocabulary import Job, Topology


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


def random_faults(
    seed: int,
    jobs: Sequence[Job],
    topology: Topology,
    *,
    count: int,
    until_s: float,
    slots: int,
    max_loss: float = 0.1,
) -> tuple[Fault, ...]:
    """Draw `count` faults of all kinds before `until_s`; the same seed gives the same.

    At least one job is left to the end. `slots` are a switch's.
    """
    draw = random.Random(seed)
    left = [job.name for job in jobs]
    faults: list[Fault] = []
    for at_s in sorted(draw.uniform(0, until_s) for _ in range(count)):
        job = draw.choice([job for job in jobs if job.name in left])
        kind = draw.choices(
            (RestartJob, RestartFallback, ChangeRegion, ChangeLoss, Straggle, RemoveJob),
            weights=(3, 3, 3, 4, 2, 1),
        )[0]
        if kind is RestartJob:
            faults.append(RestartJob(at_s, job.name, draw.choice((0.0, draw.uniform(0, 0.002)))))
        elif kind is RestartFallback:
            faults.append(RestartFallback(at_s, job.name, draw.choice((0.0, draw.uniform(0, 0.002)))))
        elif kind is ChangeRegion:
            offset = draw.randrange(slots + 1)
            faults.append(ChangeRegion(at_s, job.name, offset, draw.randrange(slots - offset + 1)))
        elif kind is ChangeLoss:
            link = draw.choice(topology.links)
            loss = draw.choice((0.0, draw.uniform(0, max_loss)))
            faults.append(ChangeLoss(at_s, link.a, link.b, loss))
        elif kind is Straggle:
            compute_s = job.compute_s * draw.uniform(0, 4)
            faults.append(Straggle(at_s, job.name, draw.randrange(job.workers), compute_s))
        elif len(left) > 1:
            left.remove(job.name)
            faults.append(RemoveJob(at_s, job.name))
    return tuple(faults)
