"""Remarks on a program that is being compiled: what is legal, but perhaps not what was meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from softswitch.compiler import ir

_found: ContextVar[dict[ir.Remark, None]] = ContextVar("remarks")


@contextmanager
def collecting() -> Iterator[dict[ir.Remark, None]]:
    """Yield the remarks that are made inside, each once, in order."""
    found: dict[ir.Remark, None] = {}
    token = _found.set(found)
    try:
        yield found
    finally:
        _found.reset(token)


def remark(message: str, pos: ir.Position) -> None:
    """Make a remark."""
    _found.get({})[ir.Remark(message, pos)] = None
