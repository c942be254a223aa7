"""Jobs and cluster as allocation policies see them.

Workers of a job on one server add their gradients up there first, and the server sends the sum: so a job has
one flow per server that it uses (ATP, NetPack), and a tree of switches sums these.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controller.errors import BadSpec
from controller.vocabulary import Mode

LANE_BITS = 32


@dataclass(frozen=True, slots=True)
class Server:
    """A machine with one network interface; without GPUs it only sums what finds no slot."""

    name: str
    gpus: int = 1


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch; without `slots` it forwards and sums nothing.

    `lanes` are the 32-bit values of a slot, and of a packet. `rtt_s` is the time from a packet's departure at
    a worker until its slot is free again, if all workers send at once.
    """

    name: str
    slots: int = 0
    lanes: int = 64
    rtt_s: float = 20e-6

    @property
    def aggregates(self) -> bool:
        """Whether it has memory for sums."""
        return self.slots > 0

    @property
    def payload_bytes(self) -> int:
        """Gradient bytes of a packet."""
        return self.lanes * LANE_BITS // 8

    @property
    def aggregation_bps(self) -> float:
        """Rate at which all its slots sum, each held for a round trip (NetPack's peak throughput)."""
        return self.slots * self.payload_bytes * 8 / self.rtt_s


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex link; `rate_bps` holds for each direction."""

    a: str
    b: str
    rate_bps: float = 100e9


@dataclass(frozen=True)
class Cluster:
    """Servers, each linked to one switch, and switches that can all be reached from each other.

    Raises BadSpec for parts that do not make such a network.

    >>> two = Cluster((Server("h1"), Server("h2")), (Switch("s1"),), (Link("h1", "s1"), Link("h2", "s1")))
    >>> two.rack_of["h2"]
    's1'
    """

    servers: tuple[Server, ...]
    switches: tuple[Switch, ...]
    links: tuple[Link, ...]
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        names = Counter([*(each.name for each in self.servers), *(each.name for each in self.switches)])
        if twice := [name for name, count in names.items() if count > 1]:
            raise BadSpec(f"two servers or switches are called {twice[0]!r}")
        if not self.servers or not self.switches:
            raise BadSpec("a cluster needs a server and a switch")
        pairs = set()
        for link in self.links:
            for end in (link.a, link.b):
                if end not in names:
                    raise BadSpec(f"link {link.a}-{link.b}: there is no server or switch {end!r}")
            pair = frozenset((link.a, link.b))
            if len(pair) == 1 or pair in pairs:
                raise BadSpec(f"link {link.a}-{link.b}: {'there twice' if pair in pairs else 'one end only'}")
            pairs.add(pair)
        for server in self.servers:
            ends = self.neighbours[server.name]
            if len(ends) != 1 or next(iter(ends)) not in self.switch:
                raise BadSpec(f"server {server.name!r} has {len(ends)} links; want one, to a switch")
        cut_off = set(names) - set(self.distances(self.switches[0].name))
        if cut_off:
            raise BadSpec(f"{min(cut_off)!r} cannot be reached from switch {self.switches[0].name!r}")

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
        """The place of each switch among the switches."""
        return {switch.name: number for number, switch in enumerate(self.switches)}

    @cached_property
    def neighbours(self) -> Mapping[str, Mapping[str, int]]:
        """For every node the nodes it is linked to, with the number of the link."""
        found: dict[str, dict[str, int]] = {name: {} for name in (*self.server, *self.switch)}
        for number, link in enumerate(self.links):
            found[link.a][link.b] = number
            found[link.b][link.a] = number
        return found

    @cached_property
    def rack_of(self) -> Mapping[str, str]:
        """The switch that each server is linked to."""
        return {server.name: next(iter(self.neighbours[server.name])) for server in self.servers}

    @cached_property
    def racks(self) -> Mapping[str, tuple[str, ...]]:
        """Servers by their switch, for switches that have any."""
        found: dict[str, list[str]] = {}
        for name, switch in self.rack_of.items():
            found.setdefault(switch, []).append(name)
        return {switch: tuple(names) for switch, names in found.items()}

    @cached_property
    def gpus(self) -> int:
        """GPUs in all."""
        return sum(server.gpus for server in self.servers)

    def distances(self, source: str) -> dict[str, int]:
        """Return the number of links from `source` to every node that can be reached."""
        found = {source: 0}
        waiting = deque([source])
        while waiting:
            node = waiting.popleft()
            for other in self.neighbours[node]:
                if other not in found:
                    found[other] = found[node] + 1
                    waiting.append(other)
        return found

    def towards(self, root: str) -> Mapping[str, str]:
        """Return for every other switch its neighbour on a shortest path to `root`, the earlier link's."""
        if root not in self._towards:
            parents: dict[str, str] = {}
            waiting = deque([root])
            while waiting:
                node = waiting.popleft()
                for other in self.neighbours[node]:
                    if other in self.switch and other != root and other not in parents:
                        parents[other] = node
                        waiting.append(other)
            self._towards[root] = parents
        return self._towards[root]

    @cached_property
    def slots(self) -> NDArray[np.int64]:
        """The slots of the switches, in their order."""
        return np.array([each.slots for each in self.switches], dtype=np.int64)

    def hops(self, source: str) -> NDArray[np.int64]:
        """Return the number of links from a switch to each switch, in their order."""
        if source not in self._hops:
            known = self.distances(source)
            self._hops[source] = np.array([known[each.name] for each in self.switches], dtype=np.int64)
        return self._hops[source]

    @cached_property
    def _hops(self) -> dict[str, NDArray[np.int64]]:
        return {}

    @cached_property
    def _towards(self) -> dict[str, Mapping[str, str]]:
        return {}


