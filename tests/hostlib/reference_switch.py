"""What docs/protocol.md says of the switches, in a few pages of Python: the oracle of the worker's tests.

It shares no code with p4src or softswitch, so it cannot see their faults; and it decodes with
hostlib.wire, so it cannot see a wrong layout (tests/contract does).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostlib import wire
from hostlib.wire.tree import Tree

_ASKING = wire.FLAG_RESEND | wire.FLAG_QUERY | wire.FLAG_BYPASS
_PREFIX_AND_HEADER = wire.FRAME_PREFIX_BYTES + wire.INA_BYTES
START_OF_JOB = 0x9E3779B1
"""What a job's id moves it by in its region."""
ALL_RANKS = range(wire.TARGET_BUT)
_WITHOUT_LANES = (wire.KIND_STATUS, wire.KIND_REMINDER)


@dataclass(frozen=True)
class Job:
    """An admission. By default child b sits at port b, and there is nothing above."""

    size: int
    """Children of the node."""
    slots: int
    generation: int = 0x100
    """Its low byte is the epoch: 0, as workers have it by default."""
    offset: int = 0
    members: Mapping[int, int] | None = None
    """Children by port, as bitmaps: several behind a transit switch."""
    ranks: Mapping[int, int] | None = None
    """Ports at which workers sit, with their ranks; None: those of the children."""
    uplink: int | None = None
    """Port of the parent, or of the fallback server."""
    node: int = 0
    parent: tuple[int, int, int] | None = None
    """Node, own bitmap and fan-in of the parent; None at the root."""
    result_bitmap: int | None = None
    transit: bool = False
    below: Mapping[int, range] = field(default_factory=dict)
    """Nodes of the tree behind ports."""
    ranks_below: Mapping[int, range] = field(default_factory=dict)
    """Ranks among which those behind ports to switches are; all, where nothing is said."""
    preempt: bool = False
    ageing: int = 1
    window: int = 1
    max_age_us: int = 1_000_000

    @property
    def full(self) -> int:
        return (1 << self.size) - 1

    def members_at(self, port: int) -> int:
        if self.members is not None:
            return self.members.get(port, 0)
        return 1 << port if port < self.size else 0

    @property
    def ports(self) -> list[int]:
        return list(range(self.size) if self.members is None else self.members)

    def rank_at(self, port: int) -> int | None:
        return (port if self.ranks is None else self.ranks.get(port)) if port != self.uplink else None

    def takers_at(self, port: int) -> range:
        """Return the ranks for which what is at a port takes results."""
        rank = self.rank_at(port)
        return self.ranks_below.get(port, ALL_RANKS) if rank is None else range(rank, rank + 1)


def admissions(tree: Tree, slots: int, *, fallback: bool = False, **options: Any) -> dict[int, Job]:
    """Return a job's admission for each node of its tree: child b at port b, the uplink after them."""
    jobs = {}
    for node, children in tree.nodes.items():
        parent = None
        if node:
            above, bitmap = tree.parent(-node)
            parent = (above, bitmap, tree.fan_in(above))
        jobs[node] = Job(
            len(children),
            slots,
            ranks={bit: child for bit, child in enumerate(children) if child >= 0},
            uplink=len(children) if node or fallback else None,
            node=node,
            parent=parent,
            result_bitmap=tree.result_bitmap,
            below={bit: _nodes_below(tree, -child) for bit, child in enumerate(children) if child < 0},
            **options,
        )
    return jobs


def _nodes_below(tree: Tree, node: int) -> range:
    """Return a node and all below it, which are numbered in a row."""
    last = node
    while inner := [-child for child in tree.nodes[last] if child < 0]:
        last = max(inner)
    return range(node, last + 1)


@dataclass
class Slot:
    job: int = -1
    generation: int = 0
    psn: int = 0
    bitmap: int = 0
    tag: int = 0
    exponent: int = 0
    flags: int = 0
    priority: int = 0
    target: int = 0
    touched: int = 0
    full: bool = False
    final: bool = False
    values: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    bare: bool = True
    """No contribution had lanes."""


