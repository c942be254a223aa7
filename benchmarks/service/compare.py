"""The same eight jobs simulated and live: completion times, decisions, and the parts of the difference.

``python -m benchmarks.service.compare --output docs/results`` fills service-simulated.md; it needs root.
``--quick`` has shorter jobs. It exits with status 1 if a live job did not complete.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from benchmarks.fill import check, fill, option, parse_options
from benchmarks.service.live import (
    CLUSTER,
    PERIOD_S,
    POLICIES,
    SIZE_BYTES,
    Controller,
    TrialFailed,
    command,
    opened_testbed,
    running,
    until,
)
from benchmarks.service.live import ROOT as CLONE
from benchmarks.service.worker import Report, last_report
from bmv2_topos.harness.rows import markdown
from bmv2_topos.testbeds import netns
from controller.core import Log
from controller.core.reasons import AllocationLogger
from controller.errors import ControllerError
from controller.simulator.network.run import NetworkResult, NetworkSettings, NetworkTask, run_network
from controller.vocabulary import Job, Topology, read_topology
from controller.vocabulary.files import read_jobs
from ina.run.client import Client
from ina.run.views import DecisionView, JobView

NAME: Final = "service-simulated"
MOST_S: Final = 600.0
HOLD_S: Final = 0.05
"""Time for which a slot is held, in the file: on a busy machine, ranks are so far apart."""
WIDE: Final = (("left1", "right1"), ("left2", "right2"))
"""Servers of jobs with one in each rack, so that their trees cross a spine."""
JOBS: Final[Mapping[str, tuple[int, float | None, tuple[str, ...]]]] = {
    "urgent": (20, 60, WIDE[0]),
    "wide": (25, None, WIDE[1]),
    "near": (20, None, ()),
    "soon": (25, 90, ()),
    "later": (20, 150, WIDE[0]),
    "far": (20, None, WIDE[1]),
    "small": (10, None, ()),
    "last": (15, None, ()),
}
"""Tens of iterations, deadline and servers of each job, of two workers. Four run at once."""
Row = Mapping[str, float]


def jobs_file(saved: Path, *, quick: bool) -> str:
    """Return the file of the jobs, which save their progress in a folder; `quick`: jobs of seconds."""
    compute_s, size_bytes = (0.05, SIZE_BYTES // 4) if quick else (0.08, SIZE_BYTES)
    tables = []
    for name, (tens, deadline_s, servers) in JOBS.items():
        iterations = tens * (3 if quick else 10)
        words = (
            f"{sys.executable} -m benchmarks.service.worker --iterations {iterations} --compute {compute_s}"
            f" --bytes {size_bytes} --saved {saved / name}"
        )
        tables.append(
            f'[[job]]\nname = "{name}"\nworkers = 2\niterations = {iterations}\ncompute_s = {compute_s}\n'
            f'model_bytes = {size_bytes}\nhold_s = {HOLD_S}\ncommand = "{words}"\n'
            + (f"deadline_s = {120.0 if quick else deadline_s:g}\n" if deadline_s else "")
            + (f"servers = [{', '.join(map(repr, servers))}]\n" if servers else "")
        )
    return "\n".join(tables)


@dataclass(slots=True)
class Decided:
    """Decisions, from the core's log: jobs in the order of starts, and their slots."""

    places: dict[str, str] = field(default_factory=dict)
    slots: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[tuple[str, str, str]]) -> Decided:
        """Return the event, job and text of each line of a log."""
        found = cls()
        for event, job, text in lines:
            if event == "placed":
                found.places.setdefault(job, text)
            elif event == "memory":
                found.slots.setdefault(job, []).append(text)
        return found


@dataclass(frozen=True, slots=True)
class Live:
    """The jobs at the end, the log, the report of each rank 0, the start of the service, and the load."""

    jobs: Mapping[str, JobView]
    decisions: Sequence[DecisionView]
    reports: Mapping[str, Report]
    began_at: float
    load: float


def compare(name: str, *, quick: bool) -> str:
    """Simulate the jobs, and run them on a testbed of this name, which is removed afterwards.

    Returns times, decisions and the parts of the difference as Markdown. Raises TrialFailed.
    """
    with tempfile.TemporaryDirectory(prefix="ina-compare-") as text:
        folder = Path(text)
        cluster, file, saved = folder / "cluster.toml", folder / "jobs.toml", folder / "saved"
        cluster.write_text(CLUSTER)
        saved.mkdir()
        file.write_text(jobs_file(saved, quick=quick))
        topology, jobs = read_topology(cluster), read_jobs(file)
        live = _run_live(name, folder, cluster, file)
    simulated = _simulate(jobs, topology)
    rows = {job.name: _row(job, simulated, live) for job in jobs}
    return tables(rows, _of_simulated(simulated), _of_live(live), live.load)


