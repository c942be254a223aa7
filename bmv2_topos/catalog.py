"""Topologies by name, each a function that returns a `Topology`.

Hosts are called ``h1``, ``h2``, … and fallback servers' hosts ``p1``, ``p2``, …; these hang off the root, or
off the spines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bmv2_topos.spec import Host, Link, Switch, Topology, TopologyError


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
    """Return a tree of switches: `fan_outs` children at each level, from the root to the hosts.

    ``tree([2, 4])`` is a root ``s1`` with two racks, ``s2`` and ``s3``, of four hosts each: h1 to h4 and
    h5 to h8. `link` gives the properties of the hosts' links, `trunk` (default: as `link`) those between
    switches; `transit` lists the levels, from 0 for the root, whose switches do not aggregate.

    Raises:
        TopologyError: no levels, a level without children, or more of something than there can be.
    """
    if not fan_outs or min(fan_outs) < 1:
        shown = "x".join(map(str, fan_outs))
        raise TopologyError(f"tree {shown!r}: every level needs children, as in 2x4")
    edge = link or Link("a", "b")
    between = trunk or edge
    switches = [Switch("s1", aggregates=0 not in transit)]
    links = []
    level = [switches[0].name]
    for depth, fan_out in enumerate(fan_outs[:-1], start=1):
        below = []
        for parent in level:
            for _ in range(fan_out):
                child = Switch(f"s{len(switches) + 1}", aggregates=depth not in transit)
                switches.append(child)
                links.append(replace(between, a=parent, b=child.name))
                below.append(child.name)
        level = below
    hosts: list[Host] = []
    for parent in level:
        for _ in range(fan_outs[-1]):
            hosts.append(Host(f"h{len(hosts) + 1}"))
            links.append(replace(edge, a=hosts[-1].name, b=parent))
    for number in range(1, servers + 1):
        hosts.append(Host(f"p{number}"))
        links.append(replace(edge, a=hosts[-1].name, b="s1"))
    shape = "x".join(map(str, fan_outs))
    return Topology(tuple(switches), tuple(hosts), tuple(links), "s1", name or f"tree({shape})")


def leaf_spine(
    spines: int,
    leaves: int,
    hosts: int,
    *,
    servers: int = 0,
    link: Link | None = None,
    trunk: Link | None = None,
) -> Topology:
    """Return `leaves` switches of `hosts` hosts each, every one of them linked to each of `spines` switches.

    Spines come first, ``s1`` on; each may be the root of a tree of jobs. Fallback servers' hosts hang off the
    spines in turn. `link` and `trunk` are as in `tree`.

    Raises:
        TopologyError: less than one of something, or more than there can be.
    """
    if min(spines, leaves, hosts) < 1:
        raise TopologyError(f"{spines} spines, {leaves} leaves, {hosts} hosts: want one of each at least")
    edge = link or Link("a", "b")
    between = trunk or edge
    switches = [Switch(f"s{number}") for number in range(1, spines + leaves + 1)]
    above, below = switches[:spines], switches[spines:]
    links = [replace(between, a=spine.name, b=leaf.name) for leaf in below for spine in above]
    machines = [Host(f"h{number}") for number in range(1, leaves * hosts + 1)]
    links += [replace(edge, a=host.name, b=below[at // hosts].name) for at, host in enumerate(machines)]
    for number in range(servers):
        machines.append(Host(f"p{number + 1}"))
        links.append(replace(edge, a=machines[-1].name, b=above[number % spines].name))
    name = f"leaf_spine({spines}x{leaves}x{hosts})"
    return Topology(tuple(switches), tuple(machines), tuple(links), "s1", name)
