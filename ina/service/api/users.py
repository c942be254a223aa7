"""As which user of this machine a tenant's commands run."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from dataclasses import replace

from controller.vocabulary import Job
from ina.service.api.problems import Problem
from ina.service.tokens import Person


def as_user(jobs: Sequence[Job], person: Person, own_uid: int | None = None) -> list[Job]:
    """Return the jobs with the user whose commands they run; who submits cannot say that in a job.

    A controller that is root runs a tenant's commands as the token's user, and none of a token that has no
    user: a tenant's name is not a user's, although it may be the same. Another one can only run them as
    itself. Without tokens they run as its own user. `own_uid` is the controller's user; None: that of this
    process.

    Raises Problem if the token has no user that there is, or the controller may not become it.
    """
    user = _user(person, os.geteuid() if own_uid is None else own_uid)
    return [
        replace(
            job,
            extra={
                **{name: value for name, value in job.extra.items() if name != "user"},
                **({"user": user} if user else {}),
            },
        )
        for job in jobs
    ]


def _user(person: Person, own_uid: int) -> str:
    """Return the user to become; "": the controller's own."""
    if not person.name:
        return ""
    if not person.user:
        if own_uid:
            return ""
        raise Problem(
            403,
            f"the token of {person.name!r} has no user as whom commands run, and this controller is root: add"
            f" one that has, with 'ina controller token add {person.name} --user USER'",
        )
    try:
        uid = pwd.getpwnam(person.user).pw_uid
    except KeyError:
        raise Problem(
            403,
            f"there is no user {person.user!r} on this machine, as whom commands of {person.name!r} would"
            f" run: remove the token, and add another, with 'ina controller token add {person.name} --user"
            " USER'",
        ) from None
    if own_uid not in (0, uid):
        raise Problem(
            403, f"commands of {person.name!r} run as user {person.user!r}, which only root may become"
        )
    return "" if uid == own_uid else person.user
