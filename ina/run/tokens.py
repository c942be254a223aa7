"""Bearer tokens, which give people access to the service. A file in the state's folder has their hashes.

A token has 256 random bits, and the file has its SHA-256. A slow password hash is not needed, because such a
long token cannot be found by trying.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ina.errors import Conflict, StoreError, Unknown
from ina.run.launch import files

FILE = "tokens.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Role(StrEnum):
    """A person's rights."""

    SUBMITTER = "submitter"
    """May submit jobs, and see and end their own jobs."""
    OPERATOR = "operator"
    """May also see and end all jobs, drain servers and switches, and audit."""


@dataclass(frozen=True, slots=True)
class Person:
    """The author of a request.

    `name` is the name of the author's tenant ("" for none), and `role` the author's rights. `user` is the
    user of this machine under which the commands of the author's jobs run; "": the controller's own user. A
    controller that runs as root refuses jobs of tenants without such a user.
    """

    name: str
    role: Role
    user: str = ""

    @property
    def operates(self) -> bool:
        """Whether the person is an operator, who may see all jobs and make all requests."""
        return self.role is Role.OPERATOR

    def owns(self, tenant: str) -> bool:
        """Return whether the person may see and end jobs of this tenant."""
        return self.operates or tenant == self.name


@dataclass(frozen=True, slots=True)
class TokenGrant(Person):
    """The person to whom a token was given, with the token's SHA-256, as stored in the file."""

    sha256: str = ""


class Tokens:
    """The tokens of a state.

    The file with the tokens is read again after each change, so changes apply at once.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._read: tuple[object, dict[str, TokenGrant]] = (None, {})

    def grants(self) -> list[TokenGrant]:
        """Return all tokens as stored in the file. Raises StoreError."""
        return list(self._by_hash().values())

    def person(self, token: str) -> Person | None:
        """Return the person with this token; None: there is none. Raises StoreError."""
        # Looked up by its hash, whose bytes a client cannot choose: the time of a look-up reveals nothing.
        return self._by_hash().get(_hash(token))

    def add(self, name: str, role: Role, user: str = "") -> str:
        """Create and return a token for the tenant `name`; store only its hash. See `Person` for `user`.

        Raises Conflict for a name that is taken or invalid, and StoreError.
        """
        if not _NAME.fullmatch(name):
            raise Conflict(
                f"{name[:80]!r} is no tenant's name: want 1 to 64 letters, digits, '.', '_' and '-', of which"
                " the first is a letter or a digit"
            )
        with self._locked():
            known = self._by_hash()
            if any(grant.name == name for grant in known.values()):
                raise Conflict(f"{name!r} already has a token: remove that token first")
            token = "ina_" + secrets.token_urlsafe(32)
            self._write([*known.values(), TokenGrant(name, role, user, _hash(token))])
        return token

    def remove(self, name: str) -> None:
        """Remove a tenant's token. Raises Unknown, StoreError."""
        with self._locked():
            known = self._by_hash().values()
            kept = [grant for grant in known if grant.name != name]
            if len(kept) == len(known):
                names = ", ".join(sorted(grant.name for grant in known)) or "nobody"
                raise Unknown(f"{name[:80]!r} has no token; tenants with a token: {names}")
            self._write(kept)

    def _by_hash(self) -> dict[str, TokenGrant]:
        try:
            found = self._path.stat()
            version = (found.st_ino, found.st_mtime_ns, found.st_size)
            if version != self._read[0]:
                grants = files.record_of(list[TokenGrant], json.loads(self._path.read_text(encoding="utf-8")))
                self._read = (version, {grant.sha256: grant for grant in grants})
        except FileNotFoundError:
            self._read = (None, {})
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}") from error
        except ValueError as error:
            raise StoreError(
                f"{self._path} is damaged; all requests are refused. Remove it, and add the tokens again:"
                " 'ina controller token add NAME'"
            ) from error
        return self._read[1]

    def _write(self, grants: list[TokenGrant]) -> None:
        try:
            files.write(self._path, grants, synced=True)
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}") from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = (self._path.parent / f"{FILE}.lock").open("w")
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}") from error
        with handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
