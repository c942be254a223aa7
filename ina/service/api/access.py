"""Who asks: from the Authorization header to a person, and what that person may do."""

from __future__ import annotations

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
        local: Only this machine can ask. As long as there are no tokens, everybody is operator then.
    """

    def __init__(self, tokens: Tokens, *, local: bool) -> None:
        self._tokens = tokens
        self._local = local

    def person(self, authorization: str | None) -> Person:
        """Return who asks. Raises Problem for somebody unknown, and StoreError."""
        if self._local and not self._tokens.grants():
            return Person("", Role.OPERATOR)
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
