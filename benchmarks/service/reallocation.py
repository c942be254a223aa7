"""Jobs that compete for a switch's slots, under several memory policies: who is late, and who pays.

``python -m benchmarks.service.reallocation --output docs/results`` fills service-reallocation.md and draws
it; it needs root. ``--quick`` has two short jobs, one seed and two policies. It exits with status 1 if a job
does not complete.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from benchmarks.fill import check, publish
from benchmarks.service import ablations, reallocation_page
from benchmarks.service.live import POLICIES, ROOT, Controller, TrialFailed, reports, running, testbed
from benchmarks.service.mixes import DEADLINES, LOOSE, PLENTY, SCARCE, WORKERS, Planned, cluster, mix
from bmv2_topos.testbeds import netns
from controller import figures
from controller.errors import ControllerError
from ina.service.client import Client
from ina.service.views import JobView

MEMORY = {
    "shared": "shared",
    "static": "static",
    "preemptive": "preemptive",
    "earliest": "earliest",
    "deadline-lazy": "deadline-lazy",
    "deadline": "deadline",
    "deadline, as told": f"{ablations.__file__}:as_told",
    "deadline, once": f"{ablations.__file__}:once",
}
"""The memory policies, by the name on the page."""
AMPLE = "shared, ample slots"
"""The run that shows whether links or the processor limit the jobs."""
SEEDS = (1, 2, 3, 4, 5)
PERIOD_S = 4.0
"""Interval at which memory is divided again."""
POLL_S = 0.2
MOST_S = 400.0


@dataclass(frozen=True, slots=True)
class Row:
    """A job of a run.

    Attributes:
        seed: Of the mix.
        policy: The memory policy, by its name on the page.
        job: The job's name.
        deadline_s: Its deadline, from its submission; None: best effort.
        took_s: From submission to end.
        iteration_s: Mean time of an iteration.
        ideal_s: The same by its slower rank and its links alone.
        compute_s: The part of it that the first rank computed.
        network_s: The part of it that the first rank waited for sums.
        divisions: How often it had other slots than before.
        load: Of the machine when the run began.
        deadlines: How they were drawn, by `mixes.DEADLINES`.
        detour: Of what the workers of all jobs of its run sent, the part that came to the fallback server;
            None: not counted.
        detour_bps: The mean rate of that from the first submission to the end of the last job, bits per
            second.
    """

    seed: int
    policy: str
    job: str
    deadline_s: float | None
    took_s: float
    iteration_s: float
    ideal_s: float
    compute_s: float
    network_s: float
    divisions: int
    load: float
    deadlines: str = LOOSE
    detour: float | None = None
    detour_bps: float | None = None

    @property
    def missed(self) -> bool:
        """Whether it has a deadline and ended after it."""
        return self.deadline_s is not None and self.took_s > self.deadline_s


def run(jobs: Sequence[Planned], policy: str, name: str, row: Callable[..., Row]) -> list[Row]:
    """Run jobs under a policy on a testbed of this name, which is gone afterwards. Raises TrialFailed.

    Args:
        jobs: The jobs, in order of arrival.
        policy: The memory policy, by its name on the page.
        name: The testbed's name.
        row: Makes a row, out of what was measured of a job.
    """
    with tempfile.TemporaryDirectory(prefix="ina-reallocation-") as text:
        folder = Path(text)
        file, saved = folder / "cluster.toml", folder / "saved"
        saved.mkdir()
        file.write_text(cluster(len(jobs), PLENTY if policy == AMPLE else SCARCE))
        memory = MEMORY.get(policy, "shared")
        controller = Controller(folder, name, {**POLICIES, "memory": memory}, PERIOD_S)
        load = os.getloadavg()[0]
        with testbed(name, file, "embedded") as bed, running(controller), Client(controller.url) as client:
            began_s = time.monotonic()
            _submit(client, jobs, saved)
            _await_all(client)
            took_s = time.monotonic() - began_s
            sent = sum(bed.link_bytes(f"w{number + 1}").sent for number in range(len(jobs) * WORKERS))
            came = bed.link_bytes("sums").received
            told = {"detour": came / sent, "detour_bps": came * 8 / took_s}
            return _rows(client, jobs, partial(row, policy=policy, load=load, **told))


def _submit(client: Client, jobs: Sequence[Planned], saved: Path) -> None:
    began_s = time.monotonic()
    for number, job in enumerate(jobs):
        time.sleep(max(0.0, began_s + job.arrives_s - time.monotonic()))
        client.submit([job.described(number, saved, ROOT)])


def _await_all(client: Client) -> None:
    give_up_s = time.monotonic() + MOST_S
    while not all(job["over"] for job in client.jobs()):
        if time.monotonic() > give_up_s:
            raise TrialFailed(f"the jobs are not over within {MOST_S:g} s")
        time.sleep(POLL_S)


def _rows(client: Client, jobs: Sequence[Planned], row: Callable[..., Row]) -> list[Row]:
    """Return a row of each job. Raises TrialFailed if one has not done all its iterations."""
    views = {job["name"]: job for job in client.jobs()}
    reported = reports(client, list(views))
    divided = [each["jobs"][0] for each in client.decisions() if each["event"] == "memory"]
    found = []
    for job in jobs:
        view, ranks = views[job.name], reported[job.name]
        if view["state"] != "completed" or not ranks or view["ended_s"] is None:
            raise TrialFailed(f"job {job.name}: {view['state']}: {view['reason']}{_said(client, view)}")
        first, iterations = ranks[0], job.work.iterations
        found.append(
            row(
                job=job.name,
                deadline_s=job.deadline_s,
                took_s=view["ended_s"] - view["submitted_s"],
                iteration_s=(first.ended_at - first.began_at) / iterations,
                ideal_s=job.iteration_s,
                compute_s=first.compute_s / iterations,
                network_s=first.network_s / iterations,
                divisions=divided.count(job.name),
            )
        )
    return found


def _said(client: Client, job: JobView) -> str:
    return "".join(f"\nrank {rank}: {client.log(job['name'], rank, -2000)['text']}" for rank in (0, 1))


def _due(row: Row) -> str:
    return "" if row.deadline_s is None else f" (of {row.deadline_s:.1f})"


def run_all(seeds: Sequence[int], policies: Sequence[str], deadlines: str, *, quick: bool) -> list[Row]:
    """Run all mixes under all policies, in turns: each seed begins with another policy."""
    rows: list[Row] = []
    for seed in seeds:
        jobs = mix(seed, deadlines, jobs=2, iterations=(8, 12)) if quick else mix(seed, deadlines)
        for turn in range(len(policies)):
            policy = policies[(seed + turn) % len(policies)]
            name = f"r{os.getpid()}x{seed}x{turn}"
            found = run(jobs, policy, name, partial(Row, seed=seed, deadlines=deadlines))
            took = ", ".join(f"{row.took_s:.1f}{_due(row)}" for row in found)
            print(f"seed {seed}, {policy}: {took} s", flush=True)
            rows += found
    return rows


def read(files: Sequence[Path]) -> list[Row]:
    """Return the rows of earlier runs. Raises ValueError if these are none."""
    try:
        return [Row(**row) for file in files for row in json.loads(file.read_text())["rows"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{files[0]}: want rows of an earlier run: {error}") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and write page, rows and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--output", type=Path, required=True, help="folder of service-reallocation.md, .json and .svg"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="of the mixes of jobs")
    parser.add_argument(
        "--policies", nargs="+", choices=[AMPLE, *MEMORY], metavar="POLICY", help="only these"
    )
    parser.add_argument("--deadlines", choices=[*DEADLINES], default=LOOSE, help="how they are drawn")
    parser.add_argument("--rows", type=Path, nargs="+", metavar="FILE", help="show these, and run nothing")
    parser.add_argument("--quick", action="store_true", help="have two short jobs, a seed and two policies")
    asked = parser.parse_args(arguments)
    policies, seeds = asked.policies or [AMPLE, *MEMORY], asked.seeds
    if asked.quick:
        policies, seeds = ["shared", "deadline, once"], [0]
    try:
        check(asked.output / f"{reallocation_page.NAME}.md")
        figures.check()
        netns.check_here()
        rows = (
            read(asked.rows) if asked.rows else run_all(seeds, policies, asked.deadlines, quick=asked.quick)
        )
        rows.sort(key=lambda row: (row.deadlines, policies.index(row.policy), row.seed))
        publish(asked.output, reallocation_page.NAME, reallocation_page.tables(rows), [*map(asdict, rows)])
        reallocation_page.draw(rows, asked.output / f"{reallocation_page.NAME}.svg")
    except (TrialFailed, ValueError, ControllerError, netns.LiveError, OSError) as error:
        print(f"benchmarks.service.reallocation: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
