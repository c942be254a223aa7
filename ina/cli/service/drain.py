"""``ina drain``: servers and switches that nobody is to use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ina.cli.errors import Failure
from ina.cli.output import out
from ina.cli.service.common import ControllerOptions, plain

if TYPE_CHECKING:  # other commands need no HTTP
    from ina.service.client import Client

Nodes = Annotated[list[str], typer.Argument(metavar="NODE …", help="Name the servers or switches.")]

EPILOG = """Examples:

  ina drain s2 --controller http://127.0.0.1:9580

  ina drain h1 h2
"""


def drain(nodes: Nodes, *, at: ControllerOptions) -> None:
    """Drain servers or switches: nothing new starts there, and jobs that use them are moved, or wait."""
    with at.connect() as controller:
        for node in known(controller, nodes):
            controller.drain(node)
            out.print(f"{plain(node)}: drained", soft_wrap=True)


def known(controller: Client, nodes: Sequence[str], *, drained: bool = False) -> list[str]:
    """Return the nodes, each once. Raises Failure, before anything is done, if one cannot be what is meant.

    Args:
        controller: Who knows them.
        nodes: The names that were given.
        drained: True if all have to be drained.
    """
    cluster = controller.cluster()
    down = {node["name"]: node["down"] for node in (*cluster["servers"], *cluster["switches"])}
    if unknown := [node for node in nodes if node not in down]:
        raise Failure(f"the cluster has no server or switch {', '.join(map(repr, unknown))}; nothing is done")
    if drained and (used := [node for node in nodes if not down[node].startswith("drained")]):
        raise Failure(f"{', '.join(map(repr, used))}: not drained; nothing is done")
    return list(dict.fromkeys(nodes))
