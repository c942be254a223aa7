"""A traffic manager for one packet at a time, around any `Pipeline`: what a test sees of a switch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.pipeline import (
    EGRESS_CLONE,
    INGRESS_CLONE,
    RECIRCULATED,
    REPLICATED,
    RESUBMITTED,
    Copy,
    Packet,
    Pipeline,
    Verdict,
)

MAX_PASSES = 8
"""How often one packet may be resubmitted or recirculated."""

QUEUE = {"enq_qdepth": 5, "deq_timedelta": 40, "deq_qdepth": 6}
"""What every packet finds in its queue."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A frame that left the switch."""

    port: int
    frame: bytes


@dataclass(slots=True)
class Bench:
    """A pipeline with multicast groups and clone sessions: (egress port, replication id) of each copy.

    `verdicts` collects what the blocks asked for, reduced to what has a meaning there.
    """

    pipeline: Pipeline
    groups: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    sessions: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    verdicts: list[dict[str, int]] = field(default_factory=list)

    def send(self, frame: bytes, port: int, now_us: int = 1000) -> list[Sent]:
        """Put a frame in and return what comes out, clones first."""
        return self._ingress(frame, port, now_us, 0, None, -1, MAX_PASSES)

    def _ingress(
        self,
        frame: bytes,
        port: int,
        now_us: int,
        instance_type: int,
        previous: Packet,
        field_list: int,
        passes: int,
    ) -> list[Sent]:
        if passes == 0:
            return []
        packet, verdict = self.pipeline.ingress(frame, port, now_us, instance_type, previous, field_list)
        self.verdicts.append(meaning(verdict, ingress=True))
        sent: list[Sent] = []
        if verdict.clone:
            clone = self.pipeline.clone_packet(packet, frame, INGRESS_CLONE, verdict.clone_fields)
            copies = self.sessions.get(verdict.clone_session, ())
            sent += self._copies(clone, copies, INGRESS_CLONE, port, now_us, passes)
        if verdict.resubmit:
            fields = verdict.resubmit_fields
            return sent + self._ingress(frame, port, now_us, RESUBMITTED, packet, fields, passes - 1)
        for group in filter(None, (verdict.mcast_grp, verdict.mcast_grp_2)):
            copies = self.groups.get(group, ())
            sent += self._copies(packet, copies, REPLICATED, port, now_us, passes)
        if (verdict.mcast_grp or verdict.mcast_grp_2) and not verdict.unicast:
            return sent
        if verdict.dropped:
            return sent
        return sent + self._egress(packet, (verdict.egress_spec, 0), 0, port, now_us, passes)

    def _copies(
        self,
        packet: Packet,
        copies: Sequence[tuple[int, int]],
        instance_type: int,
        port: int,
        now_us: int,
        passes: int,
    ) -> list[Sent]:
        sent: list[Sent] = []
        for copy in copies:
            twin = self._twin(packet)
            sent += self._egress(twin, copy, instance_type, port, now_us, passes)
        return sent

    def _twin(self, packet: Packet) -> Packet:
        """A copy as the engine makes it for a port without a queue: on loan where the program is compiled."""
        if isinstance(self.pipeline, CompiledPipeline):
            return self.pipeline.lend_packet(packet)
        return self.pipeline.copy_packet(packet)

    def _egress(
        self,
        packet: Packet,
        copy: tuple[int, int],
        instance_type: int,
        port: int,
        now_us: int,
        passes: int,
    ) -> list[Sent]:
        egress_port, rid = copy
        told = Copy(
            **QUEUE,
            egress_port=egress_port,
            egress_rid=rid,
            instance_type=instance_type,
            enq_timestamp=now_us + 10,
            now_us=now_us + 50,
        )
        frame, verdict = self.pipeline.egress(packet, told)
        self.verdicts.append(meaning(verdict, ingress=False))
        sent: list[Sent] = []
        if verdict.clone:
            clone = self.pipeline.clone_packet(packet, frame or b"", EGRESS_CLONE, verdict.clone_fields)
            copies = self.sessions.get(verdict.clone_session, ())
            sent += self._copies(clone, copies, EGRESS_CLONE, port, now_us, passes - 1) if passes > 1 else []
        if frame is None:
            return sent
        if verdict.recirculate and not verdict.dropped:
            fields = verdict.recirculate_fields
            return sent + self._ingress(frame, port, now_us, RECIRCULATED, packet, fields, passes - 1)
        return sent if verdict.dropped else [*sent, Sent(egress_port, frame)]


def meaning(verdict: Verdict, *, ingress: bool) -> dict[str, int]:
    """Return the verdict without the fields that mean nothing in this block or without their flag."""
    return {name: getattr(verdict, name) for name, *_ in Verdict._fields_} | {
        "egress_spec": verdict.egress_spec if ingress else 0,
        "mcast_grp": verdict.mcast_grp if ingress else 0,
        "clone_session": verdict.clone_session if verdict.clone else 0,
        "clone_fields": verdict.clone_fields if verdict.clone else -1,
        "resubmit": verdict.resubmit if ingress else 0,
        "resubmit_fields": verdict.resubmit_fields if ingress and verdict.resubmit else -1,
        "recirculate": 0 if ingress else verdict.recirculate,
        "recirculate_fields": verdict.recirculate_fields if not ingress and verdict.recirculate else -1,
    }


def snapshot(pipeline: Pipeline) -> dict[str, object]:
    """Return everything that a pipeline keeps between packets: registers, counters, entries."""
    program = pipeline.program
    state: dict[str, object] = {
        name: [pipeline.read_register(name, i) for i in range(register.size)]
        for name, register in program.registers.items()
    }
    state |= {
        name: pipeline.read_counters(name)
        for name, counter in program.counters.items()
        if counter.table is None
    }
    for name, table in program.tables.items():
        entries = pipeline.entries(name)
        state[name] = (entries, pipeline.default(name))
        if table.direct_counter is not None:
            state[table.direct_counter] = [pipeline.read_direct_counter(name, e) for e in entries]
    return state
