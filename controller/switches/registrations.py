"""Registrations of jobs: how the metadata of a job's row say them. No I/O."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeGuard

from controller.switches.model import Registration

LONGEST_LEASE_S = 1e9
MOST_RENEWALS = (1 << 63) - 1


@lru_cache(maxsize=4096)  # switches are compared with the same rows again and again
def encode(registration: Registration | None) -> bytes:
    """Write a registration as metadata; none is empty, and what it leaves open is left out.

    >>> encode(Registration("host pid 17", lease_s=60.0, renewals=3))
    b'{"ina_job": {"holder": "host pid 17", "lease_s": 60.0, "renewals": 3}}'
    """
    if registration is None:
        return b""
    open_ = dataclasses.asdict(Registration(""))
    said = {name: value for name, value in dataclasses.asdict(registration).items() if value != open_[name]}
    return json.dumps({"ina_job": {"holder": registration.holder} | said}).encode()


def decode(metadata: bytes) -> Registration | None:
    """Read what `encode` wrote, of this version or an earlier one; anything else, of whomever, is none.

    Earlier ones wrote until when a lease lasts by the clock of its holder, and not how long it is: nobody
    else can tell when it has run out.

    >>> decode(b"of somebody else")
    >>> decode(b'{"ina_lease": {"until_ms": 1700000000000, "holder": "host pid 17"}}').lease_s
    inf
    """
    try:
        match json.loads(metadata):
            case {"ina_job": {"holder": str(holder), **fields}}:
                return _registration(holder, fields)
            case {"ina_lease": {"until_ms": int(), "holder": str(holder)}}:
                return Registration(holder, lease_s=math.inf)
    except (ValueError, RecursionError):
        pass
    return None


def _registration(holder: str, fields: Mapping[Any, Any]) -> Registration | None:
    """Read the fields of a registration; None if one of them is not as `encode` writes it."""
    said = {each.name: fields[each.name] for each in dataclasses.fields(Registration) if each.name in fields}
    sound = {name: _SOUND[name](value) for name, value in said.items()}
    return Registration(holder, **said) if all(sound.values()) else None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_RENEWALS


def _is_measure(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e300


def _is_lease(value: object) -> bool:
    return _is_measure(value) and 0 < value <= LONGEST_LEASE_S


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_SOUND: Mapping[str, Callable[[object], bool]] = {
    "process": _is_text,
    "lease_s": _is_lease,
    "renewals": _is_count,
    "age_s": _is_measure,
    "name": _is_text,
    "user": _is_text,
    "command": _is_text,
    "priority": _is_count,
    "goodput_bps": _is_measure,
}
"""What each field may be; those that were left open are not written."""
