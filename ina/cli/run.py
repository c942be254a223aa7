"""``ina run``: runs training jobs whose gradients are summed in switches."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from ina.cli import options
from ina.cli.cluster_options import MACHINES, cluster_of, ranks_on, required
from ina.cli.command import Declared, Json, refuse
from ina.cli.execute import execute
from ina.cli.run_options import FabricOptions, JobsToRun, check
from ina.run.launch.spec import SSH, Captures, FabricSpec, LaunchSpec
from ina.run.switches.programs import settled


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFabric(FabricOptions):
    """Options of 'ina run' for switches, with its own help for --program."""

    program: Annotated[
        str | None,
        Declared(
            show_default="exclusive, or what --switch ADDRESS runs",
            help=f"{options.PROGRAM} Defaults to exclusive with 256 lanes, the fastest in software; "
            "'ina sim' defaults to shared with 64 lanes, because simulations are mostly of jobs that "
            "compete for slots.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Options of 'ina run': jobs, and the switches and machines on which they run."""

    workers: Annotated[
        int | None,
        Declared(
            *options.WORKERS,
            help="Set the number of workers, 1 to 32 per switch. Default: 1, or all machines of --tree.",
        ),
    ] = None
    run: JobsToRun
    cluster: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            help="Read the network from this file, instead of --tree; each server carries one worker.",
        ),
    ] = None
    json: Json = False
    hosts: Annotated[
        str | None,
        Declared(
            metavar="NAME,…|FILE",
            rich_help_panel=MACHINES,
            help="Run the ranks on these machines of the file --cluster (or INA_CLUSTER): h1,h2; with "
            "numbers of ranks, h1:2,h2:2; or a file with a line for each machine: h1 slots=2. The switches "
            "of the cluster file must run. With -np, ranks are spread over the machines.",
        ),
    ] = None
    launch_with: Annotated[
        str,
        Declared(
            metavar="TEMPLATE",
            rich_help_panel=MACHINES,
            help="With --hosts: start processes on a machine with this command, "
            "such as 'srun -w {host} {command}'.",
        ),
    ] = SSH
    listen: Annotated[
        str | None,
        Declared(
            metavar="IP",
            rich_help_panel=MACHINES,
            help="With --hosts: set the address of this machine to which the ranks connect at their start. "
            "Default: the address from which this machine reaches the first one of --hosts.",
        ),
    ] = None
    fabric: RunFabric
    captures: options.PcapOptions

    def captured(self) -> Captures | None:
        """Return the folder and the limits of captures; None: nothing is captured. Raises Failure."""
        if self.captures.pcap is None:
            return None
        return Captures(self.captures.pcap.absolute(), self.captures.limit(), self.captures.pcap_snap)


def run(asked: RunSettings) -> None:
    """Run training jobs whose gradients are summed inside P4 switches.

    Starts the switches, or uses a running one, and, for the program shared, starts a fallback server. Admits
    the jobs, starts their workers, each with its configuration in the environment variable INA_JOB, and stops
    all processes at the end. If a job fails, the other jobs go on. If the command is interrupted, it prints
    the summary so far. Options override the file of --jobs.

    Examples:
        ina run -np 4 -- python examples/digits.py

        ina run -np 4 --loss 0.05 --seed 7 -- python examples/digits.py

        ina run --program shared --preempt --slots 64 --jobs examples/three_jobs.toml

        ina run --program shared --tree 2x4 --link-loss 0.01 -- python examples/digits.py

        ina run -np 2 --program shared --loss 0.01 --pcap captures -- python examples/digits.py

        ina run -np 2 --switch grpc://127.0.0.1:9559 --json -- python train.py

        ina run --hosts n1:2,n2:2 --cluster lab.yaml -- python train.py

        ina run -np 2 --switch grpc://switch.lab:9559 --tls-ca ca.pem -- python train.py
    """
    fabric = asked.fabric.fabric(captures=asked.captured(), cluster=asked.hosts is not None)
    if asked.hosts is not None:
        _run_on_machines(asked, fabric, asked.hosts)
        return
    if asked.cluster is not None:
        refuse(fabric.tree or fabric.attached, "--cluster, --tree and --switch are mutually exclusive")
        from ina.cli import job_files  # also loads the readers of files

        fabric = replace(fabric, topology=job_files.topology(str(asked.cluster), "run"))
    entries = asked.run.entries(asked.workers, default=math.prod(fabric.tree))  # 1 without a tree
    check(fabric, [LaunchSpec(job=entry) for entry in entries])
    fabric, offers = settled(fabric)  # after all checks that need no switch
    specs = asked.run.launches(entries, offers)
    options.make_folder(asked.captures.pcap)  # fail once, before any process starts
    unused_keys = _unused(asked) if asked.json else None
    execute(fabric, specs, switch=asked.fabric.switches.switch, as_json=asked.json, unused_keys=unused_keys)


def _unused(settings: RunSettings) -> list[str]:
    from ina.cli import job_files

    return job_files.unused_keys("run", settings.run.jobs, settings.cluster)


def _run_on_machines(settings: RunSettings, fabric: FabricSpec, hosts: str) -> None:
    """Run COMMAND on the machines `hosts` of a cluster file, with the running switches of that file."""
    refuse(
        settings.run.jobs or settings.run.log or not settings.run.command,
        "--hosts needs -- COMMAND..., and excludes --jobs and --log",
    )
    from ina.run.switches import cluster_fabric  # also loads the agents

    running = cluster_of(required(settings.cluster, "--hosts"), fabric, settings.fabric, settings.listen)
    ranks = ranks_on(hosts, settings.workers)
    spec = LaunchSpec(
        job=settings.run.alone(ranks.size),
        machines=ranks.ranks,
        places=ranks.machines,
        hierarchical=ranks.several,
    )
    spec = settings.run.times.of(spec)
    check(fabric, [spec])
    opened = cluster_fabric.opened(fabric, running, ranks.machines, settings.launch_with)
    name = f"cluster {running.topology.name}".strip()
    execute(fabric, [spec], switch=name, as_json=settings.json, opened=opened)
