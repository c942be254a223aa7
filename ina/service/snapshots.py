"""Snapshots: a ledger's state as bytes, so that a start replays only the events after the snapshot.

Policies may keep state of any kind, so a snapshot is a pickle of the objects, and only the version of the
program that wrote it (`program`) reads it; other versions replay all events. Only the controller's user can
write to the state's folder (`Store`), so that it is safe to unpickle.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import controller

_log = logging.getLogger(__name__)


@cache
def program() -> str:
    """Return a hash of this program's version: the interpreter, and the code of controller and service."""
    found = hashlib.sha256(sys.version.encode())
    for folder in (Path(controller.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def frozen(known: Mapping[str, Any]) -> bytes | None:
    """Return attributes of a ledger as bytes; None if a policy (one from a file) cannot be pickled."""
    try:
        return pickle.dumps(dict(known), protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        _log.info("no snapshot: %s", error)
        return None


def thawed(body: bytes) -> dict[str, Any]:
    """Return the attributes in bytes from `frozen`; the same version of this program must have made them."""
    found: dict[str, Any] = pickle.loads(body)
    return found
