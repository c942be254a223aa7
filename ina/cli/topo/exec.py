"""``ina topo exec``: a command at a node of a testbed."""

from __future__ import annotations

from typing import Annotated

import typer

from ina.cli.topo.topology import Testbed

EPILOG = """Examples:

  ina topo exec h1 -- ip neighbour

  ina topo exec s1 --name lab -- tcpdump -i s1-eth1
"""


def exec_(
    *,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name a host or a switch of the testbed.")],
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND", help="Run this command; give it after --.")
    ],
    name: Testbed = None,
) -> None:
    """Run a command in the namespace of a host or a switch, and exit with its status."""
    from bmv2_topos.testbeds import netns

    netns.execute(netns.find(name), node, command)
