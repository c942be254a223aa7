"""What the allocation commands have in common: their files, and policies by name or from outside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from controller import plugins
from controller.vocabulary import Job, Topology, documents, load_topology, named
from controller.vocabulary.clusterfile import check_job, cluster_of, read_jobs
from controller.vocabulary.documents import hint
from controller.vocabulary.graphs import with_memory
from ina.cli.errors import USAGE, Failure

Jobs = Annotated[
    Path, typer.Option(metavar="FILE", help="Jobs: .toml, .json or .yaml, or a trace of a scheduler (.csv).")
]
ClusterFile = Annotated[
    Path,
    typer.Option(
        "--cluster",
        metavar="FILE",
        help="Servers, switches and links: .toml, .json or .yaml; or a topology of the testbeds, as"
        " leaf-spine:2x4x8.",
    ),
]
SLOTS, GPUS = 8192, 8
"""What switches and hosts have in a topology of the testbeds, which does not say."""

Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it: .png, .svg or .pdf.")]
Write = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the jobs with what was decided (.json), for the next command."),
]


def load(jobs: Path, cluster: Path) -> tuple[list[Job], Topology]:
    """Return jobs and cluster of these files. Raises BadSpec or BadTrace, with the line and the key."""
    fabric = load_cluster(cluster)
    if jobs.suffix == ".csv":
        return _trace(jobs, fabric), fabric
    return read_jobs(jobs, fabric), fabric


def load_cluster(path: Path) -> Topology:
    """Return the cluster of a file, or that of a testbeds' topology: a file's, or one of the catalog."""
    if path.suffix not in documents.FORMATS:
        return with_memory(named(str(path)), slots=SLOTS, gpus=GPUS)
    document = documents.read(path)
    if "switches" in document.data:
        return with_memory(load_topology(path), slots=SLOTS, gpus=GPUS)
    return cluster_of(document)


def _trace(path: Path, cluster: Topology) -> list[Job]:
    from controller.simulator import traces
    from controller.simulator.network.generate import from_trace

    found = from_trace(traces.read(path))
    for job in found:
        check_job(job, cluster)
    return found


def policy(name: str, known: Mapping[str, Any], group: str) -> Any:
    """Return the policy of that name: one of `known`, a package's, or a file's. Raises Failure or BadSpec."""
    if name in known:
        return known[name]
    if not plugins.is_external(name) and name not in plugins.names(group):
        raise Failure(f"--policy {name}: {hint(name, known)}; path.py:Name is one of a file", USAGE)
    return plugins.load(name, group)


def one_job(name: str, jobs: list[Job]) -> Job:
    """Return the job of that name. Raises Failure."""
    found = {job.name: job for job in jobs}
    if name not in found:
        raise Failure(f"job {name!r}: {hint(name, found)}", USAGE)
    return found[name]


def check_files(plot: Path | None, write: Path | None = None) -> None:
    """Refuse before the work what would fail after it. Raises Failure."""
    from ina.cli.schedule.common import check_plots

    if plot is not None:
        check_plots("--plot", plot)
    if write is not None and write.suffix != ".json":
        raise Failure(f"--write {write}: want a name that ends in .json", USAGE)
