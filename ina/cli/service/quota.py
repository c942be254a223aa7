"""``ina quota``: how much tenants may have submitted at a time."""

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

  ina quota alice --jobs 20 --gpus 8

  ina quota alice --remove
"""


def quota(
    tenant: Annotated[
        str | None, typer.Argument(metavar="[TENANT]", help="Show or change this tenant's quota alone.")
    ] = None,
    *,
    jobs: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Allow at most N jobs that are not over.")
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Allow at most N GPUs in these jobs, running or waiting."),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the tenant's quota.")] = False,
    at: ControllerOptions,
    json: options.Json = False,
) -> None:
    """Show, set or remove quotas: what a tenant may have submitted at a time.

    Jobs above a quota are refused when they are submitted. Setting replaces both limits: one that is not
    given has no limit. Only operators may set and remove.
    """
    sets = jobs is not None or gpus is not None
    if tenant is None and (sets or remove):
        raise Failure("whose quota? give the TENANT", USAGE)
    if sets and remove:
        raise Failure("--remove and --jobs or --gpus are mutually exclusive", USAGE)
    with at.connect() as controller:
        if tenant is not None and remove:
            controller.remove_quota(tenant)
            if not json:
                out.print(f"{plain(tenant)}: no quota any more", soft_wrap=True)
                return
        if tenant is not None and sets:
            controller.set_quota(tenant, jobs=jobs, gpus=gpus)
        found = [each for each in controller.quotas() if tenant in (None, each["tenant"])]
    if json:
        print(json_module.dumps({"quotas": found}, indent=2))
        return
    rows = [
        [plain(each["tenant"]), _of(each["used_jobs"], each["jobs"]), _of(each["used_gpus"], each["gpus"])]
        for each in found
    ]
    table(plural(len(rows), "quota"), ["tenant", "jobs", "GPUs"], rows)


def _of(used: int, most: int | None) -> str:
    return f"{used} of {'any number' if most is None else most}"
