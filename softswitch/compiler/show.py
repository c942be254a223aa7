"""Syntax trees and IR as text, for ``ina compile --dump``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from softswitch.compiler.ir import Position

_WIDTH = 100


def show(node: Any) -> str:
    """Return a node and all below it, one line each where that is short enough."""
    return "\n".join(_lines(node))


def _lines(node: Any, indent: str = "", label: str = "") -> Iterator[str]:
    short = f"{indent}{label}{_short(node)}"
    if len(short) <= _WIDTH or not _children(node):
        yield short
        return
    yield f"{indent}{label}{_head(node)}"
    for name, child in _children(node):
        yield from _lines(child, indent + "  ", name)


def _children(node: Any) -> list[tuple[str, Any]]:
    """Return the children to show below a node, each with its label."""
    if isinstance(node, Mapping):
        return [(f"{key}: ", value) for key, value in node.items()]
    if isinstance(node, tuple):
        return [("", value) for value in node]
    if dataclasses.is_dataclass(node) and not isinstance(node, Position):
        fields = ((field.name, getattr(node, field.name)) for field in dataclasses.fields(node))
        return [
            (f"{name}=", value)
            for name, value in fields
            if not (isinstance(value, Position) or value is None or value == ())
        ]
    return []


def _head(node: Any) -> str:
    return "" if isinstance(node, tuple | Mapping) else type(node).__name__


def _short(node: Any) -> str:
    if isinstance(node, Mapping | tuple):
        inner = ", ".join(label + _short(child) for label, child in _children(node))
        return f"{{{inner}}}" if isinstance(node, Mapping) else f"({inner})"
    if dataclasses.is_dataclass(node) and not isinstance(node, Position):
        return f"{_head(node)}({', '.join(label + _short(child) for label, child in _children(node))})"
    return str(node) if isinstance(node, Position) else repr(node)
