"""``ina jobs``: the jobs of a controller."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.output import out
from ina.cli.plain import plural
from ina.cli.service.common import ControllerOptions, show_jobs

EPILOG = """Examples:

  ina jobs --controller http://127.0.0.1:9580

  ina jobs --all --state failed --json
"""


def jobs(
    *,
    switch: Annotated[str, typer.Option(hidden=True, help="Name the command that asks this switch.")] = "",
    at: ControllerOptions,
    every: Annotated[
        bool, typer.Option("--all", help="List the controller's jobs that are over, too.")
    ] = False,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            help="List only the controller's jobs in this state, such as queued, running or failed. "
            "Repeatable.",
        ),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="List only the controller's jobs of this tenant.")
    ] = None,
    json: options.Json = False,
) -> None:
    """List the jobs of a controller: who runs, who waits and why."""
    if switch:
        raise Failure(f"--switch {switch}: 'ina slots --switch {switch}' lists what a switch serves", USAGE)
    with at.connect() as controller:
        found = controller.jobs(states=state or (), tenant=tenant)
        now_s = controller.cluster()["now_s"]
    shown = [job for job in found if every or state or not job["over"]]
    if json:
        print(json_module.dumps({"now_s": now_s, "jobs": shown}, indent=2))
        return
    over = len(found) - len(shown)
    more = f"; {over} more {'is' if over == 1 else 'are'} over: --all lists them" if over else ""
    if not shown:
        out.print(f"no jobs{more}")
        return
    show_jobs(f"{plural(len(shown), 'job')}{more}", shown, now_s)
