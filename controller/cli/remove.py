"""``ina remove``: take jobs off a switch."""

from __future__ import annotations

from typing import Annotated

import typer

from controller import Controller
from controller.cli import options
from controller.cli.errors import Failure
from controller.cli.output import out

EPILOG = """Examples:

  ina remove --switch grpc://127.0.0.1:9559 40961

  ina remove --switch grpc://switch.lab:9559 --tls-ca ca.pem 40961 17
"""


def remove(
    jobs: Annotated[
        list[int], typer.Argument(metavar="JOB...", help="Numbers of jobs, as 'ina jobs' lists them.")
    ],
    switch: options.Switch,
    device_id: options.DeviceId = 0,
    tls_ca: options.TlsCa = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
) -> None:
    """Take jobs off a switch, whoever had them admitted.

    What workers of such a job still send is dropped and counted. Of a job on several switches this removes
    what the one switch has. If any of the numbers is unknown nothing is removed.
    """
    address = options.parse_switch("--switch", switch)
    tls = options.client_tls(tls_ca, tls_cert, tls_key, address)
    with Controller.connect(address, device_id=device_id, tls=tls) as controller:
        present = controller.jobs()
        if unknown := sorted(set(jobs) - present.keys()):
            known = ", ".join(map(str, sorted(present))) or "none"
            raise Failure(
                f"the switch at {address} has no job {', '.join(map(str, unknown))}; its jobs: {known}"
            )
        for job in dict.fromkeys(jobs):
            controller.remove(job)
            out.print(f"removed job {job}", markup=False, highlight=False)
