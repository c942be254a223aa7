"""A scenario as plain data, the outcome of its run, and the results of its checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from bmv2_topos.faults import Fault, LinkFault, with_link_faults
from bmv2_topos.testbeds.netns.commands import Program
from bmv2_topos.testbeds.virtual import (
    Flow,
    Placement,
    Recorder,
    Report,
    VirtualSettings,
    VirtualTestbed,
    build,
)
from controller.vocabulary import Job, Link, Topology, place


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
    """Jobs on a network, faults at their times, and the required results: the same for every runner.

    `run` runs a scenario in virtual time; `ina.run.scenarios` runs it as processes on a testbed.
    Unless a check expects a job to fail, the job must finish all of its iterations, with every element of
    every sum exact.
    """

    name: str = ""
    summary: str = ""
    jobs: tuple[Job, ...]
    settings: VirtualSettings
    """Program, lanes, seed and limits. With real processes, `limit_s` limits the time that a worker waits
    without progress, and only the program, the lanes and the seed are used besides."""
    topology: Topology | None = None
    """The network; None: a tree with own hosts for each job, of `shape`, `link`, `trunk` and `transit`."""
    placements: tuple[Placement, ...] | None = None
    """Hosts of each job; None: hosts in the topology's order, and the first host for fallback servers."""
    shape: tuple[int, ...] | None = None
    """Children of a node at each level of the tree, root first, such as (2, 4): two racks, each with four
    hosts for every job. None: one switch."""
    link: Link | None = None
    trunk: Link | None = None
    transit: tuple[int, ...] = ()
    """Levels of the tree (0: the root) whose switches forward packets without aggregating."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Rates of hosts' links by host name, bits/s; other links keep their rates."""
    flows: tuple[Flow, ...] = ()
    """Ordinary traffic beside the jobs."""
    faults: tuple[Fault, ...] = ()
    checks: tuple[Check, ...] = ()
    labels: Mapping[str, float | int | str | None] = field(default_factory=dict)
    """Columns that identify the row of this run in an experiment."""

    real: ClassVar[bool] = False
    """False: in virtual time, results do not depend on the machine."""
    missing: ClassVar[str] = ""

    @property
    def network(self) -> Topology:
        """The network, with its links changed by `rates` and by the faults that last for the whole run."""
        topology = self.topology or self._tree()[0]
        links = (
            replace(link, rate_bps=self.rates.get(link.a, self.rates.get(link.b, link.rate_bps)))
            for link in topology.links
        )
        return with_link_faults(replace(topology, links=tuple(links)), self.faults)

    @property
    def happening(self) -> tuple[Fault, ...]:
        """The faults that happen while the jobs run: all but those in `network`."""
        return tuple(each for each in self.faults if not (isinstance(each, LinkFault) and each.lasts))

    @property
    def elements(self) -> int:
        """Number of tensor elements that all workers send together."""
        return sum(job.workers * job.iterations * sum(job.tensors) for job in self.jobs)

    def program(self, target: str) -> Program:
        """Return the program to run on the switches of a testbed, of the kind `target`."""
        return Program(self.settings.program, self.settings.lanes, self.settings.seed, target)

    def run(self) -> Report:
        """Run the scenario in virtual time. Raises BadSpec, and the errors of `VirtualTestbed`."""
        return self.testbed().run()

    def testbed(self, recorder: Recorder | None = None) -> VirtualTestbed:
        """Return a testbed in virtual time, ready to run the scenario. Raises the same errors as `run`."""
        return VirtualTestbed(
            self.network,
            self.jobs,
            self.placements or self._places(),
            self.settings,
            self.happening,
            flows=self.flows,
            recorder=recorder,
        )

    def _places(self) -> tuple[Placement, ...]:
        if self.topology is None:
            return self._tree()[1]
        servers = self.topology.servers_for("fallback") if self.settings.shares else ()
        hosts = place(self.topology, [job.workers for job in self.jobs])
        return tuple(Placement(each, next(iter(servers), None)) for each in hosts)

    def _tree(self) -> tuple[Topology, tuple[Placement, ...]]:
        return build(
            self.jobs,
            self.shape,
            servers=self.settings.shares,
            link=self.link,
            trunk=self.trunk,
            transit=self.transit,
        )


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
