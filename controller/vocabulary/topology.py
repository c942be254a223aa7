"""Topologies as plain data: switches, servers and the links between them.

A topology says nothing about the jobs on it, so that the same topology serves a simulation in virtual time,
network namespaces, Mininet, and the policies that place jobs and divide memory.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, zip_longest
from typing import Literal

from controller.vocabulary.errors import BadSpec
from controller.vocabulary.lists import by_key

MAX_PORT = 510
"""Highest port number: v1model's port numbers are bit<9>, and 511 means drop."""

Role = Literal["worker", "fallback", "traffic"]
"""Use of a server: jobs' workers, a fallback server, or ordinary traffic beside the jobs."""
ROLES: tuple[Role, ...] = ("worker", "fallback", "traffic")

LANE_BITS = 32

FALLBACK_PORT = 9560
"""TCP port of ``ina fallback --serve`` unless specified otherwise."""

MAX_HOSTS = 65_000
"""Maximum number of servers with addresses by position: 10.0.0.1 to 10.0.253.232."""

MAX_RATE_BPS = 1e15
"""Maximum rate of a link, bits per second."""

MAX_S = 1e12
"""Greatest time, seconds."""

MAX_PARTS = 1_000_000
"""Maximum number of switches, servers or links of a topology."""


_SHOWN = 20
"""Maximum number of names that an error lists."""


