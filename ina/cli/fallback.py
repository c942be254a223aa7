"""``ina fallback``: the fallback server as a process of its own."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from controller.switches.model import INA_UDP_PORT
from hostlib import ConfigError, InaError, TransportConfig
from hostlib.fallback import FallbackServer, FallbackSettings
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.options import parse_address

EPILOG = (
    f"""Examples:

  ina fallback --switch 127.0.0.1:47009 --lanes 256

  ina fallback --switch 10.0.255.1:{INA_UDP_PORT} --transport udp --local 10.0.0.251:{INA_UDP_PORT} --lanes 64
"""
    """
  ina fallback --switch 127.0.0.1:47009 <commands

A line of commands, with a job of four workers on one switch:

  {"add": {"job": 7, "epoch": 1, "tree": {"0": [0, 1, 2, 3]}, "window": 512}}

Others: {"remove": 7} and {"statistics": true}.
"""
)


def fallback(
    switch: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The root switch's port for the fallback server.")
    ],
    lanes: options.Lanes = 256,
    local: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0: any.")
    ] = "127.0.0.1:0",
    transport: Annotated[
        str,
        typer.Option(help="loopback: whole Ethernet frames inside datagrams; udp: an ordinary UDP socket."),
    ] = "loopback",
    mac: Annotated[str, typer.Option(help="Own address in frames.")] = "02:00:00:00:00:fb",
    switch_mac: Annotated[str, typer.Option(help="The switch's address in frames.")] = "02:00:00:00:ff:01",
    ip: Annotated[str, typer.Option(help="Own address in frames.")] = "10.0.0.251",
    switch_ip: Annotated[str, typer.Option(help="The switch's address in frames.")] = "10.0.255.1",
    capacity: Annotated[
        int, typer.Option(metavar="PACKETS", help="Memory, in packets' worth of lanes.")
    ] = 65536,
    remind: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="About a round trip: least wait before a reminder, and between two replays of a result.",
        ),
    ] = 0.002,
    held: Annotated[
        bool, typer.Option("--held", help="Its parent holds --local, so that no other user can take it.")
    ] = False,
) -> None:
    """Sum what finds no room in the switches, and answer what was lost, until standard input ends.

    Jobs are added and removed by lines of JSON on standard input; the answers, and first a line that says
    where the server listens, come as lines of JSON on standard output. The last line is its statistics.
    """
    parse_address("--switch", switch)
    parse_address("--local", local)
    if transport not in ("loopback", "udp"):
        raise Failure(f"--transport {transport!r}: want loopback or udp", exit_code=USAGE)
    try:
        wires = TransportConfig(transport, local, switch, mac, switch_mac, ip, switch_ip, held=held)  # type: ignore[arg-type]
        endpoints = wires.endpoints if transport == "loopback" else None
        settings = FallbackSettings(lanes, endpoints, capacity, remind_s=remind)
    except ConfigError as error:
        raise Failure(str(error), exit_code=USAGE) from error
    commands = -1 if sys.stdin is None or sys.stdin.closed else sys.stdin.fileno()
    try:
        with FallbackServer(wires, settings) as server:
            server.run(commands, sys.stdout)
    except (InaError, MemoryError) as error:
        raise Failure(str(error)) from error
