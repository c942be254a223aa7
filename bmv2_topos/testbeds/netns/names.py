"""Names of a testbed's namespaces and interfaces: pure functions.

A namespace is called ``ina.TESTBED.NODE``. Names of testbeds and nodes have no dots, so every namespace whose
name begins with ``ina.TESTBED.`` belongs to that testbed. Interfaces are called as in Mininet: ``h1-eth0``,
and ``s1-eth3`` for port 3.
"""

from __future__ import annotations

import re

from bmv2_topos.testbeds.netns.errors import BadName
from controller.vocabulary import Topology

MAX_INTERFACE = 15
"""Maximum number of characters of an interface's name in Linux."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,31}")


def slug(text: str) -> str:
    """Return the default name of a testbed, from the name or the file of its topology.

    >>> slug("fat-tree:4"), slug("nets/my.yaml")
    ('fat-tree-4', 'my')
    """
    stem = re.sub(r"\.(yaml|yml|json|toml)$", "", text.rpartition("/")[2])
    return re.sub(r"[^A-Za-z0-9_-]", "-", stem).lstrip("-")[:32] or "testbed"


def check_name(name: str) -> None:
    """Raise BadName for an invalid name of a testbed."""
    if not _NAME.fullmatch(name):
        raise BadName(f"testbed {name!r}: want 1 to 32 letters, digits, _ and -, the first of them not -")


def check_nodes(topology: Topology) -> None:
    """Raise BadName for a node whose interfaces' names would be invalid."""
    for node in (*topology.ports, *(host.name for host in topology.servers)):
        longest = interface(node, len(topology.ports.get(node, ())))
        if not _NAME.fullmatch(node):
            raise BadName(f"node {node!r}: in a testbed, want letters, digits, _ and -, the first not -")
        if len(longest) > MAX_INTERFACE:
            room = MAX_INTERFACE - (len(longest) - len(node))
            raise BadName(
                f"node {node!r}: its interface {longest} has {len(longest)} characters, and Linux takes"
                f" {MAX_INTERFACE}; want a name of {room} at most"
            )


def prefix(testbed: str) -> str:
    """Return the common prefix of all namespaces of a testbed."""
    return f"ina.{testbed}."


def namespace(testbed: str, node: str) -> str:
    """Return the name of a node's namespace."""
    return prefix(testbed) + node


def interface(node: str, port: int = 0) -> str:
    """Return the name of the interface of a switch's port, or of a host (port 0)."""
    return f"{node}-eth{port}"
