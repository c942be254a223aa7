"""Common parts of the allocation commands: files, and policies by name or user-defined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from controller.core.allocator import Allocator, allocate
from controller.policies.memory import demand
from controller.policies.placement.policy import overfull
from controller.policies.placement.trees import racks_of
from controller.policies.settings import AllocationSettings
from controller.simulator.files import whole
from controller.vocabulary import Job, Topology, documents, named
from controller.vocabulary.documents import hint
from controller.vocabulary.files import check_job, write_jobs
from controller.vocabulary.graphs import with_memory
from ina.cli import job_files
from ina.cli.declared import Declared
from ina.cli.errors import USAGE, Failure
from ina.cli.output import check_plots
from ina.cli.plain import Reply, Result

SLOTS, GPUS = 8192, 8
"""Resources of switches and hosts in a topology of the testbeds, which does not give them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationFiles:
    """The jobs and the cluster for which policies decide."""

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
            parser=Path,  # and not looked for: it may name a topology
            metavar="FILE",
            help="Read servers, switches and links from this file: .toml, .json or .yaml; or name a "
            "topology of the testbeds, such as leaf-spine:2x4x8.",
        ),
    ]

    def load(self, command: str) -> Inputs:
        """Return jobs and cluster of the files; unused keys are reported for `command`.

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
    """The requested decision, and its output."""

    explain: Annotated[
        str | None,
        Declared(
            "--explain",
            metavar="JOB",
            help="Explain this job's result by the last policy, its limit and the gain from more resources, "
            "instead of printing tables.",
        ),
    ] = None
    plot: Annotated[
        Path | None,
        Declared(writable=True, metavar="FILE", help="Draw the decision: .png, .svg or .pdf."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing(Deciding):
    """The same for policies that draw at random; the decision is the input of the next command."""

    seed: Annotated[
        int, Declared(min=0, help="Seed the random numbers; the same seed gives the same result.")
    ] = 0
    write: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="FILE",
            help="Write the jobs with the decision (.json), as input of the next command.",
        ),
    ] = None

    def check(self) -> None:
        """Check output files before the work. Raises Failure."""
        if self.plot is not None:
            check_plots("--plot", self.plot)
        if self.write is not None and self.write.suffix != ".json":
            raise Failure(f"--write {self.write}: want a name that ends in .json", USAGE)

    def keep(self, jobs: Sequence[Job]) -> None:
        """Write the jobs, if that is asked for."""
        if self.write is not None:
            with whole(self.write) as draft:
                write_jobs(draft, jobs)


Margin = Annotated[
    float,
    Declared(
        help="Keep this share of the remaining time in reserve when computing what deadlines need, 0 to 1."
    ),
]
Reading = Annotated[
    demand.Reading,
    Declared(
        help="Compute how much memory a deadline needs. measured: a slot is held for the job's "
        "hold_s, and communication overlaps with computing; article: a slot is held for one "
        "round trip, and communication follows computing."
    ),
]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Contents of a command's files."""

    path: Path
    """The file of the jobs."""
    jobs: tuple[Job, ...]
    topology: Topology


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


def explained(lines: Sequence[str], command: str, policy: str, job: str) -> Reply:
    """Return the explanation of a job.

    Args:
        lines: Its sentences.
        command: Name of the command.
        policy: Name of the policy, or of all of them.
        job: Name of the job.
    """
    return Reply(Result(command, {"policy": policy, "job": job}, {"lines": list(lines)}), lines)