def _run_live(name: str, folder: Path, cluster: Path, jobs: Path) -> Live:
    load = os.getloadavg()[0]
    controller = Controller(folder, name)
    with opened_testbed(name, cluster, "embedded"), running(controller), Client(controller.url) as client:
        done = command("submit", jobs, "--controller", controller.url, "--folder", CLONE)
        if done.returncode:
            raise TrialFailed(f"ina submit: {done.stderr.strip()}")
        until(lambda: all(job["over"] for job in client.jobs()), "the jobs are over", MOST_S)
        found = {job["name"]: job for job in client.jobs()}
        reports = {}
        for job in found.values():
            report = last_report(client.log(job["name"], 0, -4096)["text"])
            if job["state"] != "completed" or report is None:
                raise TrialFailed(f"job {job['name']}: {job['state']}: {job['reason']}")
            reports[job["name"]] = report
        return Live(found, client.decisions(), reports, client.cluster()["began_at"], load)


def _simulate(jobs: Sequence[Job], topology: Topology) -> NetworkResult:
    """Simulate as ``ina cluster simulate`` does. Raises TrialFailed if a job does not complete."""
    names: Any = {kind: name for kind, name in POLICIES.items() if kind != "scheduler"}
    task = NetworkTask(
        jobs=jobs,
        topology=topology,
        scheduler=POLICIES["scheduler"],
        settings=NetworkSettings(period_s=PERIOD_S, **names),
        keep_log=True,
    )
    simulated = run_network(task).simulated
    if ended := [each.spec.name for each in simulated.result.jobs if not each.completed]:
        raise TrialFailed(f"simulated, these jobs do not complete: {', '.join(ended)}")
    return simulated


def _row(job: Job, simulated: NetworkResult, live: Live) -> Row:
    """Return a job's times from submission to end in seconds, and a live job's times by its rank 0."""
    model = next(each for each in simulated.result.jobs if each.spec.name == job.name)
    real, report = live.jobs[job.name], live.reports[job.name]
    return {
        "simulated": model.jct_s,
        "live": (real["ended_s"] or 0.0) - real["submitted_s"],
        "starting": report.began_at - live.began_at - (real["started_s"] or 0.0),
        "summing": report.network_s - (model.finish_s - model.start_s - job.iterations * job.compute_s),
    }


def _of_simulated(simulated: NetworkResult) -> Decided:
    """Return the lines that the core would have logged."""
    assert simulated.log is not None
    log = Log()
    watcher = AllocationLogger(log)
    for at_s, _, job in simulated.log.places:
        watcher.on_placed(at_s, job)
    for at_s, problem, division in simulated.log.memory:
        watcher.on_divided(at_s, problem, division)
    return Decided.of((each.event, each.jobs[0], each.text) for each in log.entries)


def _of_live(live: Live) -> Decided:
    return Decided.of(
        (each["event"], each["jobs"][0], each["text"]) for each in live.decisions if each["jobs"]
    )


def tables(rows: Mapping[str, Row], simulated: Decided, live: Decided, load: float) -> str:
    """Return times, decisions and the parts of the difference as Markdown."""
    off = {name: row["live"] / row["simulated"] - 1 for name, row in rows.items()}
    sizes = [abs(each) for each in off.values()]
    same = {
        "servers and tree": [live.places.get(job) == simulated.places.get(job) for job in rows],
        "slots at the start": [
            live.slots.get(job, [])[:1] == simulated.slots.get(job, [])[:1] for job in rows
        ],
        "all divisions of slots": [live.slots.get(job) == simulated.slots.get(job) for job in rows],
    }
    order = "yes" if list(live.places) == list(simulated.places) else "no"
    decisions = [
        ["order of starts", order],
        *([what, f"{sum(equal)} of {len(equal)} jobs"] for what, equal in same.items()),
    ]
    times = [
        [
            *(name, f"{row['simulated']:.1f}", f"{row['live']:.1f}", f"{off[name]:+.0%}"),
            *(f"{row[part]:+.1f}" for part in ("starting", "summing")),
        ]
        for name, row in rows.items()
    ]
    heads = ["job", "simulated, s", "live, s", "off by", "of it starting, s", "summing, s"]
    return "\n\n".join(
        [
            f"**Completion times are off by {fmean(sizes):.0%} on average, {max(sizes):.0%} at most"
            f" (load {load:.1f}).**",
            markdown(heads, times),
            f"### Decisions\n\n{markdown(['decision', 'the same'], decisions)}",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and fill the page."""
    options = parse_options(
        __doc__,
        option("--output", type=Path, required=True, help=f"folder of {NAME}.md"),
        option("--quick", action="store_true", help="run shorter jobs"),
        words=arguments,
    )
    page = options.output / f"{NAME}.md"
    try:
        check(page)
        netns.check_here()
        fill(page, compare(f"compare-{os.getpid()}", quick=options.quick))
    except (TrialFailed, ValueError, ControllerError, netns.NetnsError, OSError) as error:
        print(f"benchmarks.service.compare: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
