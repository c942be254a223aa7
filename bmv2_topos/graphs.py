"""Topologies as networkx graphs, and the other way."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, fields
from typing import Any

import networkx

from controller.vocabulary import Link, Server, Switch, Topology

_OF_LINKS = [each.name for each in fields(Link)]


def to_networkx(topology: Topology) -> Any:
    """Return an undirected graph; a multigraph if two nodes have several links.

    Nodes have ``kind`` ("switch" or "host"), and ``aggregates`` or ``role``; edges have the fields of `Link`
    and ``number``, their place among the links, which decides about the numbers of ports. The graph has
    ``name`` and ``root``.
    """
    pairs = Counter(frozenset((link.a, link.b)) for link in topology.links)
    kind = networkx.MultiGraph if max(pairs.values(), default=1) > 1 else networkx.Graph
    graph = kind(name=topology.name, root=topology.root)
    for switch in topology.switches:
        graph.add_node(switch.name, kind="switch", aggregates=switch.aggregates)
    for host in topology.servers:
        graph.add_node(host.name, kind="host", role=host.role)
    for number, link in enumerate(topology.links):
        graph.add_edge(link.a, link.b, number=number, **asdict(link))
    return graph


def from_networkx(graph: Any) -> Topology:
    """Return the topology that an undirected graph of networkx describes, with attributes as `to_networkx`.

    A node without ``kind`` is a switch; what else is missing is as in `Link`, `Switch` and `Server`;
    attributes of other names are nobody's business here.

    Raises:
        BadSpec: it is no network.
    """
    switches, hosts = [], []
    for node, values in graph.nodes(data=True):
        if values.get("kind", "switch") == "host":
            role = values.get("role", "worker")
            hosts.append(Server(str(node), int(role == "worker"), role))
        else:
            switches.append(Switch(str(node)) if values.get("aggregates", True) else Switch(str(node), 0))
    edges = sorted(graph.edges(data=True), key=lambda edge: edge[2].get("number", 0))
    links = [
        Link(**({"a": str(a), "b": str(b)} | {key: values[key] for key in _OF_LINKS if key in values}))
        for a, b, values in edges
    ]
    root = str(graph.graph.get("root", ""))
    return Topology(tuple(switches), tuple(hosts), tuple(links), root, graph.graph.get("name", ""))
