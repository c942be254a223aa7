"""Job files (`controller.vocabulary.files`) as traces: their jobs as schedulers see them, by arrival."""

from __future__ import annotations

from pathlib import Path

from controller.policies.scheduling.errors import BadSpec, SchedulingError
from controller.policies.scheduling.model import Submission
from controller.simulator.traces.rows import LARGEST, SMALLEST, JobCheck
from controller.vocabulary import Cluster, documents, jobs_of


def read(path: Path, cluster: Cluster | None = None, known: JobCheck | None = None) -> list[Submission]:
    """Return the jobs of a TOML, JSON or YAML file. Raises BadSpec, with the line."""
    document = documents.read(path)
    found = []
    for job, (where, table) in zip(jobs_of(document), document.tables("job"), strict=True):
        try:
            spec = Submission.of(job)
            if cluster is not None:
                cluster.check_room(spec.name, spec.gpus)
            if known is not None:
                known(spec)
        except (BadSpec, SchedulingError) as error:
            raise document.error(where, str(error)) from error
        if not SMALLEST <= spec.duration_s <= LARGEST:
            key = "iterations" if job.duration_s is None else "duration_s"
            raise document.error(
                (*where, key) if key in table else where,
                f"job {job.name!r}: {key}: it runs for {spec.duration_s:g} s; it must be at least"
                f" {SMALLEST:g} and at most {LARGEST:g}",
            )
        found.append(spec)
    return sorted(found, key=lambda spec: spec.arrival_s)
