"""The ports of a switch as OpenConfig describes interfaces (openconfig-interfaces, openconfig-p4rt).

Beside them is what tells whether a switch is as it was.

::

    interfaces/interface[name=1]/config/   name, type, enabled, id
    interfaces/interface[name=1]/state/    the same, description, ifindex, admin-status, oper-status
                                 counters/ in-pkts, in-octets, in-discards, in-errors, out-…
    system/state/boot-time                 nanoseconds since 1970 (openconfig-system)
    p4runtime/state/writes                 requests so far that may have changed the program or its entries
                                           (of this project: ina-p4runtime)

A port's name is its number, and so is `id`, by which P4Runtime knows it. The description is where the port is
attached: ``udp:127.0.0.1:47001``, with its peer behind it if it has one, ``shm:PATH``, ``if:NAME``,
``memory``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from softswitch.engine.counters import PortStatistics
from softswitch.engine.ports import InterfacePort, PortSpec, SharedPort, UdpPort
from softswitch.engine.switch import Switch

Leaf = str | int | bool
Tree = dict[str, "Leaf | Tree"]
"""Nodes by name. The entries of the list `interface` are by their key, a port's number as text."""

MODELS = (
    ("openconfig-interfaces", "OpenConfig working group", "3.0.0"),
    ("openconfig-p4rt", "OpenConfig working group", "1.0.0"),
    ("openconfig-system", "OpenConfig working group", "2.0.0"),
    ("ina-p4runtime", "INA", "1.0.0"),
)
"""Name, organisation and version of each model of which there are leaves."""

LISTS = {"interface": "name"}
"""Lists, and their keys."""
WIDE = frozenset(
    f"{way}-{what}" for way in ("in", "out") for what in ("pkts", "octets", "discards", "errors")
) | {"boot-time", "writes"}
"""Leaves of 64 bits, which JSON_IETF writes as text."""
_ETHERNET = "iana-if-type:ethernetCsmacd"


def tree(switch: Switch, *, booted_ns: int, writes: int) -> Tree:
    """Return the leaves of a switch with their values now.

    Args:
        switch: The switch.
        booted_ns: When it was started, as Unix time.
        writes: Requests so far that may have changed its program or entries.
    """
    return {
        "interfaces": {"interface": {str(number): _interface(switch, number) for number in switch.ports}},
        "system": {"state": {"boot-time": booted_ns}},
        "p4runtime": {"state": {"writes": writes}},
    }


def _interface(switch: Switch, number: int) -> Tree:
    common: Tree = {"name": str(number), "type": _ETHERNET, "enabled": True, "id": number}
    spec = switch.ports[number]
    state: Tree = {
        **common,
        "description": attachment(switch, number, spec),
        "ifindex": number,
        "admin-status": "UP",
        "oper-status": "UP" if _is_up(spec) else "DOWN",
        "counters": _counters(switch.statistics(number)),
    }
    return {"name": str(number), "config": dict(common), "state": state}


def attachment(switch: Switch, number: int, spec: PortSpec) -> str:
    """Return where a port is attached."""
    match spec:
        case UdpPort(peer=peer):
            host, port = switch.port_address(number)
            return f"udp:{host}:{port}" + (f" peer {host}:{peer}" if peer else "")
        case SharedPort():
            return f"shm:{switch.shared_path(number)}"
        case InterfacePort(name):
            return f"if:{name}"
        case _:
            return "cpu" if spec.cpu else "memory"


def _is_up(spec: PortSpec) -> bool:
    if not isinstance(spec, InterfacePort):
        return True
    try:
        return Path("/sys/class/net", spec.name, "operstate").read_text().strip() in ("up", "unknown")
    except OSError:
        return False


def _counters(of: PortStatistics) -> Tree:
    return {
        "in-pkts": of.rx_packets,
        "in-octets": of.rx_bytes,
        "in-discards": of.rx_lost + of.rx_queue_full + of.rx_socket_full + of.rx_no_program + of.rx_stranger,
        "in-errors": of.rx_malformed,
        "out-pkts": of.tx_packets,
        "out-octets": of.tx_bytes,
        "out-discards": of.tx_lost + of.tx_queue_full + of.tx_blocked + of.tx_no_peer,
        "out-errors": of.tx_too_long,
    }


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
