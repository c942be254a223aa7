"""Snapshots: a ledger's state as bytes, so that a start replays only the events after the snapshot.

A snapshot is a pickle of the state's objects, because policies may keep state of any kind. Only the version
of the program that wrote a snapshot reads it (`program`); other versions replay all events. Snapshots are
safe to unpickle, because only the controller's user can write to the state's folder (`Store`).
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
    """Return a hash that identifies this version of the program: of the code, and of Python's version."""
    found = hashlib.sha256(sys.version.encode())
    for folder in (Path(controller.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def frozen(known: Mapping[str, Any]) -> bytes | None:
    """Convert attributes of a ledger to bytes; return None if they cannot be pickled.

    For example, an object of a policy that a user has written in a file may not be picklable.
    """
    try:
        return pickle.dumps(dict(known), protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        _log.info("no snapshot: %s", error)
        return None


def thawed(body: bytes) -> dict[str, Any]:
    """Convert bytes that `frozen` has returned back to attributes of a ledger.

    The same version of this program must have made the bytes (`program`).
    """
    found: dict[str, Any] = pickle.loads(body)
    return found
