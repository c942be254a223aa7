"""Options of the commands that read cells of counters and registers."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.p4runtime_shim.cells import CellReader
from ina.cli import options
from ina.cli.errors import USAGE, Failure

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="Read only the one with this name in the P4 program; the last parts of the name suffice.",
        show_default=False,
    ),
]
Index = Annotated[
    str | None, typer.Option(metavar="A-B,C", help="Read only cells with these numbers. Default: all cells.")
]
Everything = Annotated[bool, typer.Option("--all", help="Show zero values, too.")]


def cells(running: options.RunningSwitch) -> CellReader:
    """Return a switch's counters and registers. Raises Failure for invalid options; ControllerError."""
    from controller.p4runtime_shim.client import P4RuntimeClient  # gRPC takes its time to load

    address = options.parse_switch("--switch", running.switch)
    return CellReader(P4RuntimeClient(address, device_id=running.device_id, tls=running.tls(address)))


def indices(text: str | None, name: str, size: int) -> tuple[int, ...]:
    """Read the numbers of cells in ``--index``; none: all. Raises Failure."""
    if text is None:
        return ()
    found = options.parse_numbers("--index", text)
    if max(found) >= size:
        raise Failure(f"--index {text}: {name} has cells 0 to {size - 1}", exit_code=USAGE)
    return found


def check_no_cells(index: str | None, everything: bool) -> None:
    """Raise Failure for options that need a name."""
    if index is not None or everything:
        option = "--all" if index is None else f"--index {index}"
        raise Failure(f"{option} needs a name; leave the option out for a list", exit_code=USAGE)
