"""Jobs and clusters with a network as scheduling policies see them."""

from __future__ import annotations

import math

from controller.errors import BadSpec
from controller.scheduling.model import Cluster as Servers
from controller.scheduling.model import JobSpec, Node
from controller.workload import Cluster, TrainingJob

LEAST_S = 1e-6
"""Least time of an iteration."""


def servers_of(cluster: Cluster, *, whole: bool) -> Servers:
    """Return what schedulers see: the servers with GPUs, or, where placement is not theirs, one large one."""
    if whole:
        return Servers((Node(cluster.gpus, name="all"),))
    return Servers(tuple(Node(each.gpus, name=each.name) for each in cluster.servers if each.gpus))


def spec_of(job: TrainingJob, cluster: Cluster) -> JobSpec:
    """Return a job as schedulers see it: as fast as it is with the fastest links for itself.

    Raises BadSpec if not even the empty cluster has room for its workers.
    """
    if sum(server.gpus // job.gpus for server in cluster.servers) < job.workers:
        raise BadSpec(
            f"job {job.name!r}: {job.workers} workers of {job.gpus} GPUs; the servers have no room for it"
        )
    alone_bps = math.inf if _fits_one_server(job, cluster) else max(link.rate_bps for link in cluster.links)
    iteration_s = max(job.iteration_s(alone_bps), LEAST_S)
    network_s = 0.0 if alone_bps == math.inf else job.model_bytes * 8 / alone_bps
    stages_s = job.stages_s or (0.0, 0.0, max(job.compute_s, LEAST_S), network_s)
    return JobSpec(
        id=job.name,
        submit_s=job.arrival_s,
        gpus=job.workers * job.gpus,
        iterations=job.iterations,
        iteration_s=iteration_s,
        stages_s=stages_s,
    )


def _fits_one_server(job: TrainingJob, cluster: Cluster) -> bool:
    if job.servers:
        return len(job.hosts) == 1
    return any(server.gpus // job.gpus >= job.workers for server in cluster.servers)
