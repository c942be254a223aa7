"""Records as numbers, strings, lists and dicts, and back: for storage, and messages to other processes."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def plain(record: object) -> Any:
    """Return a record (a dataclass or a collection of them) as plain data; a range as its two ends."""
    return msgspec.to_builtins(record, enc_hook=lambda ends: [ends.start, ends.stop])


def record_of(kind: type[T], found: object) -> T:
    """Return the record that `plain` converted to `found`; missing fields have their defaults.

    Raises ValueError, with the path of the wrong value, as in ``$.jobs[0].name``, and the errors of `kind`.
    """
    return msgspec.convert(found, kind, dec_hook=lambda kind, ends: kind(*ends))
