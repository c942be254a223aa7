"""``ina topo run``: a job on the hosts of a testbed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from bmv2_topos import JobEntry, Topology
from controller.cli import options
from controller.cli.errors import USAGE, Failure
from controller.cli.execute import execute
from controller.cli.output import say
from controller.cli.run_options import MemoryOptions
from controller.cli.topo.topology import LinkOptions, Name
from controller.runtime.fabric import SwitchFabric, open_fabric
from controller.runtime.job_file import spec_of
from controller.runtime.spec import ATP, NAMELESS, SHARED, FabricSpec, LaunchSpec

if TYPE_CHECKING:
    from bmv2_topos.testbeds import netns

EPILOG = """Examples:

  sudo ina topo run fat-tree:4 -- python examples/digits.py

  sudo ina topo run lab -np 4 -- python train.py

  ina topo run two-racks:2 --runner loopback -- python examples/digits.py
"""


class Runner(StrEnum):
    """Where workers and switches run."""

    NETNS = "netns"
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
        typer.Option(help="netns: network namespaces, as root; loopback: UDP on this machine, without."),
    ] = Runner.NETNS,
    program: options.Program = "exclusive",
    lanes: options.Lanes = 256,
    json: options.Json = False,
    memory: MemoryOptions,
    links: LinkOptions,
) -> None:
    """Run a job on all hosts of a testbed, its gradients summed in the testbed's switches.

    A testbed of that name that is up is used, and stays up; program, lanes and links are then as it was
    brought up with. Otherwise one is brought up for the job, and taken down after it.
    """
    from bmv2_topos.testbeds import netns

    if runner is Runner.NETNS and netns.slug(topology) in netns.known():
        state = netns.find(netns.slug(topology))
        spec = FabricSpec(state.program.name, state.program.lanes, topology=state.topology)
        opened: AbstractContextManager[SwitchFabric] = netns.opened(state)
        shape = state.topology
    else:
        shape = links.topology(topology)
        spec = FabricSpec(program, lanes, topology=shape)
        chosen = netns.Program(program, lanes)
        opened = (
            _once(netns.slug(topology), shape, chosen) if runner is Runner.NETNS else open_fabric(spec, [])
        )
    if memory.preempt and (not spec.shared or spec.program == ATP):
        raise Failure(f"--preempt is for --program {SHARED}", exit_code=USAGE)
    entry = memory.overrides().of(JobEntry(name=NAMELESS, workers=_workers(shape, workers)))
    job = spec_of(LaunchSpec(command=command, workers=entry.workers), entry, slots=entry.slots)
    execute(spec, [job], switch=f"{runner} {shape.name}", as_json=json, opened=opened)


def _workers(topology: Topology, given: int | None) -> int:
    hosts = len(topology.hosts_for("worker"))
    if given is not None and given > hosts:
        raise Failure(f"-np {given}: the topology has {hosts} hosts for workers", exit_code=USAGE)
    return given or hosts


@contextlib.contextmanager
def _once(name: str, topology: Topology, program: netns.Program) -> Iterator[SwitchFabric]:
    """Bring a testbed up for as long as the context lasts."""
    from bmv2_topos.testbeds import netns

    state = netns.up(name, topology, program)
    try:
        with netns.opened(state) as fabric:
            yield fabric
    finally:
        netns.down(name)
        say(f"ina: testbed {name} is down")
