"""The same eight jobs simulated and live: completion times, decisions, and what the difference is made of.

``python -m benchmarks.service.compare --output docs/results`` fills service-simulated.md; it needs root.
``--quick`` has shorter jobs. It exits with status 1 if a live job did not complete.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from benchmarks.fill import asked, check, option, publish
from benchmarks.service.jobs import CLUSTER, Workload, workload
from benchmarks.service.live import (
    PERIOD_S,
    POLICIES,
    Controller,
    TrialFailed,
    reports,
    running,
    submit,
    testbed,
)
from benchmarks.service.worker import Report
from bmv2_topos.harness.rows import markdown
from bmv2_topos.testbeds import netns
from controller.core import Log
from controller.core.reasons import OfAllocation
from controller.errors import ControllerError
from controller.simulator.network.run import NetworkTask, Simulated, run_network
from controller.simulator.network.speed import NetworkSettings
from controller.vocabulary import Job, Topology, read_topology
from controller.vocabulary.files import read_jobs
from ina.service.client import Client
from ina.service.views import DecisionView, JobView

MOST_S = 600.0


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided, in the words of the core's log.

    Attributes:
        order: The jobs in the order in which they were placed first.
        places: Servers and tree of each job.
        slots: The slots of each job, each division that changed them.
    """

    order: tuple[str, ...]
    places: Mapping[str, str]
    slots: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, said: Sequence[tuple[str, str, str]]) -> Decided:
        """Return the event, job and text of each line of a log."""
        places: dict[str, str] = {}
        slots: dict[str, tuple[str, ...]] = {}
        for event, job, text in said:
            if event == "placed":
                places.setdefault(job, text)
            elif event == "memory":
                slots[job] = (*slots.get(job, ()), text)
        return cls(tuple(places), places, slots)


