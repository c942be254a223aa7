"""Eight jobs on a controller that is killed three times, while a switch and a link are lost, too.

``python -m benchmarks.service.trial --output docs/results`` fills service-trial.md and draws the map of the
switches' memory; it needs root. ``--quick`` has shorter jobs; ``--target bmv2`` has switches of BMv2, and
fills service-trial-bmv2.md. It exits with status 1 if a job did not end as it should, or if something is left
on a switch, at a server or of the testbed.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.fill import asked, check, option, publish
from benchmarks.service.jobs import CLUSTER, SIZES, Workload, workload
from benchmarks.service.live import Bed, Controller, TrialFailed, command, reports, running, submit, testbed
from benchmarks.service.live import until as wait_until
from benchmarks.service.memory_map import MemoryMap, draw
from bmv2_topos.harness.rows import markdown
from bmv2_topos.testbeds import netns
from controller import figures
from controller.errors import ControllerError
from ina.service.client import Client
from ina.service.views import DecisionView, JobView

SWITCH_DOWN_S = 0.5
"""How long a switch is dead before it is started again, which takes a second or more itself."""
AFTER_CUT_S = 1.0
"""How long after a link is cut the controller is killed: before it may call the link down."""
CLEAN_S = 60.0
"""Longest time for all to be as it should after the last job. Fallback servers stay for 20 s without jobs."""
POLL_S = 0.25
TOLD = ("interrupted", "gone", "back", "failed", "retried", "missed", "late", "stopped", "moved", "cancelled")
"""Decisions that say what followed a fault; besides, jobs that start again."""


@dataclass(slots=True)
class Fault:
    """Something that was done to the testbed or its controller, at `at_s` on the service's clock."""

    at_s: float
    what: str
    followed: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """What came of a trial.

    Attributes:
        jobs: The jobs at the end.
        sums: Sums that the ranks of each job have compared since their last start.
        first: The iteration with which they began then.
        faults: What was done, in order.
        away: When there was no controller, from and until.
        memory: Who had which slots.
        decisions: The service's log.
        load: Of the machine when it began.
        problems: What was not as it should be.
    """

    jobs: list[JobView] = field(default_factory=list)
    sums: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    away: list[tuple[float, float]] = field(default_factory=list)
    memory: MemoryMap = field(default_factory=MemoryMap)
    decisions: list[DecisionView] = field(default_factory=list)
    load: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Trial:
    """A trial under way: the faults come when the jobs have done given parts of all their iterations."""

    bed: Bed
    controller: Controller
    work: Workload
    client: Client
    outcome: Outcome = field(default_factory=Outcome)
    _cut: tuple[str, str] | None = None

    def run(self) -> None:
        """Carry all out, until all jobs are over. Raises TrialFailed."""
        plan: list[tuple[float, Callable[[], None]]] = [
            (0.0, self._kill),  # while the first jobs are admitted
            (0.2, self._kill_switch),
            (0.35, self._kill),
            (0.5, self._cut_link_and_kill),
            (0.8, self._mend_link),
        ]
        for part, act in plan:
            self._until_done(part)
            act()
        self._until(lambda: all(job["over"] for job in self.client.jobs()), "all jobs are over")

    def _until_done(self, part: float) -> None:
        self._until(lambda: self._progress() >= part, f"{part:.0%} of all iterations are done")

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        give_up_s = time.monotonic() + 600
        while not holds():
            if time.monotonic() > give_up_s or all(job["over"] for job in self.client.jobs()):
                raise TrialFailed(f"not within 600 s, or before all jobs were over: {what}")
            self.outcome.memory.add(self.client.memory())
            time.sleep(POLL_S)
        self.outcome.memory.add(self.client.memory())

    def _progress(self) -> float:
        """Return the part of all iterations that is done; negative: no job has been started."""
        jobs = self.client.jobs()
        if not any(job["starts"] for job in jobs):
            return -1.0
        return sum(job["iterations"] if job["over"] else job["done"] for job in jobs) / self.work.iterations

    def _note(self, what: str) -> Fault:
        fault = Fault(self.client.cluster()["now_s"], what)
        self.outcome.faults.append(fault)
        return fault

    def _kill(self) -> None:
        before = self.client.jobs()
        fault = self._note("controller killed")
        self.controller.end(signal.SIGKILL)
        self.controller.start()
        now_s = self.client.cluster()["now_s"]
        self.outcome.away.append((fault.at_s, now_s))
        wait_until(lambda: _running(self.client.jobs()), "a job runs")
        after = {job["name"]: job for job in self.client.jobs()}
        gained = sum(after[job["name"]]["done"] - job["done"] for job in before)
        again = [
            job["name"]
            for job in before
            if job["run"] is not None and job["run"] != after[job["name"]]["run"]
        ]
        fault.followed.append(
            f"served again after {now_s - fault.at_s:.1f} s; jobs did {gained:.0f} iterations meanwhile,"
            f" {'and ' + ', '.join(again) + ' ended or started again' if again else 'all in the same runs'}"
        )

    def _kill_switch(self) -> None:
        job, parent, _ = self._wide()
        self._note(f"switch {parent} killed, root of {job}")
        self.bed.restart_switch(parent, SWITCH_DOWN_S)
        fault = self._note(f"switch {parent} started, empty")
        done = self.client.job(job)["done"]
        self._until(
            lambda: self.client.job(job)["done"] > done or self.client.job(job)["over"], f"{job} goes on"
        )
        now_s = self.client.cluster()["now_s"]
        fault.followed.append(f"+{now_s - fault.at_s:.1f} s {job} is known to have done more iterations")

    def _cut_link_and_kill(self) -> None:
        job, parent, child = self._wide()
        self._note(f"link {parent}-{child} cut, of {job}")
        self.bed.set_link(parent, child, "down")
        self._cut = (parent, child)
        time.sleep(AFTER_CUT_S)
        self._kill()

    def _wide(self) -> tuple[str, str, str]:
        """Return a job that runs in both racks, the root of its tree, and a switch below it."""
        found: list[tuple[str, str, str]] = []

        def runs() -> bool:
            found[:] = _trees(self.client.jobs())
            return bool(found)

        self._until(runs, "a job runs in both racks")
        return found[0]

    def _mend_link(self) -> None:
        assert self._cut is not None
        self._note(f"link {'-'.join(self._cut)} back")
        self.bed.set_link(*self._cut, "up")