class _Switch:
    """Same calls as `softswitch.engine.switch.Switch` in virtual time; nothing here takes any."""

    fallback = False

    def __init__(self, jobs: Mapping[int, Job], lanes: int) -> None:
        self.jobs = dict(jobs)
        self.packet = wire.packet_dtype(lanes, framed=True)
        self.lanes = lanes
        self.slots: dict[Any, Slot] = {}
        self.outcomes: Counter[str] = Counter()
        self.outbox: dict[int, list[bytes]] = {}
        self.now_us = 0

    def inject(self, port: int, frames: Sequence[bytes], now_us: int | None = None) -> None:
        self.now_us = now_us or 0
        for frame in frames:
            if len(frame) not in (self.packet.itemsize, _PREFIX_AND_HEADER):
                self.outcomes["bad_length"] += 1
                continue
            outcome = self._receive(
                port, np.frombuffer(frame.ljust(self.packet.itemsize, b"\0"), self.packet).copy()
            )
            self.outcomes[outcome] += 1

    def drain(self, port: int) -> list[bytes]:
        return self.outbox.pop(port, [])

    def advance(self, now_us: int) -> None:
        pass

    def next_event_us(self) -> int | None:
        return None

    def _receive(self, port: int, packets: NDArray[Any]) -> str:
        packet = packets[0]
        kind = int(packet["version_kind"]) & 0x0F
        if packet["version_kind"] >> 4 != wire.INA_VERSION or not 1 <= kind <= 5:
            return "bad_version_or_kind"
        has_lanes = kind not in _WITHOUT_LANES and packet["lanes"] > 0
        if packet["lanes"] != (self.lanes if has_lanes else 0) or packet["valid"] & 0x7FFF > self.lanes:
            return "bad_lanes"
        job = self.jobs.get(int(packet["job"]))
        if job is None:
            return "unknown_job"
        from_above = port == job.uplink
        if not from_above and not job.members_at(port):
            return "wrong_port"
        if packet["epoch"] != job.generation & 0xFF:
            return "wrong_epoch"
        if kind != wire.KIND_RESULT and from_above != (kind in (wire.KIND_STATUS, wire.KIND_REMINDER)):
            return "wrong_direction"
        if kind == wire.KIND_GRADIENT:
            bitmap = int(packet["bitmap"])
            if bitmap.bit_count() != 1 or bitmap & ~job.members_at(port) or packet["node"] != job.node:
                return "wrong_rank"
            if packet["fan_in"] != job.size:
                return "wrong_fan_in"
            if not job.transit:
                return self._gradient(port, packets, job)
        if kind == wire.KIND_PARTIAL and packet["node"] not in job.below.get(port, ()):
            return "wrong_rank"
        if kind == wire.KIND_RESULT and not from_above:
            of_result = job.full if job.result_bitmap is None else job.result_bitmap
            if (packet["node"], packet["bitmap"]) != (0, of_result):
                return "wrong_rank"
        if not from_above:
            return self._up(packets, job, "passed_up")
        if kind == wire.KIND_STATUS or job.transit:
            return self._down(packets, job, "passed_down")
        return self._result(packets, job) if kind == wire.KIND_RESULT else self._reminder(packets, job)

    def _gradient(self, port: int, packets: NDArray[Any], job: Job) -> str:
        raise NotImplementedError

    def _result(self, packets: NDArray[Any], job: Job) -> str:
        raise NotImplementedError

    def _reminder(self, packets: NDArray[Any], job: Job) -> str:
        return "wrong_direction"

    def _add(self, slot: Slot, packets: NDArray[Any]) -> None:
        packet = packets[0]
        slot.bitmap |= int(packet["bitmap"])
        slot.exponent = max(slot.exponent, int(packet["exponent"]))
        slot.flags |= int(packet["flags"]) & wire.STICKY_FLAGS
        if slot.tag != packet["tag"]:
            slot.flags |= wire.FLAG_DISAGREE
        slot.bare &= not packet["lanes"]
        sums = slot.values + (packet["values"] if packet["lanes"] else 0)
        if (np.abs(sums + 0.5) > 2**31).any():
            slot.flags |= wire.FLAG_OVERFLOW
        slot.values = sums.astype(np.int32).astype(np.int64)
        slot.priority = int(packet["priority"])
        slot.touched = self.now_us

    def _claim(self, slot: Slot, packets: NDArray[Any], job: Job) -> None:
        packet = packets[0]
        slot.job, slot.generation, slot.psn = int(packet["job"]), job.generation, int(packet["psn"])
        slot.bitmap, slot.tag, slot.exponent, slot.flags = 0, int(packet["tag"]), 0, 0
        slot.target = int(packet["target"])
        slot.full, slot.final, slot.bare = False, False, True
        slot.values = np.zeros(self.lanes, np.int64)
        self._add(slot, packets)

    def _store(self, slot: Slot, packets: NDArray[Any], job: Job) -> None:
        """Keep a result from above."""
        self._claim(slot, packets, job)
        slot.bitmap, slot.full, slot.final = job.full, True, True
        slot.flags = int(packets["flags"][0]) & (wire.STICKY_FLAGS | wire.FLAG_RAW)

    def _complete(self, slot: Slot, packets: NDArray[Any], job: Job) -> str:
        slot.full, slot.final = True, job.parent is None
        if slot.final:
            return self._down(self._of_slot(slot, packets, job, wire.KIND_RESULT), job, "completed")
        return self._up(self._of_slot(slot, packets, job, wire.KIND_GRADIENT), job, "completed")

    def _of_slot(
        self, slot: Slot, packets: NDArray[Any], job: Job, kind: int, flags: int = 0
    ) -> NDArray[Any]:
        """Return the packet of this kind that a slot makes, in the frame of the packet that met it."""
        reply = packets.copy()
        for name in ("psn", "bitmap", "tag", "exponent", "target"):
            reply[name] = getattr(slot, name)
        reply["epoch"] = slot.generation & 0xFF
        reply["flags"] = slot.flags | flags
        reply["version_kind"] = wire.version_kind(kind)
        reply["values"] = slot.values
        reply["lanes"] = 0 if slot.bare else self.lanes
        reply["valid"] = reply["valid"] & 0x7FFF if kind == wire.KIND_GRADIENT else self.lanes
        reply["node"], reply["fan_in"] = job.node, job.size
        if kind == wire.KIND_RESULT:
            reply["node"], reply["bitmap"] = 0, job.full if job.result_bitmap is None else job.result_bitmap
        elif kind == wire.KIND_GRADIENT and job.parent:
            reply["node"], reply["bitmap"], reply["fan_in"] = job.parent
        elif kind == wire.KIND_STATUS:
            reply["lanes"] = reply["valid"] = 0
        return reply

    def _up(self, packets: NDArray[Any], job: Job, outcome: str) -> str:
        if job.uplink is None:
            return "no_uplink"
        self._send(job.uplink, packets, None)
        return outcome

    def _down(self, packets: NDArray[Any], job: Job, outcome: str) -> str:
        for port in job.ports:
            self._send(port, packets, job.takers_at(port))
        return outcome

    def _send(self, port: int, packets: NDArray[Any], takers: range | None) -> None:
        """Send a packet; a result that nobody of the `takers` (None: not asked) takes, without lanes.

        A reminder is for those whom it asks only.
        """
        out = packets.copy()
        out["eth_dst"], out["eth_src"] = packets["eth_src"], packets["eth_dst"]
        kind = int(out["version_kind"][0]) & 0x0F
        if takers is not None and not _takes(takers, int(out["target"][0])):
            if kind == wire.KIND_REMINDER:
                return
            if kind == wire.KIND_RESULT:
                out["lanes"] = out["valid"] = 0
        length = self.packet.itemsize if out["lanes"] else _PREFIX_AND_HEADER
        out["ip_total_len"] = length - wire.ETHERNET_BYTES
        out["udp_length"] = length - wire.ETHERNET_BYTES - wire.IPV4_BYTES
        self.outbox.setdefault(port, []).append(out.tobytes()[:length])


