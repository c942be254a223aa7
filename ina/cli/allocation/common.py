"""Common parts of the allocation commands: options, input files, decisions by policies, explanations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from controller.core.allocator import Allocator, allocate
from controller.policies.memory import regions
from controller.policies.placement.flows import racks_of
from controller.policies.placement.policy import overfull
from controller.policies.settings import AllocationSettings
from controller.simulator.files import whole
from controller.vocabulary import Job, Topology, documents, named
from controller.vocabulary.documents import hint
from controller.vocabulary.files import check_job, write_jobs
from controller.vocabulary.graphs import with_memory
from ina.cli import job_files
from ina.cli.command import USAGE, Declared, Failure, Reply, Result, refuse
from ina.cli.output import check_plots

SLOTS, GPUS = 8192, 8
"""Slots of a switch and GPUs of a host in topologies of the catalog, which do not specify them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationFiles:
    """Options for the files of the jobs and the cluster for which policies decide."""

    jobs: Annotated[
        Path,
        Declared(
            metavar="FILE",
            help="Read the jobs from this file: .toml, .json or .yaml, or a scheduler's trace.",
        ),
    ]
    cluster: Annotated[
        Path,
        Declared(
            "--cluster",
            parser=Path,  # the file need not exist: the value may name a topology
            metavar="FILE",
            help="Read servers, switches and links from this file: .toml, .json or .yaml; or name a "
            "topology of the testbeds, such as leaf-spine:2x4x8.",
        ),
    ]

    def load(self, command: str) -> Inputs:
        """Read jobs and cluster from the files, and report the keys that `command` does not use.

        Raises BadSpec or BadTrace, with the line and the key.
        """
        topology = load_cluster(self.cluster, command)
        if self.jobs.suffix not in documents.FORMATS:
            found = _trace(self.jobs, topology)
        else:
            found = list(job_files.jobs(self.jobs, command, topology, require=("model",)))
        return Inputs(self.jobs, tuple(found), topology)

    def unused_keys(self, command: str) -> list[str]:
        """Return the keys of the files that a command does not use."""
        return job_files.unused_keys(command, self.jobs, self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding(AllocationFiles):
    """Options that explain or draw the decisions of a command about the jobs in a file."""

    explain: Annotated[
        str | None,
        Declared(
            "--explain",
            metavar="JOB",
            help="Explain the result of the last policy for this job: its limit, and the gain from more "
            "resources. Prints no tables.",
        ),
    ] = None
    plot: Annotated[
        Path | None,
        Declared(writable=True, metavar="FILE", help="Draw the decision: .png, .svg or .pdf."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing(Deciding):
    """Options of commands that use random numbers, and that can write the resulting jobs to a file."""

    seed: Annotated[
        int, Declared(min=0, help="Seed the random numbers; the same seed gives the same result.")
    ] = 0
    write: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="FILE",
            help="Write the jobs with their servers and trees to this .json file, for --jobs of the next "
            "command.",
        ),
    ] = None

    def check(self) -> None:
        """Raise Failure if an output file cannot be written as requested; called before the work."""
        check_plots("--plot", self.plot)
        refuse(
            self.write is not None and self.write.suffix != ".json",
            f"--write {self.write}: want a name that ends in .json",
        )

    def keep(self, jobs: Sequence[Job]) -> None:
        """Write the jobs if --write is given."""
        if self.write is not None:
            with whole(self.write) as draft:
                write_jobs(draft, jobs)


Margin = Annotated[
    float,
    Declared(
        help="Keep this share of the time until a deadline in reserve when computing a job's needs, 0 to 1."
    ),
]
Reading = Annotated[
    regions.Reading,
    Declared(
        help="Compute the number of slots that a job needs for its deadline by this model. measured: a slot "
        "is held for the job's hold_s, and communication overlaps with computing; article: a slot is held "
        "for one round trip, and communication follows computing."
    ),
]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Jobs and cluster that a command has read."""

    path: Path
    """The file from which the jobs were read."""
    jobs: tuple[Job, ...]
    topology: Topology


def load_cluster(path: Path, command: str) -> Topology:
    """Return the topology of a file, or a topology of the catalog with `SLOTS` and `GPUS`."""
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
    """Split the comma-separated names that were given to the option with the name `kind`. Raises Failure."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    refuse(
        not names or len(set(names)) < len(names),
        f"--{kind} {text}: want different names, separated by commas",
    )
    return names


def decided(inputs: Inputs, settings: AllocationSettings, *, placed: bool) -> Allocator:
    """Place and route the jobs of the files as the controller does.

    Args:
        inputs: Jobs and cluster.
        settings: The policies, with their parameters.
        placed: Whether all jobs must have servers in the file. If not, the policy places the jobs that have
            none.

    Returns the allocator, which has the result. Raises Failure if the jobs of a server in the file need more
    GPUs than the server has; BadSpec.
    """
    with_servers = inputs.jobs if placed else tuple(job for job in inputs.jobs if job.servers)
    for job in with_servers:
        racks_of(inputs.topology, job)
    if crowded := overfull(inputs.topology, with_servers):
        raise Failure(f"{inputs.path}: {crowded}", USAGE)
    return allocate(inputs.topology, inputs.jobs, settings)


def one_job(name: str, jobs: Sequence[Job]) -> Job:
    """Return the job with this name. Raises Failure if there is none."""
    found = {job.name: job for job in jobs}
    refuse(name not in found, f"no job {name!r}: {hint(name, found)}")
    return found[name]


def explained(lines: Sequence[str], command: str, policy: str, job: str) -> Reply:
    """Return the reply of a command with ``--explain``.

    Args:
        lines: Sentences that explain the job's result.
        command: Name of the command.
        policy: Name of the policy, or the names of a combination of policies.
        job: Name of the job.
    """
    return Reply(Result(command, {"policy": policy, "job": job}, {"lines": list(lines)}), lines)
