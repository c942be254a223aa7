"""What docs/protocol.md says of the switch, in a page of Python: the oracle of the worker's tests.

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


@dataclass
class Slot:
    generation: int = 0
    psn: int = 0
    bitmap: int = 0
    tag: int = 0
    exponent: int = 0
    flags: int = 0
    values: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True)
class Job:
    """An admission: rank r sits at port r."""

    size: int
    slots: int
    generation: int = 1


class ReferenceSwitch:
    """Same calls as `softswitch.engine.switch.Switch` in virtual time; nothing here takes any."""

    def __init__(self, jobs: Mapping[int, Job], lanes: int) -> None:
        self.jobs = jobs
        self.packet = wire.packet_dtype(lanes, framed=True)
        self.lanes = lanes
        self.slots: dict[tuple[int, int], Slot] = {}
        self.outcomes: Counter[str] = Counter()
        self.outbox: dict[int, list[bytes]] = {}

    def inject(self, port: int, frames: Sequence[bytes], now_us: int | None = None) -> None:
        for frame in frames:
            if len(frame) != self.packet.itemsize:
                self.outcomes["bad_length"] += 1
                continue
            self._receive(port, np.frombuffer(frame, self.packet).copy())

    def drain(self, port: int) -> list[bytes]:
        return self.outbox.pop(port, [])

    def advance(self, now_us: int) -> None:
        pass

    def next_event_us(self) -> int | None:
        return None

    def _receive(self, port: int, packets: NDArray[Any]) -> None:
        packet = packets[0]
        reason = self._refusal(port, packet)
        if reason:
            self.outcomes[reason] += 1
            return
        job = self.jobs[int(packet["job"])]
        slot = self.slots.setdefault((int(packet["job"]), int(packet["psn"]) % job.slots), Slot())
        age = (int(packet["psn"]) - slot.psn) % 2**32
        full = (1 << job.size) - 1
        if slot.generation == job.generation and age >= 2**31:
            self.outcomes["stale"] += 1
            return
        if slot.generation != job.generation or age > 0:
            slot.generation, slot.psn, slot.bitmap = job.generation, int(packet["psn"]), 0
            slot.tag, slot.exponent, slot.flags = int(packet["tag"]), 0, 0
            slot.values = np.zeros(self.lanes, np.int64)
        if slot.bitmap & packet["bitmap"]:
            if slot.bitmap == full:
                self.outcomes["replayed"] += 1
                self._reply(port, slot, packets, wire.KIND_RESULT)
            elif packet["flags"] & wire.FLAG_QUERY:
                self.outcomes["status"] += 1
                self._reply(port, slot, packets, wire.KIND_STATUS)
            else:
                self.outcomes["duplicate"] += 1
            return
        slot.bitmap |= int(packet["bitmap"])
        slot.exponent = max(slot.exponent, int(packet["exponent"]))
        if slot.tag != packet["tag"]:
            slot.flags |= wire.FLAG_DISAGREE
        slot.values = slot.values + packet["values"]
        if (np.abs(slot.values + 0.5) > 2**31).any():
            slot.flags |= wire.FLAG_OVERFLOW
        if slot.bitmap != full:
            self.outcomes["aggregated"] += 1
            return
        self.outcomes["completed"] += 1
        for rank in range(job.size):
            self._reply(rank, slot, packets, wire.KIND_RESULT)

    def _refusal(self, port: int, packet: Any) -> str | None:
        if packet["version_kind"] != wire.version_kind(wire.KIND_GRADIENT):
            return "bad_version_or_kind"
        if packet["lanes"] != self.lanes or packet["valid"] > self.lanes:
            return "bad_lanes"
        job = self.jobs.get(int(packet["job"]))
        if job is None:
            return "unknown_job"
        if port >= job.size or packet["bitmap"] != 1 << port:
            return "wrong_rank"
        if packet["fan_in"] != job.size:
            return "wrong_fan_in"
        return None

    def _reply(self, port: int, slot: Slot, request: NDArray[Any], kind: int) -> None:
        reply = request.copy()
        reply["version_kind"] = wire.version_kind(kind)
        reply["eth_dst"], reply["eth_src"] = request["eth_src"], request["eth_dst"]
        reply["ip_dst"], reply["ip_src"] = request["ip_src"], request["ip_dst"]
        reply["udp_dst"], reply["udp_src"] = request["udp_src"], request["udp_dst"]
        for name in ("bitmap", "tag", "exponent", "flags"):
            reply[name] = getattr(slot, name)
        reply["values"] = slot.values.astype(np.int32)
        data = reply.tobytes()
        if kind == wire.KIND_STATUS:
            reply["lanes"] = reply["valid"] = 0
            data = reply.tobytes()[: wire.FRAME_PREFIX_BYTES + wire.INA_BYTES]
        self.outbox.setdefault(port, []).append(data)
