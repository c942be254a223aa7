"""Scheduling on servers that fail: jobs leave those that are down, and avoid those that failed before."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from controller.policies.scheduling.placement import Counts, Slots
from controller.policies.scheduling.policy import Decision, Group, JobState, View
from controller.policies.scheduling.ranked import settle
from controller.policies.scheduling.told import TRUTH, Told
from controller.vocabulary import Cluster


class Health(Protocol):
    """The state of servers, by number."""

    def down(self, now_s: float) -> Collection[int]:
        """Return the servers that are down."""

    def failures(self, now_s: float) -> dict[int, int]:
        """Return how often each server that has failed has done so until now."""

    def next_s(self, now_s: float) -> float:
        """Return the time at which a server next goes down or comes back."""


class Healthy:
    """Shortest remaining service first on the servers that are up; ours.

    A job whose server goes down restarts elsewhere at once, from its checkpoint, if it ranks before others
    that run. With `wary`, jobs prefer the servers that have failed least so far: where some servers fail
    often, the others get the work.
    """

    def __init__(self, health: Health, told: Told = TRUTH, *, wary: bool = True) -> None:
        self.name = "healthy" if wary else "evacuate"
        self._health = health
        self._told = told
        self._wary = wary

    def decide(self, view: View) -> Decision:
        """Return the jobs of least remaining service that fit on the servers that are up."""
        now_s, cluster = view.now_s, view.cluster
        down = self._health.down(now_s)
        failures = self._health.failures(now_s) if self._wary else {}
        up = [number for number in range(len(cluster.servers)) if number not in down]
        up.sort(key=lambda number: (failures.get(number, 0), number))
        wake_s = self._health.next_s(now_s) if view.jobs else None
        if not up:
            return Decision([], wake_s)
        part = Cluster(tuple(cluster.servers[number] for number in up))
        ranked = sorted(
            view.jobs.values(),
            key=lambda job: (self._told.remaining_s(job, now_s) * job.spec.gpus, job.order),
        )
        counts = Counts(part)
        chosen = [job for job in ranked if counts.take(job.spec.gpus)]
        return Decision(_placed(chosen, part, _numbers(cluster, up)), wake_s)


def _numbers(cluster: Cluster, nodes: list[int]) -> list[int]:
    """Return the cluster's number of each GPU of a part that has these nodes, in this order."""
    firsts = [(cluster.first_gpu[node], cluster.servers[node].gpus) for node in nodes]
    return [gpu for first, gpus in firsts for gpu in range(first, first + gpus)]


def _placed(chosen: list[JobState], part: Cluster, numbers: list[int]) -> list[Group]:
    """Place jobs on the servers that are up: those that run there stay if they can (`ranked.settle`)."""
    local = {gpu: number for number, gpu in enumerate(numbers)}
    running = {
        job.order: Group((job,), tuple(local[gpu] for gpu in job.group.gpus))
        for job in chosen
        if job.group is not None and all(gpu in local for gpu in job.group.gpus)
    }
    slots = Slots(part)
    for group in running.values():
        slots.keep(group.gpus)
    placed, _ = settle(chosen, running, slots, part)
    return [_in_whole(group, numbers) for group in placed.values()]


def _in_whole(group: Group, numbers: list[int]) -> Group:
    """Return the group with the whole cluster's numbers: the one that runs, if it is the same."""
    (job,) = group.jobs
    gpus = tuple(numbers[number] for number in group.gpus)
    if job.group is not None and job.group.gpus == gpus:
        return job.group
    return Group((job,), gpus, reason="the healthiest servers with room")
