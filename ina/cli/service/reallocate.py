"""``ina reallocate``: the memory of a controller's switches is divided now."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from ina.cli import options
from ina.cli.output import out, table
from ina.cli.plain import plural
from ina.cli.service.common import ControllerOptions, plain

if TYPE_CHECKING:
    from ina.service.views import SlotsView

EPILOG = """Examples:

  ina reallocate --controller http://127.0.0.1:9580

  ina reallocate train --json
"""


def reallocate(
    job: Annotated[
        str, typer.Argument(metavar="[JOB]", help="Show this job alone; memory is divided among all jobs.")
    ] = "",
    *,
    at: ControllerOptions,
    json: options.Json = False,
) -> None:
    """Divide the memory of the switches now, and print which jobs have other slots, and why.

    A controller divides memory by itself when jobs start, end or move, and every --period seconds. Jobs move
    to their new slots while they run. Only operators may do this.
    """
    with at.connect() as controller:
        found = controller.reallocate(job)
    if json:
        print(json_module.dumps(found, indent=2))
        return
    shown = [each for each in found["jobs"] if each["changed"] or job]
    same = len(found["jobs"]) - len(shown)
    if not shown:
        out.print(f"no job has other slots than before, of {plural(same, 'job')}", soft_wrap=True)
        return
    rows = [
        [plain(each["job"]), _shown(each["before"]), _shown(each["after"]), plain(each["why"])]
        for each in shown
    ]
    more = f"; {same} more have the same slots as before" if same else ""
    title = f"{plural(len(rows), 'job')}{more}"
    table(title, ["job", "before", "now", "why"], rows, left=("job", "before", "now", "why"))


def _shown(slots: Mapping[str, SlotsView]) -> str:
    found = [f"{at}: {each['slots']} from {each['first']}" for at, each in sorted(slots.items())]
    return ", ".join(found) or "none"
