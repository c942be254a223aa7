"""``ina controller token``: who may ask a controller for what."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from ina.cli import options
from ina.cli.output import table
from ina.cli.plain import plural
from ina.cli.register import group, register
from ina.service.tokens import Role, Tokens

EPILOG = """Examples:

  ina controller token add alice --state /var/lib/ina

  ina controller token add admin --role operator --state /var/lib/ina > admin.token

  ina controller token remove alice --state /var/lib/ina
"""

app = group("token", "Add, list and remove the tokens by which people are known.", epilog=EPILOG)
State = Annotated[
    Path,
    typer.Option(
        writable=True,
        metavar="DIR",
        help="Use the state in this directory, as 'ina controller --state' does.",
    ),
]
Tenant = Annotated[str, typer.Argument(metavar="NAME", help="Name the tenant.")]

register(app, "add", "ina.cli.token:add", "Add a token for a tenant, and print it.")
register(app, "list", "ina.cli.token:list_", "List the tenants that have tokens, and their roles.")
register(app, "remove", "ina.cli.token:remove", "Remove a tenant's token; it is refused at once.")


def add(
    name: Tenant,
    state: State,
    role: Annotated[
        Role,
        typer.Option(
            help="Let the tenant submit jobs, see and end them (submitter), or see and end all jobs, drain "
            "and audit (operator)."
        ),
    ] = Role.SUBMITTER,
    user: Annotated[
        str,
        typer.Option(
            metavar="USER",
            help="Run the tenant's commands as this user of the machine; only a controller that is root can. "
            "Default: as the controller's own user; one that is root runs none.",
        ),
    ] = "",
) -> None:
    """Add a token for a tenant, and print it.

    It cannot be shown again: only its hash is kept. It counts at once; from the first token on, a controller
    asks everybody for one.
    """
    print(Tokens(state).add(name, role, user))


def list_(state: State, json: options.Json = False) -> None:
    """List the tenants that have tokens, and their roles."""
    grants = Tokens(state).grants()
    if json:
        print(
            json_module.dumps(
                {"tokens": [{"name": each.name, "role": each.role, "user": each.user} for each in grants]},
                indent=2,
            )
        )
        return
    table(
        plural(len(grants), "token"),
        ["tenant", "role", "user"],
        [[each.name, each.role.value, each.user] for each in grants],
    )


def remove(name: Tenant, state: State) -> None:
    """Remove a tenant's token; it is refused at once."""
    Tokens(state).remove(name)
