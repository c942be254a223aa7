"""Conversion of topologies to networkx graphs and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import networkx

from controller.vocabulary import Link, Server, Switch, Topology


def to_networkx(topology: Topology) -> Any:
    """Return the undirected graph of a topology; a multigraph if several links join the same two nodes.

    Nodes have the fields of `Switch` or `Server`, edges the fields of `Link` and ``number``, the link's
    position among the topology's links, which determines port numbers. The graph has ``name`` and ``root``.
    """
    pairs = Counter(frozenset((link.a, link.b)) for link in topology.links)
    kind = networkx.MultiGraph if max(pairs.values(), default=1) > 1 else networkx.Graph
    graph = kind(name=topology.name, root=topology.root)
    for switch in topology.switches:
        graph.add_node(switch.name, **asdict(switch))
    for server in topology.servers:
        graph.add_node(server.name, **asdict(server))
    for number, link in enumerate(topology.links):
        graph.add_edge(link.a, link.b, number=number, **asdict(link))
    return graph


def from_networkx(graph: Any) -> Topology:
    """Return the topology of an undirected graph of networkx, with attributes as in `to_networkx`.

    A node with ``gpus`` is a server, all others are switches; missing attributes have the defaults of `Link`,
    `Switch` and `Server`; attributes of other names are ignored.

    Raises:
        BadSpec: the graph is not a valid network.
    """
    switches, servers = [], []
    for node, values in graph.nodes(data=True):
        if "gpus" in values:
            role = "worker" if values["gpus"] else "fallback"
            servers.append(Server(**({"role": role} | _given(Server, values, name=str(node)))))
        else:
            switches.append(Switch(**_given(Switch, values, name=str(node))))
    edges = sorted(graph.edges(data=True), key=lambda edge: edge[2].get("number", 0))
    # networkx may yield an edge's ends in either order; the edge's own `a` and `b`, if given, are right
    links = [Link(**({"a": str(a), "b": str(b)} | _given(Link, values))) for a, b, values in edges]
    root = str(graph.graph.get("root", ""))
    return Topology(tuple(switches), tuple(servers), tuple(links), root, graph.graph.get("name", ""))


def _given(kind: Any, values: Mapping[str, Any], **names: str) -> dict[str, Any]:
    """Return `names`, together with the items of `values` that are fields of the dataclass `kind`."""
    return {each.name: values[each.name] for each in fields(kind) if each.name in values} | names
