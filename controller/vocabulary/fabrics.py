"""Clusters of regular shape, each a function that returns a `Topology`."""

from __future__ import annotations

import random
from dataclasses import dataclass

from controller.vocabulary.catalog import MOST_GPUS
from controller.vocabulary.errors import BadSpec
from controller.vocabulary.topology import Link, Server, Switch, Topology, check_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Properties common to all servers, switches and links of a cluster.

    `programmable` is the fraction of switches with memory for sums, which are drawn at random with `seed`.
    """

    gpus: int = 8
    rate_bps: float = 100e9
    trunk_bps: float = 100e9
    slots: int = 8192
    lanes: int = 64
    rtt_s: float = 20e-6
    programmable: float = 1.0
    seed: int = 0

    def check_size(self, what: str, *, switches: int, servers: int, trunks: int = 0) -> None:
        """Raise BadSpec for a topology that is too large, before it is made.

        Args:
            what: The request, for the error message.
            switches: Number of switches.
            servers: Number of servers.
            trunks: Number of links between switches.
        """
        check_size(what, switches=switches, servers=servers, links=servers + trunks)
        if servers * self.gpus > MOST_GPUS:
            raise BadSpec(
                f"{what}: {servers:,} servers of {self.gpus} GPUs; a cluster has at most {MOST_GPUS:,} GPUs"
            )

    def switches(self, names: list[str]) -> tuple[Switch, ...]:
        """Return switches with these names; at least one of them sums, unless `programmable` is 0."""
        count = min(len(names), max(round(self.programmable * len(names)), self.programmable > 0))
        chosen = {*random.Random(self.seed).sample(names, count)}
        return tuple(
            Switch(name, self.slots if name in chosen else 0, self.lanes, self.rtt_s) for name in names
        )


def star(servers: int, parts: Parts | None = None) -> Topology:
    """Return one switch ``s1`` with servers ``h1``, ``h2`` and so on."""
    parts = parts or Parts()
    _check(servers=servers)
    parts.check_size("star", switches=1, servers=servers)
    return _with_servers({"s1": servers}, [], ["s1"], parts, f"star({servers})")


def leaf_spine(spines: int, leaves: int, hosts: int, parts: Parts | None = None) -> Topology:
    """Return leaf switches with servers; each leaf switch is linked to each spine switch.

    Args:
        spines: Number of spine switches.
        leaves: Number of leaf switches.
        hosts: Servers of each leaf.
        parts: Properties of servers, switches and links.
    """
    parts = parts or Parts()
    _check(spines=spines, leaves=leaves, hosts=hosts)
    parts.check_size("leaf-spine", switches=spines + leaves, servers=leaves * hosts, trunks=leaves * spines)
    above = [f"spine{number}" for number in range(1, spines + 1)]
    below = [f"leaf{number}" for number in range(1, leaves + 1)]
    trunks = [Link(leaf, spine, parts.trunk_bps) for leaf in below for spine in above]
    name = f"leaf_spine({spines}x{leaves}x{hosts})"
    return _with_servers(dict.fromkeys(below, hosts), trunks, above + below, parts, name)


def fat_tree(k: int, hosts: int, parts: Parts | None = None) -> Topology:
    """Return a fat-tree of switches with `k` ports, and `hosts` servers at each edge switch.

    ``fat_tree(8, 6)`` has 80 switches and 192 servers, as in GRID's evaluation. Source: Al-Fares et al.,
    SIGCOMM'08.
    """
    parts = parts or Parts()
    _check(k=k, hosts=hosts)
    if k % 2:
        raise BadSpec(f"fat-tree: k = {k}: want an even number of ports")
    half = k // 2
    parts.check_size(
        "fat-tree", switches=half * half + k * k, servers=k * half * hosts, trunks=2 * k * half * half
    )
    cores = [f"core{number}" for number in range(1, half * half + 1)]
    edges, inner, trunks = [], [], []
    for pod in range(1, k + 1):
        here = [f"edge{pod}-{number}" for number in range(1, half + 1)]
        above = [f"agg{pod}-{number}" for number in range(1, half + 1)]
        trunks += [Link(edge, agg, parts.trunk_bps) for edge in here for agg in above]
        trunks += [
            Link(agg, core, parts.trunk_bps)
            for number, agg in enumerate(above)
            for core in cores[number * half : (number + 1) * half]
        ]
        edges += here
        inner += above
    racks = dict.fromkeys(edges, hosts)
    return _with_servers(racks, trunks, cores + inner + edges, parts, f"fat_tree({k}, {hosts})")


def _with_servers(
    racks: dict[str, int], trunks: list[Link], switches: list[str], parts: Parts, name: str
) -> Topology:
    places = [switch for switch, count in racks.items() for _ in range(count)]
    servers = tuple(Server(f"h{number}", parts.gpus) for number in range(1, len(places) + 1))
    links = [Link(server.name, place, parts.rate_bps) for server, place in zip(servers, places, strict=True)]
    return Topology(parts.switches(switches), servers, (*links, *trunks), name=name)


def _check(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise BadSpec(f"{name} = {count}: want 1 or more")
