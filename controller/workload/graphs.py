"""Clusters from graphs, and from the testbeds' topologies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from controller.errors import BadSpec
from controller.vocabulary.documents import number, shown, whole
from controller.workload.model import Cluster, Link, Server, Switch

MAX_SLOTS = 1 << 24


def from_graph(graph: Any) -> Cluster:
    """Return the cluster that an undirected networkx graph describes.

    A node with `gpus` is a server; all others are switches, with `slots`, `lanes` and `rtt_s`. Edges may have
    `rate_bps`. Names are the nodes as text. Raises BadSpec.
    """
    if graph.is_directed() or graph.is_multigraph():
        raise BadSpec("graph: want an undirected graph, with one edge between two nodes (networkx.Graph)")
    checks = {"gpus": whole(1, 1 << 16), "slots": whole(0, MAX_SLOTS), "lanes": whole(1, 1 << 16)}
    rates = {"rate_bps": number(0, 1e15, "bits/s", above=True), "rtt_s": number(0, 1e3, "s", above=True)}
    servers, switches, links = [], [], []
    for node, given in graph.nodes(data=True):
        _check_attributes(f"node {node!s}", given, {**checks, "rtt_s": rates["rtt_s"]})
        if "gpus" in given:
            servers.append(Server(str(node), int(given["gpus"])))
        else:
            known = {key: given[key] for key in ("slots", "lanes", "rtt_s") if key in given}
            switches.append(Switch(str(node), **known))
    for a, b, given in graph.edges(data=True):
        _check_attributes(f"edge {a!s}-{b!s}", given, {"rate_bps": rates["rate_bps"]})
        links.append(Link(str(a), str(b), **{k: v for k, v in given.items() if k == "rate_bps"}))
    return Cluster(tuple(servers), tuple(switches), tuple(links))


def _check_attributes(what: str, given: dict[str, Any], checks: dict[str, Any]) -> None:
    for key, check in checks.items():
        if key in given and (wanted := check(given[key])):
            raise BadSpec(f"graph: {what}: {key} = {shown(given[key])}: {wanted}")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class _Host(_Named, Protocol):
    @property
    def role(self) -> str: ...


class _Switch(_Named, Protocol):
    @property
    def aggregates(self) -> bool: ...


class _Link(Protocol):
    @property
    def a(self) -> str: ...
    @property
    def b(self) -> str: ...
    @property
    def rate_bps(self) -> float: ...
    @property
    def delay_s(self) -> float: ...


class _Topology(Protocol):
    """What this needs of a `controller.vocabulary.topology.Topology`."""

    @property
    def switches(self) -> Sequence[_Switch]: ...
    @property
    def hosts(self) -> Sequence[_Host]: ...
    @property
    def links(self) -> Sequence[_Link]: ...
    @property
    def name(self) -> str: ...


def from_topology(topology: _Topology, *, slots: int, lanes: int = 64, gpus: int = 1) -> Cluster:
    """Return a testbed's topology with `slots` at switches that aggregate, `gpus` at workers' hosts.

    Its links' delays make the round-trip time: there and back over as many links as the farthest host is
    away. A link without a limit counts as 10 Tb/s. Raises BadSpec.
    """
    links = tuple(Link(link.a, link.b, link.rate_bps or 1e13) for link in topology.links)
    servers = tuple(Server(host.name, gpus if host.role == "worker" else 0) for host in topology.hosts)
    plain = Cluster(servers, tuple(Switch(each.name) for each in topology.switches), links, topology.name)
    delay_s = max(link.delay_s for link in topology.links)

    def switch(name: str, aggregates: bool) -> Switch:
        farthest = max(plain.distances(name)[server.name] for server in servers)
        return Switch(name, slots if aggregates else 0, lanes, max(2 * farthest * delay_s, 1e-9))

    switches = tuple(switch(each.name, each.aggregates) for each in topology.switches)
    return Cluster(servers, switches, links, topology.name)
