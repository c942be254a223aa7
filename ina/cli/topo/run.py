"""``ina topo run``: a job on the hosts of a testbed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from controller.vocabulary import BadSpec, Job, Topology
from ina.cli import job_files, options
from ina.cli.errors import USAGE, Failure
from ina.cli.execute import execute
from ina.cli.run_options import MemoryOptions, check_preempt
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
from ina.runtime.run_log import begin_log
from ina.runtime.spec import NAMELESS, FabricSpec, LaunchSpec

EPILOG = """Examples:

  ina topo run fat-tree:4 -- python examples/digits.py

  ina topo run lab -np 4 -- python train.py

  ina topo run two-racks:2 --runner loopback -- python examples/digits.py
"""


class Runner(StrEnum):
    """Kinds of places where workers and switches run."""

    NETNS = "netns"
    MININET = "mininet"
    LOOPBACK = "loopback"


def run_(
    *,
    topology: Name,
    command: Annotated[
        list[str],
        typer.Argument(help="Run this program in each worker; give it after --.", metavar="-- COMMAND"),
    ],
    workers: Annotated[
        int | None,
        typer.Option(*options.WORKERS, min=1, help="Set the number of workers. Default: one per host."),
    ] = None,
    runner: Annotated[
        Runner,
        typer.Option(
            help="Use network namespaces as root (netns, mininet; see 'ina topo up'), or UDP on "
            "this machine (loopback)."
        ),
    ] = Runner.NETNS,
    program: options.Program = "exclusive",
    lanes: Lanes = None,
    target: TargetOption = Target.EMBEDDED,
    pcap: Pcap = None,
    log: Annotated[
        Path | None,
        typer.Option(
            writable=True,
            metavar="FILE",
            help="Write one line of JSON per collective and worker to this file; replaces the file.",
        ),
    ] = None,
    json: options.Json = False,
    memory: MemoryOptions,
    links: LinkOptions,
) -> None:
    """Run a job on the hosts of a testbed, with gradients summed in its switches.

    Uses the testbed of that name if it is up, with the program, lanes and links that it was started with, and
    leaves it up. Otherwise starts a testbed for the job, and stops it afterwards.
    """
    from bmv2_topos.testbeds import netns
    from ina.runtime.programs import bundle
    from ina.runtime.testbed_fabric import opened as opened_testbed
    from ina.runtime.testbeds import live_runner

    if runner is not Runner.LOOPBACK and netns.slug(topology) in netns.known():
        state = netns.find(netns.slug(topology))
        if pcap is not None:
            raise Failure(
                f"--pcap: testbed {state.name} is already up; give --pcap to 'ina topo up'", exit_code=USAGE
            )
        chosen = state.program
        opened: AbstractContextManager[SwitchFabric] = opened_testbed(state)
        shape, unused_keys = state.topology, None
    else:
        try:
            shape = links.topology(topology)
        except BadSpec as error:
            up = netns.known()
            raise Failure(
                f"{error}; testbeds that are up: {', '.join(up)}" if up else str(error), USAGE
            ) from None
        unused_keys = job_files.unused_keys("topo", Path(topology)) if json else None
        chosen = program_of(program, lanes, target, pcap=pcap)
        opened = live_runner(runner.value).opened(netns.slug(topology), shape, chosen)
    spec = FabricSpec(chosen.name, chosen.lanes, topology=shape)
    check_preempt(memory.preempt, bundle(chosen.name, chosen.lanes).offers())
    alone = Job(name=NAMELESS, workers=_workers(shape, workers), command=tuple(command))
    job = LaunchSpec(job=memory.overrides().of(alone), log=None if log is None else str(begin_log(log)))
    execute(
        spec, [job], switch=f"{runner} {shape.name}", as_json=json, opened=opened, unused_keys=unused_keys
    )


def _workers(topology: Topology, given: int | None) -> int:
    hosts = len(topology.servers_for("worker"))
    if given is not None and given > hosts:
        raise Failure(
            f"-np {given}: want 1 to {hosts}, the hosts that the topology has for workers", exit_code=USAGE
        )
    return given or hosts
