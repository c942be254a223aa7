"""``ina controller backup``, ``restore``, ``adopt`` and ``forget``: a state is kept, or was lost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ina.cli.plain import plural, say
from ina.cli.token import State
from ina.service import recovery

EPILOG = """Examples:

  ina controller backup ina.backup --state /var/lib/ina

  ina controller restore ina.backup --state /var/lib/ina

  ina controller forget --state /var/lib/ina
"""


def backup(
    file: Annotated[
        Path, typer.Argument(writable=True, metavar="FILE", help="Write the backup to this new file.")
    ],
    state: State,
) -> None:
    """Copy a state with its tokens into one file, while a controller may use it."""
    recovery.back_up(state.absolute(), file.absolute())


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Restore this file of 'backup'.")],
    state: State,
) -> None:
    """Put a backup in the place of a state that no controller uses; what was there is kept beside it.

    Runs that it knows go on. At the next start runs that it does not know are ended, and jobs that may have
    been done since fail: 'ina retry' runs them from where they last saved.
    """
    last = recovery.restore(file.absolute(), state.absolute())
    say(f"ina: {state} goes on from event {last}")


def adopt(state: State) -> None:
    """Go on from a state that lacks events which it has had, as after 'restore'."""
    say(f"ina: {state} goes on from event {recovery.adopt(state.absolute())}")


def forget(state: State) -> None:
    """End all that runs of a state, and begin anew at the next start; what was there is kept beside it."""
    ended = recovery.forget(state.absolute())
    say(f"ina: {plural(len(ended), 'run')} ended; {state} begins anew")
