"""Show syntax trees and IR as text, for ``ina compile --dump``.

A named type is shown in full at its first occurrence, and later by its name only: every expression has a
type, and the type of ``hdr`` contains all fields of all headers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from softswitch.compiler import ir

_WIDTH = 100

_Shown = dict[str, Any]
"""Types that have been shown in full, by name."""


def show(node: Any) -> str:
    """Return the text of a node and all nodes below it; a node that fits is shown on one line."""
    return "\n".join(_lines(node, {}))


def _lines(node: Any, shown: _Shown, indent: str = "", label: str = "") -> Iterator[str]:
    short = _on_a_line(node, shown, _WIDTH - len(indent) - len(label))
    if short is not None:
        yield f"{indent}{label}{short}"
        return
    _note(node, shown)
    yield f"{indent}{label}{_head(node)}"
    for name, child in _children(node):
        yield from _lines(child, shown, indent + "  ", name)


def _on_a_line(node: Any, shown: _Shown, room: int) -> str | None:
    """Return a node's text on one line; None if the text exceeds `room` characters and can be split."""
    if not _children(node) or _is_shown(node, shown):
        return "".join(_pieces(node, shown))
    trial, text = dict(shown), ""
    for piece in _pieces(node, trial):
        text += piece
        if len(text) > room:  # stop early: the text of a program may be megabytes long
            return None
    shown.update(trial)
    return text


def _is_shown(node: Any, shown: _Shown) -> bool:
    return isinstance(node, ir.Header | ir.Struct | ir.Enum) and shown.get(node.name) == node


def _note(node: Any, shown: _Shown) -> None:
    if isinstance(node, ir.Header | ir.Struct | ir.Enum):
        shown[node.name] = node


def _children(node: Any) -> list[tuple[str, Any]]:
    """Return the children to show below a node, as (label, child)."""
    if isinstance(node, Mapping):
        return [(f"{key}: ", value) for key, value in node.items()]
    if isinstance(node, tuple):
        return [("", value) for value in node]
    if dataclasses.is_dataclass(node) and not isinstance(node, ir.Position):
        fields = ((field.name, getattr(node, field.name)) for field in dataclasses.fields(node))
        return [
            (f"{name}=", value)
            for name, value in fields
            if not (isinstance(value, ir.Position) or value is None or value == ())
        ]
    return []


def _head(node: Any) -> str:
    return "" if isinstance(node, tuple | Mapping) else type(node).__name__


def _pieces(node: Any, shown: _Shown) -> Iterator[str]:
    """Yield the text of a node on one line, piece by piece, and record the types that it shows."""
    if _is_shown(node, shown):
        yield f"{_head(node)} {node.name}"
        return
    _note(node, shown)
    if isinstance(node, Mapping | tuple):
        before, after = "{}" if isinstance(node, Mapping) else "()"
    elif dataclasses.is_dataclass(node) and not isinstance(node, ir.Position):
        before, after = f"{_head(node)}(", ")"
    else:
        yield str(node) if isinstance(node, ir.Position) else repr(node)
        return
    yield before
    for place, (label, child) in enumerate(_children(node)):
        yield f"{', ' if place else ''}{label}"
        yield from _pieces(child, shown)
    yield after
