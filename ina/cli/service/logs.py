"""``ina logs``: what a rank of a controller's job wrote."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ina.cli.plain import say
from ina.cli.service.common import ControllerOptions, JobName, plain

if TYPE_CHECKING:
    from ina.service.client import Client

EPILOG = """Examples:

  ina logs night-run --controller http://127.0.0.1:9580

  ina logs night-run --rank 3 -f
"""


def logs(
    job: JobName,
    *,
    rank: Annotated[int, typer.Option(min=0, metavar="RANK", help="Show what this rank wrote.")] = 0,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Show what the rank writes from now on, too, until the job is over."
        ),
    ] = False,
    at: ControllerOptions,
) -> None:
    """Show what a rank of a controller's job wrote.

    On a terminal, control characters in it are shown as Python writes them; elsewhere it is unchanged.
    """
    with at.connect() as controller:
        pieces = controller.follow_log(job, rank) if follow else _pieces(controller, job, rank)
        wrote = False
        for text in pieces:
            sys.stdout.write(_shown(text) if sys.stdout.isatty() else text)
            sys.stdout.flush()
            wrote = True
        if not wrote:
            say(f"ina: rank {rank} of job {plain(job)} has written nothing")


def _pieces(controller: Client, job: str, rank: int) -> Iterator[str]:
    offset, size = 0, 1
    while offset < size:
        found = controller.log(job, rank, offset)
        if found["next"] <= offset:
            return
        yield found["text"]
        offset, size = found["next"], found["size"]


def _shown(text: str) -> str:
    """Return a program's output with nothing that a terminal obeys but ends of lines and tabs."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in lines)
