"""Commands for a controller's state: token, backup, restore, adopt, forget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ina.cli.command import Declared, Listing, Reply, plural, say
from ina.run import recovery
from ina.run.tokens import Role, Tokens

State = Annotated[
    Path,
    Declared(
        parser=Path,  # it need not exist, nor be writable
        metavar="DIR",
        help="Use the controller's state in this directory, given to 'ina controller' as --state.",
    ),
]
Tenant = Annotated[str, Declared(argument=True, metavar="NAME", help="Name the tenant.")]


def add(
    name: Tenant,
    state: State,
    role: Annotated[
        Role,
        Declared(
            help="Give the tenant this role: submitter (submits jobs, sees and ends its own jobs) or "
            "operator (sees and ends all jobs, drains, audits)."
        ),
    ] = Role.SUBMITTER,
    user: Annotated[
        str,
        Declared(
            metavar="USER",
            help="Run the tenant's commands as this user of the machine; the controller must run as root. "
            "Default: the controller's user; a controller that runs as root then refuses the commands.",
        ),
    ] = "",
) -> None:
    """Add a token for a tenant, and print it.

    The token cannot be shown again: only its hash is kept. It is valid at once. As soon as there is a token,
    the controller requires a token of each client.

    Examples:
        ina controller token add alice --state /var/lib/ina

        ina controller token add admin --role operator --state /var/lib/ina > admin.token
    """
    print(Tokens(state).add(name, role, user))


def list_(state: State) -> Reply:
    """List the tenants that have tokens, and their roles.

    Examples:
        ina controller token list --state /var/lib/ina
    """
    grants = Tokens(state).grants()
    found = [{"name": each.name, "role": each.role.value, "user": each.user} for each in grants]
    columns = ["tenant", "role", "user"]
    return Reply(
        {"tokens": found},
        [Listing(plural(len(found), "token"), columns, [[*each.values()] for each in found])],
    )


def remove(name: Tenant, state: State) -> None:
    """Remove a tenant's token; it is refused at once.

    Examples:
        ina controller token remove alice --state /var/lib/ina
    """
    Tokens(state).remove(name)


def backup(
    file: Annotated[
        Path,
        Declared(argument=True, writable=True, metavar="FILE", help="Write the backup to this new file."),
    ],
    state: State,
) -> None:
    """Copy a state with its tokens into one file, also while a controller uses the state.

    Examples:
        ina controller backup ina.backup --state /var/lib/ina
    """
    recovery.back_up(state.absolute(), file.absolute())


def restore(
    file: Annotated[
        Path, Declared(argument=True, metavar="FILE", help="Restore from this file, made by 'backup'.")
    ],
    state: State,
) -> None:
    """Replace a state with a backup, while no controller uses it; the old state is kept beside it.

    Runs that are in the backup continue. The controller's next start ends all other runs. Jobs that may have
    ended since the backup then count as failed: 'ina retry' runs them from their last checkpoint.

    Examples:
        ina controller restore ina.backup --state /var/lib/ina
    """
    last = recovery.restore(file.absolute(), state.absolute())
    say(f"ina: {state} continues from event {last}")


def adopt(state: State) -> None:
    """Continue from a state that has lost its latest events, as after 'restore'.

    Examples:
        ina controller adopt --state /var/lib/ina
    """
    say(f"ina: {state} continues from event {recovery.adopt(state.absolute())}")


def forget(state: State) -> None:
    """End all runs of a state, and begin with an empty one; the old state is kept beside it.

    Examples:
        ina controller forget --state /var/lib/ina
    """
    ended = recovery.forget(state.absolute())
    say(f"ina: {plural(len(ended), 'run')} ended; {state} is a new, empty state")
