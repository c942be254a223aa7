"""Options that commands of ``ina schedule`` share: policies, jobs, servers, measured models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from controller.policies.family import SimulationConfig
from controller.policies.registry import check_known, check_settings, parse_setting
from controller.simulator.clusters import read_cluster, uniform
from controller.simulator.files import whole
from controller.simulator.runs import (
    LARGEST_SEED,
    MOST_JOBS,
    SimulationOutcome,
    Source,
    kind_for,
    known_to,
    write_rows,
)
from controller.simulator.traces import FORMATS
from controller.vocabulary import BadSpec, Cluster
from ina.cli import job_files
from ina.cli.command import Declared, failing_at, refuse

CLUSTER = "Cluster"
PROFILES = "Measured models"

OWN = "'ina schedule policies' lists them; or one of your own: path.py:NAME or package.module:NAME."
Policy = Annotated[str, Declared(metavar="NAME", help=f"Use this policy; {OWN}")]
Policies = Annotated[str, Declared(metavar="NAMES", help=f"Compare these comma-separated policies; {OWN}")]
Seed = Annotated[
    int,
    Declared(min=0, max=LARGEST_SEED, help="Seed the random numbers; the same seed gives the same result."),
]
Load = Annotated[
    float | None,
    Declared(
        metavar="FACTOR",
        help="Scale the load: for generated jobs, the offered load relative to the cluster's "
        "capacity (default: 1.2); for a trace, a factor on its arrival rate (default: 1).",
    ),
]
Settings = Annotated[
    list[str] | None,
    Declared(
        "--set",
        metavar="NAME=VALUE",
        help="Set this parameter of a policy; 'ina schedule policies --all' lists them. Repeatable.",
    ),
]
Processes = Annotated[int, Declared(min=0, help="Run this many simulations at a time; 0: one per core.")]
Nodes = Annotated[int, Declared(min=1, rich_help_panel=CLUSTER, help="Set the number of servers.")]
Verify = Annotated[
    bool,
    Declared(
        "--verify", help="Check every decision of the scheduler: no GPU and no job is used twice. Slower."
    ),
]
JobsCsv = Annotated[
    Path | None,
    Declared(
        "--jobs-csv",
        writable=True,
        metavar="FILE",
        help="Write one row per job to this file: arrival, start, end, waiting, slowdown, GPUs, "
        "preemptions; as JSON if the name ends in .json.",
    ),
]
Format = Annotated[
    str,
    Declared(
        help=f"Read the trace in this format: {', '.join(FORMATS)}. Default: the format that "
        "its first line shows."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOptions:
    """Options for the source of the jobs: a trace, or the generator."""

    trace: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            help="Read the jobs from this file: CSV, TOML or a public trace.",
        ),
    ] = None
    generated: Annotated[
        int,
        Declared(
            "--generate",
            metavar="JOBS",
            min=1,
            max=MOST_JOBS,
            help="Generate this many jobs of one minute to one day, unless --trace is given.",
        ),
    ] = 500
    format: Format = ""

    def offered(
        self, policies: Sequence[str], around: SimulationConfig, *, load: float | None = None, seed: int = 0
    ) -> tuple[Source, int]:
        """Return the source of the jobs, and the number of jobs.

        Reads all jobs, so that their errors are reported once, before processes are started.

        Args:
            policies: Names of the policies.
            around: The configuration of the simulations.
            load: Offered load, or a factor on a trace's arrival rate; None: 1.2 for generated jobs, 1 for a
                trace.
            seed: Seed of generated jobs.

        Raises the errors that `controller.simulator.runs.refusals` handles.
        """
        if self.trace is None:
            factor = 1.2 if load is None else load
            source = Source(None, self.format, self.generated, factor, seed, kind_for(policies))
            return source, len(source.jobs(around))
        factor = 1.0 if load is None else load
        source = Source(self.trace, self.format, self.generated, factor, seed)
        return source, len(source.jobs(around, known_to(policies, around)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Options for the servers of the cluster."""

    nodes: Nodes = 8
    gpus: Annotated[
        int, Declared(min=1, rich_help_panel=CLUSTER, help="Set the number of GPUs per server.")
    ] = 8
    cluster: Annotated[
        Path | None,
        Declared(
            "--cluster",
            metavar="FILE",
            rich_help_panel=CLUSTER,
            help="Read the servers from this file (TOML or CSV). Ignores the options that describe servers.",
        ),
    ] = None
    cpus_per_gpu: Annotated[
        float, Declared(rich_help_panel=CLUSTER, help="Set the number of CPUs per GPU.")
    ] = 3.0
    memory_per_gpu: Annotated[
        float, Declared(metavar="GB", rich_help_panel=CLUSTER, help="Set the memory per GPU, in GB.")
    ] = 62.5

    def servers(self) -> Cluster:
        """Return the cluster that the options describe. Raises BadSpec or BadTrace."""
        if self.cluster is not None:
            return read_cluster(self.cluster)
        return uniform(
            self.nodes,
            self.gpus,
            cpus=self.gpus * self.cpus_per_gpu,
            memory_gb=self.gpus * self.memory_per_gpu,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Options for files with measurements of models, and with expected durations of jobs."""

    matrix: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            rich_help_panel=PROFILES,
            help="Read the sensitivity matrices of synergy policies from this file.",
        ),
    ] = None
    profiles: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            rich_help_panel=PROFILES,
            help="Read the resource usage of model configurations, for lucid policies, from this file.",
        ),
    ] = None
    pairs: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            rich_help_panel=PROFILES,
            help="Read the speeds of pairs of jobs on one GPU, for lucid and sharing policies, from this "
            "file; sharing policies also read Gavel's JSON.",
        ),
    ] = None
    estimates: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            rich_help_panel=PROFILES,
            help="Read the expected durations of the trace's jobs from this file: columns name and "
            "estimate_s, or Lucid's job_id and priority.",
        ),
    ] = None

    def config(
        self, cluster: Cluster, policies: Sequence[str], settings: Sequence[str] | None, *, seed: int = 0
    ) -> SimulationConfig:
        """Return the configuration of the policies' simulations.

        Args:
            cluster: The servers.
            policies: Names of the policies.
            settings: Parameters of the policies, each ``NAME=VALUE``; None: the defaults.
            seed: Seed of synthetic measurements, and of models that are trained.

        Raises Failure.
        """
        chosen = parse_settings(settings, policies)
        with failing_at("--profiles, --pairs", BadSpec):
            return SimulationConfig(
                cluster, self.matrix, self.profiles, self.pairs, seed, self.estimates, chosen
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleInputs:
    """Options for the jobs, the servers and the measured models of simulations."""

    workload: WorkloadOptions
    cluster: ClusterOptions
    models: ModelOptions
    settings: Settings = None
    jobs_csv: JobsCsv = None

    def config(self, policies: Sequence[str], *, seed: int = 0) -> SimulationConfig:
        """Return the configuration of the policies' simulations. Raises Failure, BadSpec or BadTrace."""
        return self.models.config(self.cluster.servers(), policies, self.settings, seed=seed)

    def note(self, command: str) -> list[str]:
        """Report and return the keys in the files of jobs and servers that `command` does not use."""
        return job_files.note(command, self.workload.trace, self.cluster.cluster)

    def keep(self, outcomes: Sequence[SimulationOutcome]) -> None:
        """Write a row for each job if --jobs-csv is given."""
        if self.jobs_csv is not None:
            with whole(self.jobs_csv) as draft:
                write_rows(draft, outcomes)


def parse_settings(texts: Sequence[str] | None, policies: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """Return the pairs (name, value) that were given to ``--set``.

    Raises Failure for a parameter that none of these policies has, or an invalid value.
    """
    with failing_at("--set", BadSpec):
        chosen = tuple(parse_setting(text) for text in texts or ())
        check_settings(chosen, policies)
    return chosen


def parse_policies(text: str) -> list[str]:
    """Return the policy names given to ``--policy``. Raises Failure if a name is unknown or given twice."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    refuse(not names, "--policy: no policy given; 'ina schedule policies' lists them")
    for name in names:
        with failing_at("--policy", BadSpec):
            check_known(name)
        refuse(names.count(name) > 1, f"--policy: {name!r} is given twice")
    return names


def parse_policy(text: str) -> str:
    """Return the policy name given to ``--policy``. Raises Failure for an unknown name, or several names."""
    name, *others = parse_policies(text)
    refuse(others, f"--policy {text}: want one policy")
    return name
