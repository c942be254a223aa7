"""Servers with GPUs as schedulers see them, and topologies by name.

Each topology is a function that returns a `Topology`.

Hosts of workers are called ``h1``, ``h2``, … Hosts of fallback servers are called ``p1``, ``p2``, …, and are
linked to the root, or to the spines. Hosts for ordinary traffic are called ``x1``, ``x2``, …

`named` makes a topology by its name on the command line: ``fat-tree``, or ``leaf-spine:2x4x2``.

Topologies of p4lang/tutorials (``topology.json``) are converted: ``hosts`` have ``ip`` (with its prefix),
``mac`` and ``commands``; ``switches`` have ``runtime_json``, ``cli_input``, ``program`` (p4c's output, in a
folder beside the program) and ``cpu_port``; ``links`` are lists of two ends (``h1``, ``s1-p2``) with a delay
(in ms, or with its unit) and a rate in Mb/s. Files are searched for in the current folder, in the topology's
folder, and in the folder above that.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from controller.vocabulary.documents import Document, Where, hint
from controller.vocabulary.errors import BadSpec, plural
from controller.vocabulary.topology import Link, Server, Switch, Topology, check_size

MOST_GPUS = 1_000_000
"""Maximum number of GPUs of a cluster: schedulers track each of them."""


@dataclass(frozen=True)
class Cluster:
    """Servers with GPUs. GPUs are numbered consecutively: server 0 has GPUs 0 to ``servers[0].gpus - 1``.

    `topology` is the servers' network; None: no network is considered. Raises BadSpec without servers, for a
    server without GPUs, and if only some of the servers have a rack or a virtual cluster.

    >>> Cluster.uniform(servers=2, gpus=4).node_of[5]
    1
    """

    servers: tuple[Server, ...]
    topology: Topology | None = None
    unavailable: frozenset[int] = frozenset()
    """GPUs that are unavailable because their servers are down; these GPUs keep their numbers."""

    def __post_init__(self) -> None:
        if not self.servers:
            raise BadSpec("a cluster needs at least one server with GPUs")
        if without := [server for server in self.servers if server.gpus < 1]:
            raise BadSpec(f"server {without[0].name!r} of a cluster has no GPUs; want 1 or more")
        apart = [server for server in self.servers if not server.vc]
        if len({server.vc for server in self.servers}) > 1 and apart:
            raise BadSpec(f"server {apart[0].name!r} is in no virtual cluster, but others are")
        loose = [server for server in self.servers if not server.rack]
        if loose and len(loose) < len(self.servers):
            raise BadSpec(f"server {loose[0].name!r} is in no rack, but others are")

    @classmethod
    def uniform(
        cls, servers: int, gpus: int, *, cpus: float = math.inf, memory_gb: float = math.inf
    ) -> Cluster:
        """Return a cluster of equal servers.

        Args:
            servers: Number of servers.
            gpus: Number of GPUs of each server.
            cpus: Number of CPU cores of each server.
            memory_gb: Memory of each server, in GB.

        Raises BadSpec.
        """
        if servers < 1:
            raise BadSpec(f"a cluster of {servers} servers; at least 1 is needed")
        return cls(tuple(Server(f"n{at}", gpus, cpus=cpus, memory_gb=memory_gb) for at in range(servers)))

    @classmethod
    def of(cls, topology: Topology) -> Cluster:
        """Return the servers of a topology that have GPUs. Raises BadSpec if none has."""
        return cls(tuple(server for server in topology.servers if server.gpus), topology)

    @cached_property
    def gpus(self) -> int:
        """Number of available GPUs."""
        return sum(server.gpus for server in self.servers) - len(self.unavailable)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of GPUs of each server."""
        return tuple(server.gpus for server in self.servers)

    @cached_property
    def racks(self) -> tuple[frozenset[int], ...]:
        """For each rack, the numbers of its servers; empty if no racks are named.

        Racks are in the order of their first servers.
        """
        names = dict.fromkeys(server.rack for server in self.servers if server.rack)
        return tuple(
            frozenset(number for number, server in enumerate(self.servers) if server.rack == name)
            for name in names
        )

    @cached_property
    def gpus_of(self) -> tuple[range, ...]:
        """The numbers of each server's GPUs."""
        ends = itertools.accumulate(self.sizes)
        return tuple(range(end - size, end) for end, size in zip(ends, self.sizes, strict=True))

    @cached_property
    def node_of(self) -> tuple[int, ...]:
        """For each GPU, the number of the server that has the GPU."""
        return tuple(number for number, server in enumerate(self.servers) for _ in range(server.gpus))

    @cached_property
    def virtual(self) -> tuple[str, ...]:
        """The names of the virtual clusters of the servers, in order of their first servers; empty: none."""
        return tuple(dict.fromkeys(server.vc for server in self.servers if server.vc))

    def part(self, vc: str) -> Cluster:
        """Return the servers of a virtual cluster as a separate cluster. Raises BadSpec if there are none."""
        return Cluster(tuple(replace(server, vc="") for server in self.servers if server.vc == vc))

    def without(self, gpus: Iterable[int]) -> Cluster:
        """Return the cluster with these GPUs, and no other GPUs, unavailable."""
        return replace(self, unavailable=frozenset(gpus))

    def check_room(self, name: str, gpus: int) -> None:
        """Raise BadSpec if job `name` asks for more GPUs than all servers have."""
        total = len(self.node_of)  # including GPUs of servers that are down, which come back
        if gpus > total:
            raise BadSpec(f"job {name!r} asks for {plural(gpus, 'GPU')}; the cluster has {total}")


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
        raise BadSpec(
            f"unknown topology {name!r}; {hint(name, CATALOG)} (a file's name ends in .toml, .json or .yaml)"
        )
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


