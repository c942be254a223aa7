"""Schedules of faults drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from bmv2_topos.faults import ChangeRegion, Fault, LinkFault, RemoveJob, RestartFallback, RestartJob, Straggle
from controller.vocabulary import Job, Topology


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
            (RestartJob, RestartFallback, ChangeRegion, LinkFault, Straggle, RemoveJob),
            weights=(3, 3, 3, 4, 2, 1),
        )[0]
        if kind is RestartJob:
            faults.append(RestartJob(at_s, job.name, draw.choice((0.0, draw.uniform(0, 0.002)))))
        elif kind is RestartFallback:
            faults.append(RestartFallback(at_s, job.name, draw.choice((0.0, draw.uniform(0, 0.002)))))
        elif kind is ChangeRegion:
            offset = draw.randrange(slots + 1)
            faults.append(ChangeRegion(at_s, job.name, offset, draw.randrange(slots - offset + 1)))
        elif kind is LinkFault:
            link = draw.choice(topology.links)
            loss = draw.choice((0.0, draw.uniform(0, max_loss)))
            faults.append(LinkFault(at_s, (link.a, link.b), "loss", loss))
        elif kind is Straggle:
            compute_s = job.compute_s * draw.uniform(0, 4)
            faults.append(Straggle(at_s, job.name, draw.randrange(job.workers), compute_s))
        elif len(left) > 1:
            left.remove(job.name)
            faults.append(RemoveJob(at_s, job.name))
    return tuple(faults)