def _takes(takers: range, target: int) -> bool:
    rank = target & ~wire.TARGET_BUT
    return takers != range(rank, rank + 1) if target & wire.TARGET_BUT else rank in takers


class ReferenceSwitch(_Switch):
    """Exclusive mode."""

    def _gradient(self, port: int, packets: NDArray[Any], job: Job) -> str:
        packet = packets[0]
        flags = int(packet["flags"])
        if flags & wire.FLAG_RAW:
            return "no_uplink"
        slot = self._slot(packets, job)
        newer = self._newer(slot, packets, job)
        if newer is None:
            return "stale"
        if newer:
            self._claim(slot, packets, job)
        elif not slot.bitmap & packet["bitmap"]:
            self._add(slot, packets)
        elif slot.final:
            self._send(port, self._of_slot(slot, packets, job, wire.KIND_RESULT), None)
            return "replayed"
        elif slot.full:
            again = flags & _ASKING
            return self._up(self._of_slot(slot, packets, job, wire.KIND_GRADIENT, again), job, "relayed")
        elif flags & wire.FLAG_QUERY:
            self._send(port, self._of_slot(slot, packets, job, wire.KIND_STATUS), None)
            return "status"
        else:
            return "duplicate"
        return self._complete(slot, packets, job) if slot.bitmap == job.full else "aggregated"

    def _result(self, packets: NDArray[Any], job: Job) -> str:
        slot = self._slot(packets, job)
        newer = self._newer(slot, packets, job)
        if newer is None:
            return "stale"
        if newer:
            return self._down(packets, job, "passed_down")
        if slot.final:
            return "duplicate"
        self._store(slot, packets, job)
        return self._down(packets, job, "stored")

    def _slot(self, packets: NDArray[Any], job: Job) -> Slot:
        return self.slots.setdefault((int(packets["job"][0]), int(packets["psn"][0]) % job.slots), Slot())

    def _newer(self, slot: Slot, packets: NDArray[Any], job: Job) -> bool | None:
        """Whether the packet is newer than the slot; None if it is older."""
        age = (int(packets["psn"][0]) - slot.psn) % 2**32
        if slot.generation != job.generation:
            return True
        return None if age >= 2**31 else age > 0


