"""``ina logs``: what a rank of a controller's job wrote."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ina.cli.service.common import ControllerOptions, JobName

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
    """Show what a rank of a controller's job wrote."""
    with at.connect() as controller:
        if follow:
            for text in controller.follow_log(job, rank):
                _write(text)
            return
        offset, size = 0, 1
        while offset < size:
            found = controller.log(job, rank, offset)
            _write(found["text"])
            if found["next"] <= offset:
                return
            offset, size = found["next"], found["size"]


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
