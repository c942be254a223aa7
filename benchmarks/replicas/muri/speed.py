"""Speeds of jobs in Muri's public simulator: alone, grouped, and beside AntMan's guaranteed jobs.

The length of a group's round as Muri's public simulator computes it, for three stage times per job.

The trace's three numbers are loading and preprocessing together, GPU, and network. The simulator has four
slots to a round and lets the first stage span two of them. A job at position p of the order starts p slots
late; a slot ends when the stages that lie in it have ended. The round is the time between the ends of slots
that are four slots apart, once it is constant, in the best order of jobs.

This differs from equation 3 of the paper (`grouping.efficiency`), where each slot belongs to one
of k = 4 stages: with the first stage across two slots, two jobs that both load for long overlap, which is
optimistic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.policy import Group, Submission
from controller.policies.scheduling.speed import ExclusiveSpeed

SLOTS = 4

Stages = tuple[float, ...]


def round_s(jobs: Sequence[Stages], *, worst: bool = False) -> float:
    """Return the seconds of a round of up to four jobs in their best order (or their worst).

    >>> round(round_s([(0.7, 0.1, 0.0), (0.0, 0.4, 0.0)]), 3)
    0.8
    """
    return _round_s(tuple(sorted(jobs)), worst)


@lru_cache(maxsize=1 << 20)
def _round_s(jobs: tuple[Stages, ...], worst: bool) -> float:
    choose: Callable[[float, float], float] = max if worst else min
    best_s = 0.0 if worst else math.inf
    for order in set(itertools.permutations(jobs)):
        best_s = choose(best_s, _in_order_s(order))
    if len(jobs) == 2:  # two jobs may also stand two slots apart
        (load_a, gpu_a, net_a), (load_b, gpu_b, net_b) = jobs
        best_s = choose(best_s, max(load_a, gpu_b + net_b) + max(load_b, gpu_a + net_a))
    return best_s


def _in_order_s(jobs: Sequence[Stages]) -> float:
    count = len(jobs)
    ends = [0.0] * (2 * SLOTS + 1)
    for slot in range(2 * SLOTS):
        # no job at a position beyond the last one: that stage does not hold the slot open
        start, end = ends[slot], 0.0
        if (position := (slot + 1) % SLOTS) < count:
            end = max(end, start + jobs[position][2])
        if (position := (slot + 2) % SLOTS) < count:
            end = max(end, start + jobs[position][1])
        if slot and (position := (slot + 3) % SLOTS) < count:
            end = max(end, ends[slot - 1] + jobs[position][0])
        ends[slot + 1] = end
        if slot >= SLOTS and math.isclose(end - ends[slot - 3], start - ends[slot - 4], rel_tol=1e-3):
            break
    if end - ends[slot - 3] > 0:
        return end - ends[slot - 3]
    return ends[2 * SLOTS] - ends[SLOTS]


ALONE = 1.015
CONTENTION = (1.0, 1.33 / ALONE, 1.5 / ALONE, 1.37 / ALONE)
"""Factors by which a round is longer than computed, for one to four jobs."""

CONTENTION_IN_ORDER = (*CONTENTION[:3], 1.3 / ALONE)
"""The same for the variant without Blossom, which has another figure for four."""

STAGES = 3


def longer_s(iteration_s: float, factor: float) -> float:
    """Return `factor` times an iteration, rounded as in the original, where times are milliseconds.

    With other rounding, jobs that are equal there would differ here.
    """
    return iteration_s * 1000.0 * factor / 1000.0


@dataclass(frozen=True, slots=True)
class MuriSpeed:
    """The public simulator's speeds; every restart costs each member the sum of all members' costs."""

    contention: tuple[float, ...] = CONTENTION
    worst: bool = False

    def alone_s(self, job: Submission) -> float:
        """Return the job's own figure, with the simulator's constant."""
        return longer_s(job.iteration_s, ALONE)

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the round's length for each member."""
        jobs = group.jobs
        if len(jobs) == 1:
            return (jobs[0].alone_s,)
        stages = [stages_of(job.spec) for job in jobs]
        return (round_s(stages, worst=self.worst) * self.contention[len(jobs) - 1],) * len(jobs)

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return the members' costs together, for each."""
        return (sum([job.spec.restart_s for job in group.jobs]),) * len(group.jobs)


@dataclass(frozen=True, slots=True)
class AntManSpeed(ExclusiveSpeed):
    """Guaranteed jobs run as if alone; an opportunistic one uses each resource while those do not.

    So it needs several of their rounds. `alone` is a factor on the jobs' own figures.
    """

    alone: float = ALONE

    def alone_s(self, job: Submission) -> float:
        """Return the job's own figure times the constant."""
        return longer_s(job.iteration_s, self.alone)

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the figure alone for guaranteed jobs, whole rounds of the slowest host for others."""
        (job,) = group.jobs
        iteration_s = job.alone_s
        if job.spec.opportunistic:
            for other in group.neighbours:
                if other.spec.opportunistic:
                    iteration_s = max(iteration_s, job.alone_s * 2.0)
                else:
                    rounds = _rounds(stages_of(job.spec), _host(other.spec))
                    iteration_s = max(iteration_s, rounds * other.alone_s)
        return (iteration_s,)


def stages_of(job: Submission) -> tuple[float, float, float]:
    """Return the job's three stage times. Raises BadSpec if it has others."""
    if len(job.stages_s) != STAGES:
        raise BadSpec(f"job {job.name!r} has {len(job.stages_s)} stage times; {STAGES} are needed")
    first, second, third = job.stages_s
    return first, second, third


def _host(job: Submission) -> tuple[float, float, float]:
    stages = stages_of(job)
    if max(stages) == sum(stages):
        raise BadSpec(f"job {job.name!r} has one stage only: it leaves its GPUs to no opportunistic job")
    return stages


def _rounds(guest: tuple[float, float, float], host: tuple[float, float, float]) -> int:
    """Return the number of the host's rounds in one iteration of the guest.

    A stage of the guest continues while the host is in its other two stages; the rest of a started round
    serves the guest's next stage.
    """
    load, gpu, net = guest
    host_load, host_gpu, host_net = host
    # the original divides and takes the remainder apart: with rounding the quotient may be one more than
    # whole
    rounds, extra = math.floor(load / (host_gpu + host_net)), load % (host_gpu + host_net)
    if extra > 0:
        rounds += 1
        gpu -= min(gpu, host_net, host_gpu + host_net - extra)
    rounds += math.floor(gpu / (host_load + host_net))
    extra = gpu % (host_load + host_net)
    if extra > 0:
        rounds += 1
        if extra < host_load:
            net -= min(net, host_load + host_gpu - extra)
    rounds += math.floor(net / (host_load + host_gpu))
    if net % (host_load + host_gpu) > host_load:
        rounds += 1
    return rounds
