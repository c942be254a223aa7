"""``ina watch``: what a controller does, as it happens."""

from __future__ import annotations

import json as json_module
import re
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from ina.cli.errors import Failure
from ina.cli.service.common import ControllerOptions, line, plain

if TYPE_CHECKING:
    from ina.service.views import JobView

EPILOG = """Examples:

  ina watch --controller http://127.0.0.1:9580

  ina watch night-run

  ina watch --json | jq .text
"""


def watch(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Show what concerns this job, until it is over.")
    ] = None,
    *,
    at: ControllerOptions,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line instead of text.")
    ] = False,
) -> None:
    """Watch a controller: every decision with its reason, as it happens.

    With a job: from its submission on, until it is over; exits with status 1 unless it completed. Without:
    from now on, until interrupted.
    """
    with at.connect() as controller:
        after = 0
        if job is not None:
            job = controller.job(job)["id"]
        else:
            after = max((each["number"] for each in controller.decisions()), default=0)
        for decision in controller.watch(after):
            if job is not None and job not in decision["jobs"]:
                continue
            print(json_module.dumps(decision) if json else line(decision), flush=True)
            if job is not None and (found := controller.job(job))["over"]:
                last = [
                    each
                    for each in controller.explain(job)["decisions"]
                    if each["number"] > decision["number"]
                ]
                for each in last:
                    print(json_module.dumps(each) if json else line(each), flush=True)
                _fail(found)
                return


def _fail(job: JobView) -> None:
    """Raise Failure if a job has not ended well; says how to see what the rank wrote that is to blame."""
    if job["state"] == "completed":
        return
    text = f"job {plain(job['id'])} {job['state']}: {plain(job['reason'])}"
    rank = re.match(r"rank (\d+) ", job["reason"])
    if rank and not job["external"]:
        text += f"; see what it wrote: {shlex.join(['ina', 'logs', job['id'], '--rank', rank[1]])}"
    raise Failure(text)
