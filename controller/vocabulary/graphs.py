"""Topologies from graphs, and testbeds' topologies as policies see them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.vocabulary.documents import number, shown, whole
from controller.vocabulary.errors import BadSpec
from controller.vocabulary.topology import MAX_RATE_BPS, Link, Server, Switch, Topology

MAX_SLOTS = 1 << 24


def from_graph(graph: Any) -> Topology:
    """Return the topology that an undirected networkx graph describes.

    A node with `gpus` is a server; all others are switches, with `slots`, `lanes` and `rtt_s`. Edges may have
    `rate_bps`. Names are the nodes as text. Raises BadSpec.
    """
    if graph.is_directed() or graph.is_multigraph():
        raise BadSpec("graph: want an undirected graph, with one edge between two nodes (networkx.Graph)")
    checks = {"gpus": whole(0, 1 << 16), "slots": whole(0, MAX_SLOTS), "lanes": whole(1, 1 << 16)}
    checks["rtt_s"] = number(0, 1e3, "s", above=True)
    rates = {"rate_bps": number(0, MAX_RATE_BPS, "bits/s")}
    servers, switches, links = [], [], []
    for node, given in graph.nodes(data=True):
        _check_attributes(f"node {node!s}", given, checks)
        if "gpus" in given:
            gpus = int(given["gpus"])
            servers.append(Server(str(node), gpus, role="worker" if gpus else "fallback"))
        else:
            known = {"slots": 0} | {key: given[key] for key in ("slots", "lanes", "rtt_s") if key in given}
            switches.append(Switch(str(node), **known))
    for a, b, given in graph.edges(data=True):
        _check_attributes(f"edge {a!s}-{b!s}", given, rates)
        links.append(Link(str(a), str(b), given.get("rate_bps", Link("a", "b").rate_bps)))
    return Topology(tuple(switches), tuple(servers), tuple(links))


def _check_attributes(what: str, given: dict[str, Any], checks: dict[str, Any]) -> None:
    for key, check in checks.items():
        if key in given and (wanted := check(given[key])):
            raise BadSpec(f"graph: {what}: {key} = {shown(given[key])}: {wanted}")


def with_memory(topology: Topology, *, slots: int, lanes: int = 64, gpus: int = 1) -> Topology:
    """Return a topology with memory at its switches and GPUs at its servers.

    A switch's round-trip time follows from the links' delays: there and back over as many links as the
    farthest server is away. Raises BadSpec.

    Args:
        topology: The topology.
        slots: Slots of each switch that aggregates.
        lanes: Values per packet.
        gpus: GPUs of each worker's server.
    """
    servers = tuple(replace(each, gpus=gpus) if each.gpus else each for each in topology.servers)
    delay_s = max(link.delay_s for link in topology.links)

    def switch(each: Switch) -> Switch:
        farthest = 1 + max(topology.distances({each.name: 0})[topology.rack_of[s.name]] for s in servers)
        rtt_s = max(2 * farthest * delay_s, 1e-9)
        return Switch(each.name, slots if each.aggregates else 0, lanes, rtt_s)

    return replace(topology, switches=tuple(map(switch, topology.switches)), servers=servers)
