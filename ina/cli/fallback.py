"""``ina fallback``: the fallback server as a process of its own."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass
from typing import Annotated

from hostlib import InaError, TransportConfig
from hostlib.fallback import FallbackServer, FallbackSettings
from ina.cli import options
from ina.cli.cluster_options import MACHINES, ClusterFile, required
from ina.cli.command import USAGE, Declared, Failure, refuse
from ina.cli.options import parse_address


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackOptions:
    """Options of 'ina fallback': addresses of the server and of its switch, memory, and times."""

    switch: Annotated[
        str | None,
        Declared(
            metavar="HOST:PORT",
            help="Exchange packets with this port of the root switch, which is the port for the fallback "
            "server. Required without --serve.",
        ),
    ] = None
    serve: Annotated[
        bool,
        Declared(
            "--serve",
            rich_help_panel=MACHINES,
            help="Serve the jobs of other machines, until interrupted. Processes that admit jobs connect "
            "over TCP to this machine's address and fallback_port in the cluster file, and prove that they "
            "know INA_TOKEN.",
        ),
    ] = False
    cluster: ClusterFile = None
    machine: Annotated[
        str | None,
        Declared(
            metavar="NAME",
            rich_help_panel=MACHINES,
            help="With --serve: give the name of this machine in the cluster file. Default: the machine with "
            "this machine's host name, or with one of its addresses.",
        ),
    ] = None
    lanes: options.Lanes = 256
    local: Annotated[
        str, Declared(metavar="HOST:PORT", help="Listen at this address; port 0: any free port.")
    ] = "127.0.0.1:0"
    transport: Annotated[
        str,
        Declared(
            help="Send whole Ethernet frames inside datagrams (loopback), or use an ordinary UDP "
            "socket (udp)."
        ),
    ] = "loopback"
    mac: Annotated[str, Declared(help="Set the server's own MAC address in frames.")] = "02:00:00:00:00:fb"
    switch_mac: Annotated[str, Declared(help="Set the switch's MAC address in frames.")] = "02:00:00:00:ff:01"
    ip: Annotated[str, Declared(help="Set the server's own IP address in frames.")] = "10.0.0.251"
    switch_ip: Annotated[str, Declared(help="Set the switch's IP address in frames.")] = "10.0.255.1"
    beside_workers: Annotated[
        bool,
        Declared(
            "--beside-workers",
            help="With --transport udp: sum also packets that workers on this machine send to --local. A job "
            'names its worker on this machine ("beside": HOST:PORT). --serve sets this if the machine has '
            "workers.",
        ),
    ] = False
    capacity: Annotated[
        int,
        Declared(
            metavar="PACKETS",
            help="Hold at most this many packets in memory, shared equally by the jobs. A job is refused if "
            "the share would be smaller than the number of ranks or of summing switches of any job.",
        ),
    ] = 65536
    remind: Annotated[
        float,
        Declared(
            metavar="SECONDS",
            help="Wait at least this long before asking for missing packets, and between two replays of a "
            "result; about one round trip.",
        ),
    ] = 0.002
    held: Annotated[
        bool,
        Declared(
            "--held",
            help="Share --local with the parent process, which keeps it bound so that no other user can "
            "take it.",
        ),
    ] = False


def fallback(asked: FallbackOptions) -> None:
    """Run the fallback server, which sums packets without a slot, until standard input ends.

    Also replays lost results. Add and remove jobs with lines of JSON on standard input. Each line on standard
    output is JSON, too: the first has the server's address, further ones answer the commands, and the last
    has the statistics.

    Examples:
        ina fallback --switch 127.0.0.1:27009 --lanes 256

        ina fallback --switch 10.0.255.1:42592 --transport udp --local 10.0.0.251:42592 --lanes 64

        ina fallback --serve --cluster lab.yaml

        ina fallback --switch 127.0.0.1:27009 <commands

    A line of commands, with a job of four workers on one switch:

        {"add": {"job": 7, "epoch": 1, "tree": {"0": [0, 1, 2, 3]}, "window": 512}}

    Others: {"remove": 7} and {"statistics": true}.
    """
    if asked.serve:
        _serve_machine(asked)
        return
    if asked.switch is None:
        raise Failure("--switch is missing: want HOST:PORT, or --serve", exit_code=USAGE)
    parse_address("--switch", asked.switch)
    parse_address("--local", asked.local)
    refuse(
        asked.transport not in ("loopback", "udp"), f"--transport {asked.transport!r}: want loopback or udp"
    )
    wires = TransportConfig(
        asked.transport,  # type: ignore[arg-type]  # one of the two
        asked.local,
        asked.switch,
        asked.mac,
        asked.switch_mac,
        asked.ip,
        asked.switch_ip,
        held=asked.held,
    )
    endpoints = wires.endpoints if asked.transport == "loopback" else None
    settings = FallbackSettings(asked.lanes, endpoints, asked.capacity, remind_s=asked.remind)
    commands = -1 if sys.stdin is None or sys.stdin.closed else sys.stdin.fileno()
    try:
        with FallbackServer(wires, settings, beside=asked.beside_workers) as server:
            server.run(commands, sys.stdout)
    except (InaError, MemoryError) as error:
        raise Failure(str(error)) from error


def _serve_machine(settings: FallbackOptions) -> None:
    """Serve the jobs of all machines until a signal arrives, or the server cannot be restarted.

    Raises Failure, BadRun.
    """
    # Imported here: these imports take half of the start, and a server for one switch needs none of them.
    from controller.vocabulary import read_topology
    from hostlib.io.interfaces import known_as
    from ina.run.fallback.remote import check_secret, serving
    from ina.run.launch.machine_hosts import identified, reached_at
    from ina.run.switches.cluster_fabric import sweep

    secret = os.environ.get("INA_TOKEN", "")
    check_secret(secret)
    topology = read_topology(required(settings.cluster, "--serve"))
    name = identified(topology, [settings.machine] if settings.machine else known_as())
    server = topology.server[name]
    refuse(
        not server.serves_fallback_at,
        f"machine {name!r} has neither the role fallback nor a fallback_port in the cluster file",
    )
    address = (reached_at(topology, name), server.serves_fallback_at)
    more = ("--capacity", str(settings.capacity), "--remind", str(settings.remind))
    with serving(topology, name, address, secret, lanes=settings.lanes, options=more) as served:
        process, service, stopped = served
        threading.Thread(target=sweep, args=(topology, stopped), name="sweep", daemon=True).start()
        print(json.dumps({"ready": {"serves": service.address, "machine": name}}), flush=True)
        while not stopped.wait(0.1):
            if why := process.check():  # restarts the process while restarts are left
                raise Failure(why)
