"""Mastership among controllers by election id: only the primary may write (P4Runtime section 5).

Each role has its own primary: the live controller whose election id is the highest that the switch
has ever seen for that role. When it leaves, there is none until another one claims with an id at
least as high. No gRPC here: a client is any hashable object, and the notifications are returned.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum

from softswitch.p4runtime.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
)

MAX_STREAMS = 64
"""Live controllers of one role; each holds a thread of the server."""


class Standing(Enum):
    """The standing of a controller, as it is told."""

    PRIMARY = "primary"
    BACKUP = "backup"
    NO_PRIMARY = "no primary"


@dataclass(frozen=True, slots=True)
class Notification:
    """Tell `client` its standing; `highest` is the highest election id of any primary so far."""

    client: Hashable
    role: str
    standing: Standing
    highest: int | None


@dataclass(slots=True)
class _Role:
    clients: dict[Hashable, int | None] = field(default_factory=dict)
    highest: int | None = None

    def primary(self) -> Hashable | None:
        if self.highest is None:
            return None
        return next((c for c, e in self.clients.items() if e == self.highest), None)


class Arbitration:
    """The controllers that are connected to one device."""

    def __init__(self) -> None:
        self._roles: dict[str, _Role] = {}
        self._role_of: dict[Hashable, str] = {}

    def update(self, client: Hashable, role_name: str, election_id: int | None) -> list[Notification]:
        """Take a MasterArbitrationUpdate in; None is an unset election id, which never becomes primary.

        Returns whom to tell what. Raises RequestError if the client's stream is to be ended, and
        then the client has to `leave`.
        """
        known = self._role_of.get(client)
        if known is not None and known != role_name:
            raise FailedPrecondition(
                f"this stream has role '{known}'; open another one for role '{role_name}'"
            )
        role = self._roles.setdefault(role_name, _Role())
        if election_id is not None:
            for other, used in role.clients.items():
                if other != client and used == election_id:
                    raise InvalidArgument(f"election id {election_id} is used by another live controller")
        if known is None and len(role.clients) >= MAX_STREAMS:
            raise ResourceExhausted(f"{MAX_STREAMS} controllers of role '{role_name}' are connected already")

        before = role.primary()
        self._role_of[client] = role_name
        role.clients[client] = election_id
        if election_id is not None and (role.highest is None or election_id >= role.highest):
            role.highest = election_id
            return self._tell_all(role_name)
        return self._tell_all(role_name) if before == client else [self._tell(role_name, client)]

    def leave(self, client: Hashable) -> list[Notification]:
        """Forget a client whose stream has ended; if it was the primary, the others are told."""
        role_name = self._role_of.pop(client, None)
        if role_name is None:
            return []
        role = self._roles[role_name]
        was_primary = role.primary() == client
        del role.clients[client]
        return self._tell_all(role_name) if was_primary else []

    def check_primary(self, role_name: str, election_id: int | None) -> None:
        """Raise unless the sender of a write with this role and election id is the primary."""
        role = self._roles.get(role_name)
        if role is None and role_name:
            raise NotFound(f"no controller has role '{role_name}'")
        primary = role.primary() if role else None
        if role is None or primary is None:
            raise PermissionDenied("there is no primary controller; become it on a StreamChannel first")
        if election_id != role.highest:
            raise PermissionDenied(f"election id {election_id} is not the primary's, which is {role.highest}")

    def primary(self, role_name: str) -> Hashable | None:
        """Return the primary of a role."""
        return self._roles[role_name].primary() if role_name in self._roles else None

    def role_of(self, client: Hashable) -> str | None:
        """Return the role that a client has."""
        return self._role_of.get(client)

    def primaries(self) -> list[Hashable]:
        """Return the primary of every role that has one."""
        return [p for p in (role.primary() for role in self._roles.values()) if p is not None]

    def is_primary(self, client: Hashable) -> bool:
        """Return True if `client` is the primary of its role."""
        role_name = self._role_of.get(client)
        return role_name is not None and self._roles[role_name].primary() == client

    def _tell_all(self, role_name: str) -> list[Notification]:
        """Tell every client of the role, the primary last: by then the others know that they are not."""
        role = self._roles[role_name]
        primary = role.primary()
        others = [self._tell(role_name, c) for c in role.clients if c != primary]
        return others if primary is None else [*others, self._tell(role_name, primary)]

    def _tell(self, role_name: str, client: Hashable) -> Notification:
        role = self._roles[role_name]
        primary = role.primary()
        standing = (
            Standing.NO_PRIMARY
            if primary is None
            else Standing.PRIMARY
            if primary == client
            else Standing.BACKUP
        )
        return Notification(client, role_name, standing, role.highest)
