"""Jobs as scheduling policies see them, on a cluster with a network."""

from __future__ import annotations

import math

from controller.errors import BadSpec
from controller.policies.scheduling.model import Submission
from controller.vocabulary import Job, Topology
from controller.vocabulary.words import plural

LEAST_S = 1e-6
"""Least time of an iteration."""


def submission_of(job: Job, topology: Topology) -> Submission:
    """Return a job as schedulers see it: as fast as it is alone on the fastest links.

    Raises BadSpec if even the empty cluster has no room for its workers.
    """
    if not _has_room(job, topology):
        raise BadSpec(
            f"job {job.name!r}: {plural(job.workers, 'worker')} of"
            f" {plural(job.gpus_per_worker, 'GPU')}; the servers have no"
            " room for it"
        )
    alone_bps = math.inf if _fits_one_server(job, topology) else topology.fastest_bps
    iteration_s = max(job.iteration_at_s(alone_bps), LEAST_S)
    network_s = 0.0 if alone_bps == math.inf else job.model_bytes * 8 / alone_bps
    stages_s = job.stages_s or (0.0, 0.0, max(job.compute_s, LEAST_S), network_s)
    return Submission.timed(
        job, iterations=job.iterations, iteration_s=iteration_s, stages_s=stages_s, extra=job.extra
    )


def _has_room(job: Job, topology: Topology) -> bool:
    """Return whether all servers together have room for a job; looks at few of them if they have plenty."""
    missing = job.workers
    for server in topology.servers:
        missing -= server.gpus // job.gpus_per_worker
        if missing <= 0:
            return True
    return False


def _fits_one_server(job: Job, topology: Topology) -> bool:
    if job.servers:
        return len(job.hosts) == 1
    return any(server.gpus // job.gpus_per_worker >= job.workers for server in topology.servers)
