"""``ina cancel``: jobs of a controller that are to end."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

from ina.cli import options
from ina.cli.errors import Failure
from ina.cli.output import out
from ina.cli.service.common import ControllerOptions, plain

EPILOG = """Examples:

  ina cancel night-run --controller http://127.0.0.1:9580

  ina cancel first second third
"""


def cancel(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB …", help="Name the jobs.")],
    *,
    at: ControllerOptions,
    json: options.Json = False,
) -> None:
    """Cancel jobs of a controller, whether they run or wait."""
    with at.connect() as controller:
        meant = {job["id"]: job for job in map(controller.job, jobs)}
        if over := [name for name, job in meant.items() if job["over"]]:
            raise Failure(f"{', '.join(map(repr, over))}: already over; nothing is cancelled")
        found = [controller.cancel(name) for name in meant]
    if json:
        print(json_module.dumps({"jobs": found}, indent=2))
        return
    for job in found:
        out.print(f"{plain(job['id'])}: {job['state']}", soft_wrap=True)
