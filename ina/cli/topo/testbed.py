"""``ina topo up``, ``run``, ``exec``, ``down`` and ``export``: start, use and stop testbeds."""

from __future__ import annotations

import json as json_module
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from bmv2_topos.testbeds import mininet, netns
from controller.vocabulary import BadSpec, dump_topology
from controller.vocabulary.files import topology_document
from ina.cli import job_files, options
from ina.cli.command import USAGE, Declared, Failure, Json, Reply, Result, refuse, say
from ina.cli.execute import execute
from ina.cli.run_options import JobsToRun, check
from ina.cli.topo.topology import LinkOptions, Name, TargetOption
from ina.run.launch.spec import FabricSpec, LaunchSpec
from ina.run.switches.fabric import SwitchFabric, server_at_root
from ina.run.switches.programs import bundle
from p4src.programs import is_file

Testbed = Annotated[
    str | None,
    Declared(
        "--name",
        metavar="NAME",
        help="Give the testbed's name. Default: the name of the topology, or the only testbed that is up.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TestbedProgram:
    """Options for the program of a testbed's switches, and for captures at the ports of the switches."""

    program: options.Program = "exclusive"
    lanes: Annotated[
        int | None,
        Declared(help="Put this many values into each packet: 32, 64 or 256. Default: 256, or 32 on BMv2."),
    ] = None
    target: TargetOption = "embedded"
    pcap: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="DIR",
            help="Capture the headers of packets at each switch port into this directory, for 'ina trace'.",
        ),
    ] = None

    def chosen(self, *, seed: int, instead: Path | None = None) -> netns.Program:
        """Return the switches' program, with lanes, kind of switch and captures.

        Args:
            seed: Seed of the links' random faults.
            instead: A .p4 file to use instead of --program.

        Raises Failure if the folder for captures cannot be made.
        """
        options.make_folder(self.pcap)
        where = str(self.pcap.resolve()) if self.pcap else ""
        name = str(instead or self.program)
        own = str(Path(name).resolve()) if is_file(name) else name  # a later command may run elsewhere
        lanes = self.lanes or netns.TARGETS[self.target].lanes
        return netns.Program(own, lanes, seed, self.target, where)


def one_name(argument: str | None, option: str | None) -> str | None:
    """Return the testbed's name, given as NAME or as ``--name``; None if neither is given.

    Raises Failure if they differ.
    """
    refuse(
        argument and option and netns.slug(argument) != option,
        f"NAME {argument} and --name {option} are two testbeds: give one",
    )
    return netns.slug(argument) if argument else option


@dataclass(frozen=True, slots=True, kw_only=True)
class UpSettings:
    """Options of 'ina topo up': a topology, and the testbed that is made of it."""

    topology: Name
    name: Testbed = None
    switches: TestbedProgram
    p4: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            help="Load this .p4 file; same as --program FILE. Table entries for ordinary forwarding are "
            "written if the program has the table InaIngress.forwarding.bridge, as ina's programs have.",
        ),
    ] = None
    runner: Annotated[
        Literal["netns", "mininet"],
        Declared(help="Make namespaces with iproute2 alone (netns), or as nodes of Mininet (mininet)."),
    ] = "netns"
    seed: options.Seed = 0
    dry_run: Annotated[
        bool, Declared("--dry-run", help="Print the commands that would run, and run none.")
    ] = False
    json: Json = False
    links: LinkOptions


