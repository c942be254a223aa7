"""One decision of a policy about jobs that are all present now, without a simulation of its outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.policies.grouping.rounds import Profile, Span, spans
from controller.policies.scheduling.checks import check
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.placement import FreeGpus
from controller.policies.scheduling.policy import RESOURCES, Group, JobState, Submission, View
from controller.policies.scheduling.ranked import profile
from controller.simulator.engine import PolicyRun, admitted
from controller.vocabulary import Cluster
from controller.vocabulary.errors import plural


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """One group of a decision.

    Attributes:
        group: The group as the policy returned it.
        iteration_s: Seconds per iteration of each member in the group.
        speedup: Sum of the members' speeds, each relative to the member's speed alone: the ratio of the
            group's work to the work of one member at a time.
        spans: When each member uses each resource in one round; empty if the members do not interleave.
    """

    group: Group
    iteration_s: tuple[float, ...]
    speedup: float
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision: the groups that run, the jobs that wait, and the policy's ``notes``, (job id, sentence)."""

    groups: tuple[PlannedGroup, ...]
    waiting: tuple[JobState, ...]
    notes: tuple[tuple[str, str], ...]


def decide_once(specs: Sequence[Submission], cluster: Cluster, policy_run: PolicyRun) -> Plan:
    """Return a new policy's decision about `specs`; submission times only determine the order.

    Raises BadSpec for a job larger than the cluster or two jobs of one name, and the policy's errors.
    """
    if cluster.virtual:
        raise BadSpec(f"{len(cluster.virtual)} virtual clusters; give the servers of one of them")
    alone_s = policy_run.speed.alone_s
    jobs = {
        spec.name: JobState(spec, number, alone_s(spec), 0.0)
        for number, spec in enumerate(admitted(specs, cluster))
    }
    view = View(0.0, cluster, jobs, list(jobs.values()), (), ())
    decision = policy_run.policy.decide(view)
    check(decision, view, policy_run.policy.name)
    runs = {job.order for group in decision.groups for job in group.jobs}
    return Plan(
        tuple(_planned(group, policy_run) for group in decision.groups),
        tuple(job for job in jobs.values() if job.order not in runs),
        tuple(decision.notes),
    )


def _planned(group: Group, policy_run: PolicyRun) -> PlannedGroup:
    iteration_s = tuple(policy_run.speed.iteration_s(group))
    speedup = sum(job.alone_s / its_s for job, its_s in zip(group.jobs, iteration_s, strict=True))
    boxes = spans(profiles(group), group.stage_order) if group.stage_order else []
    return PlannedGroup(group, iteration_s, speedup, tuple(boxes))


def profiles(group: Group) -> list[Profile]:
    """Return the members' seconds per iteration on each of `RESOURCES`."""
    return [profile(job.spec) for job in group.jobs]


def stage_names(group: Group) -> list[str]:
    """Return the name of the stage at which each member starts a round, in the members' order."""
    return [RESOURCES[offset] for offset in group.stage_order]


# ---------------------------------------------------------------------------
# Explanations of a decision, in numbers: each job's request, what it gets, and why it waits.


def numbers(plan: Plan, cluster: Cluster) -> dict[str, list[str]]:
    """Return sentences about each job of a plan, by name: its service, and its group or why it waits."""
    jobs = [*(job for each in plan.groups for job in each.group.jobs), *plan.waiting]
    ranked = sorted(jobs, key=lambda job: (service(job), job.order))
    place = {job.order: number for number, job in enumerate(ranked, 1)}
    slots = FreeGpus(cluster)
    slots.reserve({gpu for each in plan.groups for gpu in each.group.gpus})
    found: dict[str, list[str]] = {}
    for job in jobs:
        gpus = plural(job.spec.gpus, "GPU")
        asks = f"asks for {gpus} x {job.remaining_s(0.0):,.0f} s = {service(job):,.0f} GPU-s"
        found[job.spec.name] = [f"{asks} of service, number {place[job.order]} of {len(jobs)} from the least"]
    for each in plan.groups:
        for number, job in enumerate(each.group.jobs):
            found[job.spec.name] += together(each, number)
    running = [job for each in plan.groups for job in each.group.jobs]
    for job in plan.waiting:
        found[job.spec.name].append(waits(job, running, slots))
    return found


def service(job: JobState) -> float:
    """Return the GPU-seconds that a job still needs."""
    return job.remaining_s(0.0) * job.spec.gpus


def together(each: PlannedGroup, number: int) -> list[str]:
    """Return sentences about member `number` of a group: its speed, and the busy time of each resource."""
    job, its_s = each.group.jobs[number], each.iteration_s[number]
    if len(each.group.jobs) == 1 and not each.group.neighbours:
        return ["has its GPUs for itself"]
    lines = [
        f"{its_s:.3g} s per iteration, alone {job.alone_s:.3g} s: {job.alone_s / its_s:.0%} of its speed;"
        f" the {len(each.group.jobs)} together do {each.speedup:.2f} times the work of one at a time"
    ]
    return lines + ([busy(each)] if each.spans else [])


def busy(each: PlannedGroup) -> str:
    """Return a sentence that says for which fraction of a round a group keeps each resource busy."""
    round_s = max(span.end_s for span in each.spans)
    used = [sum(stages) for stages in zip(*profiles(each.group), strict=True)]
    shares = ", ".join(f"{name} {use / round_s:.0%}" for name, use in zip(RESOURCES, used, strict=True))
    return f"a round of {round_s:.3g} s, before contention, keeps busy: {shares}"


def waits(job: JobState, running: Sequence[JobState], slots: FreeGpus) -> str:
    """Return a sentence that says why a job waits although the GPUs in `slots` are free."""
    less = sum(service(other) < service(job) for other in running)
    before = sum(other.order < job.order for other in running)
    return (
        f"waits: {slots.free} of {slots.cluster.gpus} GPUs are free{_room(job.spec.gpus, slots)};"
        f" of {len(running)} running jobs, {less} ask for less service and {before} arrived earlier"
    )


def _room(gpus: int, slots: FreeGpus) -> str:
    if slots.free < gpus:
        return ""
    taken = slots.allocate(gpus)
    if taken is None:
        return ", but not together"
    slots.release(taken)
    return ", and the policy leaves them free"
