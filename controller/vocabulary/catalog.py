"""Topologies by name, each a function that returns a `Topology`.

Hosts of workers are called ``h1``, ``h2``, … Hosts of fallback servers are called ``p1``, ``p2``, …, and are
linked to the root, or to the spines. Hosts for ordinary traffic are called ``x1``, ``x2``, …

`named` makes a topology by its name on the command line: ``fat-tree``, or ``leaf-spine:2x4x2``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.vocabulary.documents import hint
from controller.vocabulary.errors import BadSpec
from controller.vocabulary.topology import Link, Server, Switch, Topology, check_size

SLOTS = Switch("s").slots


def star(hosts: int, *, servers: int = 0, link: Link | None = None) -> Topology:
    """Return one switch ``s1`` with `hosts` hosts and `servers` hosts for fallback servers.

    `link` gives the properties of every link; its ends are ignored.
    """
    return tree([hosts], servers=servers, link=link, name=f"star({hosts})")


def tree(
    fan_outs: Sequence[int],
    *,
    servers: int = 0,
    link: Link | None = None,
    trunk: Link | None = None,
    transit: Sequence[int] = (),
    name: str = "",
) -> Topology:
    """Return a tree of switches.

    ``tree([2, 4])`` is a root ``s1`` with two racks, ``s2`` and ``s3``, of four hosts each: h1 to h4 and
    h5 to h8.

    Args:
        fan_outs: Children of a switch at each level, from the root to the hosts.
        servers: Number of hosts for fallback servers.
        link: Properties of the hosts' links; its ends are ignored.
        trunk: Properties of the links between switches; None: as `link`.
        transit: The levels, from 0 for the root, whose switches do not aggregate.
        name: Name of the topology; "": made from the sizes.

    Raises:
        BadSpec: no levels, a level without children, or too many switches, hosts or links.
    """
    if not fan_outs or min(fan_outs) < 1:
        shown = "x".join(map(str, fan_outs))
        raise BadSpec(f"tree {shown!r}: every level needs children, as in 2x4")
    nodes = [math.prod(fan_outs[:depth]) for depth in range(len(fan_outs) + 1)]  # of each level
    check_size(
        f"tree {'x'.join(map(str, fan_outs))}",
        switches=sum(nodes[:-1]),
        servers=nodes[-1] + servers,
        links=sum(nodes) + servers,
    )
    edge = link or Link("a", "b")
    between = trunk or edge

    def memory(depth: int) -> int:
        return 0 if depth in transit else SLOTS

    switches = [Switch("s1", slots=memory(0))]
    links = []
    level = [switches[0].name]
    for depth, fan_out in enumerate(fan_outs[:-1], start=1):
        below = []
        for parent in level:
            for _ in range(fan_out):
                child = Switch(f"s{len(switches) + 1}", slots=memory(depth))
                switches.append(child)
                links.append(replace(between, a=parent, b=child.name))
                below.append(child.name)
        level = below
    shape = "x".join(map(str, fan_outs))
    places = [parent for parent in level for _ in range(fan_outs[-1])]
    return _with_hosts(switches, links, places, ["s1"] * servers, edge, name or f"tree({shape})")


def _with_hosts(
    switches: Sequence[Switch],
    trunks: Sequence[Link],
    workers: Sequence[str],
    fallbacks: Sequence[str],
    edge: Link,
    name: str,
    traffic: Sequence[str] = (),
) -> Topology:
    """Return the topology of these switches and of the hosts linked to them.

    `workers`, `fallbacks` and `traffic` name the switch of each host of this kind, in the order of the hosts.
    `edge` has the properties of the hosts' links.
    """
    machines = [Server(f"h{number}") for number in range(1, len(workers) + 1)]
    machines += [Server(f"x{number}", 0, role="traffic") for number in range(1, len(traffic) + 1)]
    machines += [Server(f"p{number}", 0, role="fallback") for number in range(1, len(fallbacks) + 1)]
    at = (*workers, *traffic, *fallbacks)
    links = [replace(edge, a=host.name, b=switch) for host, switch in zip(machines, at, strict=True)]
    return Topology(tuple(switches), tuple(machines), (*trunks, *links), "s1", name)


def leaf_spine(
    spines: int,
    leaves: int,
    hosts: int,
    *,
    servers: int = 0,
    link: Link | None = None,
    trunk: Link | None = None,
) -> Topology:
    """Return leaf switches with hosts; each leaf switch is linked to each spine switch.

    Spines are called ``s1`` and so on, and leaves follow. Each spine may be the root of jobs' trees.

    Args:
        spines: Number of spine switches.
        leaves: Number of leaf switches.
        hosts: Hosts of each leaf.
        servers: Number of hosts for fallback servers, linked to the spines in turn.
        link: Properties of the hosts' links; its ends are ignored.
        trunk: Properties of the links between switches; None: as `link`.

    Raises:
        BadSpec: no spines, leaves or hosts, or too many switches, hosts or links.
    """
    if min(spines, leaves, hosts) < 1:
        raise BadSpec(f"{spines} spines, {leaves} leaves, {hosts} hosts: want one of each at least")
    count = leaves * hosts + servers
    check_size(
        f"leaf-spine {spines}x{leaves}x{hosts}",
        switches=spines + leaves,
        servers=count,
        links=leaves * spines + count,
    )
    edge = link or Link("a", "b")
    between = trunk or edge
    switches = [Switch(f"s{number}") for number in range(1, spines + leaves + 1)]
    above, below = switches[:spines], switches[spines:]
    links = [replace(between, a=spine.name, b=leaf.name) for leaf in below for spine in above]
    places = [leaf.name for leaf in below for _ in range(hosts)]
    tops = [above[number % spines].name for number in range(servers)]
    return _with_hosts(switches, links, places, tops, edge, f"leaf_spine({spines}x{leaves}x{hosts})")


def fat_tree(k: int, *, servers: int = 0, link: Link | None = None, trunk: Link | None = None) -> Topology:
    """Return the fat tree of `k`-port switches: `k` pods, k³/4 hosts, (k/2)² core switches.

    The cores come first, ``s1`` on, then each pod's upper switches and its edges; upper switch number i of a
    pod is linked to the i-th group of k/2 cores. Al-Fares et al., "A scalable, commodity data center network
    architecture", SIGCOMM 2008.

    Args:
        k: Ports of each switch, an even number.
        servers: Number of hosts for fallback servers, linked to the cores in turn.
        link: Properties of the hosts' links; its ends are ignored.
        trunk: Properties of the links between switches; None: as `link`.

    Raises:
        BadSpec: `k` is odd or below 2, or there would be too many switches, hosts or links.
    """
    if k < 2 or k % 2:
        raise BadSpec(f"fat tree of {k} ports per switch: want an even number, 2 or more")
    half, edge = k // 2, link or Link("a", "b")
    count = k * half * half + servers
    check_size(
        f"fat-tree {k}", switches=half * half + k * k, servers=count, links=2 * k * half * half + count
    )
    between = trunk or edge
    cores = [f"s{number}" for number in range(1, half * half + 1)]
    switches, places, links = list(cores), list[str](), list[Link]()
    for _ in range(k):
        first = len(switches) + 1
        upper = [f"s{first + at}" for at in range(half)]
        edges = [f"s{first + half + at}" for at in range(half)]
        switches += upper + edges
        links += [
            replace(between, a=core, b=name)
            for at, name in enumerate(upper)
            for core in cores[at * half : (at + 1) * half]
        ]
        links += [replace(between, a=above, b=below) for below in edges for above in upper]
        places += [below for below in edges for _ in range(half)]
    tops = [cores[number % len(cores)] for number in range(servers)]
    return _with_hosts([*map(Switch, switches)], links, places, tops, edge, f"fat_tree({k})")


def dumbbell(
    hosts: int, cross: int, *, servers: int = 0, link: Link | None = None, trunk: Link | None = None
) -> Topology:
    """Return two switches joined by one link.

    Hosts ``h1`` to ``h<hosts>`` and ``x1`` to ``x<cross>`` are on the left, at the root ``s1``, with the
    fallback servers' hosts. Traffic between x<i> and x<cross + i> loads the link in the middle.

    Args:
        hosts: Hosts on each side.
        cross: Hosts for ordinary traffic on each side.
        servers: Number of hosts for fallback servers.
        link: Properties of the hosts' links; its ends are ignored.
        trunk: Properties of the link in the middle; None: as `link`.

    Raises:
        BadSpec: `hosts` is below 1, `cross` is below 0, or there would be too many hosts or links.
    """
    if hosts < 1 or cross < 0:
        raise BadSpec(
            f"{hosts} hosts for workers and {cross} for traffic on each side: want 1 or more for workers, "
            "0 or more for traffic"
        )
    edge = link or Link("a", "b")
    switches, middle = (Switch("s1"), Switch("s2")), replace(trunk or edge, a="s1", b="s2")
    places, traffic = (["s1"] * count + ["s2"] * count for count in (hosts, cross))
    name = f"dumbbell({hosts}+{cross})"
    return _with_hosts(switches, [middle], places, ["s1"] * servers, edge, name, traffic)


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A topology of the catalog."""

    summary: str
    sizes: Mapping[str, int]
    """Sizes of the topology, by name, in the order in which users type them, with their default values."""
    make: Callable[..., Topology]
    """Function that makes the topology from the sizes, in the order of `sizes`, and from `servers` and
    `link`."""


