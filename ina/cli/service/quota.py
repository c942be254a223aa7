"""``ina quota``: how many GPUs tenants may use, how many are kept for them, and how fast they may submit."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.output import out, table
from ina.cli.plain import plural
from ina.cli.service.common import ControllerOptions, plain

EPILOG = """Examples:

  ina quota --controller http://127.0.0.1:9580

  ina quota alice --gpus 8 --reserved 4 --per-minute 30

  ina quota alice --remove
"""


def quota(
    tenant: Annotated[
        str | None, typer.Argument(metavar="[TENANT]", help="Show or change this tenant's quota alone.")
    ] = None,
    *,
    gpus: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Let the tenant use at most N GPUs at once; more jobs wait."),
    ] = None,
    reserved: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Keep N GPUs free of other tenants' jobs.")
    ] = None,
    per_minute: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Let the tenant submit at most N jobs in a minute."),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the tenant's quota.")] = False,
    at: ControllerOptions,
    json: options.Json = False,
) -> None:
    """Show, set or remove quotas and reservations of tenants.

    Jobs above a quota wait, and say so; submissions above a limit per minute are refused, and say when to try
    again. Setting replaces all values: without --gpus and --per-minute there is no limit, without --reserved
    nothing is kept. Only operators may set and remove.
    """
    sets = any(value is not None for value in (gpus, reserved, per_minute))
    if tenant is None and (sets or remove):
        raise Failure("whose quota? give the TENANT", USAGE)
    if sets and remove:
        raise Failure("--remove and --gpus, --reserved or --per-minute are mutually exclusive", USAGE)
    with at.connect() as controller:
        if tenant is not None and remove:
            controller.remove_quota(tenant)
            if not json:
                out.print(f"{plain(tenant)}: quota removed", soft_wrap=True)
                return
        if tenant is not None and sets:
            controller.set_quota(tenant, gpus=gpus, reserved=reserved or 0, per_minute=per_minute)
        found = [each for each in controller.quotas() if tenant in (None, each["tenant"])]
    if json:
        print(json_module.dumps({"quotas": found}, indent=2))
        return
    rows = [
        [
            plain(each["tenant"]),
            str(each["used"]),
            "no limit" if each["gpus"] is None else str(each["gpus"]),
            str(each["reserved"]),
            "no limit" if each["per_minute"] is None else str(each["per_minute"]),
            ", ".join(map(plain, each["waiting"])),
        ]
        for each in found
    ]
    table(
        plural(len(rows), "quota"),
        ["tenant", "GPUs in use", "at most", "reserved", "jobs a minute", "waiting"],
        rows,
    )
