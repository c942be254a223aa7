"""Random jobs that compete for the slots of one switch, and for the link of its fallback server."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.service.worker import Work

RATE_BPS = 100e6
"""Of all links: HTB at the hosts, and the switch's own at its ports."""
PACKET_BYTES, FRAME_BYTES = 1024, 1094
"""Values of a packet, and all of it on a link."""
SIZE_BYTES = 500_000
"""Of a gradient."""
SPREAD_S = 0.04
"""Most time that a rank computes longer than the other in an iteration."""
HOLD_S = 0.0112
"""How long a slot is held: with a whole window of 128 packets a job has the rate of its links."""
SCARCE, PLENTY = 256, 8192
"""Slots of the switch: a job alone would use 128, its window."""
WORKERS = 2


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How deadlines are drawn: time to start workers, and how often the time of the iterations alone."""

    start_s: float
    slack: tuple[float, float]


LOOSE, TIGHT = "loose", "tight"
DEADLINES = {LOOSE: Deadlines(8.0, (1.3, 2.0)), TIGHT: Deadlines(4.0, (1.2, 1.6))}


@dataclass(frozen=True, slots=True)
class Planned:
    """A job of a mix.

    Attributes:
        name: Its name.
        work: What its workers do.
        arrives_s: When it is submitted.
        told_s: Computing time of an iteration as its owner believes.
        deadline_s: Its deadline after its arrival; None: best effort.
    """

    name: str
    work: Work
    arrives_s: float
    told_s: float
    deadline_s: float | None

    @property
    def iteration_s(self) -> float:
        """Time of an iteration by its slower rank and its links: alone, with all slots that it can use."""
        slower_s = float(self.work.computing_s(WORKERS).max(axis=0).mean())
        return slower_s + link_s(self.work.size_bytes)

    def described(self, number: int, saved: Path, folder: Path) -> dict[str, object]:
        """Return the description to submit: the job has servers of its own, by its number."""
        work = self.work
        options = {
            "--iterations": work.iterations,
            "--compute": work.compute_s,
            "--spread": work.spread_s,
            "--seed": work.seed,
            "--bytes": work.size_bytes,
            "--saved": saved / self.name,
        }
        words = [str(word) for option in options.items() for word in option]
        return {
            "name": self.name,
            "workers": WORKERS,
            "fallback": "sums",
            "servers": [f"w{number * WORKERS + rank + 1}" for rank in range(WORKERS)],
            "iterations": work.iterations,
            "compute_s": self.told_s,
            "model_bytes": work.size_bytes,
            "hold_s": HOLD_S,
            "command": [sys.executable, "-m", "benchmarks.service.worker", *words, "--integers"],
            "extra": {"folder": str(folder)},
            **({} if self.deadline_s is None else {"deadline_s": self.deadline_s, "on_late": "best-effort"}),
        }


def link_s(size_bytes: int) -> float:
    """Return the time that a gradient takes on a link, headers counted."""
    return -(-size_bytes // PACKET_BYTES) * FRAME_BYTES * 8 / RATE_BPS


def mix(
    seed: int, deadlines: str = LOOSE, *, jobs: int = 6, iterations: tuple[int, int] = (50, 80)
) -> list[Planned]:
    """Return the jobs of a seed, in order of arrival; every other one has a deadline.

    Args:
        seed: Of all that is drawn.
        deadlines: `LOOSE` or `TIGHT`.
        jobs: How many.
        iterations: Least and most of a job.
    """
    drawn, given = random.Random(seed), DEADLINES[deadlines]
    found: list[Planned] = []
    arrives_s = 0.0
    for number in range(jobs):
        work = Work(
            iterations=drawn.randint(*iterations),
            compute_s=drawn.uniform(0.05, 0.12),
            size_bytes=SIZE_BYTES,
            spread_s=SPREAD_S,
            seed=seed * 100 + number,
            integers=True,
        )
        told_s = (work.compute_s + SPREAD_S * 2 / 3) * drawn.uniform(0.6, 1.4)
        slack = drawn.uniform(*given.slack)
        job = Planned(f"j{number + 1}", work, arrives_s, told_s, None)
        if number % 2 == 0:
            due_s = given.start_s + slack * work.iterations * job.iteration_s
            job = Planned(job.name, work, arrives_s, told_s, round(due_s, 3))
        found.append(job)
        arrives_s += drawn.uniform(0.5, 3.0)
    return found


def cluster(jobs: int, slots: int) -> str:
    """Return the cluster file: a switch, two servers for each job, and one that only sums."""
    return "\n".join(
        [
            'name = "one switch"',
            f"link_defaults = {{ rate_bps = {RATE_BPS:g} }}",
            f'[[switch]]\nname = "s1"\nslots = {slots}',
            f'[[server]]\nname = "w"\ncount = {jobs * WORKERS}\nswitch = "s1"\ngpus = 1',
            '[[server]]\nname = "sums"\nswitch = "s1"\ngpus = 0',
        ]
    )
