"""``ina host``: this machine's lines of a cluster file."""

from __future__ import annotations

import socket
from enum import StrEnum
from typing import Annotated

import typer

from hostlib.io.interfaces import Interface, interfaces
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.plain import Result

EPILOG = """Examples:

  ina host --switch s1 --port 3 >> cluster.toml

  ina host --switch s1 --port 3 --interface eth1 --format yaml
"""


class Format(StrEnum):
    """Formats of the lines."""

    TOML = "toml"
    YAML = "yaml"


def host(
    *,
    switch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name the switch that this machine is plugged into."),
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, max=510, help="Give the port of that switch.")] = None,
    interface: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Use this interface. Default: the only one that is up and has an IPv4 address.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name the machine. Default: its host name.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="Print lines for a file of this format.")] = (
        Format.TOML
    ),
    json: options.Json = False,
) -> None:
    """Print this machine's lines of a cluster file: its name, interface and addresses.

    Append them to the file, and fill in what the machine cannot know: the switch, and its port there, unless
    --switch and --port say it.
    """
    found = _chosen(interface, interfaces())
    lines: dict[str, str | int] = {"name": name or socket.gethostname()}
    lines |= {"switch": switch} if switch else {}
    lines |= {"port": port} if port else {}
    lines |= {"ip": found.ip, "mac": found.mac, "interface": found.name}
    if json:
        Result("host", dict(lines), {"mtu": found.mtu}).print_json()
        return
    quoted = {key: value if isinstance(value, int) else f'"{value}"' for key, value in lines.items()}
    if form is Format.TOML:
        print("\n[[server]]")
        print("\n".join(f"{key} = {value}" for key, value in quoted.items()))
        return
    print("- " + "\n  ".join(f"{key}: {value}" for key, value in quoted.items()))


def _chosen(name: str | None, known: tuple[Interface, ...]) -> Interface:
    """Return the interface that leads to the switch. Raises Failure."""
    usable = [each for each in known if each.ip and each.up and not each.loopback]
    shown = ", ".join(f"{each.name} ({each.ip})" for each in usable) or "none"
    if name is not None:
        found = [each for each in usable if each.name == name]
        if not found:
            there = any(each.name == name for each in known)
            why = "is down, or has no IPv4 address" if there else "is not there"
            raise Failure(f"--interface {name!r} {why}; want one of {shown}", exit_code=USAGE)
        return found[0]
    if len(usable) != 1:
        raise Failure(
            f"cannot tell which interface leads to the switch: give --interface, one of {shown}",
            exit_code=USAGE,
        )
    return usable[0]
