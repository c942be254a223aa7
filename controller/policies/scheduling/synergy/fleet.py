"""Free resources of each server while an allocation is built, and the resulting allocation."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from controller.policies.scheduling.synergy.demand import Demand, Option, Servers, Split
from controller.policies.scheduling.synergy.errors import BadDemand

NOTHING = Option(0.0, 0.0, 0.0)

SLACK = 1e-6
"""Rounding allowed where shares are added up."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A job that runs: its share for each GPU, and where its GPUs are; CPUs and memory go with them."""

    demand: Demand
    option: Option
    split: Split


@dataclass(frozen=True, slots=True)
class Plan:
    """One round: the jobs that run, and those that wait, both in the order in which they were considered."""

    grants: tuple[Grant, ...]
    waiting: tuple[Demand, ...] = ()

    @property
    def throughput(self) -> float:
        """The sum of the speeds of all GPUs in use; GPU-proportional shares give 1 each."""
        return sum(g.demand.gpus * g.option.speed for g in self.grants)

    def options(self) -> dict[Hashable, Option]:
        """Return each running job's share."""
        return {g.demand.job: g.option for g in self.grants}


class Fleet:
    """Free GPUs, CPUs and memory of servers.

    Jobs go to the server with the fewest free GPUs, then CPUs, then memory, that holds them; with `spread`,
    to that with the most free CPUs, then the fewest GPUs.
    """

    def __init__(self, servers: Servers, *, spread: bool = False) -> None:
        self.servers = servers
        self._free = [
            (shape.gpus, float(shape.cpus), float(shape.memory_gb), number)
            for number, shape in enumerate(servers.shapes)
        ]
        self._spread = spread
        self._order = sorted(self._rank(state) for state in self._free)  # those with a free GPU, best first
        self._nowhere: set[tuple[int, Option]] = set()  # what `find` could not find

    def free(self, server: int) -> tuple[int, float, float]:
        """Return a server's free GPUs, CPUs and memory in GB."""
        return self._free[server][:3]

    @property
    def free_gpus(self) -> int:
        """Number of free GPUs."""
        return sum(state[0] for state in self._free)

    def fits(self, server: int, gpus: int, option: Option) -> bool:
        """Return whether a server has `gpus` free GPUs, and this share for each."""
        free, cpus, memory, _ = self._free[server]
        return (
            free >= gpus and cpus + SLACK >= gpus * option.cpus and memory + SLACK >= gpus * option.memory_gb
        )

    def take(self, split: Split, option: Option) -> None:
        """Take a share for each GPU of a split."""
        for server, gpus in split:
            self._change(server, gpus, gpus * option.cpus, gpus * option.memory_gb)

    def give_back(self, split: Split, option: Option) -> None:
        """Undo `take`."""
        self._nowhere.clear()
        for server, gpus in split:
            self._change(server, -gpus, -gpus * option.cpus, -gpus * option.memory_gb)

    def _change(self, server: int, gpus: int, cpus: float, memory_gb: float) -> None:
        old = self._free[server]
        new = (old[0] - gpus, old[1] - cpus, old[2] - memory_gb, server)
        self._free[server] = new
        if old[0] > 0:
            del self._order[bisect_left(self._order, self._rank(old))]
        if new[0] > 0:
            insort(self._order, self._rank(new))

    def _rank(self, state: tuple[int, float, float, int]) -> tuple[float, float, float, int]:
        return (-state[1], state[0], state[2], state[3]) if self._spread else state

    def find(self, job: Demand, option: Option) -> Split | None:
        """Choose servers for a job.

        The servers that it is on; else the best one that holds all of it; else the fewest that together do.
        O(servers), O(servers log servers) if the job has to be split.
        """
        if job.here and all(self.fits(server, gpus, option) for server, gpus in job.here):
            return job.here
        return self._anywhere(job.gpus, option)

    def _anywhere(self, gpus: int, option: Option) -> Split | None:
        if (gpus, option) in self._nowhere:
            return None
        need_cpus, need_memory = gpus * option.cpus - SLACK, gpus * option.memory_gb - SLACK
        for _, _, _, server in self._order:
            free, cpus, memory, _ = self._free[server]
            if free >= gpus and cpus >= need_cpus and memory >= need_memory:
                return ((server, gpus),)
        split = self._fewest(gpus, option) if gpus > 1 else None
        if split is None:
            self._nowhere.add((gpus, option))
        return split

    def find_gpus(self, job: Demand) -> Split | None:
        """Choose servers as `find` does, but for the GPUs alone."""
        return self.find(job, NOTHING)

    def _fewest(self, gpus: int, option: Option) -> Split | None:
        rooms = []
        for _, _, _, server in self._order:
            free, cpus, memory, _ = self._free[server]
            room = free
            if option.cpus > 0:
                room = min(room, int((cpus + SLACK) / option.cpus))
            if option.memory_gb > 0:
                room = min(room, int((memory + SLACK) / option.memory_gb))
            rooms.append((-room, server))
        split = []
        for room, server in sorted(rooms):
            here = min(gpus, -room)
            if here <= 0:
                break
            split.append((server, here))
            gpus -= here
        return tuple(split) if gpus == 0 else None


def runnable(demands: Iterable[Demand], gpus: int) -> tuple[list[Demand], list[Demand]]:
    """Divide jobs in priority order into those whose GPUs the cluster has, and those that wait.

    A job that no longer fits is skipped, and later ones that do fit are taken.

    Raises BadDemand for two jobs of one name.
    """
    chosen, waiting, seen = [], [], set()
    for job in demands:
        if job.job in seen:
            raise BadDemand(f"there are two jobs '{job.job}'")
        seen.add(job.job)
        if job.gpus <= gpus:
            chosen.append(job)
            gpus -= job.gpus
        else:
            waiting.append(job)
    return chosen, waiting
