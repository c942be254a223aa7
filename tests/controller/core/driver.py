"""A core as whoever drives it sees it: tells it what happens, keeps that, and compares desired states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controller.core import (
    Core,
    Desired,
    Ended,
    Event,
    Interrupted,
    Log,
    Place,
    Progressed,
    Rules,
    Run,
    Submitted,
    Tick,
)
from controller.core.reasons import LogEntry
from controller.policies.family import Setup
from controller.policies.scheduling import Decision, Policy, SpeedModel, Submission, View
from controller.policies.scheduling.policy import Group, JobState
from controller.vocabulary import Cluster


@dataclass
class Deciding:
    """A policy of one function."""

    decide: Callable[[View], Decision]
    name: str = "deciding"


@dataclass(frozen=True, slots=True)
class StopRun:
    """End the workers of this run. Its GPUs may be given away next, so wait until the workers are gone."""

    run: Run


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start the workers of these jobs at these places; jobs that ran before resume from a checkpoint."""

    run: Run
    places: Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class Change:
    """Switch a job that keeps running to another tree or other slots."""

    job: str
    before: Place
    after: Place


Action = StopRun | StartRun | Change


def difference(before: Desired, after: Desired) -> list[Action]:
    """Return the actions that lead from one state to the other: all stops, then changes, then starts."""
    had = {run.number for run in before.runs}
    has = {run.number for run in after.runs}
    stops = [StopRun(run) for run in before.runs if run.number not in has]
    starts = [
        StartRun(run, {name: after.places[name] for name in run.jobs})
        for run in after.runs
        if run.number not in had
    ]
    changes = [
        Change(name, before.places[name], after.places[name])
        for run in after.runs
        if run.number in had
        for name in run.jobs
        if before.places[name] != after.places[name]
    ]
    return [*stops, *changes, *starts]


class Driver:
    """One core of real jobs, and all that it was told."""

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        speed: SpeedModel,
        *,
        interval_s: float = 0.0,
        sharing: int = 4,
        retries: int = 0,
    ) -> None:
        rules = Rules(reported=True, sharing=sharing, retries=retries)
        self.core = Core(cluster, Setup(policy, speed, interval_s), rules=rules, log=Log())
        self.events: list[Event] = []

    def tell(self, event: Event) -> None:
        self.events.append(event)
        self.core.handle(event)

    def submit(self, spec: Submission, now_s: float) -> None:
        self.tell(Submitted(now_s, spec))

    def progressed(self, name: str, done: float, now_s: float) -> None:
        self.tell(Progressed(now_s, name, done))

    def ended(self, name: str, now_s: float, failure: str = "") -> None:
        self.tell(Ended(now_s, name, failure))

    def interrupted(self, name: str, now_s: float, reason: str) -> None:
        self.tell(Interrupted(now_s, name, reason))

    def decide(self, now_s: float) -> list[Action]:
        before = self.core.desired()
        self.tell(Tick(now_s))
        return difference(before, self.desired)

    @property
    def desired(self) -> Desired:
        return self.core.desired()

    @property
    def next_s(self) -> float:
        return self.core.next_s

    @property
    def runs(self) -> tuple[Run, ...]:
        return self.desired.runs

    @property
    def jobs(self) -> tuple[str, ...]:
        return tuple(self.core.jobs)

    @property
    def groups(self) -> Sequence[Group]:
        return self.core.running.groups

    @property
    def log(self) -> list[LogEntry]:
        assert self.core.log is not None
        return self.core.log.entries

    @property
    def ended_jobs(self) -> list[JobState]:
        return [each.job for each in self.core.finished_jobs if each.outcome == "completed"]

    @property
    def failed(self) -> dict[str, str]:
        return {
            each.job.spec.name: each.reason for each in self.core.finished_jobs if each.outcome == "failed"
        }
