"""``ina drain``: servers and switches that nobody is to use."""

from __future__ import annotations

from typing import Annotated

import typer

from ina.cli.output import out
from ina.cli.service.common import ControllerOptions, plain

Nodes = Annotated[list[str], typer.Argument(metavar="NODE …", help="Name the servers or switches.")]

EPILOG = """Examples:

  ina drain s2 --controller http://127.0.0.1:9580

  ina drain h1 h2
"""


def drain(nodes: Nodes, *, at: ControllerOptions) -> None:
    """Drain servers or switches: nothing new starts there, and jobs that use them are moved, or wait."""
    with at.connect() as controller:
        for node in nodes:
            controller.drain(node)
            out.print(f"{plain(node)}: drained", soft_wrap=True)