def up(asked: UpSettings) -> Reply:
    """Start a testbed: one network namespace per host and per switch, with P4 switches.

    Hosts have the addresses that 'ina topo show' lists, and static neighbour entries for each other. Links
    have the rate, delay and loss of the topology. The testbed stays up until 'ina topo down'. Needs root.

    Examples:
        ina topo up fat-tree:4 --rate 1e9

        ina topo up leaf-spine --name lab --program shared --lanes 64

        ina topo up two-racks:2 --dry-run

        ina topo up single-switch --runner mininet

        ina topo up single-switch --p4 my.p4 --lanes 32

        ina topo up two-racks:2 --target bmv2 --runner mininet
    """
    refuse(asked.p4 is not None and not asked.p4.is_file(), f"--p4 {asked.p4}: there is no such file")
    refuse(
        asked.p4 is not None and asked.p4.suffix != ".p4", f"--p4 {asked.p4}: want a name that ends in .p4"
    )
    chosen = asked.switches.chosen(seed=asked.seed, instead=asked.p4)
    shape, called = asked.links.topology(asked.topology), asked.name or netns.slug(asked.topology)
    if not chosen.own:
        offers = bundle(chosen.name, chosen.lanes).offers()
        if offers.shared and shape.servers_for("fallback"):
            server_at_root(shape, offers)
        elif offers.shared and not asked.json:
            say(
                "ina: no host has the role fallback: 'ina topo run' needs one at the root; a controller can"
                " use any host"
            )
    commands_of, start = netns.commands_of, netns.up
    if asked.runner == "mininet":
        commands_of, start = mininet.commands_of, mininet.up
    unused_keys = job_files.unused_keys("topo", Path(asked.topology))
    if asked.dry_run:
        planned = [command.text for command in commands_of(called, shape, chosen)]
        setup = {"testbed": called, "runner": asked.runner, "dry_run": True}
        return Reply(Result("topo up", setup, {"commands": planned}, unused_keys=unused_keys), planned)
    state = start(called, shape, chosen, on_step=lambda text: None if asked.json else say(f"ina: {text}"))
    if not asked.json:
        which = f" --name {called}" if len(netns.known()) > 1 else ""
        say(f"ina: testbed {called} is up; try: ina topo exec {shape.servers[0].name}{which} -- ip address")
    sizes = {"switches": len(shape.switches), "hosts": len(shape.servers)}
    setup = {"testbed": called, "runner": state.runner}
    return Reply(Result("topo up", setup, sizes, unused_keys=unused_keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopoRunSettings:
    """Options of 'ina topo run': jobs, and the testbed on which they run."""

    topology: Name
    workers: Annotated[
        int | None,
        Declared(*options.WORKERS, min=1, help="Set the number of workers. Default: one per host."),
    ] = None
    run: JobsToRun
    runner: Annotated[
        Literal["netns", "mininet", "loopback"],
        Declared(
            help="Use network namespaces as root (netns, mininet; see 'ina topo up'), or UDP on "
            "this machine (loopback)."
        ),
    ] = "netns"
    switches: TestbedProgram
    seed: Annotated[
        int | None,
        Declared(help="Seed the random faults of links, if a testbed is started. Default: 0."),
    ] = None
    json: Json = False
    links: LinkOptions


def run(asked: TopoRunSettings) -> None:
    """Run jobs on the hosts of a testbed, with gradients summed in its switches.

    If a testbed with this name is up, uses it with the program, lanes and links with which it was started,
    and leaves it up. Otherwise starts a testbed for the jobs, and stops it afterwards. Several of these
    commands may run jobs on a testbed at the same time, on different hosts.

    Examples:
        ina topo run fat-tree:4 -- python examples/digits.py

        ina topo run lab -np 4 --priority 200 --preempt -- python train.py

        ina topo run lab --jobs examples/three_jobs.toml

        ina topo run two-racks:2 --runner loopback -- python examples/digits.py
    """
    from ina.run.switches.testbeds import live_runner
    from ina.run.switches.testbeds import opened as opened_testbed

    if asked.runner != "loopback" and netns.slug(asked.topology) in netns.known():
        state = netns.find(netns.slug(asked.topology))
        for option, given in (("--pcap", asked.switches.pcap), ("--seed", asked.seed)):
            refuse(
                given is not None,
                f"{option}: testbed {state.name} is already up; give {option} to 'ina topo up'",
            )
        chosen = state.program
        opened: AbstractContextManager[SwitchFabric] = opened_testbed(state)
        shape, unused_keys = state.topology, None
    else:
        try:
            shape = asked.links.topology(asked.topology)
        except BadSpec as error:
            up = netns.known()
            raise Failure(f"{error}; testbeds that are up: {', '.join(up) or 'none'}", USAGE) from None
        unused_keys = job_files.unused_keys("topo", Path(asked.topology), asked.run.jobs)
        chosen = asked.switches.chosen(seed=asked.seed or 0)
        opened = live_runner(asked.runner).opened(netns.slug(asked.topology), shape, chosen)
    spec = FabricSpec(chosen.name, chosen.lanes, topology=shape)
    hosts = len(shape.servers_for("worker"))
    entries = asked.run.entries(asked.workers, default=hosts)
    for entry in entries:
        refuse(
            entry.workers > hosts,
            f"-np {entry.workers}: want 1 to {hosts}, the hosts that the topology has for workers",
        )
    check(spec, [LaunchSpec(job=entry) for entry in entries])
    offers = bundle(chosen.name, chosen.lanes).offers()
    if offers.shared:
        server_at_root(shape, offers)
    specs = asked.run.launches(entries, offers)
    execute(
        spec,
        specs,
        switch=f"{asked.runner} {shape.name}",
        as_json=asked.json,
        opened=opened,
        unused_keys=unused_keys,
    )


def exec_(
    *,
    node: Annotated[
        str, Declared(argument=True, metavar="NODE", help="Use this host or switch of the testbed.")
    ],
    command: Annotated[
        list[str], Declared(argument=True, metavar="-- COMMAND", help="Run this command; give it after --.")
    ],
    name: Testbed = None,
) -> None:
    """Run a command in the namespace of a host or a switch, and exit with its status.

    Examples:
        ina topo exec h1 -- ip neighbour

        ina topo exec s1 --name lab -- tcpdump -i s1-eth1
    """
    netns.execute(netns.find(name), node, command)


def down(
    *,
    name: Annotated[
        str | None,
        Declared(argument=True, metavar="NAME", help="Name the testbed. Default: the only one that is up."),
    ] = None,
    testbed: Testbed = None,
    all_: Annotated[bool, Declared("--all", help="Stop all known testbeds.")] = False,
) -> None:
    """Stop a testbed: end its processes, and remove its namespaces and files.

    Also removes the parts of a testbed that was not completely started or stopped. Without NAME, succeeds if
    no testbed is up.

    Examples:
        ina topo down fat-tree:4

        ina topo down --all
    """
    given = one_name(name, testbed)
    names = [given] if given else netns.known()
    if not given and not all_ and len(names) > 1:
        raise netns.NoTestbed(f"several testbeds are up: {', '.join(names)}; give one NAME, or --all")
    for each in names:
        if not netns.down(each):
            raise netns.missing(each)
        say(f"ina: testbed {each} is down")


def export(
    *,
    name: Annotated[
        str | None,
        Declared(argument=True, metavar="NAME", help="Name the testbed. Default: the only one that is up."),
    ] = None,
    testbed: Testbed = None,
    json: Annotated[bool, Declared("--json", help="Print JSON instead of YAML.")] = False,
) -> None:
    """Print a running testbed as a cluster file: its switches, its machines, their ports and addresses.

    'ina admit' and 'ina run --hosts' read the file, given as --cluster or in INA_CLUSTER.

    Examples:
        ina topo up two-racks:2 --program shared

        ina topo export > lab.yaml

        ina topo export two-racks-2 --json > lab.json
    """
    found = netns.cluster_topology(netns.find(one_name(name, testbed)))
    if json:
        print(json_module.dumps(topology_document(found), indent=1))
    else:
        print(dump_topology(found), end="")
