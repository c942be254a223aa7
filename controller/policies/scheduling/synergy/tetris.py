"""Tetris: pack by the alignment of demands with free resources, and remaining work (Grandl, SIGCOMM'14)."""

from __future__ import annotations

from collections.abc import Sequence

from controller.policies.scheduling.synergy.demand import Demand, Servers, Split
from controller.policies.scheduling.synergy.fleet import Fleet, Grant, Plan, runnable


def tetris(demands: Sequence[Demand], servers: Servers) -> Plan:
    """Place repeatedly the job and server with the highest score; demands are ideal shares, not tuned.

    The score is the dot product of the job's demand and the server's free resources, each as a part of the
    largest server, plus the job's remaining work (time times demand; less is better) scaled so that both
    have the same weight on average. Jobs for several servers score at the emptiest and go to as few servers
    as possible.
    O(jobs² + jobs · servers): after each placement only that server's column is scored again.
    """
    fleet = Fleet(servers)
    runnable(demands, 0)  # for its check
    open_jobs = dict(enumerate(demands))
    work = {i: j.remaining_s * sum(_parts(j, servers)) for i, j in open_jobs.items()}
    scores = {i: [_alignment(j, s, fleet) for s in range(len(servers))] for i, j in open_jobs.items()}
    weight = _weight([max(row) for row in scores.values()], list(work.values()))
    grants, left_over = [], []
    while open_jobs:
        index = max(open_jobs, key=lambda i: max(scores[i]) - weight * work[i])
        job = open_jobs.pop(index)
        split = _place(job, scores[index], fleet)
        if split is None:
            left_over.append(index)
            continue
        fleet.take(split, job.ideal)
        grants.append(Grant(job, job.ideal, split))
        for server, _ in split:
            for i, other in open_jobs.items():
                scores[i][server] = _alignment(other, server, fleet)
    return Plan(tuple(grants), tuple(demands[i] for i in sorted(left_over)))


def _parts(job: Demand, servers: Servers) -> tuple[float, float, float]:
    shape = servers.largest
    gpus = job.gpus
    return gpus / shape.gpus, gpus * job.ideal.cpus / shape.cpus, gpus * job.ideal.memory_gb / shape.memory_gb


def _alignment(job: Demand, server: int, fleet: Fleet) -> float:
    shape = fleet.servers.largest
    gpus, cpus, memory = _parts(job, fleet.servers)
    free_gpus, free_cpus, free_memory = fleet.free(server)
    return (
        gpus * free_gpus / shape.gpus + cpus * free_cpus / shape.cpus + memory * free_memory / shape.memory_gb
    )


def _weight(alignments: list[float], work: list[float]) -> float:
    total = sum(work)
    return sum(alignments) / total if total > 0 else 0.0


def _place(job: Demand, scores: list[float], fleet: Fleet) -> Split | None:
    if job.gpus > fleet.free_gpus:
        return None
    if job.here:
        return fleet.find(job, job.ideal)
    fitting = [s for s in range(len(scores)) if fleet.fits(s, job.gpus, job.ideal)]
    if fitting:
        return ((max(fitting, key=lambda s: scores[s]), job.gpus),)
    return fleet.find(job, job.ideal)
