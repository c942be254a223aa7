"""``ina topo run``: jobs on the hosts of a testbed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Literal

import typer

from controller.vocabulary import BadSpec, Job, Topology
from ina.cli import job_files, options
from ina.cli.errors import USAGE, Failure
from ina.cli.execute import execute
from ina.cli.run_options import (
    JobName,
    JobsFile,
    Log,
    MemoryOptions,
    StragglerTimeout,
    Timeout,
    check,
    entries_of,
    launches,
)
from ina.cli.topo.topology import (
    Lanes,
    LinkOptions,
    Name,
    Pcap,
    Target,
    TargetOption,
    program_of,
)
from ina.runtime.fabric import SwitchFabric, server_at_root
from ina.runtime.spec import NAMELESS, FabricSpec, LaunchSpec

EPILOG = """Examples:

  ina topo run fat-tree:4 -- python examples/digits.py

  ina topo run lab -np 4 --priority 200 --preempt -- python train.py

  ina topo run lab --jobs examples/three_jobs.toml

  ina topo run two-racks:2 --runner loopback -- python examples/digits.py
"""


def run_(
    *,
    topology: Name,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Run this program in each worker; give it after --.", metavar="-- COMMAND"),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(*options.WORKERS, min=1, help="Set the number of workers. Default: one per host."),
    ] = None,
    jobs: JobsFile = None,
    name: JobName = NAMELESS,
    runner: Annotated[
        Literal["netns", "mininet", "loopback"],
        typer.Option(
            help="Use network namespaces as root (netns, mininet; see 'ina topo up'), or UDP on "
            "this machine (loopback)."
        ),
    ] = "netns",
    program: options.Program = "exclusive",
    lanes: Lanes = None,
    target: TargetOption = Target.EMBEDDED,
    pcap: Pcap = None,
    timeout: Timeout = 8.0,
    straggler_timeout: StragglerTimeout = 600.0,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed the random numbers of the links of a testbed that is started. Default: 0."),
    ] = None,
    log: Log = None,
    json: options.Json = False,
    memory: MemoryOptions,
    links: LinkOptions,
) -> None:
    """Run jobs on the hosts of a testbed, with gradients summed in its switches.

    Uses the testbed of that name if it is up, with the program, lanes and links that it was started with, and
    leaves it up. Otherwise starts a testbed for the jobs, and stops it afterwards. Jobs of several such
    commands may run at the same time, on different hosts.
    """
    from bmv2_topos.testbeds import netns
    from ina.runtime.programs import bundle
    from ina.runtime.testbed_fabric import opened as opened_testbed
    from ina.runtime.testbeds import live_runner

    entries = entries_of(jobs, command, workers, name)
    if runner != "loopback" and netns.slug(topology) in netns.known():
        state = netns.find(netns.slug(topology))
        for option, given in (("--pcap", pcap), ("--seed", seed)):
            if given is not None:
                raise Failure(
                    f"{option}: testbed {state.name} is already up; give {option} to 'ina topo up'",
                    exit_code=USAGE,
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
        unused_keys = job_files.unused_keys("topo", Path(topology), jobs) if json else None
        chosen = program_of(program, lanes, target, seed=seed or 0, pcap=pcap)
        opened = live_runner(runner).opened(netns.slug(topology), shape, chosen)
    spec = FabricSpec(chosen.name, chosen.lanes, topology=shape)
    if entries is None:
        alone = Job(name=name, workers=_workers(shape, workers), command=tuple(command or ()))
        entries = [memory.overrides().of(alone)]
    for entry in entries:
        _workers(shape, entry.workers)
    check(spec, [LaunchSpec(job=entry) for entry in entries])
    offers = bundle(chosen.name, chosen.lanes).offers()
    times = {"timeout_s": timeout, "straggler_timeout_s": straggler_timeout}
    if offers.shared:
        server_at_root(shape, offers)
    specs = launches(memory, entries, offers, of_file=jobs is not None, log=log, **times)
    execute(
        spec, specs, switch=f"{runner} {shape.name}", as_json=json, opened=opened, unused_keys=unused_keys
    )


def _workers(topology: Topology, given: int | None) -> int:
    hosts = len(topology.servers_for("worker"))
    if given is not None and given > hosts:
        raise Failure(
            f"-np {given}: want 1 to {hosts}, the hosts that the topology has for workers", exit_code=USAGE
        )
    return given or hosts