def trial(work: Workload, name: str, *, quick: bool = False, target: str = "embedded") -> Outcome:
    """Run a trial on a testbed of this name, which is gone afterwards. Raises TrialFailed.

    A quick one does not wait for fallback servers to end for want of jobs.
    """
    with tempfile.TemporaryDirectory(prefix="ina-trial-") as text:
        folder = Path(text)
        cluster, jobs, saved = folder / "cluster.toml", folder / "jobs.toml", folder / "saved"
        cluster.write_text(CLUSTER)
        saved.mkdir()
        jobs.write_text(work.toml(saved))
        with testbed(name, cluster, target) as bed:
            controller = Controller(folder, name)
            with running(controller), Client(controller.url) as client:
                submit(controller, jobs)
                under_way = Trial(bed, controller, work, client)
                under_way.outcome.load = os.getloadavg()[0]
                under_way.run()
                _finish(under_way, quick=quick)
    return under_way.outcome


def _finish(trial: Trial, *, quick: bool) -> None:
    """Look whether all is as it should be at the end."""
    outcome, client = trial.outcome, trial.client

    def left() -> list[str]:
        busy = [
            f"{server}: {line}"
            for server, lines in trial.bed.processes().items()
            for line in lines
            if not (quick and server.startswith("sums"))
        ]
        if busy:
            return busy
        audit = command("audit", "--controller", trial.controller.url)
        return [] if audit.returncode == 0 else [audit.stdout.strip() or audit.stderr.strip()]

    give_up_s = time.monotonic() + CLEAN_S
    while (found := left()) and time.monotonic() < give_up_s:
        time.sleep(POLL_S)
    outcome.problems += found
    outcome.memory.add(client.memory())
    outcome.jobs, outcome.decisions = client.jobs(), client.decisions()
    reported = reports(client, [job["name"] for job in outcome.jobs])
    outcome.sums = {name: sum(each.sums for each in ranks) for name, ranks in reported.items()}
    outcome.first = {name: ranks[0].first for name, ranks in reported.items() if ranks}
    for job in outcome.jobs:
        if job["state"] != "completed":
            outcome.problems.append(f"job {job['name']}: {job['state']}: {job['reason']}")
        elif [each.first + each.sums for each in reported[job["name"]]] != [job["iterations"]] * job[
            "workers"
        ]:
            outcome.problems.append(f"job {job['name']}: not every rank says that it did all iterations")
    _follow(outcome)


def _follow(outcome: Outcome) -> None:
    """Add to each fault what was decided from then until the next one."""
    ends = [fault.at_s for fault in outcome.faults[1:]] + [float("inf")]
    started: set[str] = set()
    placed: dict[str, str] = {}
    for decision in outcome.decisions:
        names = ", ".join(decision["jobs"])
        new = decision["event"] == "started" and names in started
        if decision["event"] == "started":
            started.add(names)
        moved = decision["event"] == "placed" and names in placed and placed[names] != decision["text"]
        if decision["event"] == "placed":
            placed[names] = decision["text"]
        if not (decision["event"] in TOLD or new or moved):
            continue
        for fault, end_s in zip(outcome.faults, ends, strict=True):
            if fault.at_s <= decision["at_s"] < end_s:
                what = "started again" if new else "placed anew" if moved else decision["event"]
                fault.followed.append(
                    f"+{decision['at_s'] - fault.at_s:.1f} s {names} {what}: {decision['text']}".replace(
                        "  ", " "
                    )
                )


