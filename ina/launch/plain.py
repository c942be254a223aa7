"""Converts records to numbers, strings, lists and dicts, and back.

In that form, records are stored, and sent to other processes.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def plain(record: object) -> Any:
    """Convert a record, or a collection of records, to plain data. A range becomes a list of its two ends."""
    return msgspec.to_builtins(record, enc_hook=lambda ends: [ends.start, ends.stop])


def record_of(kind: type[T], found: object) -> T:
    """Convert plain data, which `plain` has made, back to a record of type `kind`.

    Fields that are missing in `found` get their defaults.

    Raises ValueError with the path of a wrong value, such as ``$.jobs[0].name``, and any error that the
    constructor of `kind` raises.
    """
    return msgspec.convert(found, kind, dec_hook=lambda kind, ends: kind(*ends))
