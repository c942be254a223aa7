"""Who asks: from the Authorization header to a person, and what that person may do."""

from __future__ import annotations

import os
from collections.abc import Callable

from ina.service.api.problems import Problem
from ina.service.errors import Unknown
from ina.service.records import JobRecord
from ina.service.service import Service
from ina.service.tokens import Person, Role, Tokens

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="ina"'}


class Gate:
    """Lets people in.

    Args:
        tokens: The tokens there are.
        local: Only this machine can ask. As long as there are no tokens, the controller's own user and root
            are operators then, and nobody else is let in.
    """

    def __init__(self, tokens: Tokens, *, local: bool) -> None:
        self._tokens = tokens
        self._local = local

    def person(self, authorization: str | None, user: Callable[[], int | None]) -> Person:
        """Return who asks. Raises Problem for somebody unknown, and StoreError.

        `user` says which user of this machine asks, as far as the kernel tells; None: it does not.
        """
        if self._local and not self._tokens.grants():
            if user() in (0, os.geteuid()):
                return Person("", Role.OPERATOR)
            raise Problem(
                401,
                "without a token only the controller's own user and root may ask: want a header"
                " 'Authorization: Bearer TOKEN' with a token of 'ina controller token add'",
                headers=_CHALLENGE,
            )
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Problem(401, "want a header 'Authorization: Bearer TOKEN'", headers=_CHALLENGE)
        found = self._tokens.person(token.strip())
        if found is None:
            raise Problem(401, "this token is not known, or has been removed", headers=_CHALLENGE)
        return found


def operator(person: Person) -> None:
    """Raise Problem unless the person operates the service."""
    if not person.operates:
        raise Problem(403, f"{person.name!r} is a submitter; only operators may do this")


def own(service: Service, person: Person, name: str) -> JobRecord:
    """Return a job that the person may see. Raises Unknown, as for jobs that are not there, for others."""
    try:
        record = service.record(name)
    except Unknown:
        raise _unknown(name) from None
    if not person.owns(record.submitted.tenant):
        raise _unknown(name)
    return record


def _unknown(name: str) -> Unknown:
    return Unknown(f"there is no job {name[:80]!r}")