def _running(jobs: Iterable[JobView]) -> bool:
    return any(job["state"] == "running" for job in jobs)


def _trees(jobs: Iterable[JobView]) -> list[tuple[str, str, str]]:
    """Return the jobs that run on trees of several switches, each with the root and one below it."""
    found: list[tuple[str, str, str]] = []
    for job in jobs:
        tree = job["tree"]
        if job["state"] == "running" and tree is not None:
            found += [
                (job["name"], root, child) for child, root in tree["parents"].items() if root == tree["root"]
            ][:1]
    return found


def tables(outcome: Outcome) -> str:
    """Return jobs, faults and what followed as Markdown."""
    met = [job for job in outcome.jobs if job["deadline_s"] is not None]
    in_time = [job for job in met if job["state"] == "completed" and _took_s(job) <= (job["deadline_s"] or 0)]
    completed = sum(job["state"] == "completed" for job in outcome.jobs)
    parts = [
        f"**{completed} of {len(outcome.jobs)} jobs completed, {len(in_time)} of {len(met)} deadlines met,"
        f" {sum(outcome.sums.values()):,} sums compared since the jobs' last starts, none wrong"
        f" (load {outcome.load:.1f}).**",
        *([] if outcome.problems else ["`ina audit` was clean at the end, and no process was left."]),
        *(f"- not as it should be: {problem}" for problem in outcome.problems),
        markdown(_HEADS, [_row(job, outcome.first) for job in outcome.jobs]),
        "### What was done, and what followed",
        markdown(
            ["at, s", "what", "what followed"],
            [
                [f"{each.at_s:.1f}", each.what, "<br>".join(each.followed) or "nothing"]
                for each in outcome.faults
            ],
        ),
    ]
    return "\n\n".join(parts)


_HEADS = [
    "job",
    "state",
    "ran last from iteration",
    "submitted, s",
    "first start, s",
    "ended, s",
    "took, s",
    "deadline, s",
    "met",
]


def _took_s(job: JobView) -> float:
    return float("inf") if job["ended_s"] is None else job["ended_s"] - job["submitted_s"]


def _row(job: JobView, first: Mapping[str, int]) -> list[str]:
    deadline_s = job["deadline_s"]
    met = (
        ""
        if deadline_s is None
        else "yes"
        if job["state"] == "completed" and _took_s(job) <= deadline_s
        else "no"
    )
    return [
        job["name"],
        job["state"],
        str(first.get(job["name"], 0) or "the beginning"),
        f"{job['submitted_s']:.1f}",
        "" if job["started_s"] is None else f"{job['started_s']:.1f}",
        "" if job["ended_s"] is None else f"{job['ended_s']:.1f}",
        f"{_took_s(job):.1f}",
        "" if deadline_s is None else f"{deadline_s:g}",
        met,
    ]


def rows(outcome: Outcome) -> list[Mapping[str, object]]:
    """Return all that was found as rows for JSON: jobs, faults, divisions of memory, problems."""
    memory = outcome.memory
    return [
        *({"kind": "job", "sums": outcome.sums[job["name"]], **job} for job in outcome.jobs),
        *({"kind": "fault", **asdict(fault)} for fault in outcome.faults),
        *({"kind": "away", "from_s": from_s, "to_s": to_s} for from_s, to_s in outcome.away),
        *(
            {"kind": "memory", "switch": switch, "from_s": from_s, "to_s": to_s, "shares": shares}
            for switch in memory.shown()
            for from_s, to_s, shares in memory.spans(switch)
        ),
        *({"kind": "problem", "text": text} for text in outcome.problems),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a trial, and write its page, rows and plot."""
    given = asked(
        __doc__,
        option("--output", type=Path, required=True, help="folder of service-trial.md, .json and .svg"),
        option("--quick", action="store_true", help="have shorter jobs"),
        option("--target", choices=list(SIZES), default="embedded", help="kind of switches"),
        words=arguments,
    )
    page = "service-trial" if given.target == "embedded" else f"service-trial-{given.target}"
    try:
        check(given.output / f"{page}.md")
        figures.check()
        netns.check_here()
        work = workload(quick=given.quick, target=given.target)
        outcome = trial(work, f"trial-{os.getpid()}", quick=given.quick, target=given.target)
        publish(given.output, page, tables(outcome), rows(outcome))
        marks = {fault.at_s: fault.what.partition(",")[0] for fault in outcome.faults}
        jobs = [job["name"] for job in outcome.jobs]
        draw(outcome.memory, jobs, marks, outcome.away, given.output / f"{page}.svg")
    except (TrialFailed, ValueError, ControllerError, netns.LiveError, OSError) as error:
        print(f"benchmarks.service.trial: {error}", file=sys.stderr)
        return 1
    for problem in outcome.problems:
        print(f"benchmarks.service.trial: {problem}", file=sys.stderr)
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