CATALOG: Mapping[str, CatalogEntry] = {
    "single-switch": CatalogEntry("hosts at one switch", {"hosts": 4}, star),
    "two-racks": CatalogEntry(
        "a root and two racks below it",
        {"hosts per rack": 4},
        lambda hosts, **rest: tree([2, hosts], **rest),
    ),
    "leaf-spine": CatalogEntry(
        "every leaf linked to every spine", {"spines": 2, "leaves": 4, "hosts per leaf": 2}, leaf_spine
    ),
    "fat-tree": CatalogEntry("three levels of switches with k ports", {"k": 4}, fat_tree),
    "dumbbell": CatalogEntry(
        "two switches, a link between them, and traffic beside the jobs",
        {"hosts per side": 2, "hosts for traffic per side": 1},
        dumbbell,
    ),
}


def named(text: str, *, servers: int = 1, link: Link | None = None) -> Topology:
    """Return the topology of the catalog for ``NAME`` or ``NAME:SIZExSIZE…``; `text` becomes its name.

    >>> [len(named(text).servers_for("worker")) for text in ("fat-tree", "leaf-spine:2x3x5")]
    [16, 15]

    Raises:
        BadSpec: the catalog has no such name, or the sizes are wrong.
    """
    name, colon, rest = text.partition(":")
    if name not in CATALOG:
        raise BadSpec(f"unknown topology {name!r}; {hint(name, CATALOG)} (a file's name ends in .yaml)")
    entry = CATALOG[name]
    sizes = rest.split("x") if colon else [str(size) for size in entry.sizes.values()]
    if len(sizes) != len(entry.sizes) or not all(size.isdecimal() and len(size) < 6 for size in sizes):
        example = "x".join(map(str, entry.sizes.values()))
        wanted = f"{name}:{example} ({', '.join(entry.sizes)})"
        raise BadSpec(f"topology {text!r}: want {name}, or sizes as in {wanted}")
    try:
        made = entry.make(*map(int, sizes), servers=servers, link=link)
    except BadSpec as error:
        raise BadSpec(f"topology {text!r}: {error.message}") from None
    return replace(made, name=text)
