"""Topologies as plain data: switches, hosts and the links between them.

A topology says nothing about the jobs on it, so that the same one serves a simulation in virtual time,
network namespaces and Mininet.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

MAX_PORT = 510
"""v1model's port numbers are bit<9>, and 511 means drop."""

Role = Literal["worker", "server", "traffic"]
ROLES: tuple[Role, ...] = ("worker", "server", "traffic")

MAX_HOSTS = 65_000
"""Number of the addresses 10.0.0.1 to 10.0.253.232."""


class TopologyError(ValueError):
    """The parts do not make a network; says which part, and what would be right."""


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex link between the nodes `a` and `b`; every figure holds for each direction."""

    a: str
    b: str
    rate_bps: float = 10e9
    """Bits per second; 0: unlimited, and nothing ever queues."""
    delay_s: float = 2e-6
    """Propagation delay, one way."""
    queue_packets: int = 2048
    """Longest queue at a switch's port; further packets are dropped. A host's own queue is not limited: its
    window is."""
    loss: float = 0.0
    """Probability that a packet is lost."""
    duplicate: float = 0.0
    """Probability that a packet arrives twice."""
    reorder: float = 0.0
    """Probability that a packet is held back, by up to `reorder_s`; others overtake it."""
    reorder_s: float = 50e-6

    def __post_init__(self) -> None:
        what = f"link {self.a}-{self.b}"
        if self.a == self.b:
            raise TopologyError(f"{what}: both ends are the same node")
        for name in ("loss", "duplicate", "reorder"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise TopologyError(f"{what}: {name} is {value:g}, must be a probability, 0 to 1")
        for name in ("rate_bps", "delay_s", "reorder_s"):
            value = getattr(self, name)
            if not 0 <= value < 2**40:
                raise TopologyError(f"{what}: {name} is {value:g}, must be 0 or more")
        if self.queue_packets < 1:
            raise TopologyError(f"{what}: queue_packets is {self.queue_packets}, must be 1 or more")

    def other(self, node: str) -> str:
        """Return the end that is not `node`."""
        return self.b if node == self.a else self.a


@dataclass(frozen=True, slots=True)
class Switch:
    """A programmable switch."""

    name: str
    aggregates: bool = True
    """False: it has no memory to spare for sums and passes gradients on as they are."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine with one network interface."""

    name: str
    role: Role = "worker"
    """Its use: jobs' workers, a fallback server, or ordinary traffic beside the jobs."""

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise TopologyError(
                f"host {self.name!r}: role is {self.role!r}, must be one of {', '.join(ROLES)}"
            )


@dataclass(frozen=True)
class Topology:
    """Switches, hosts and links; `root` is the switch at which aggregation trees end.

    Every host has exactly one link, to a switch, and every switch can be reached from every other.

    Raises:
        TopologyError: they do not make such a network.
    """

    switches: tuple[Switch, ...]
    hosts: tuple[Host, ...]
    links: tuple[Link, ...]
    root: str = ""
    """Name of that switch; "": the first one."""
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.switches:
            raise TopologyError("a topology needs a switch")
        if not self.root:
            object.__setattr__(self, "root", self.switches[0].name)
        names = [switch.name for switch in self.switches] + [host.name for host in self.hosts]
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise TopologyError(f"two nodes are called {twice[0]!r}")
        if len(self.hosts) > MAX_HOSTS:
            raise TopologyError(f"{len(self.hosts)} hosts; there are addresses for {MAX_HOSTS}")
        known = set(names)
        for link in self.links:
            for end in (link.a, link.b):
                if end not in known:
                    raise TopologyError(f"link {link.a}-{link.b}: there is no node {end!r}")
        self._check_degrees({switch.name for switch in self.switches})
        if self.root not in self.ports:
            raise TopologyError(f"the root {self.root!r} is not a switch")
        cut_off = set(self.ports) - {name for name, _ in self._walk()}
        if cut_off:
            raise TopologyError(f"switch {min(cut_off)!r} cannot be reached from {self.root!r}")

    def _check_degrees(self, switches: set[str]) -> None:
        for host in self.hosts:
            links = [link for link in self.links if host.name in (link.a, link.b)]
            if len(links) != 1:
                raise TopologyError(f"host {host.name!r} has {len(links)} links, must have one")
            if links[0].other(host.name) not in switches:
                raise TopologyError(f"host {host.name!r} is linked to a host; it must be linked to a switch")
        for switch in switches:
            count = sum(switch in (link.a, link.b) for link in self.links)
            if count > MAX_PORT:
                raise TopologyError(f"switch {switch!r} has {count} links, and {MAX_PORT} ports at most")

    @cached_property
    def ports(self) -> Mapping[str, Mapping[int, Link]]:
        """The ports of every switch with their links, numbered from 1 in the order of the links."""
        ports: dict[str, dict[int, Link]] = {switch.name: {} for switch in self.switches}
        for link in self.links:
            for end in (link.a, link.b):
                if end in ports:
                    ports[end][len(ports[end]) + 1] = link
        return ports

    def port_to(self, switch: str, neighbour: str) -> int:
        """Return the port of `switch` that leads to its neighbour. Raises KeyError if none does."""
        for port, link in self.ports[switch].items():
            if link.other(switch) == neighbour:
                return port
        raise KeyError(f"{switch} has no link to {neighbour}")

    def hosts_for(self, role: Role) -> tuple[str, ...]:
        """Return the names of the hosts with a role, in their order."""
        return tuple(host.name for host in self.hosts if host.role == role)

    @cached_property
    def parents(self) -> Mapping[str, str | None]:
        """The tree of shortest paths to the root: every node's neighbour on its way up, the root's None.

        Between equally short paths the earlier link decides.
        """
        return dict(self._walk())

    def switch_of(self, host: str) -> str:
        """Return the switch that a host is linked to."""
        parent = self.parents[host]
        assert parent is not None, "only the root switch has no parent"
        return parent

    def _walk(self) -> Iterator[tuple[str, str | None]]:
        seen = {self.root}
        waiting: deque[tuple[str, str | None]] = deque([(self.root, None)])
        while waiting:
            node, parent = waiting.popleft()
            yield node, parent
            for link in self.ports.get(node, {}).values():
                neighbour = link.other(node)
                if neighbour not in seen:
                    seen.add(neighbour)
                    waiting.append((neighbour, node))

    def distances(self, starts: Mapping[str, int]) -> dict[str, int]:
        """Return how many links each switch is away from the nearest of `starts`, whose own distances count.

        `starts` are switches, in the order of their distances.
        """
        found, waiting = dict(starts), deque(starts)
        while waiting:
            switch = waiting.popleft()
            for link in self.ports[switch].values():
                other = link.other(switch)
                if other in self.ports and other not in found:
                    found[other] = found[switch] + 1
                    waiting.append(other)
        return found

    def mac(self, host: str) -> str:
        """Return a host's MAC address: 02:00:00:00:00:01 for the first and so on."""
        return (0x0200_0000_0000 + self._numbers[host]).to_bytes(6, "big").hex(":")

    def ip(self, host: str) -> str:
        """Return a host's IPv4 address: 10.0.0.1 for the first and so on."""
        number = self._numbers[host]
        return f"10.0.{number >> 8}.{number & 0xFF}"

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {host.name: number for number, host in enumerate(self.hosts, start=1)}
