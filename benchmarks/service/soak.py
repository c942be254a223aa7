"""Random mishaps for a controller with real switches and real jobs, and their remains at the end.

``python -m benchmarks.service.soak --minutes 60 --output docs/results`` fills service-soak.md; it needs root.
Jobs come and go on a testbed of namespaces, while controller, switches, links, runners, workers and fallback
servers are killed or stopped, jobs are removed from switches without the controller, the disk of its state
is full, nodes are drained, and readers do not read. It exits with status 1 if a job did not end as it should,
a sum was wrong, or something is left: a row of a switch or of the state, a process, an open file, memory.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fill import check, fill, option, parse_options
from benchmarks.service.live import CLUSTER, SIZES, Controller, TrialFailed, opened_testbed, running
from benchmarks.service.mishaps import Expected, Mishaps, Size, grown, left_of_jobs, size_of
from benchmarks.service.worker import last_report
from bmv2_topos.harness.rows import markdown
from bmv2_topos.testbeds import netns
from controller.errors import ControllerError
from ina.run.client import Client
from ina.run.views import JobView

MEAN_S = 3.0
"""Mean time between two mishaps."""
SAMPLE_S = 5.0
"""Interval at which the sizes of processes are measured."""
END_S = 900.0
"""Longest time for all jobs to be over after the last mishap."""
CLEAN_S = 120.0
"""Longest time until all remains are gone. Fallback servers stay for 20 s without jobs."""
STATE_MIB = 64
"""Size of the file system of the state."""


@dataclass(slots=True)
class Outcome:
    """Result of a soak.

    Attributes:
        seed: Seed of the mishaps.
        minutes: Time with mishaps.
        load: Load of the machine at the beginning and at the end.
        happened: Mishaps, by name.
        states: Number of jobs by final state.
        sums: Sums that the ranks of completed jobs have compared since their last starts.
        starts: Starts of all jobs.
        sizes: Largest and last size of controller and switches, and of a new controller on the same state.
        problems: Deviations from the expected state.
    """

    seed: int
    minutes: float = 0.0
    load: tuple[float, float] = (0.0, 0.0)
    happened: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    sums: int = 0
    starts: int = 0
    sizes: list[tuple[str, Size]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def soak(minutes: float, seed: int, name: str, folder: Path, target: str = "embedded") -> Outcome:
    """Run a soak on a testbed of this name, which is removed afterwards. Raises TrialFailed.

    Args:
        minutes: Time with mishaps.
        seed: Seed of the mishaps.
        name: Name of the testbed.
        folder: An empty folder for logs, jobs' checkpoints, and the state at the end.
        target: Kind of switches.
    """
    outcome = Outcome(seed)
    cluster = folder / "cluster.toml"
    cluster.write_text(CLUSTER)
    (folder / "saved").mkdir()
    controller = Controller(folder, name)
    with (
        opened_testbed(name, cluster, target) as testbed,
        _small_disk(folder / "state"),
        running(controller),
        Client(controller.url) as client,
    ):
        mishaps = Mishaps(
            *(testbed, controller, client, folder, random.Random(seed), SIZES[target]),
            happened=outcome.happened,
            wrong=outcome.problems,
        )
        before = os.getloadavg()[0]
        began_s = time.monotonic()
        try:
            _happen(mishaps, outcome, began_s + 60.0 * minutes)
        except TrialFailed as error:
            outcome.problems.append(str(error))
        outcome.minutes = (time.monotonic() - began_s) / 60.0
        try:
            _end(mishaps, outcome)
        finally:
            mishaps.close()
        _compare_sizes(controller, outcome)
        outcome.load = (before, os.getloadavg()[0])
    return outcome


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """Mount a file system at a folder for the time of the block; copy its files beside it at the end."""
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={STATE_MIB}m", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        shutil.copytree(folder, folder.with_name("state-at-the-end"))
        subprocess.run(["umount", "--lazy", folder], check=True)


def _happen(mishaps: Mishaps, outcome: Outcome, until_s: float) -> None:
    """Cause one mishap after the other until a time."""
    sample_s = 0.0
    most: dict[str, Size] = {}
    while time.monotonic() < until_s:
        time.sleep(min(mishaps.rng.expovariate(1 / MEAN_S), 15.0))
        mishaps.mend()
        mishaps.one()
        _revive(mishaps, outcome)
        if time.monotonic() >= sample_s:
            sample_s = time.monotonic() + SAMPLE_S
            for process, name in _processes(mishaps).items():
                if (size := size_of(process)) is not None:
                    most[name] = Size(*map(max, astuple(most.get(name, size)), astuple(size)))
    outcome.sizes += [(f"{name}, most", size) for name, size in sorted(most.items())]


def _processes(mishaps: Mishaps) -> dict[int, str]:
    found = {
        mishaps.testbed.switch_process(name): f"switch {name}" for name in mishaps.testbed.state.switches
    }
    if (own := mishaps.controller.process) is not None:
        found[own] = "controller"
    return found


def _revive(mishaps: Mishaps, outcome: Outcome) -> None:
    """Restart the controller if it has ended by itself, and record that."""
    if mishaps.controller.process is None:
        log = (mishaps.folder / "controller.log").read_text()[-2000:]
        outcome.problems.append(f"the controller has ended: {log}")
        mishaps.controller.start()


def _end(mishaps: Mishaps, outcome: Outcome) -> None:
    """Make all repairs, wait until all jobs are over, and check their ends and the remains."""
    mishaps.mend(all_of_it=True)
    client = mishaps.client
    going = _remaining(lambda: [job for job in client.jobs() if not job["over"]], END_S)
    outcome.problems += [
        f"job {job['name']} is {job['state']} {END_S:g} s later: {job['reason']}" for job in going
    ]
    for job in client.jobs():
        expected = mishaps.expected.get(job["name"])
        if expected is None:
            outcome.problems.append(f"job {job['name']} was never submitted")
            continue
        _judge(job, expected, mishaps, outcome)
    if lost := mishaps.expected.keys() - {job["name"] for job in client.jobs()}:
        outcome.problems.append(f"the controller does not know jobs {', '.join(sorted(lost))}")
    state, own = mishaps.folder / "state", mishaps.controller.process
    left = _remaining(lambda: [*left_of_jobs(mishaps.testbed, state, own), *_differences(client)], CLEAN_S)
    outcome.problems += [f"left {CLEAN_S:g} s later: {each}" for each in left]


def _remaining(found: Callable[[], list[Any]], within_s: float) -> list[Any]:
    """Return nothing as soon as nothing is found any more, or what is still found after some time."""
    give_up_s = time.monotonic() + within_s
    while (left := found()) and time.monotonic() <= give_up_s:
        time.sleep(1.0)
    return left


def _differences(client: Client) -> list[str]:
    audit = client.audit()
    found = [f"the audit at {each['where']}: {each['what']}" for each in audit["found"]]
    return found + [f"the audit could not ask {name}: {why}" for name, why in audit["left_out"].items()]


def _judge(job: JobView, expected: Expected, mishaps: Mishaps, outcome: Outcome) -> None:
    """Check that a job has ended as expected."""
    name, state = job["name"], job["state"]
    outcome.states[state] += 1
    outcome.starts += job["starts"]
    if state == "failed" and not expected.fails and "runner ended" not in job["reason"]:
        outcome.problems.append(f"job {name} failed: {job['reason']}")
    if state == "failed" and "status 6" in job["reason"]:
        outcome.problems.append(f"job {name} had a wrong sum: {job['reason']}")
    if state != "completed" or not expected.sums:
        return
    marks = mishaps.folder / "saved" / f"{name}.marks"
    times = len(marks.read_text()) if marks.exists() else 0
    if times < 1 or (times > 1 and job["starts"] <= 1):
        outcome.problems.append(f"job {name} was done {times} times in {job['starts']} starts")
    for rank in range(job["workers"]):
        report = last_report(mishaps.client.log(name, rank, -4096)["text"])
        if report is not None:  # the disk was full as it wrote it
            outcome.sums += report.sums


def _compare_sizes(controller: Controller, outcome: Outcome) -> None:
    """Compare the controller, at rest, with a new one on the same state."""
    rests = size_of(controller.process or 0)
    controller.end()
    controller.start()
    with Client(controller.url) as client:
        client.jobs()
    time.sleep(5.0)
    new = size_of(controller.process or 0)
    if rests is None or new is None:
        outcome.problems.append("the controller has ended at rest")
        return
    outcome.sizes += [("controller, at rest", rests), ("controller, new on the same state", new)]
    outcome.problems += grown("the controller", rests, new)


def tables(outcome: Outcome) -> str:
    """Return mishaps, jobs and sizes as Markdown."""
    jobs = sum(outcome.states.values())
    parts = [
        f"**{outcome.minutes:.0f} minutes, {sum(outcome.happened.values()):,} events, {jobs} jobs with"
        f" {outcome.starts} starts, {outcome.sums:,} sums compared since their last starts:"
        f" {len(outcome.problems) or 'no'} finding{'' if len(outcome.problems) == 1 else 's'}**"
        f" (seed {outcome.seed}; load {outcome.load[0]:.1f} at the beginning, {outcome.load[1]:.1f} at the"
        " end).",
        *(f"- {problem}" for problem in outcome.problems),
        markdown(
            ["jobs", "count"], [[state, str(number)] for state, number in sorted(outcome.states.items())]
        ),
        markdown(
            ["event", "times"], [[name, str(number)] for name, number in sorted(outcome.happened.items())]
        ),
        markdown(
            ["process", "open files", "threads", "memory, MiB"],
            [
                [name, str(size.files), str(size.threads), f"{size.memory_kib / 1024:.0f}"]
                for name, size in outcome.sizes
            ],
        ),
    ]
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak, and write its page."""
    options = parse_options(
        __doc__,
        option("--minutes", type=float, default=60.0, help="cause mishaps for this time; 60 by default"),
        option("--seed", type=int, default=1, help="seed of the mishaps; 1 by default"),
        option("--target", choices=list(SIZES), default="embedded", help="kind of switches"),
        option("--output", type=Path, required=True, help="folder of service-soak.md"),
        option(
            "--folder", type=Path, help="for logs and the state; must be empty; by default a temporary one"
        ),
        words=arguments,
    )
    try:
        check(options.output / "service-soak.md")
        netns.check_here()
        with tempfile.TemporaryDirectory(prefix="ina-soak-") as own:
            folder = options.folder or Path(own)
            folder.mkdir(parents=True, exist_ok=True)
            outcome = soak(options.minutes, options.seed, f"soak-{os.getpid()}", folder, options.target)
        options.output.mkdir(parents=True, exist_ok=True)
        fill(options.output / "service-soak.md", tables(outcome))
    except (TrialFailed, ValueError, ControllerError, netns.NetnsError, OSError) as error:
        print(f"benchmarks.service.soak: {error}", file=sys.stderr)
        return 1
    for problem in outcome.problems:
        print(f"benchmarks.service.soak: {problem}", file=sys.stderr)
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
