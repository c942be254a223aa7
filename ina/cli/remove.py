"""``ina remove``: take jobs off a switch."""

from __future__ import annotations

from typing import Annotated

import typer

from ina.cli import options
from ina.cli.errors import Failure
from ina.cli.output import out
from ina.cli.plain import Result

EPILOG = """Examples:

  ina remove --switch grpc://127.0.0.1:9559 40961

  ina remove --switch grpc://switch.lab:9559 --tls-ca ca.pem 40961 17 --json
"""


def remove(
    *,
    jobs: Annotated[
        list[int], typer.Argument(metavar="JOB...", help="Give the job numbers that 'ina slots' lists.")
    ],
    running: options.RunningSwitch,
    json: options.Json = False,
) -> None:
    """Remove jobs from a running switch.

    The switch drops and counts what the workers of these jobs still send. Of a job on several switches, only
    the part on this switch is removed. Removes nothing if one of the numbers is unknown.
    """
    from controller import Fleet, TreeAdmission

    wanted = list(dict.fromkeys(jobs))
    with running.connect() as controller:
        present = controller.jobs()
        fleet = Fleet({running.switch: controller})
        if unknown := sorted(set(wanted) - present.keys()):
            known = ", ".join(map(str, sorted(present))) or "none"
            numbers = ", ".join(map(str, unknown))
            raise Failure(f"the switch at {controller.address} has no job {numbers}; its jobs: {known}")
        for job in wanted:
            fleet.remove(TreeAdmission({running.switch: present[job]}))
            if not json:
                out.print(f"removed job {job}", markup=False, highlight=False)
    if json:
        Result("remove", {"switch": running.switch, "jobs": wanted}, {"removed": len(wanted)}).print_json()
