"""Common parts of the allocation commands: files, and policies by name or user-defined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from controller.core.allocator import Allocator, allocate
from controller.policies.by_kind import AllocationSettings
from controller.policies.placement.policy import overfull
from controller.policies.placement.trees import racks_of
from controller.vocabulary import Job, Topology, documents, named
from controller.vocabulary.documents import hint
from controller.vocabulary.files import check_job
from controller.vocabulary.graphs import with_memory
from ina.cli import job_files
from ina.cli.errors import USAGE, Failure
from ina.cli.plain import Result

Jobs = Annotated[
    Path,
    typer.Option(
        metavar="FILE",
        help="Read the jobs from this file: .toml, .json or .yaml, or a scheduler's trace.",
    ),
]
ClusterFile = Annotated[
    Path,
    typer.Option(
        "--cluster",
        parser=Path,  # and not looked for: it may name a topology
        metavar="FILE",
        help="Read servers, switches and links from this file: .toml, .json or .yaml; or name a "
        "topology of the testbeds, such as leaf-spine:2x4x8.",
    ),
]
SLOTS, GPUS = 8192, 8
"""What switches and hosts have in a topology of the testbeds, which does not say."""

Margin = Annotated[
    float,
    typer.Option(
        help="Keep this share of the remaining time in reserve when computing what deadlines need, 0 to 1."
    ),
]
Seed = Annotated[
    int, typer.Option(min=0, help="Seed the random numbers; the same seed gives the same result.")
]
Plot = Annotated[
    Path | None, typer.Option(writable=True, metavar="FILE", help="Draw the decision: .png, .svg or .pdf.")
]
Explain = Annotated[
    str | None,
    typer.Option(
        "--explain",
        metavar="JOB",
        help="Explain what this job got by the last policy, what limited it and what more resources would "
        "bring, instead of printing tables.",
    ),
]
Write = Annotated[
    Path | None,
    typer.Option(
        writable=True,
        metavar="FILE",
        help="Write the jobs with the decision (.json), as input of the next command.",
    ),
]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the files of a command hold."""

    path: Path
    """The file of the jobs."""
    jobs: tuple[Job, ...]
    topology: Topology


def load(jobs: Path, cluster: Path, command: str) -> Inputs:
    """Return jobs and cluster of these files; unused keys are reported for `command`.

    Raises BadSpec or BadTrace, with the line and the key.
    """
    topology = load_cluster(cluster, command)
    if jobs.suffix not in documents.FORMATS:
        found = _trace(jobs, topology)
    else:
        found = list(job_files.jobs(jobs, command, topology, require=("model",)))
    return Inputs(jobs, tuple(found), topology)


def load_cluster(path: Path, command: str) -> Topology:
    """Return the topology of a file, or one of the catalog, whose servers then have `GPUS` each."""
    if path.suffix in documents.FORMATS:
        return job_files.topology(str(path), command)
    return with_memory(named(str(path)), slots=SLOTS, gpus=GPUS)


def _trace(path: Path, cluster: Topology) -> list[Job]:
    from controller.simulator import traces
    from controller.simulator.network.generate import from_trace

    found = from_trace(traces.read(path))
    for job in found:
        check_job(job, cluster)
    return found


def policies(text: str, kind: str = "policy") -> list[str]:
    """Return the names in the comma-separated list of the option ``--kind``. Raises Failure."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise Failure(f"--{kind} {text}: want different names, separated by commas", USAGE)
    return names


def decided(inputs: Inputs, settings: AllocationSettings, *, placed: bool) -> Allocator:
    """Place and route the jobs of the files as the controller does.

    Args:
        inputs: Jobs and cluster.
        settings: The policies, and how they are asked.
        placed: All jobs must have servers in the file.

    Raises Failure for servers with too few GPUs for their jobs; BadSpec.
    """
    there = inputs.jobs if placed else tuple(job for job in inputs.jobs if job.servers)
    for job in there:
        racks_of(inputs.topology, job)
    if crowded := overfull(inputs.topology, there):
        raise Failure(f"{inputs.path}: {crowded}", USAGE)
    return allocate(inputs.topology, inputs.jobs, settings)


def one_job(name: str, jobs: Sequence[Job]) -> Job:
    """Return the job of that name. Raises Failure."""
    found = {job.name: job for job in jobs}
    if name not in found:
        raise Failure(f"no job {name!r}: {hint(name, found)}", USAGE)
    return found[name]


def print_lines(lines: Sequence[str], command: str, policy: str, job: str, *, json: bool) -> None:
    """Print the explanation of a job.

    Args:
        lines: Its sentences.
        command: Name of the command.
        policy: Name of the policy, or of all of them.
        job: Name of the job.
        json: Print one JSON object with them.
    """
    if json:
        Result(command, {"policy": policy, "job": job}, {"lines": list(lines)}).print_json()
        return
    print("\n".join(lines))


def check_files(plot: Path | None, write: Path | None = None) -> None:
    """Check output files before the work. Raises Failure."""
    from ina.cli.schedule.common import check_plots

    if plot is not None:
        check_plots("--plot", plot)
    if write is not None and write.suffix != ".json":
        raise Failure(f"--write {write}: want a name that ends in .json", USAGE)
