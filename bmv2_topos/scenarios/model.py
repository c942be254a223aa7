"""A scenario as plain data, the outcome of its run, and the results of its checks. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bmv2_topos.faults import Fault, LinkFault, with_link_faults
from controller.vocabulary import Job, Topology


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a job's result.

    If `fails` is not "", the job must fail, with an error that contains the text `fails`. Otherwise the value
    of `metric` must be from `least` to `most`.
    """

    job: str
    metric: str = ""
    least: float = -math.inf
    most: float = math.inf
    fails: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Jobs on a topology, their faults, and the required results.

    Unless a check expects a job to fail, the job must also finish all of its iterations, with every element
    of every sum exact.
    """

    name: str
    summary: str
    topology: Topology
    program: str = "exclusive"
    lanes: int = 32
    jobs: tuple[Job, ...]
    faults: tuple[Fault, ...] = ()
    checks: tuple[Check, ...] = ()
    limit_s: float = 60.0
    """Time after which the scenario has failed. In virtual time it limits the duration of the whole run. With
    real processes it limits the time that a worker waits without progress."""
    seed: int = 0

    @property
    def network(self) -> Topology:
        """The topology, with its links changed by the faults that last for the whole run."""
        return with_link_faults(self.topology, self.faults)

    @property
    def happening(self) -> tuple[Fault, ...]:
        """The faults that happen while the jobs run: all but those in `network`."""
        return tuple(each for each in self.faults if not (isinstance(each, LinkFault) and each.lasts))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """The result of a job."""

    name: str
    failure: str | None
    """Reason why the job failed; None: the job did not fail."""
    iterations: int
    """Number of iterations that all ranks have finished; each sum was compared with the exact sum."""
    iteration_s: float
    """Median time of the job's iterations, in seconds. An iteration ends when its slowest rank has ended
    it."""
    metrics: Mapping[str, float]
    """Counters by name: packets sent, packets resent, and packets by outcome in switches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a run."""

    runner: str
    target: str
    jobs: tuple[JobOutcome, ...]
    elapsed_s: float
    """Real time of the run, including the start and the end of its processes."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check: whether the check holds, and the value found."""

    check: str
    good: bool
    found: str


def check_results(scenario: Scenario, outcome: Outcome) -> list[CheckResult]:
    """Return one result per check of the scenario, and one per job that must succeed."""
    jobs = {job.name: job for job in outcome.jobs}
    fail = {check.job for check in scenario.checks if check.fails}
    whole = [_whole(entry, jobs[entry.name]) for entry in scenario.jobs if entry.name not in fail]
    return [*whole, *(_verdict(check, jobs[check.job]) for check in scenario.checks)]


def _whole(entry: Job, job: JobOutcome) -> CheckResult:
    good = job.failure is None and job.iterations == entry.iterations
    found = job.failure or f"{job.iterations} iterations"
    return CheckResult(f"{entry.name}: {entry.iterations} iterations, all sums exact", good, found)


def _verdict(check: Check, job: JobOutcome) -> CheckResult:
    if check.fails:
        good = job.failure is not None and check.fails in job.failure
        return CheckResult(
            f"{check.job}: fails, and says {check.fails!r}", good, job.failure or "did not fail"
        )
    value = _measured(job).get(check.metric, 0.0)
    bounds = [f"at least {check.least:g}"] if check.least > -math.inf else []
    bounds += [f"at most {check.most:g}"] if check.most < math.inf else []
    text = f"{check.job}: {check.metric} {' and '.join(bounds)}"
    return CheckResult(text, check.least <= value <= check.most, f"{value:g}")


def _measured(job: JobOutcome) -> Mapping[str, float]:
    share = job.metrics.get("resent_packets", 0.0) / max(1.0, job.metrics.get("sent_packets", 0.0))
    return {"iteration_s": job.iteration_s, "resent_share": share, **job.metrics}