class SharedSwitch(_Switch):
    """Shared mode, with and without preemption."""

    fallback = True

    def _gradient(self, port: int, packets: NDArray[Any], job: Job) -> str:
        packet = packets[0]
        flags = int(packet["flags"])
        slot = self._slot(packets, job)
        if flags & wire.FLAG_RAW:
            return self._bypass(packets, job, "bypassed")
        if slot and slot.bitmap and (slot.generation, slot.psn) == (job.generation, packet["psn"]):
            return self._same(slot, port, packets, job)
        if packet["bitmap"] == job.full:
            passing = Slot()
            self._claim(passing, packets, job)
            if job.parent is None:
                return self._down(self._of_slot(passing, packets, job, wire.KIND_RESULT), job, "completed")
            again = flags & _ASKING
            return self._up(self._of_slot(passing, packets, job, wire.KIND_GRADIENT, again), job, "completed")
        if slot is None or flags & (wire.FLAG_RESEND | wire.FLAG_BYPASS):
            return self._bypass(packets, job, "bypassed")
        if self._is_free(slot, packets, job):
            self._claim(slot, packets, job)
            return "aggregated"
        aged = self.now_us - slot.touched > job.max_age_us
        if not aged and not (job.preempt and packet["priority"] > slot.priority):
            slot.flags |= wire.FLAG_COLLISION
            if job.preempt:
                slot.priority = max(0, slot.priority - job.ageing)
            return self._bypass(packets, job, "collided", wire.FLAG_COLLISION)
        self._evict(slot, packets)
        self._claim(slot, packets, job)
        return "reclaimed" if aged else "preempted"

    def _same(self, slot: Slot, port: int, packets: NDArray[Any], job: Job) -> str:
        flags = int(packets["flags"][0])
        resend, query = flags & wire.FLAG_RESEND, flags & wire.FLAG_QUERY
        if slot.final:
            self._send(port, self._of_slot(slot, packets, job, wire.KIND_RESULT), None)
            return "replayed"
        if slot.full:
            if not resend:
                return "duplicate"
            again = self._of_slot(slot, packets, job, wire.KIND_GRADIENT, flags & _ASKING)
            return self._up(again, job, "relayed")
        if not slot.bitmap & packets["bitmap"][0]:
            self._add(slot, packets)
            if slot.bitmap == job.full:
                return self._complete(slot, packets, job)
            return self._pull(slot, packets, job, "flushed") if resend and not query else "aggregated"
        if query:
            self._send(port, self._of_slot(slot, packets, job, wire.KIND_STATUS), None)
            return "status"
        return self._pull(slot, packets, job, "flushed") if resend else "duplicate"

    def _is_free(self, slot: Slot, packets: NDArray[Any], job: Job) -> bool:
        if slot.bitmap == 0 or slot.full:
            return True
        if slot.job != packets["job"][0]:
            return False
        age = (int(packets["psn"][0]) - slot.psn) % 2**32
        return slot.generation != job.generation or job.window <= age < 2**31

    def _result(self, packets: NDArray[Any], job: Job) -> str:
        slot = self._same_slot(packets, job)
        if slot is None:
            return self._down(packets, job, "passed_down")
        self._store(slot, packets, job)
        return self._down(packets, job, "stored")

    def _reminder(self, packets: NDArray[Any], job: Job) -> str:
        slot = self._same_slot(packets, job)
        raw = packets["flags"][0] & wire.FLAG_RAW
        if slot is None or raw or packets["node"][0] != job.node:
            return self._down(packets, job, "passed_down")
        if slot.final and slot.bare and job.node:
            slot.bitmap = 0
            return self._down(packets, job, "passed_down")
        if slot.final:
            return self._up(self._of_slot(slot, packets, job, wire.KIND_RESULT), job, "pulled")
        return self._pull(slot, packets, job, "pulled")

    def _pull(self, slot: Slot, packets: NDArray[Any], job: Job, outcome: str) -> str:
        partial = self._of_slot(slot, packets, job, wire.KIND_PARTIAL)
        slot.bitmap = 0
        return self._up(partial, job, outcome)

    def _bypass(self, packets: NDArray[Any], job: Job, outcome: str, flag: int = 0) -> str:
        partial = packets.copy()
        partial["version_kind"] = wire.version_kind(wire.KIND_PARTIAL)
        partial["flags"] = packets["flags"] | np.uint8(flag)
        return self._up(partial, job, outcome)

    def _evict(self, slot: Slot, packets: NDArray[Any]) -> None:
        owner = self.jobs.get(slot.job)
        if owner is None:
            self.outcomes["no_uplink"] += 1
            return
        partial = self._of_slot(slot, packets, owner, wire.KIND_PARTIAL)
        partial["job"], partial["priority"] = slot.job, slot.priority
        self._up(partial, owner, "evicted")
        self.outcomes["evicted"] += 1

    def _slot(self, packets: NDArray[Any], job: Job) -> Slot | None:
        if job.slots == 0:
            return None
        place = (int(packets["psn"][0]) + int(packets["job"][0]) * START_OF_JOB) % 2**32
        return self.slots.setdefault(job.offset + place % job.slots, Slot())

    def _same_slot(self, packets: NDArray[Any], job: Job) -> Slot | None:
        slot = self._slot(packets, job)
        same = slot and slot.bitmap and (slot.generation, slot.psn) == (job.generation, packets["psn"][0])
        return slot if same else None