def check_size(what: str, *, switches: int, servers: int, links: int) -> None:
    """Raise BadSpec for a topology that is too large, before it is made.

    Args:
        what: The request, for the error message.
        switches: Number of switches.
        servers: Number of servers.
        links: Number of links.
    """
    counts = {"servers": servers, "switches": switches, "links": links}
    for name, count in counts.items():
        if count > MAX_PARTS:
            raise BadSpec(f"{what}: {count:,} {name}; want at most {MAX_PARTS:,}")


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex link between the nodes `a` and `b`; all properties hold for each direction."""

    a: str
    b: str
    rate_bps: float = 10e9
    """Bits per second; 0: unlimited, and nothing ever queues."""
    delay_s: float = 2e-6
    """Propagation delay, one way."""
    queue_packets: int = 2048
    """Longest queue at a switch's port, in packets; further packets are dropped. A host's own queue has no
    limit, because the workers' windows limit it."""
    loss: float = 0.0
    """Probability that a packet is lost."""
    duplicate: float = 0.0
    """Probability that a packet arrives twice."""
    reorder: float = 0.0
    """Probability that a packet is held back, by up to `reorder_s`, and other packets overtake it."""
    reorder_s: float = 50e-6
    a_port: int = 0
    """Port at `a`, if `a` is a switch; 0: the first free port (`Topology.ports`)."""
    b_port: int = 0
    """Port at `b`, likewise."""

    def __post_init__(self) -> None:
        what = f"link {self.a}-{self.b}"
        if self.a == self.b:
            raise BadSpec(f"{what}: both ends are the same node")
        for name in ("loss", "duplicate", "reorder"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise BadSpec(f"{what}: {name} is {value:g}, must be a probability, 0 to 1")
        for name, most in (("rate_bps", MAX_RATE_BPS), ("delay_s", MAX_S), ("reorder_s", MAX_S)):
            value = getattr(self, name)
            if not 0 <= value <= most:
                raise BadSpec(f"{what}: {name} is {value:g}, must be 0 or more, and at most {most:g}")
        if self.queue_packets < 1:
            raise BadSpec(f"{what}: queue_packets is {self.queue_packets}, must be 1 or more")

    @property
    def capacity_bps(self) -> float:
        """Bits per second that the link carries in each direction; infinite if `rate_bps` is 0."""
        return self.rate_bps or math.inf

    def faster(self, factor: float) -> Link:
        """Return the link with `factor` times its rate, at most `MAX_RATE_BPS`; unlimited links stay so."""
        return replace(self, rate_bps=min(self.rate_bps * factor, MAX_RATE_BPS))

    def other(self, node: str) -> str:
        """Return the end that is not `node`."""
        return self.b if node == self.a else self.a

    def port_at(self, node: str) -> int:
        """Return the port given for one end of the link (`a_port`, `b_port`); 0: none is given."""
        return self.a_port if node == self.a else self.b_port


@dataclass(frozen=True, slots=True)
class Switch:
    """A programmable switch.

    `rtt_s` is the time from a packet's departure at a worker until its slot is free again, if all workers
    send at once.
    """

    name: str
    slots: int = 8192
    """Aggregator slots; 0: the switch sums nothing and forwards gradients unchanged."""
    lanes: int = 64
    """Number of 32-bit values in a slot, and in a packet."""
    rtt_s: float = 20e-6
    p4runtime: str = ""
    """Address of the switch's P4Runtime service, ``grpc://host:port`` or ``unix:path``; "": not given."""
    program: str = ""
    """File of the P4 program that only this switch runs in a testbed; "": the testbed's common program."""
    runtime: tuple[str, ...] = ()
    """Files with the initial entries of the switch's tables, in a testbed."""
    cpu_port: int = 0
    """Port to the switch's controller, in a testbed; 0: there is no such port."""

    @property
    def aggregates(self) -> bool:
        """True if the switch has memory for sums."""
        return self.slots > 0

    @property
    def payload_bytes(self) -> int:
        """Gradient bytes of a packet."""
        return self.lanes * LANE_BITS // 8

    @property
    def aggregation_bps(self) -> float:
        """Rate, in bits/s, at which the switch sums if each slot is held for one round trip per packet.

        NetPack calls this rate the peak throughput.
        """
        return self.slots * self.payload_bytes * 8 / self.rtt_s


@dataclass(frozen=True, slots=True)
class Server:
    """A machine with one network interface. Raises BadSpec for a role that contradicts its GPUs."""

    name: str = ""
    gpus: int = 1
    """GPUs for workers; 0 for a server with another role."""
    role: Role = "worker"
    cpus: float = math.inf
    """CPU cores; infinite: no limit."""
    memory_gb: float = math.inf
    vc: str = ""
    """Virtual cluster that the server belongs to; "": none."""
    kind: str = ""
    """Kind of the server's GPUs; "": not given."""
    rack: str = ""
    """Rack of the server, for schedulers that see no network; "": not given."""
    ip: str = ""
    """IPv4 address of the server's interface to the switch; "": derived from the server's position
    (`Topology.ip`)."""
    mac: str = ""
    """MAC address of the server's interface to the switch; "": derived from the server's position
    (`Topology.mac`)."""
    interface: str = ""
    """Name of the server's network interface that is linked to the switch; "": not given."""
    address: str = ""
    """Address at which other machines reach the server's processes; "": `ip`."""
    fallback_port: int = 0
    """TCP port of ``ina fallback --serve`` on the server; 0: `FALLBACK_PORT` if the server's role is
    "fallback", else no port."""
    prefix: int = 0
    """In a testbed, the prefix length of the server's subnet; the server's `commands` set routes to other
    subnets. 0: all hosts are in one subnet, and the server knows their MAC addresses from the start."""
    commands: tuple[str, ...] = ()
    """Commands that the server's shell runs when a testbed has started."""

    def __post_init__(self) -> None:
        what = f"server {self.name!r}"
        if self.role not in ROLES:
            raise BadSpec(f"{what}: role is {self.role!r}, must be one of {', '.join(ROLES)}")
        if (self.gpus > 0) != (self.role == "worker"):
            raise BadSpec(
                f"{what}: role {self.role!r} with {self.gpus} GPUs; a worker's server has 1 or more, others 0"
            )
        if not (self.cpus > 0 and self.memory_gb > 0):
            raise BadSpec(f"{what}: {self.cpus:g} CPUs and {self.memory_gb:g} GB; want more than 0")

    @property
    def serves_fallback_at(self) -> int:
        """TCP port of ``ina fallback --serve`` on the server; 0: no such port."""
        return self.fallback_port or (FALLBACK_PORT if self.role == "fallback" else 0)

    @property
    def serves_beside_workers(self) -> bool:
        """True if a fallback server and workers run on the machine, and share its port at the switch."""
        return self.role == "worker" and self.fallback_port > 0


@dataclass(frozen=True)
class Topology:
    """Switches, servers and links; `root` is the switch at which aggregation trees end.

    Every server has exactly one link, to a switch, and every switch can be reached from every other.

    Raises:
        BadSpec: they do not form such a network.
    """

    switches: tuple[Switch, ...]
    servers: tuple[Server, ...]
    links: tuple[Link, ...]
    root: str = ""
    """Name of the root switch; "": the first switch."""
    name: str = field(default="", compare=False)
    switch_ip: str = ""
    """IPv4 address that workers send to; "": not given."""

    def __post_init__(self) -> None:
        if not self.switches:
            raise BadSpec("a topology needs a switch")
        if not self.root:
            object.__setattr__(self, "root", self.switches[0].name)
        names = Counter(self._names)
        if twice := [name for name, count in names.items() if count > 1]:
            raise BadSpec(f"two nodes are called {twice[0]!r}")
        for link in self.links:
            for end in (link.a, link.b):
                if end not in names:
                    raise BadSpec(f"link {link.a}-{link.b}: there is no node {end!r}")
        for server in self.servers:
            links = self._links_at[server.name]
            if len(links) != 1:
                raise BadSpec(f"server {server.name!r} has {len(links)} links, must have one")
            if links[0].other(server.name) not in self.switch:
                raise BadSpec(f"server {server.name!r} is linked to a server, must be linked to a switch")
        if self.root not in self.switch:
            known = ", ".join(list(self.switch)[:_SHOWN]) + ", …" * (len(self.switch) > _SHOWN)
            raise BadSpec(f"the root {self.root!r} is not a switch; want one of {known}")
        if cut_off := self.switch.keys() - self.parents.keys():
            raise BadSpec(f"switch {min(cut_off)!r} cannot be reached from {self.root!r}")
        for what in ("ip", "mac"):
            taken: dict[str, str] = {}
            for server in self.servers:
                if own := getattr(server, what).lower():
                    if own in taken:
                        raise BadSpec(
                            f"server {server.name!r}: {what} is {own}, already used by {taken[own]!r}"
                        )
                    taken[own] = server.name
        if any(link.a_port or link.b_port for link in self.links):
            _ = self.ports

    @property
    def _names(self) -> list[str]:
        return [switch.name for switch in self.switches] + [server.name for server in self.servers]

    @cached_property
    def server(self) -> Mapping[str, Server]:
        """Servers by name."""
        return {server.name: server for server in self.servers}

    @cached_property
    def switch(self) -> Mapping[str, Switch]:
        """Switches by name."""
        return {switch.name: switch for switch in self.switches}

    @cached_property
    def number_of(self) -> Mapping[str, int]:
        """The position of each switch among the switches."""
        return {switch.name: number for number, switch in enumerate(self.switches)}

    @cached_property
    def link_bps_of(self) -> Mapping[str, float]:
        """The rate of each server's link, bits per second; infinite: unlimited."""
        return {server.name: self._links_at[server.name][0].capacity_bps for server in self.servers}

    @cached_property
    def fastest_bps(self) -> float:
        """The rate of the fastest link, bits per second."""
        return max(link.capacity_bps for link in self.links)

    @cached_property
    def serving(self) -> frozenset[str]:
        """Servers that may be fallback servers: those with a `fallback_port`, or all if no server has one."""
        return frozenset(each.name for each in self.servers if each.fallback_port) or frozenset(self.server)

    @cached_property
    def gpus(self) -> int:
        """Total number of GPUs."""
        return sum(server.gpus for server in self.servers)

    def servers_for(self, role: Role) -> tuple[str, ...]:
        """Return the names of the servers with a role, in their order."""
        return tuple(server.name for server in self.servers if server.role == role)

    # ----------------------------------------------------------------------- links between nodes

    @cached_property
    def _links_at(self) -> Mapping[str, list[Link]]:
        found: dict[str, list[Link]] = {name: [] for name in self._names}
        for link in self.links:
            found[link.a].append(link)
            found[link.b].append(link)
        return found

    @cached_property
    def neighbours(self) -> Mapping[str, Mapping[str, int]]:
        """For each node: the nodes to which it is linked, each with the number of the link.

        Raises BadSpec if two nodes have several links: policies assume one.
        """
        found: dict[str, dict[str, int]] = {name: {} for name in self._links_at}
        for number, link in enumerate(self.links):
            if link.b in found[link.a]:
                raise BadSpec(
                    f"link {link.a}-{link.b} appears twice; policies need one link between two nodes"
                )
            found[link.a][link.b] = number
            found[link.b][link.a] = number
        return found

    @cached_property
    def rack_of(self) -> Mapping[str, str]:
        """The switch that each server is linked to."""
        return {each.name: self._links_at[each.name][0].other(each.name) for each in self.servers}

    @cached_property
    def racks(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the servers at each switch, by switch; switches without servers are left out."""
        found = by_key((switch, name) for name, switch in self.rack_of.items())
        return {switch: tuple(names) for switch, names in found.items()}

    @cached_property
    def parents(self) -> Mapping[str, str | None]:
        """The tree of shortest paths to the root: for each node the next node on its path, for the root None.

        Of equally short paths, the path over the link that is earlier in `links` is used.
        """
        return {self.root: None, **self._up(self.root)}

    def towards(self, root: str) -> Mapping[str, str]:
        """Return, for every other switch, the next switch on a shortest path to `root`.

        Of equally short paths, the path over the link that is earlier in `links` is used.
        """
        if root not in self._towards:
            up = self._up(root)
            self._towards[root] = {node: above for node, above in up.items() if node in self.switch}
        return self._towards[root]

    def way(self, start: str, end: str) -> tuple[str, ...]:
        """Return the switches on a shortest path from one switch to another, both included."""
        towards, found = self.towards(end), [start]
        while found[-1] != end:
            found.append(towards[found[-1]])
        return tuple(found)

    def hops(self, source: str) -> tuple[int, ...]:
        """Return the distance, in links, from a node to each switch, in the order of `switches`."""
        if source not in self._hops:
            known = self.distances({source: 0})
            self._hops[source] = tuple(known[each.name] for each in self.switches)
        return self._hops[source]

    def distances(self, starts: Mapping[str, int]) -> dict[str, int]:
        """Return the smallest distance of each switch from the nodes in `starts`, in links.

        `starts` maps each start node to a number of links that is added to the distances from this node. The
        items of `starts` must be in ascending order of these numbers.
        """
        found, waiting = dict(starts), deque(starts)
        while waiting:
            node = waiting.popleft()
            for link in self._links_at[node]:
                other = link.other(node)
                if other in self.switch and other not in found:
                    found[other] = found[node] + 1
                    waiting.append(other)
        return found

    def _up(self, root: str) -> dict[str, str]:
        """Return, for every other node, the next node on its path to `root`; nodes near `root` first."""
        found: dict[str, str] = {}
        waiting = deque([root])
        while waiting:
            node = waiting.popleft()
            for link in self._links_at[node]:
                other = link.other(node)
                if other != root and other not in found:
                    found[other] = node
                    if other in self.switch:
                        waiting.append(other)
        return found

    @cached_property
    def _towards(self) -> dict[str, Mapping[str, str]]:
        return {}

    @cached_property
    def _hops(self) -> dict[str, tuple[int, ...]]:
        return {}

    # ----------------------------------------------------------------------- ports and addresses

    @cached_property
    def ports(self) -> Mapping[str, Mapping[int, Link]]:
        """The ports of every switch, in order, with the link at each.

        A link with a given port has this port; other links get the lowest free ports, in the order of links.
        Raises BadSpec if a switch has more links than ports, or two links at one port.
        """
        for name in self.switch:
            if len(self._links_at[name]) > MAX_PORT:
                raise BadSpec(
                    f"switch {name!r} has {len(self._links_at[name])} links, and {MAX_PORT} ports at most"
                )
        return {name: self._numbered(name) for name in self.switch}

    def _numbered(self, switch: str) -> dict[int, Link]:
        given: dict[int, Link] = {}
        for link in self._links_at[switch]:
            if port := link.port_at(switch):
                if port in given:
                    raise BadSpec(
                        f"{link.other(switch)!r} has port {port} of switch {switch!r}, already given to "
                        f"{given[port].other(switch)!r}"
                    )
                given[port] = link
        left = (port for port in itertools.count(1) if port not in given)
        found = {link.port_at(switch) or next(left): link for link in self._links_at[switch]}
        return dict(sorted(found.items())) if given else found

    def port_to(self, switch: str, neighbour: str) -> int:
        """Return the port of `switch` that leads to its neighbour. Raises KeyError if none does."""
        for port, link in self.ports[switch].items():
            if link.other(switch) == neighbour:
                return port
        raise KeyError(f"{switch} has no link to {neighbour}")

    def mac(self, server: str) -> str:
        """Return a server's MAC address: its own, or 02:00:00:00:00:01 for the first and so on."""
        if own := self.server[server].mac:
            return own
        return (0x0200_0000_0000 + self._numbers[server]).to_bytes(6, "big").hex(":")

    def ip(self, server: str) -> str:
        """Return a server's IPv4 address: its own, or 10.0.0.1 for the first and so on."""
        if own := self.server[server].ip:
            return own
        number = self._numbers[server]
        return f"10.0.{number >> 8}.{number & 0xFF}"

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        if len(self.servers) > MAX_HOSTS:
            raise BadSpec(f"{len(self.servers)} servers; there are addresses for {MAX_HOSTS}")
        return {server.name: number for number, server in enumerate(self.servers, start=1)}


# ---------------------------------------------------------------------------
# The hosts of a topology that carry the workers of each job.


def place(topology: Topology, sizes: Sequence[int]) -> list[tuple[str, ...]]:
    """Return the hosts of each job's ranks, one rank on each host; `sizes` has each job's number of ranks.

    A job is spread over the racks evenly, and ranks of one rack are consecutive.

    >>> from controller.vocabulary.catalog import tree
    >>> place(tree([2, 3]), [4, 2])
    [('h1', 'h2', 'h4', 'h5'), ('h3', 'h6')]

    Raises:
        BadSpec: there are fewer hosts than workers.
    """
    taken: set[str] = set()
    places = []
    for workers in sizes:
        hosts = spread(topology, workers, taken)
        taken.update(hosts)
        places.append(hosts)
    return places


def spread(topology: Topology, workers: int, taken: Collection[str]) -> tuple[str, ...]:
    """Return the hosts of one job's ranks, as `place` does, without the hosts in `taken`. Raises BadSpec."""
    free = [host for host in topology.servers_for("worker") if host not in taken]
    if workers > len(free):
        of = f" of {len(topology.servers_for('worker'))}" if taken else ""
        raise BadSpec(f"{workers} workers: {len(free)}{of} hosts for workers are free")
    racks = by_key((topology.rack_of[host], host) for host in free)
    in_turns = [host for host in chain(*zip_longest(*racks.values())) if host is not None]
    chosen = set(in_turns[:workers])
    return tuple(host for rack in racks.values() for host in rack if host in chosen)
