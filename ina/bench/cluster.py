"""Speed of the flow-level simulator on clusters of any size."""

from __future__ import annotations

import time
from dataclasses import dataclass

from controller.simulator.network import generate
from controller.simulator.network.run import NetworkTask, run_network
from controller.simulator.network.settings import NetworkSettings
from controller.simulator.runs import Progress
from controller.vocabulary import fabrics


@dataclass(frozen=True, slots=True)
class Simulating:
    """One simulation; `makespan_s` is on the clock of the jobs, `gpu_busy` the fraction of GPU time used."""

    jobs: int
    servers: int
    gpus: int
    time_s: float
    processor_s: float
    makespan_s: float
    gpu_busy: float


def measure_cluster(
    jobs: int = 10_000,
    servers: int = 256,
    *,
    gpus: int = 8,
    gap_s: float = 2.0,
    scheduler: str = "fifo-backfill",
    settings: NetworkSettings | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Simulating:
    """Simulate jobs of 1 to 16 workers in racks of 16 servers under eight spines.

    Args:
        jobs: Number of jobs.
        servers: Number of servers.
        gpus: GPUs of each server.
        gap_s: Mean time between arrivals.
        scheduler: Name of the scheduling policy.
        settings: Allocation policies and network model; None: the defaults.
        seed: Of the random jobs.
        progress: Called with the number of ended jobs and of all jobs.

    Raises RunFailed, as `run_network`.
    """
    racks = max(1, servers // 16)
    cluster = fabrics.leaf_spine(8, racks, min(servers, 16), fabrics.Parts(gpus=gpus, trunk_bps=200e9))
    batch = generate.generate(jobs, cluster, seed=seed, gap_s=gap_s)
    chosen = settings or NetworkSettings(seed=seed)
    task = NetworkTask(jobs=batch, topology=cluster, scheduler=scheduler, settings=chosen)
    begin = time.perf_counter()
    found = run_network(task, progress)
    time_s = time.perf_counter() - begin
    metrics = found.metrics
    return Simulating(
        jobs, len(cluster.servers), cluster.gpus, time_s, found.cpu_s, metrics.makespan_s, metrics.gpu_busy
    )
