"""Paths of gNMI, and which nodes of a tree they select. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from softswitch.gnmi.interfaces import LISTS, Leaf, Tree

Element = tuple[str, Mapping[str, str]]
"""Name and keys."""
Elements = tuple[Element, ...]
Node = Any
"""A leaf, a tree, or the entries of a list by key."""

ANY, ANYTHING = "*", "..."


class BadPath(ValueError):
    """A path that no tree could have; the message says why."""


def elements(*paths: Any) -> Elements:
    """Return the elements of a prefix and a path behind each other. Raises BadPath."""
    found: list[Element] = []
    for path in paths:
        if path.element:
            raise BadPath("the path has only 'element', which gNMI 0.4 had; give 'elem'")
        found += [(each.name, dict(each.key)) for each in path.elem]
    return tuple(found)


def text(path: Elements) -> str:
    """Write a path as people do.

    >>> text((("interfaces", {}), ("interface", {"name": "1"})))
    '/interfaces/interface[name=1]'
    """
    return "/" + "/".join(name + "".join(f"[{k}={v}]" for k, v in keys.items()) for name, keys in path)


def select(tree: Tree, path: Elements) -> list[tuple[Elements, Node]]:
    """Return the nodes that a path selects, each with its own path; none if there is no such node.

    Raises BadPath for a key that a list does not have.
    """
    return list(_select(tree, path, ()))


def leaves(node: Node, path: Elements) -> Iterator[tuple[Elements, Leaf]]:
    """Yield a node's leaves, each with its path."""
    if not isinstance(node, dict):
        yield path, node
        return
    for at, child in _children(node, path):
        yield from leaves(child, at)


def _select(node: Node, path: Elements, at: Elements) -> Iterator[tuple[Elements, Node]]:
    if not path:
        yield at, node
        return
    if not isinstance(node, dict):
        return
    (name, keys), rest = path[0], path[1:]
    if name == ANYTHING:
        yield from _select(node, rest, at)
        for below, child in _children(node, at):
            yield from _select(child, path, below)
        return
    for below, child in _children(node, at):
        found, found_keys = below[-1]
        if name not in (ANY, found):
            continue
        if unknown := keys.keys() - found_keys.keys():
            raise BadPath(f"{found} has no key {min(unknown)!r} ({text((*at, (name, keys)))})")
        if all(value in (ANY, found_keys[key]) for key, value in keys.items()):
            yield from _select(child, rest, below)


def _children(node: Tree, at: Elements) -> Iterator[tuple[Elements, Node]]:
    for name, child in node.items():
        if name in LISTS and isinstance(child, dict):
            for key, entry in child.items():
                yield (*at, (name, {LISTS[name]: key})), entry
        else:
            yield (*at, (name, {})), child
