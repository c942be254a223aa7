"""``ina jobs``: what a controller has, or what a switch serves."""

from __future__ import annotations

import json as json_module
from dataclasses import fields
from typing import Annotated

import typer

from ina.cli import options, switch_jobs
from ina.cli.errors import USAGE, Failure
from ina.cli.output import out
from ina.cli.plain import plural
from ina.cli.service.common import ControllerOptions, show_jobs

EPILOG = f"""{switch_jobs.EPILOG}
  ina jobs --controller http://127.0.0.1:9580

  ina jobs --all --state failed --json
"""


def jobs(
    *,
    switch: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="List the jobs that this running switch serves: grpc://HOST:PORT or unix:PATH.",
        ),
    ] = "",
    device_id: Annotated[
        int, typer.Option(min=0, max=2**64 - 1, help="Use this P4Runtime device id of the switch.")
    ] = 0,
    tls: options.TlsOptions,
    watch: switch_jobs.Watch = False,
    metrics_port: switch_jobs.MetricsPort = None,
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
    """List the jobs of a controller, or those that a running switch serves.

    With --controller: who runs, who waits and why. With --switch: what a switch holds, whoever admitted it.
    There, name, user, command, age and goodput are what the holder of a job, such as 'ina run', tells with
    every renewal of its lease; so they are up to a quarter of the lease, and at most 15 s, old. "Since" is
    this machine's time less the age. The lease is how long the job stays if its holder is gone: see who still
    renews with --watch. A job without a lease stays until 'ina remove'.
    """
    if switch:
        given = {each.name: getattr(tls, each.name) for each in fields(tls)}
        running = options.RunningSwitch(switch=switch, device_id=device_id, **given)
        switch_jobs.jobs(running=running, watch=watch, metrics_port=metrics_port, json=json)
        return
    if not at.controller:
        raise Failure("which jobs? give --switch ADDRESS, --controller URL, or set INA_CONTROLLER", USAGE)
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
