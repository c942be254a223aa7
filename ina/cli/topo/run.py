"""``ina topo run``: a job on the hosts of a testbed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from controller.vocabulary import Job, Topology
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.execute import execute
from ina.cli.run_options import MemoryOptions
from ina.cli.topo.topology import (
    Lanes,
    LinkOptions,
    Name,
    Pcap,
    Target,
    TargetOption,
    program_of,
)
from ina.runtime.fabric import SwitchFabric
from ina.runtime.job_file import spec_of
from ina.runtime.run_log import begin_log
from ina.runtime.spec import ATP, NAMELESS, SHARED, FabricSpec, LaunchSpec

EPILOG = """Examples:

  sudo ina topo run fat-tree:4 -- python examples/digits.py

  sudo ina topo run lab -np 4 -- python train.py

  ina topo run two-racks:2 --runner loopback -- python examples/digits.py
"""


class Runner(StrEnum):
    """Where workers and switches run."""

    NETNS = "netns"
    MININET = "mininet"
    LOOPBACK = "loopback"


def run_(
    *,
    topology: Name,
    command: Annotated[list[str], typer.Argument(help="The worker program, after --.", metavar="-- COMMAND")],
    workers: Annotated[
        int | None, typer.Option(*options.WORKERS, min=1, help="Number of workers; all hosts unless given.")
    ] = None,
    runner: Annotated[
        Runner,
        typer.Option(help="netns, mininet: as of 'ina topo up', as root; loopback: UDP on this machine."),
    ] = Runner.NETNS,
    program: options.Program = "exclusive",
    lanes: Lanes = None,
    target: TargetOption = Target.EMBEDDED,
    pcap: Pcap = None,
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a line of JSON about each collective of each worker."),
    ] = None,
    json: options.Json = False,
    memory: MemoryOptions,
    links: LinkOptions,
) -> None:
    """Run a job on all hosts of a testbed, its gradients summed in the testbed's switches.

    A testbed of that name that is up is used, and stays up; program, lanes and links are then as it was
    brought up with. Otherwise one is brought up for the job, and taken down after it.
    """
    from bmv2_topos.testbeds import netns
    from ina.runtime.testbed_fabric import opened as opened_testbed
    from ina.runtime.testbeds import live_runner

    if runner is not Runner.LOOPBACK and netns.slug(topology) in netns.known():
        state = netns.find(netns.slug(topology))
        if pcap is not None:
            raise Failure(f"--pcap: testbed {state.name} is up; give it to 'ina topo up'", exit_code=USAGE)
        spec = FabricSpec(state.program.name, state.program.lanes, topology=state.topology)
        opened: AbstractContextManager[SwitchFabric] = opened_testbed(state)
        shape = state.topology
    else:
        shape = links.topology(topology)
        chosen = program_of(program, lanes, target, pcap=pcap)
        spec = FabricSpec(program, chosen.lanes, topology=shape)
        opened = live_runner(runner.value).opened(netns.slug(topology), shape, chosen)
    if memory.preempt and (not spec.shared or spec.program == ATP):
        raise Failure(f"--preempt is for --program {SHARED}", exit_code=USAGE)
    entry = memory.overrides().of(Job(name=NAMELESS, workers=_workers(shape, workers)))
    job = spec_of(LaunchSpec(command=command, workers=entry.workers), entry, slots=entry.slots)
    if log is not None:
        job = replace(job, log=str(begin_log(log)))
    execute(spec, [job], switch=f"{runner} {shape.name}", as_json=json, opened=opened)


def _workers(topology: Topology, given: int | None) -> int:
    hosts = len(topology.servers_for("worker"))
    if given is not None and given > hosts:
        raise Failure(f"-np {given}: the topology has {hosts} hosts for workers", exit_code=USAGE)
    return given or hosts