@dataclass(frozen=True, slots=True)
class Row:
    """A job, simulated and live. Times are seconds; those that end in `more_s` are live less simulated.

    Attributes:
        job: Its name.
        simulated_s: From submission to end, simulated.
        live_s: The same, live.
        told_s: The same, simulated with the time that the job's iterations took live.
        waiting_more_s: Before it was started.
        starting_s: From the decision to start it to its first iteration.
        computing_more_s: Asleep.
        summing_more_s: Waiting for sums.
        rest_s: Between the iterations: comparing sums, and saving.
        ending_s: From its last iteration to its end as the service knows it.
    """

    job: str
    simulated_s: float
    live_s: float
    told_s: float
    waiting_more_s: float
    starting_s: float
    computing_more_s: float
    summing_more_s: float
    rest_s: float
    ending_s: float

    @property
    def off(self) -> float:
        """Live relative to simulated, less 1."""
        return self.live_s / self.simulated_s - 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both runs, and the load of the machine when the live one began."""

    rows: Sequence[Row]
    simulated: Decided
    live: Decided
    load: float


@dataclass(frozen=True, slots=True)
class _Live:
    jobs: Sequence[JobView]
    decisions: Sequence[DecisionView]
    reports: Mapping[str, Report]
    began_at: float
    load: float


def compare(work: Workload, name: str) -> Comparison:
    """Simulate the jobs, and run them on a testbed of this name, which is gone afterwards.

    Raises TrialFailed.
    """
    with tempfile.TemporaryDirectory(prefix="ina-compare-") as text:
        folder = Path(text)
        cluster, file, saved = folder / "cluster.toml", folder / "jobs.toml", folder / "saved"
        cluster.write_text(CLUSTER)
        saved.mkdir()
        file.write_text(work.toml(saved))
        topology, jobs = read_topology(cluster), read_jobs(file)
        live = _run_live(name, folder, cluster, file)
        simulated = _simulate(jobs, topology)
        told = _simulate(_as_measured(jobs, simulated, live), topology)
    return Comparison(_rows(jobs, simulated, told, live), _of_simulated(simulated), _of_live(live), live.load)


def _run_live(name: str, folder: Path, cluster: Path, jobs: Path) -> _Live:
    load = os.getloadavg()[0]
    controller = Controller(folder, name)
    with testbed(name, cluster, "embedded"), running(controller), Client(controller.url) as client:
        submit(controller, jobs)
        give_up_s = time.monotonic() + MOST_S
        while not all(job["over"] for job in client.jobs()):
            if time.monotonic() > give_up_s:
                raise TrialFailed(f"the jobs are not over within {MOST_S:g} s")
            time.sleep(0.25)
        found = client.jobs()
        reported = reports(client, [job["name"] for job in found])
        for job in found:
            if job["state"] != "completed" or not reported[job["name"]]:
                raise TrialFailed(f"job {job['name']}: {job['state']}: {job['reason']}")
        first = {name: ranks[0] for name, ranks in reported.items()}
        return _Live(found, client.decisions(), first, client.cluster()["began_at"], load)


def _simulate(jobs: Sequence[Job], topology: Topology) -> Simulated:
    """Simulate as ``ina cluster simulate`` does. Raises TrialFailed if a job does not complete."""
    names = {kind: name for kind, name in POLICIES.items() if kind != "scheduler"}
    task = NetworkTask(
        jobs=jobs,
        topology=topology,
        scheduler=POLICIES["scheduler"],
        settings=NetworkSettings(period_s=PERIOD_S, **names),  # type: ignore[arg-type]
        keep_log=True,
    )
    simulated = run_network(task).simulated
    if ended := [each.spec.name for each in simulated.result.jobs if not each.completed]:
        raise TrialFailed(f"simulated, these jobs do not complete: {', '.join(ended)}")
    return simulated


def _as_measured(jobs: Sequence[Job], simulated: Simulated, live: _Live) -> list[Job]:
    """Return the jobs with computing times with which each is simulated to run for as long as it did live."""
    run_s = {each.spec.name: each.finish_s - each.start_s for each in simulated.result.jobs}
    took_s = {job["name"]: (job["ended_s"] or 0.0) - (job["started_s"] or 0.0) for job in live.jobs}
    return [
        replace(job, compute_s=job.compute_s + (took_s[job.name] - run_s[job.name]) / job.iterations)
        for job in jobs
    ]


def _rows(jobs: Sequence[Job], simulated: Simulated, told: Simulated, live: _Live) -> list[Row]:
    modelled = {each.spec.name: each for each in simulated.result.jobs}
    again = {each.spec.name: each for each in told.result.jobs}
    found = {job["name"]: job for job in live.jobs}
    rows = []
    for job in jobs:
        model, real, report = modelled[job.name], found[job.name], live.reports[job.name]
        assert real["started_s"] is not None
        assert real["ended_s"] is not None
        computing_s = job.iterations * job.compute_s
        began_s, ended_s = (at - live.began_at for at in (report.began_at, report.ended_at))
        rows.append(
            Row(
                job=job.name,
                simulated_s=model.jct_s,
                live_s=real["ended_s"] - real["submitted_s"],
                told_s=again[job.name].jct_s,
                waiting_more_s=real["started_s"]
                - real["submitted_s"]
                - (model.start_s - model.spec.arrival_s),
                starting_s=began_s - real["started_s"],
                computing_more_s=report.compute_s - computing_s,
                summing_more_s=report.network_s - (model.finish_s - model.start_s - computing_s),
                rest_s=ended_s - began_s - report.compute_s - report.network_s,
                ending_s=real["ended_s"] - ended_s,
            )
        )
    return rows


def _of_simulated(simulated: Simulated) -> Decided:
    """Return the lines that the core would have logged."""
    assert simulated.log is not None
    log = Log()
    watcher = OfAllocation(log)
    for at_s, _, job in simulated.log.places:
        watcher.placed(at_s, job)
    for at_s, question, answer in simulated.log.memory:
        watcher.divided(at_s, question, answer)
    return Decided.of([(each.event, each.jobs[0], each.text) for each in log.entries])


def _of_live(live: _Live) -> Decided:
    said = [each for each in live.decisions if each["jobs"]]
    return Decided.of([(each["event"], each["jobs"][0], each["text"]) for each in said])


def tables(found: Comparison) -> str:
    """Return times, decisions and the parts of the difference as Markdown."""
    jobs = [row.job for row in found.rows]
    live, simulated = found.live, found.simulated
    same_place = [job for job in jobs if live.places.get(job) == simulated.places.get(job)]
    same_first = [job for job in jobs if live.slots.get(job, ())[:1] == simulated.slots.get(job, ())[:1]]
    same_all = [job for job in jobs if live.slots.get(job) == simulated.slots.get(job)]
    off, told = (
        [abs(value) for value in values]
        for values in (
            [row.off for row in found.rows],
            [row.live_s / row.told_s - 1 for row in found.rows],
        )
    )
    parts = [
        f"**Completion times are off by {fmean(off):.0%} on average, {max(off):.0%} at most; by"
        f" {fmean(told):.0%} and {max(told):.0%} when the simulation is told how long iterations took"
        f" (load {found.load:.1f}).**",
        markdown(
            ["job", "simulated, s", "live, s", "off by", "simulated as measured, s", "off by"],
            [
                [
                    row.job,
                    f"{row.simulated_s:.1f}",
                    f"{row.live_s:.1f}",
                    f"{row.off:+.0%}",
                    f"{row.told_s:.1f}",
                    f"{row.live_s / row.told_s - 1:+.0%}",
                ]
                for row in found.rows
            ],
        ),
        "### Decisions",
        markdown(
            ["decision", "the same"],
            [
                ["order of starts", "yes" if live.order == simulated.order else "no"],
                ["servers and tree", f"{len(same_place)} of {len(jobs)} jobs"],
                ["slots at the start", f"{len(same_first)} of {len(jobs)} jobs"],
                ["all divisions of slots", f"{len(same_all)} of {len(jobs)} jobs"],
            ],
        ),
        *_others(found, jobs),
        "### What the difference is made of",
        markdown(
            ["job", "live less simulated, s", *_PARTS],
            [
                [
                    row.job,
                    f"{row.live_s - row.simulated_s:+.1f}",
                    *(f"{getattr(row, key):+.1f}" for key in _PARTS.values()),
                ]
                for row in found.rows
            ],
        ).replace("live less simulated, s", "in all, s"),
    ]
    return "\n\n".join(parts)


_PARTS = {
    "waiting": "waiting_more_s",
    "starting": "starting_s",
    "computing": "computing_more_s",
    "summing": "summing_more_s",
    "rest": "rest_s",
    "ending": "ending_s",
}


def _others(found: Comparison, jobs: Sequence[str]) -> list[str]:
    """Return the decisions that are not the same, of both."""
    lines = []
    if found.live.order != found.simulated.order:
        lines.append(
            f"- order: live {', '.join(found.live.order)}; simulated {', '.join(found.simulated.order)}"
        )
    for job in jobs:
        live, simulated = found.live.places.get(job), found.simulated.places.get(job)
        if live != simulated:
            lines.append(f"- {job}: live {live}; simulated {simulated}")
        was, would = (" → ".join(each.slots.get(job, ())) for each in (found.live, found.simulated))
        if was != would:
            lines.append(f"- {job}: live {was or 'none'}; simulated {would or 'none'}")
    return ["\n".join(lines)] if lines else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and write page and rows."""
    given = asked(
        __doc__,
        option("--output", type=Path, required=True, help="folder of service-simulated.md and .json"),
        option("--quick", action="store_true", help="have shorter jobs"),
        words=arguments,
    )
    try:
        check(given.output / "service-simulated.md")
        netns.check_here()
        found = compare(workload(quick=given.quick), f"compare-{os.getpid()}")
    except (TrialFailed, ValueError, ControllerError, netns.LiveError, OSError) as error:
        print(f"benchmarks.service.compare: {error}", file=sys.stderr)
        return 1
    decisions = [
        {"run": run, **asdict(each)} for run, each in (("simulated", found.simulated), ("live", found.live))
    ]
    publish(given.output, "service-simulated", tables(found), [*map(asdict, found.rows), *decisions])
    return 0


if __name__ == "__main__":
    sys.exit(main())
