"""``ina topo up``: start a testbed that runs until 'ina topo down'."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ina.cli import job_files, options
from ina.cli.errors import USAGE, Failure
from ina.cli.plain import Result, say
from ina.cli.topo.topology import (
    Lanes,
    LinkOptions,
    Name,
    Pcap,
    Target,
    TargetOption,
    Testbed,
    made_by,
    program_of,
)

EPILOG = """Examples:

  ina topo up fat-tree:4 --rate 1e9

  ina topo up leaf-spine --name lab --program shared --lanes 64

  ina topo up two-racks:2 --dry-run

  ina topo up single-switch --runner mininet

  ina topo up single-switch --p4 my.p4 --lanes 32

  ina topo up two-racks:2 --target bmv2 --runner mininet
"""


def up_(
    *,
    topology: Name,
    name: Testbed = None,
    program: options.Program = "exclusive",
    lanes: Lanes = None,
    target: TargetOption = Target.EMBEDDED,
    p4: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Load this .p4 file, as --program FILE does. A program without aggregation gets the entries "
            "for forwarding, if it has the tables.",
        ),
    ] = None,
    runner: Annotated[
        Literal["netns", "mininet"],
        typer.Option(help="Make namespaces with iproute2 alone (netns), or as nodes of Mininet (mininet)."),
    ] = "netns",
    seed: options.Seed = 0,
    pcap: Pcap = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands that would run, and run none.")
    ] = False,
    json: options.Json = False,
    links: LinkOptions,
) -> None:
    """Start a testbed: one network namespace per host and per switch, with P4 switches.

    Hosts have the addresses that 'ina topo show' lists, and static neighbour entries for each other. Links
    have the rate, delay and loss of the topology. The testbed stays up until 'ina topo down'. Needs root.
    """
    import softswitch
    from bmv2_topos.testbeds import netns
    from ina.runtime.fabric import server_at_root
    from ina.runtime.programs import bundle

    if p4 is not None and not p4.is_file():
        raise Failure(f"--p4 {p4}: there is no such file", exit_code=USAGE)
    if p4 is not None and p4.suffix != ".p4":
        raise Failure(f"--p4 {p4}: want a name that ends in .p4", exit_code=USAGE)
    chosen = program_of(str(p4.resolve()) if p4 else program, lanes, target, seed=seed, pcap=pcap)
    shape, called = links.topology(topology), name or netns.slug(topology)
    if not chosen.own and (offers := bundle(chosen.name, chosen.lanes).offers()).shared:
        if shape.servers_for("fallback"):  # without any, the testbed is for jobs that bring their own
            server_at_root(shape, offers)
    elif target is Target.EMBEDDED:  # what is wrong with a program is one error, before anything starts
        for own in {chosen.name, *(each.program for each in shape.switches if each.program)}:
            bundle(own, chosen.lanes)
    testbeds = made_by(runner)
    if dry_run:
        planned = [command.text for command in testbeds.planned(called, shape, chosen)]
        if json:
            setup = {"testbed": called, "runner": runner, "dry_run": True}
            Result("topo up", setup, {"commands": planned}).print_json(
                unused_keys=job_files.unused_keys("topo", Path(topology))
            )
        else:
            print("\n".join(planned))
        return
    netns.check_here()
    if target is Target.EMBEDDED and chosen.own:  # or the C compiler is missed late
        text = bundle(chosen.name, chosen.lanes).device_config.decode()
        softswitch.load(softswitch.compile_once(text, name=Path(chosen.name).stem), backend="compiled")
    state = testbeds.up(called, shape, chosen, on_step=lambda text: None if json else say(f"ina: {text}"))
    if json:
        sizes = {"switches": len(shape.switches), "hosts": len(shape.servers)}
        Result("topo up", {"testbed": called, "runner": state.runner}, sizes).print_json(
            unused_keys=job_files.unused_keys("topo", Path(topology))
        )
    else:
        which = f" --name {called}" if len(netns.known()) > 1 else ""
        say(f"ina: testbed {called} is up; try: ina topo exec {shape.servers[0].name}{which} -- ip address")
