"""The cluster and the eight jobs of trial and comparison: two racks under two spines."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

SPINES, LEAVES = ("s1", "s2"), ("s3", "s4")
RATE_BPS = 100e6
"""Of all links: slow, so that two cores suffice for all switches and hosts."""
SIZE_BYTES = 100_000
"""Of a gradient."""
SIZES = {"embedded": SIZE_BYTES, "bmv2": 10_000}
"""The same by the kind of switches: BMv2 takes a few thousand packets a second, of 32 values each."""
SLOTS = 256
"""Of each switch: few, so that jobs without a deadline notice what those with one get."""
HOLD_S = 0.05
"""How long a slot is held, by the file: on a busy machine, a rank is that much later than another."""

CLUSTER = "\n".join(
    [
        'name = "two racks under two spines"',
        f"link_defaults = {{ rate_bps = {RATE_BPS:g} }}",
        *(f'[[switch]]\nname = "{switch}"\nslots = {SLOTS}' for switch in (*SPINES, *LEAVES)),
        *(
            f'[[server]]\nname = "{name}"\ncount = 4\nswitch = "{leaf}"\ngpus = 1'
            for name, leaf in zip(("left", "right"), LEAVES, strict=True)
        ),
        *(
            f'[[server]]\nname = "{name}"\nswitch = "{spine}"\ngpus = 0'
            for name, spine in zip(("sums1", "sums2"), SPINES, strict=True)
        ),
        *(f'[[link]]\na = "{spine}"\nb = "{leaf}"' for spine in SPINES for leaf in LEAVES),
    ]
)
"""Two servers with sums only, one at each spine: any tree has a fallback server at its root."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A job of the file. `servers`: where its owner wants it; `deadline_s` is None for best effort."""

    name: str
    iterations: int
    deadline_s: float | None = None
    servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """Eight jobs of two workers, three of which have deadlines.

    `compute_s` and `size_bytes`, of the gradient, are of an iteration.
    """

    compute_s: float
    size_bytes: int
    jobs: tuple[Kind, ...]

    @property
    def iterations(self) -> int:
        """Of all jobs."""
        return sum(job.iterations for job in self.jobs)

    def toml(self, saved: Path) -> str:
        """Return the file of the jobs, which save how far they are in a folder."""
        return "\n".join(self._table(job, saved) for job in self.jobs)

    def _table(self, job: Kind, saved: Path) -> str:
        command = (
            f"{sys.executable} -m benchmarks.service.worker --iterations {job.iterations}"
            f" --compute {self.compute_s} --bytes {self.size_bytes} --saved {saved / job.name}"
        )
        lines = [
            "[[job]]",
            f'name = "{job.name}"',
            "workers = 2",
            f"iterations = {job.iterations}",
            f"compute_s = {self.compute_s}",
            f"model_bytes = {self.size_bytes}",
            f"hold_s = {HOLD_S}",
            f'command = "{command}"',
        ]
        if job.deadline_s is not None:
            lines.append(f"deadline_s = {job.deadline_s:g}")
        if job.servers:
            lines.append(f"servers = [{', '.join(map(repr, job.servers))}]")
        return "\n".join(lines)


def workload(*, quick: bool = False, target: str = "embedded") -> Workload:
    """Return the jobs for a kind of switches; `quick`: of seconds, and of a quarter of the packets.

    Four run at once. Jobs with servers have one in each rack, so that their trees go over a spine.
    """
    parts = 3 if quick else 10
    wide = [(f"left{n}", f"right{n}") for n in (1, 2)]

    def kind(name: str, iterations: int, deadline_s: float | None = None, servers: int | None = None) -> Kind:
        due_s = deadline_s if deadline_s is None or not quick else 120.0
        return Kind(name, iterations * parts, due_s, () if servers is None else wide[servers])

    jobs = (
        kind("urgent", 20, 60, servers=0),
        kind("wide", 25, servers=1),
        kind("near", 20),
        kind("soon", 25, 90),
        kind("later", 20, 150, servers=0),
        kind("far", 20, servers=1),
        kind("small", 10),
        kind("last", 15),
    )
    return Workload(0.05 if quick else 0.08, SIZES[target] // (4 if quick else 1), jobs)