_HOST = ("ip", "mac", "commands")
_SWITCH = ("runtime_json", "cli_input", "program", "cpu_port")
_PORT = re.compile(r"(.+)-p(\d+)")
_DELAY = re.compile(r"(\d+(?:\.\d*)?)\s*(us|ms|s|)")
_UNIT_S = {"us": 1e-6, "": 1e-6, "ms": 1e-3, "s": 1.0}
"""Units of delays that are given as text; a number without a unit is in microseconds, as in tc."""


def is_exercise(document: Document) -> bool:
    """Return whether a document is a topology of p4lang/tutorials."""
    data = document.data
    return all(isinstance(data.get(key), dict) for key in ("hosts", "switches")) and "links" in data


def topology_of_exercise(document: Document) -> Topology:
    """Convert a topology of p4lang/tutorials. Raises BadSpec."""
    hosts = tuple(_host(document, name, of) for name, of in document.data["hosts"].items())
    switches = tuple(_switch(document, name, of) for name, of in document.data["switches"].items())
    named = {host.name for host in hosts} | {switch.name for switch in switches}
    links = tuple(
        _link(document, ("links", number), given, named)
        for number, given in enumerate(document.data["links"])
    )
    try:
        return Topology(switches, hosts, links, name=Path(document.path).stem)
    except BadSpec as error:
        raise document.error((), str(error)) from error


def _host(document: Document, name: str, of: Mapping[str, Any]) -> Server:
    where: Where = ("hosts", name)
    _check_keys(document, where, of, _HOST)
    ip, _, prefix = str(of.get("ip", "")).partition("/")
    if not re.fullmatch(r"\d+(\.\d+){3}", ip) or not prefix.isdecimal() or not 1 <= int(prefix) <= 32:
        raise document.error(where, f"ip is {of.get('ip')!r}; want an address with its prefix: 10.0.1.1/24")
    commands = of.get("commands", [])
    if not isinstance(commands, list) or not all(isinstance(each, str) for each in commands):
        raise document.error(where, f"commands is {commands!r}; want a list of texts")
    return Server(name, ip=ip, mac=str(of.get("mac", "")), prefix=int(prefix), commands=tuple(commands))


def _switch(document: Document, name: str, of: Mapping[str, Any]) -> Switch:
    where: Where = ("switches", name)
    _check_keys(document, where, of, _SWITCH)
    files = [str(of[key]) for key in ("cli_input", "runtime_json") if key in of]
    program = str(of.get("program", ""))
    source = str(Path(program).parent.parent / f"{Path(program).stem}.p4") if program else ""
    return Switch(
        name,
        program=_found(document, where, source) if source else "",
        runtime=tuple(_found(document, where, file) for file in files),
        cpu_port=int(of.get("cpu_port", 0)),
    )


def _found(document: Document, where: Where, file: str) -> str:
    beside = Path(document.path).resolve().parent
    tried = [Path(file).resolve(), beside / file, beside.parent / file]
    for path in tried:
        if path.is_file():
            return str(path)
    raise document.error(where, f"there is no file {file}; looked for {', '.join(map(str, tried))}")


def _link(document: Document, where: Where, given: Any, named: set[str]) -> Link:
    if not isinstance(given, list) or not 2 <= len(given) <= 4:
        raise document.error(where, f"{given!r} is no link; want two ends, a delay and a rate in Mb/s")
    (a, a_port), (b, b_port) = (_end(str(end), named) for end in given[:2])
    rate = given[3] if len(given) > 3 and given[3] is not None else 0
    delay_s = _delay_s(given[2]) if len(given) > 2 else 0.0
    if delay_s is None or not isinstance(rate, int | float):
        raise document.error(where, f'{given[2:]!r}: want a delay such as 5 (ms) or "10us", a rate in Mb/s')
    try:
        return Link(a, b, rate_bps=rate * 1e6, delay_s=delay_s, a_port=a_port, b_port=b_port)
    except BadSpec as error:
        raise document.error(where, str(error)) from error


def _end(text: str, named: set[str]) -> tuple[str, int]:
    match = _PORT.fullmatch(text)
    return (match[1], int(match[2])) if match and text not in named else (text, 0)


def _delay_s(given: object) -> float | None:
    if isinstance(given, str):
        match = _DELAY.fullmatch(given)
        return float(match[1]) * _UNIT_S[match[2]] if match else None
    return given / 1e3 if isinstance(given, int | float) else None


def _check_keys(document: Document, where: Where, of: object, known: tuple[str, ...]) -> None:
    if not isinstance(of, dict):
        raise document.error(where, f"{of!r}; want an object")
    for key in of:
        if key not in known:
            raise document.error((*where, key), f"unknown key {key!r}{hint(key, known)}")
