"""Synergy-TUNE: ideal shares where they fit, fair ones where they do not, and no GPU idle (OSDI'22, 4.2)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from controller.policies.scheduling.synergy.demand import Demand, Option, Servers, Split
from controller.policies.scheduling.synergy.fleet import Fleet, Grant, Plan, runnable


def tune(demands: Sequence[Demand], servers: Servers, *, spread: bool = False) -> Plan:
    """Allocate as Synergy-TUNE.

    Jobs run in priority order as long as the cluster has their GPUs. They are placed with the largest demand
    first, by GPUs, then CPUs, then memory:

    1. on the fullest server that has the ideal share, else on the fewest servers that have it together;
    2. if there are none, in the same way with the share that the job can fall back on;
    3. if there are still none, on servers that have the GPUs, whose jobs fall back one after the other until
       it fits: those on the fewest servers first, of these the one with most CPUs per GPU.

    Step 3 always ends: on a server where all jobs have fallen back, every free GPU has its fair share left.
    So no job runs slower than with GPU-proportional shares. As published, resources freed by jobs that fell
    back go to jobs that are placed later, not to jobs placed already: `top_up` does that.
    O(jobs · (servers + GPUs per server)).

    With `spread`, which is not part of the published algorithm, step 1 takes the server with the most free
    CPUs instead of the fullest one: jobs of high demand then meet jobs of low demand more often.
    """
    chosen, waiting = runnable(demands, servers.gpus)
    tuning = Tuning(servers, spread=spread)
    for job in sorted(chosen, key=lambda d: (-d.gpus, -d.ideal.cpus, -d.ideal.memory_gb)):
        tuning.add(job, job.ideal)
    return Plan(tuple(tuning.grant(job) for job in chosen), tuple(waiting))


class Tuning:
    """An allocation under construction, whose jobs can still be made to fall back."""

    def __init__(self, servers: Servers, *, spread: bool = False) -> None:
        self._fleet = Fleet(servers, spread=spread)
        self._options: dict[Hashable, Option] = {}
        self._splits: dict[Hashable, Split] = {}
        self._on_server: list[list[Demand]] = [[] for _ in range(len(servers))]

    def add(self, job: Demand, wish: Option) -> None:
        """Place one job, with the share that it asks for if possible; its GPUs must be free."""
        for option in (wish,) if wish is job.floor else (wish, job.floor):
            split = self._fleet.find(job, option)
            if split is not None:
                self.run(job, option, split)
                return
        self._squeeze_in(job)

    def run(self, job: Demand, option: Option, split: Split) -> None:
        """Place one job with this share on these servers, which have it."""
        self._fleet.take(split, option)
        self._options[job.job], self._splits[job.job] = option, split
        for server, _ in split:
            self._on_server[server].append(job)

    def grant(self, job: Demand) -> Grant:
        """Return the resources granted to a job."""
        return Grant(job, self._options[job.job], self._splits[job.job])

    def _squeeze_in(self, job: Demand) -> None:
        split = self._fleet.find_gpus(job)
        assert split is not None  # `runnable` has counted the GPUs
        for server, gpus in split:
            peers = iter(self._peers_to_cut(server))
            while not self._fleet.fits(server, gpus, job.floor):
                self._fall_back(next(peers))
        self.run(job, job.floor, split)

    def _peers_to_cut(self, server: int) -> list[Demand]:
        peers = [p for p in self._on_server[server] if self._options[p.job] is not p.floor]

        def order(peer: Demand) -> tuple[int, float, float]:
            option = self._options[peer.job]
            return len(self._splits[peer.job]), -option.cpus, -option.memory_gb

        return sorted(peers, key=order)

    def _fall_back(self, job: Demand) -> None:
        split = self._splits[job.job]
        self._fleet.give_back(split, self._options[job.job])
        self._fleet.take(split, job.floor)
        self._options[job.job] = job.floor
