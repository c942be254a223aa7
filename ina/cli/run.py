"""``ina run``: training jobs, their gradients summed in switches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ina.cli import job_files, options
from ina.cli.cluster_options import MACHINES, cluster_of, ranks_on, required
from ina.cli.errors import USAGE, Failure
from ina.cli.execute import execute
from ina.cli.pcap_options import PcapOptions
from ina.cli.run_options import (
    FaultOptions,
    JobName,
    JobsFile,
    Log,
    MemoryOptions,
    StragglerTimeout,
    SwitchOptions,
    Timeout,
    check,
    entries_of,
    fabric_of,
    launches,
    only_job,
)
from ina.runtime import cluster_fabric
from ina.runtime.agents import SSH
from ina.runtime.programs import settled
from ina.runtime.spec import NAMELESS, Captures, LaunchSpec

EPILOG = """Examples:

  ina run -np 4 -- python examples/digits.py

  ina run -np 4 --loss 0.05 --seed 7 -- python examples/digits.py

  ina run --program shared --preempt --slots 64 --jobs examples/three_jobs.toml

  ina run --program shared --tree 2x4 --link-loss 0.01 -- python examples/digits.py

  ina run -np 2 --program shared --loss 0.01 --pcap captures -- python examples/digits.py

  ina run -np 2 --switch grpc://127.0.0.1:9559 --json -- python train.py

  ina run --hosts n1:2,n2:2 --cluster lab.yaml -- python train.py

  ina run -np 2 --switch grpc://switch.lab:9559 --tls-ca ca.pem -- python train.py
"""


def run(
    *,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Run this program in each worker; give it after --.", metavar="-- COMMAND"),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            *options.WORKERS,
            help="Set the number of workers, 1 to 32 per switch. Default: 1, or all machines of --tree.",
        ),
    ] = None,
    jobs: JobsFile = None,
    name: JobName = NAMELESS,
    cluster: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Read the network from this file, instead of --tree; each server carries one worker.",
        ),
    ] = None,
    program: Annotated[
        str | None,
        typer.Option(
            show_default="exclusive, or what --switch ADDRESS runs",
            help=f"{options.PROGRAM} Defaults to exclusive with 256 lanes, the fastest in software; "
            "'ina sim' defaults to shared with 64 lanes, because simulations are mostly of jobs that "
            "compete for slots.",
        ),
    ] = None,
    lanes: options.OpenLanes = None,
    timeout: Timeout = 8.0,
    straggler_timeout: StragglerTimeout = 600.0,
    json: options.Json = False,
    log: Log = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…|FILE",
            rich_help_panel=MACHINES,
            help="Run the ranks on these machines of the file --cluster (or INA_CLUSTER): h1,h2, with "
            "numbers of ranks h1:2,h2:2, or a file with a line for each: h1 slots=2. The switches of the "
            "cluster file must run. With -np, ranks are spread over the machines.",
        ),
    ] = None,
    launch_with: Annotated[
        str,
        typer.Option(
            metavar="TEMPLATE",
            rich_help_panel=MACHINES,
            help="With --hosts: start processes on a machine with this command, "
            "such as 'srun -w {host} {command}'.",
        ),
    ] = SSH,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="IP",
            rich_help_panel=MACHINES,
            help="With --hosts: meet the ranks at this address of this machine. Default: the one by which it "
            "reaches the first machine.",
        ),
    ] = None,
    memory: MemoryOptions,
    switches: SwitchOptions,
    tls: options.TlsOptions,
    faults: FaultOptions,
    captures: PcapOptions,
) -> None:
    """Run training jobs whose gradients are summed inside P4 switches.

    Starts the switches, or uses a running one, and starts a fallback server for the shared program. Admits
    the jobs, starts their workers, each with its configuration in the environment variable INA_JOB, and stops
    everything at the end. If a job fails, the others go on. If the command is interrupted, it prints the
    summary so far. Options override what the file of --jobs says.
    """
    fabric = fabric_of(
        program,
        lanes,
        switches,
        tls,
        faults,
        captures=_captures(captures),
        cluster=hosts is not None,
    )
    if hosts is not None:
        if jobs or log or not command:
            raise Failure("--hosts needs -- COMMAND..., and excludes --jobs and --log", exit_code=USAGE)
        running = cluster_of(required(cluster, "--hosts"), fabric, switches, tls, listen)
        asked = ranks_on(hosts, workers)
        job = replace(only_job(memory.overrides(), asked.size, (), command), name=name)
        spec = LaunchSpec(
            job=job,
            machines=asked.ranks,
            places=asked.machines,
            hierarchical=asked.several,
            timeout_s=timeout,
            straggler_timeout_s=max(timeout, straggler_timeout),
        )
        check(fabric, [spec])
        opened = cluster_fabric.opened(fabric, running, asked.machines, launch_with)
        execute(
            fabric, [spec], switch=f"cluster {running.topology.name}".strip(), as_json=json, opened=opened
        )
        return
    if cluster is not None:
        if fabric.tree or fabric.attached:
            raise Failure("--cluster, --tree and --switch are mutually exclusive", exit_code=USAGE)
        fabric = replace(fabric, topology=job_files.topology(str(cluster), "run"))
    entries = entries_of(jobs, command, workers, name)
    if entries is None:
        entries = [replace(only_job(memory.overrides(), workers, fabric.tree, command or ()), name=name)]
    check(fabric, [LaunchSpec(job=entry) for entry in entries])
    fabric, offers = settled(fabric)  # after all that asks nobody
    times = {"timeout_s": timeout, "straggler_timeout_s": straggler_timeout}
    specs = launches(memory, entries, offers, of_file=jobs is not None, log=log, **times)
    if captures.pcap is not None:
        _make_folder(captures.pcap)
    unused_keys = job_files.unused_keys("run", jobs, cluster) if json else None
    execute(fabric, specs, switch=switches.switch, as_json=json, unused_keys=unused_keys)


def _captures(captures: PcapOptions) -> Captures | None:
    if captures.pcap is None:
        return None
    return Captures(captures.pcap.absolute(), captures.limit(), captures.pcap_snap)


def _make_folder(pcap: Path) -> None:
    """Make the folder now: a bad one is one error, before anything starts. Raises Failure."""
    try:
        pcap.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"--pcap {pcap}: {error.strerror}") from error
