"""Snapshots: a ledger's knowledge, as bytes, so that a start replays only the events after it.

Policies keep state of any kind, so a snapshot is a copy of the objects themselves (pickle), and only the same
program reads it (`program`). Another program replays all events. The state's folder is the user's alone, as
are the programs in it (`Store`).
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
    """Return a hash that identifies this program: interpreter, controller and service."""
    found = hashlib.sha256(sys.version.encode())
    for folder in (Path(controller.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def frozen(known: Mapping[str, Any]) -> bytes | None:
    """Return the knowledge of a ledger as bytes; None if a policy (one of a file) cannot be copied."""
    try:
        return pickle.dumps(dict(known), protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        _log.info("no snapshot: %s", error)
        return None


def thawed(body: bytes) -> dict[str, Any]:
    """Return the knowledge in bytes from `frozen`; only for bytes of this program."""
    found: dict[str, Any] = pickle.loads(body)
    return found
