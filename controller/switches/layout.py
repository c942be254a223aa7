"""From a job's tree of switches to the part of each switch. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace

from controller.errors import BadJob, naming
from controller.switches.checks import check_fan_in, check_part, check_ranks
from controller.switches.model import AGEING, INA_UDP_PORT, Member, Part, Place, Uplink
from controller.vocabulary import Mode, Region

NEIGHBOUR_MAC, NEIGHBOUR_IP = "02:00:00:00:00:fe", "10.0.0.254"
"""Where switches send what is for another one."""


BESIDE_FAN_IN = 2
"""Children of a root that is at a fallback server: the worker beside it, and the uppermost switch."""
BESIDE_WORKER, BESIDE_SWITCH = 0b01, 0b10
"""Their bits."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A switch of a job's tree with everything below it.

    `members` are workers with the ranks of the whole job; `lay_out` chooses their bits. `links`
    lead to switches below. `region` is where a shared job's packets are summed, by default all slots. A
    `transit` switch has no memory for the job: its children count as children of the switch above.
    `mac` and `ip` are the destination addresses of packets for this switch, which it does not check.
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
class Deployment:
    """A job to be admitted to `root` and all switches below it; for the other fields see `Part`."""

    root: Branch
    slots: int = 0
    _: KW_ONLY
    mode: Mode = "exclusive"
    preempt: bool = False
    ageing: int = AGEING
    window: int | None = None
    max_age_us: int = 100_000
    fallback: Uplink | None = None
    shared_ports: bool = False
    beside: Member | None = None
    """The worker on the fallback server's machine: it shares the server's port, and so is no child of `root`.
    The tree's root is then at the server, with this worker and `root` as its children."""


def lay_out(deployment: Deployment, *, max_members: int) -> dict[str, Part]:
    """Return the part of every switch of a tree, by the switches' names, parents first.

    Node ids are assigned in preorder, from 0 for the root. Bits of a node go to its workers in the order
    of their ranks and then to its links in the order given; children of a transit switch get their bits in
    the position of the link to that switch.

    Raises BadJob, with the switch's name where one is at fault, if a switch occurs twice, a node has no
    children or more than `max_members`, the workers' ranks are not 0 to n-1, or a switch could not
    serve its part for another reason. With a worker `beside` the fallback server node 0 is there, and its
    bits are those of the worker and of the uppermost switch.
    """
    switches = list(deployment.root.walk())
    names = [switch.name for switch in switches]
    for name in names:
        if names.count(name) > 1:
            raise BadJob(f"switch '{name}' is in the tree twice; a switch can be one node of a job")
    for switch in switches:
        if any(m.rank is None for m in switch.members):
            raise BadJob(f"switch '{switch.name}': a member has no rank; a link attaches a lower switch")
    beside = [] if deployment.beside is None else [deployment.beside]
    members = [m for switch in switches for m in switch.members]
    check_ranks([m.rank for m in (*members, *beside) if m.rank is not None])
    layout = _Layout(deployment, max_members)
    parts = dict(layout.node(deployment.root, layout.above_all()))
    for name, part in parts.items():
        with naming(name):
            check_part(part, max_members=max_members)
    return parts


@dataclass(frozen=True, slots=True)
class _Node:
    id: int
    fan_in: int


class _Layout:
    """One run of `lay_out`: properties common to all switches, and the next free node id."""

    def __init__(self, deployment: Deployment, max_members: int) -> None:
        self._deployment = deployment
        self._max_members = max_members
        children = _bits(deployment.root) if deployment.beside is None else BESIDE_FAN_IN
        self._result_bitmap = (1 << children) - 1
        self._next_id = 0

    def above_all(self) -> Uplink | None:
        """Return the node above the uppermost switch, which is at the fallback server; None: there is none.

        Raises BadJob for a job whose uppermost switch only forwards, and for one without such a server.
        """
        if self._deployment.beside is None:
            return None
        if self._deployment.root.transit:
            raise BadJob(
                f"switch '{self._deployment.root.name}' only forwards; the uppermost switch must sum"
            )
        if self._deployment.fallback is None:
            raise BadJob("a worker is beside the fallback server, but the job has none")
        self._next_id = 1
        return replace(self._deployment.fallback, node=0, bitmap=BESIDE_SWITCH, fan_in=BESIDE_FAN_IN)

    def node(self, switch: Branch, parent: Uplink | None) -> Iterator[tuple[str, Part]]:
        """Lay out a switch that aggregates, and all below it."""
        node = _Node(self._next_id, _bits(switch))
        self._next_id += 1
        with naming(switch.name):
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
        asked = self._deployment
        return Part(
            members,
            asked.slots,
            mode=asked.mode,
            region=switch.region,
            preempt=asked.preempt,
            ageing=asked.ageing,
            window=asked.window,
            max_age_us=asked.max_age_us,
            fallback=None if parent else asked.fallback,
            place=Place(node, parent, self._result_bitmap, switch.transit),
            shared_ports=asked.shared_ports,
        )


def _ranks(switch: Branch) -> range:
    """Return the least range with the ranks of all workers at a switch and below it."""
    ranks = [member.rank for each in switch.walk() for member in each.members if member.rank is not None]
    return range(min(ranks), max(ranks) + 1) if ranks else range(0)


def _bits(switch: Branch) -> int:
    """Number of contributions from a switch's children."""
    below = (_bits(link.child) if link.child.transit else 1 for link in switch.links)
    return len(switch.members) + sum(below)