@dataclass(frozen=True, slots=True)
class Tree:
    """The switches of a job: a root, the parent of each other one, and which of them sum."""

    root: str
    parents: Mapping[str, str]
    aggregators: frozenset[str]

    def __post_init__(self) -> None:
        if self.root in self.parents:
            raise BadSpec(f"tree: the root {self.root!r} has a parent, {self.parents[self.root]!r}")
        for start in self.parents:
            node, steps = start, 0
            while node != self.root:
                if node not in self.parents or steps > len(self.parents):
                    why = "in a circle" if node in self.parents else f"to {node!r}, which has no parent"
                    raise BadSpec(f"tree: the way up from {start!r} leads {why}; want it to reach the root")
                node, steps = self.parents[node], steps + 1

    @property
    def switches(self) -> tuple[str, ...]:
        """All switches, the root first."""
        return (self.root, *self.parents)


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """A data-parallel training job: every iteration each worker computes, then all gradients are summed.

    Attributes:
        name: Unique among jobs.
        workers: Number of ranks.
        gpus: GPUs of each worker.
        layers_bytes: Bytes of the gradient of each layer, front layer first.
        iterations: Iterations left.
        compute_s: Forward and backward pass of one iteration.
        overlap: Fraction of the computing during which gradients may be under way: 0 to 1.
        deadline_s: When it must be done, on the clock of `arrival_s`; None: best effort.
        arrival_s: When it comes.
        mode: Use of switch memory: a region of its own, or slots that jobs share.
        hold_s: Measured time that a slot is held, ranks' skew included; None: not measured.
        skew_s: Time for which the slowest rank computes longer than the others.
        stages_s: Seconds of one iteration on storage, CPU, GPU and network; () if unknown.
        servers: The server of each rank; () before it is placed.
        fallback: The server that sums what finds no slot; None: none yet.
        aggregate: False: it uses no switch memory.
        tree: Its switches; None: shortest paths, and every switch on them that can sums.
    """

    name: str
    workers: int
    gpus: int = 1
    layers_bytes: tuple[int, ...]
    iterations: int = 1
    compute_s: float = 0.0
    overlap: float = 0.0
    deadline_s: float | None = None
    arrival_s: float = 0.0
    mode: Mode = "shared"
    hold_s: float | None = None
    skew_s: float = 0.0
    stages_s: tuple[float, ...] = ()
    servers: tuple[str, ...] = ()
    fallback: str | None = None
    aggregate: bool = True
    tree: Tree | None = None

    def __post_init__(self) -> None:
        what = f"job {self.name!r}"
        if self.workers < 1 or self.gpus < 1 or self.iterations < 1:
            raise BadSpec(f"{what}: workers, gpus and iterations must be 1 or more")
        if not self.layers_bytes or min(self.layers_bytes) < 1:
            raise BadSpec(f"{what}: a model has at least one layer of a byte or more")
        times = (self.compute_s, self.arrival_s, self.hold_s or 0.0, self.skew_s, *self.stages_s)
        if not all(math.isfinite(time) and time >= 0 for time in times) or not 0 <= self.overlap <= 1:
            raise BadSpec(f"{what}: times must be 0 or more, and overlap 0 to 1")
        if self.deadline_s is not None and not self.deadline_s > self.arrival_s:
            raise BadSpec(
                f"{what}: deadline_s is {self.deadline_s:g}, which is past when it arrives, at"
                f" {self.arrival_s:g}"
            )
        if self.servers and len(self.servers) != self.workers:
            raise BadSpec(
                f"{what}: {len(self.servers)} servers for {self.workers} workers; want one for each"
            )

    @cached_property
    def model_bytes(self) -> int:
        """Bytes of the whole gradient."""
        return sum(self.layers_bytes)

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The servers that it uses, each once; their positions are the ranks of its tree."""
        return tuple(dict.fromkeys(self.servers))

    def iteration_s(self, rate_bps: float) -> float:
        """Return the time of one iteration if gradients are summed at this rate.

        The part of computing that `overlap` says runs beside communication, the rest, and the slowest rank's
        skew, before it.
        """
        communication_s = self.model_bytes * 8 / rate_bps if rate_bps > 0 else math.inf
        hidden_s = self.overlap * self.compute_s
        return self.skew_s + self.compute_s - hidden_s + max(hidden_s, communication_s)
