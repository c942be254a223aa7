"""Explanations of a decision, in numbers: each job's request, what it gets, and why it waits."""

from __future__ import annotations

from collections.abc import Sequence

from controller.policies.scheduling.model import RESOURCES
from controller.policies.scheduling.placement import Slots
from controller.policies.scheduling.policy import JobState
from controller.simulator.once import Plan, Planned, profiles
from controller.vocabulary import Cluster
from controller.vocabulary.words import plural


def numbers(plan: Plan, cluster: Cluster) -> dict[str, list[str]]:
    """Return sentences for each job, by its name."""
    jobs = [*(job for each in plan.groups for job in each.group.jobs), *plan.waiting]
    ranked = sorted(jobs, key=lambda job: (service(job), job.order))
    place = {job.order: number for number, job in enumerate(ranked, 1)}
    slots = Slots(cluster)
    slots.keep({gpu for each in plan.groups for gpu in each.group.gpus})
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
    """Return the GPU-seconds left."""
    return job.remaining_s(0.0) * job.spec.gpus


def together(each: Planned, number: int) -> list[str]:
    """Return the speed of member `number` of a group, and the group's utilisation of each resource."""
    job, its_s = each.group.jobs[number], each.iteration_s[number]
    if len(each.group.jobs) == 1 and not each.group.neighbours:
        return ["has its GPUs for itself"]
    lines = [
        f"{its_s:.3g} s per iteration, alone {job.alone_s:.3g} s: {job.alone_s / its_s:.0%} of its speed;"
        f" the {len(each.group.jobs)} together do {each.speedup:.2f} times the work of one at a time"
    ]
    return lines + ([busy(each)] if each.spans else [])


def busy(each: Planned) -> str:
    """Return for how long each resource of a group works in a round."""
    round_s = max(span.end_s for span in each.spans)
    used = [sum(stages) for stages in zip(*profiles(each.group), strict=True)]
    shares = ", ".join(f"{name} {use / round_s:.0%}" for name, use in zip(RESOURCES, used, strict=True))
    return f"a round of {round_s:.3g} s, before contention, keeps busy: {shares}"


def waits(job: JobState, running: Sequence[JobState], slots: Slots) -> str:
    """Return the reason why a job waits while `slots` are free."""
    less = sum(service(other) < service(job) for other in running)
    before = sum(other.order < job.order for other in running)
    return (
        f"waits: {slots.free} of {slots.cluster.gpus} GPUs are free{_room(job.spec.gpus, slots)};"
        f" of {len(running)} running, {less} ask for less service and {before} came before"
    )


def _room(gpus: int, slots: Slots) -> str:
    if slots.free < gpus:
        return ""
    taken = slots.take(gpus)
    if taken is None:
        return ", but not together"
    slots.give(taken)
    return ", and the policy leaves them free"
