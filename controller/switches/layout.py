"""The part of a job that each switch of its tree serves, computed from the tree. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace

from controller.errors import BadJob, switch_in_errors
from controller.switches.model import (
    BESIDE_UDP_PORT,
    INA_UDP_PORT,
    SWITCH_IP,
    SWITCH_MAC,
    Admission,
    Member,
    Part,
    SharedTerms,
    TreePosition,
    Uplink,
)
from controller.switches.planning import check_fan_in, check_part, check_ranks
from controller.vocabulary import BadSpec, Job, Region, Topology, Tree
from controller.vocabulary.lists import by_key

NEIGHBOUR_MAC, NEIGHBOUR_IP = "02:00:00:00:00:fe", "10.0.0.254"
"""Default destination of packets from one switch to another."""


BESIDE_FAN_IN = 2
"""Number of children of a tree's root if the root is the fallback server: the worker on the server's machine,
and the uppermost switch."""
BESIDE_WORKER, BESIDE_SWITCH = 0b01, 0b10
"""Contribution bits at the fallback server: the bit of the worker on the server's machine, and the bit of
the uppermost switch."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A switch of a job's tree with everything below it.

    `members` are its workers, with their ranks in the whole job; `lay_out` chooses their bits. `links`
    lead to the switches below. `region` has the slots in which a shared job's packets are summed, by default
    all. A `transit` switch has no memory for the job: its children count as children of the switch above.
    `mac` and `ip` are the destination addresses of packets for this switch; the switch does not check them.
    """

    name: str
    members: tuple[Member, ...] = ()
    links: tuple[Downlink, ...] = ()
    _: KW_ONLY
    region: Region | None = None
    transit: bool = False
    mac: str = NEIGHBOUR_MAC
    ip: str = NEIGHBOUR_IP

    def walk(self) -> Iterator[Branch]:
        """Yield this switch and all below it, parents first."""
        yield self
        for link in self.links:
            yield from link.child.walk()


@dataclass(frozen=True, slots=True)
class Downlink:
    """A cable from `port` of a switch down to `child_port` of `child`."""

    port: int
    child: Branch
    child_port: int


@dataclass(frozen=True, slots=True)
class Deployment(SharedTerms):
    """A job and the switches to which it is admitted: `root`, and all switches below it.

    For fields without a description see `Part`.
    """

    root: Branch
    slots: int = 0
    _: KW_ONLY
    beside: Member | None = None
    """The worker on the fallback server's machine. It shares the server's port, so it is no child of `root`:
    the fallback server is the tree's root, with this worker and the switch `root` as its children. None:
    there is no such worker."""


def lay_out(deployment: Deployment, *, max_members: int) -> dict[str, Part]:
    """Return the part of every switch of a tree, by the switches' names, parents first.

    Node ids are assigned in preorder, from 0 for the root. Bits of a node go to its workers in the order
    of their ranks and then to its links in the order given; children of a transit switch get their bits in
    the position of the link to that switch.

    With a worker `beside` the fallback server, node 0 is at this server, and has two bits: the worker's and
    the uppermost switch's.

    Raises BadJob, with the switch's name where one is at fault, if a switch occurs twice, a node has no
    children or more than `max_members`, the workers' ranks are not 0 to n-1, or a switch could not serve its
    part for another reason.
    """
    switches = list(deployment.root.walk())
    names = [switch.name for switch in switches]
    for name in names:
        if names.count(name) > 1:
            raise BadJob(f"switch '{name}' is in the tree twice; a switch can be one node of a job")
    for switch in switches:
        if any(m.rank is None for m in switch.members):
            raise BadJob(
                f"switch '{switch.name}': a member has no rank; want workers as members, switches as links"
            )
    beside = [] if deployment.beside is None else [deployment.beside]
    members = [m for switch in switches for m in switch.members]
    check_ranks([m.rank for m in (*members, *beside) if m.rank is not None])
    layout = _Layout(deployment, max_members)
    parts = dict(layout.node(deployment.root, layout.above_all()))
    for name, part in parts.items():
        with switch_in_errors(name):
            check_part(part, max_members=max_members)
    return parts


@dataclass(frozen=True, slots=True)
class _Node:
    id: int
    fan_in: int


class _Layout:
    """One run of `lay_out`: the properties that all switches have in common, and the next free node id."""

    def __init__(self, deployment: Deployment, max_members: int) -> None:
        self._deployment = deployment
        self._max_members = max_members
        children = _bits(deployment.root) if deployment.beside is None else BESIDE_FAN_IN
        self._result_bitmap = (1 << children) - 1
        self._next_id = 0
        self._terms = {each.name: getattr(deployment, each.name) for each in fields(SharedTerms)}

    def above_all(self) -> Uplink | None:
        """Return the uplink of the uppermost switch if the tree's root is at the fallback server, else None.

        The root is there if a worker runs on the fallback server's machine (`Deployment.beside`); it is node
        0. Raises BadJob if the uppermost switch then only forwards, or the job has no fallback server.
        """
        if self._deployment.beside is None:
            return None
        if self._deployment.root.transit:
            raise BadJob(
                f"switch '{self._deployment.root.name}' only forwards; the uppermost switch must sum"
            )
        if self._deployment.fallback is None:
            raise BadJob("a worker is beside the fallback server, but the job has no such server")
        self._next_id = 1
        return replace(self._deployment.fallback, node=0, bitmap=BESIDE_SWITCH, fan_in=BESIDE_FAN_IN)

    def node(self, switch: Branch, parent: Uplink | None) -> Iterator[tuple[str, Part]]:
        """Lay out a switch that aggregates, and all below it."""
        node = _Node(self._next_id, _bits(switch))
        self._next_id += 1
        with switch_in_errors(switch.name):
            check_fan_in(node.fan_in, self._max_members)
        yield from self._switch(switch, parent, node, 0)

    def _switch(
        self, switch: Branch, parent: Uplink | None, node: _Node, bit: int
    ) -> Iterator[tuple[str, Part]]:
        """Lay out a switch whose children have the bits of `node` from `bit` on."""
        members = []
        for worker in sorted(switch.members, key=lambda m: m.rank or 0):
            members.append(replace(worker, bitmap=1 << bit))
            bit += 1
        first_bits = []
        first_node = self._next_id
        for link in switch.links:
            child = link.child
            first_bits.append(bit)
            bits = _bits(child) if child.transit else 1
            bitmap = ((1 << bits) - 1) << bit
            below = range(first_node, first_node + sum(not s.transit for s in child.walk()))
            behind = Member(None, link.port, child.mac, child.ip, INA_UDP_PORT, bitmap, below, _ranks(child))
            members.append(behind)
            bit += bits
            first_node = below.stop
        yield switch.name, self._part(switch, tuple(members), parent, node.id)

        up = Uplink(None, switch.mac, switch.ip, node=node.id, fan_in=node.fan_in)
        for link, first in zip(switch.links, first_bits, strict=True):
            if link.child.transit:
                yield from self._switch(link.child, replace(up, port=link.child_port), node, first)
            else:
                yield from self.node(link.child, replace(up, port=link.child_port, bitmap=1 << first))

    def _part(self, switch: Branch, members: tuple[Member, ...], parent: Uplink | None, node: int) -> Part:
        deployment = self._deployment
        return Part(
            members,
            deployment.slots,
            region=switch.region,
            place=TreePosition(node, parent, self._result_bitmap, switch.transit),
            **{**self._terms, "fallback": None if parent else deployment.fallback},
        )


def _ranks(switch: Branch) -> range:
    """Return the smallest range that has the ranks of all workers at a switch and below it."""
    ranks = [member.rank for each in switch.walk() for member in each.members if member.rank is not None]
    return range(min(ranks), max(ranks) + 1) if ranks else range(0)


def _bits(switch: Branch) -> int:
    """Return the number of contributions that a switch receives from its children."""
    below = (_bits(link.child) if link.child.transit else 1 for link in switch.links)
    return len(switch.members) + sum(below)


# ---------------------------------------------------------------------------
# The switches that a job's workers are linked to, and the branches that they need. No I/O.


def members_by_switch(
    topology: Topology, hosts: Sequence[str], udp_ports: Sequence[int] | None = None
) -> dict[str, list[Member]]:
    """Return the workers on these hosts (host i has rank i), by the switch to which the host is linked.

    `udp_ports` are the workers' UDP ports, by rank; None: all use `INA_UDP_PORT`.
    """
    members: dict[str, list[Member]] = {}
    for rank, host in enumerate(hosts):
        switch = topology.rack_of[host]
        udp_port = INA_UDP_PORT if udp_ports is None else udp_ports[rank]
        member = Member(rank, topology.port_to(switch, host), topology.mac(host), topology.ip(host), udp_port)
        members.setdefault(switch, []).append(member)
    return members


def fallback_udp_port(topology: Topology, server: str) -> int:
    """Return the UDP port of the fallback server on a machine: a separate one if workers run there, too."""
    return BESIDE_UDP_PORT if topology.server[server].serves_beside_workers else INA_UDP_PORT


def split_off_beside(
    members: dict[str, list[Member]], server: str, topology: Topology
) -> tuple[dict[str, list[Member]], Member | None]:
    """Separate the worker on the fallback server's machine from the other workers.

    The machine has one port at a switch, which the fallback server uses (`Deployment.beside`). Returns the
    other workers by switch, and the worker on this machine; None: there is none.

    Raises:
        BadSpec: no other worker is left for a switch to sum.
    """
    ip = topology.ip(server)
    beside = [member for of in members.values() for member in of if member.ip == ip]
    left = {name: [member for member in of if member not in beside] for name, of in members.items()}
    left = {name: of for name, of in left.items() if of}
    if beside and not left:
        raise BadSpec(
            f"all workers are on {server!r}, the fallback server's machine: no switch sums anything"
        )
    return left, next(iter(beside), None)


def branch_of(
    topology: Topology,
    root: str,
    parents: Mapping[str, str | None],
    members: Mapping[str, Sequence[Member]],
    *,
    regions: Mapping[str, Region | None],
    transit: Collection[str],
    ip: str = SWITCH_IP,
) -> Branch:
    """Return the part of a tree that a job needs: the root, and the switches with members on or below them.

    Args:
        topology: The switches, with their cables.
        root: The root of the tree.
        parents: The switch above each other switch of the tree.
        members: The job's workers by switch (`members_by_switch`).
        regions: By switch, the slots that a shared job may use; at other switches it may use all slots.
        transit: Switches that forward the job's packets without adding.
        ip: IPv4 address of packets for a switch; by default the only one that a worker's UDP socket accepts.
    """
    below = by_key((parents[name], name) for name in topology.switch if parents.get(name))

    def branch(name: str) -> Branch:
        links = []
        for child in below.get(name, ()):
            subtree = branch(child)
            if subtree.members or subtree.links:
                links.append(Downlink(topology.port_to(name, child), subtree, topology.port_to(child, name)))
        return Branch(
            name,
            tuple(members.get(name, ())),
            tuple(links),
            region=regions.get(name),
            transit=name in transit,
            mac=SWITCH_MAC,
            ip=ip,
        )

    return branch(root)


# ---------------------------------------------------------------------------
# From a job's tree (`controller.policies.routing`) to a deployment on switches. No I/O.


def deployment_of(
    topology: Topology,
    job: Job,
    tree: Tree,
    *,
    regions: Mapping[str, Region] | None = None,
    udp_ports: Sequence[int] | None = None,
    up: Topology | None = None,
) -> Deployment:
    """Return the deployment of a routed job for `controller.Fleet.admit`; its slots and window are not set.

    Server i of `job.hosts` has rank i. Ports and addresses are the topology's (`Topology.ports`, `mac`,
    `ip`).

    Args:
        topology: Servers, switches and links.
        job: The placed job.
        tree: Its aggregation tree.
        regions: Its regions by switch, from a memory policy; None: all slots.
        udp_ports: UDP port of each server; None: all at `INA_UDP_PORT`.
        up: The part of the topology that works, for the path to the fallback server; None: all of it.

    Raises BadSpec for a job whose root does not sum, because its fallback server does all the work, and for
    a job whose fallback server is behind a child switch of the root: no switch of the tree may lie between
    the root and the fallback server.
    """
    if tree.root not in tree.aggregators or not job.aggregate:
        raise BadSpec(f"job {job.name!r} is not summed at its root, {tree.root!r}: no switch has to admit it")
    members, beside = members_by_switch(topology, job.hosts, udp_ports), None
    if job.fallback and job.mode == "shared":
        members, beside = split_off_beside(members, job.fallback, topology)
    transit = {name for name in tree.switches if name not in tree.aggregators}
    root = branch_of(
        topology,
        tree.root,
        tree.parents,
        members,
        regions=regions or {},
        transit=transit,
        ip=topology.switch_ip or SWITCH_IP,
    )
    fallback = None
    if job.fallback and job.mode == "shared":
        way = (*(up or topology).way(tree.root, topology.rack_of[job.fallback]), job.fallback)
        if tree.parents.get(way[1]) == tree.root:
            raise BadSpec(
                f"job {job.name!r}: its fallback server {job.fallback!r} is behind {way[1]!r}, a switch of"
                f" the tree; want a server at the root, {tree.root!r}, or outside the tree"
            )
        port = topology.port_to(tree.root, way[1])
        udp_port = fallback_udp_port(topology, job.fallback)
        fallback = Uplink(port, topology.mac(job.fallback), topology.ip(job.fallback), udp_port)
    return Deployment(root, mode=job.mode, fallback=fallback, beside=beside)


# ---------------------------------------------------------------------------
# A job on several switches: each sums its children's packets and sends one packet up. No I/O.


@dataclass(frozen=True, slots=True)
class TreeAdmission:
    """A job as the switches of its tree serve it: its admission at each of them, by the switch's name."""

    switches: Mapping[str, Admission]
    beside: Member | None = None
    """The worker beside the fallback server (`Deployment.beside`), which no switch knows. None: there is
    none, or the job was read from the switches."""

    @property
    def job(self) -> int:
        """The job's id, the same on all switches."""
        return self._any.job

    @property
    def generation(self) -> int:
        """The generation of the job's slots, the same on all switches."""
        return self._any.generation

    @property
    def epoch(self) -> int:
        """The low bits of the generation, which packets carry."""
        return self._any.epoch

    @property
    def window(self) -> int:
        """Maximum number of packets that a worker may have in flight."""
        return self._any.window

    @property
    def tree(self) -> dict[int, list[int]]:
        """The logical tree: by node id the children in the order of their bits.

        A child is a worker's rank, or -n for node n; transit switches are not shown. Children that are on
        none of these switches are left out; a `whole` tree has no such children.
        """
        children: dict[int, dict[int, int]] = {}
        for admission in self.switches.values():
            node = children.setdefault(admission.node, {})
            node.update({m.bitmap: m.rank for m in admission.members if m.rank is not None})
            uplink = admission.uplink
            if uplink is not None and not admission.root and not admission.transit:
                children.setdefault(uplink.node, {})[uplink.bitmap] = -admission.node
        if self.beside is not None and self.beside.rank is not None:
            children.setdefault(0, {})[self.beside.bitmap] = self.beside.rank
        return {node: [of[bit] for bit in sorted(of)] for node, of in sorted(children.items())}

    @property
    def server(self) -> Uplink | None:
        """The uplink from the uppermost switch to the fallback server; None: no switch here has one."""
        for admission in self.switches.values():
            above = admission.uplink
            at_top = admission.root or (self.beside is not None and above is not None and above.node == 0)
            if at_top and not admission.transit:
                return above
        return None

    @property
    def whole(self) -> bool:
        """True if every child of every node is on one of these switches."""
        fan_ins = {a.node: a.fan_in for a in self.switches.values() if not a.transit}
        if self.beside is not None:
            fan_ins[0] = BESIDE_FAN_IN
        return 0 in fan_ins and {node: len(of) for node, of in self.tree.items()} == fan_ins

    def at(self, regions: Mapping[str, Region]) -> TreeAdmission:
        """Return the job with these regions, by switch; switches that only forward are left as they are."""
        switches = {
            name: replace(held, region=regions[name], change=None)
            if name in regions and not held.transit
            else held
            for name, held in self.switches.items()
        }
        return replace(self, switches=switches)

    @property
    def _any(self) -> Admission:
        return next(iter(self.switches.values()))
