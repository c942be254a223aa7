"""One decision for jobs that are all present now, without simulating its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.policies.grouping.efficiency import Profile, Span, spans
from controller.policies.scheduling.beliefs import profile
from controller.policies.scheduling.checks import check
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.model import RESOURCES, Submission
from controller.policies.scheduling.policy import Group, JobState, View
from controller.simulator.policy_run import PolicyRun
from controller.vocabulary import Cluster


@dataclass(frozen=True, slots=True)
class Planned:
    """One group of a decision.

    Attributes:
        group: As the policy returned it.
        iteration_s: Seconds per iteration of each member in the group.
        speedup: How much more these GPUs do than with one member at a time: the sum of the members' speeds,
            each relative to its speed alone.
        spans: Which job uses which resource when, in one round; empty if the members do not interleave.
    """

    group: Group
    iteration_s: tuple[float, ...]
    speedup: float
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Jobs that run, jobs that wait, and the policy's explanations: ``(job id, sentence)``."""

    groups: tuple[Planned, ...]
    waiting: tuple[JobState, ...]
    notes: tuple[tuple[str, str], ...]


def decide_once(specs: Sequence[Submission], cluster: Cluster, policy_run: PolicyRun) -> Plan:
    """Return a fresh policy's decision about `specs`; submission times only determine the order.

    Raises BadSpec for a job larger than the cluster or two of one name, and the policy's errors.
    """
    if cluster.virtual:
        raise BadSpec(f"{len(cluster.virtual)} virtual clusters; give the servers of one of them")
    jobs: dict[str, JobState] = {}
    for number, spec in enumerate(sorted(specs, key=lambda spec: spec.arrival_s)):
        cluster.check_room(spec.name, spec.gpus)
        if spec.name in jobs:
            raise BadSpec(f"two jobs are called {spec.name!r}")
        jobs[spec.name] = JobState(spec, number, policy_run.speed.alone_s(spec), 0.0)
    view = View(0.0, cluster, jobs, list(jobs.values()), (), ())
    decision = policy_run.policy.decide(view)
    check(decision, view, policy_run.policy.name)
    runs = {job.order for group in decision.groups for job in group.jobs}
    return Plan(
        tuple(_planned(group, policy_run) for group in decision.groups),
        tuple(job for job in jobs.values() if job.order not in runs),
        tuple(decision.notes),
    )


def _planned(group: Group, policy_run: PolicyRun) -> Planned:
    iteration_s = tuple(policy_run.speed.iteration_s(group))
    speedup = sum(job.alone_s / its_s for job, its_s in zip(group.jobs, iteration_s, strict=True))
    boxes = spans(profiles(group), group.stage_order) if group.stage_order else []
    return Planned(group, iteration_s, speedup, tuple(boxes))


def profiles(group: Group) -> list[Profile]:
    """Return the members' seconds per iteration on each of `RESOURCES`."""
    return [profile(job.spec) for job in group.jobs]


def stage_names(group: Group) -> list[str]:
    """Return the stage at which each member starts a round, by name."""
    return [RESOURCES[offset] for offset in group.stage_order]
