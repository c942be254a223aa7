"""The interpreter of programs for Tofino: what differs between parser and wire, and between the gresses."""

from __future__ import annotations

from typing import Any

from softswitch.compiler import ir
from softswitch.engine.interpreter.parser import compile_parser, emit
from softswitch.engine.interpreter.pipeline import Interpreter
from softswitch.engine.interpreter.storage import HeaderValue, PacketState, ParserError, blank, wrapper
from softswitch.engine.pipeline import MAX_FRAME, Copy, Verdict
from softswitch.engine.tofino import (
    CELL,
    DROP,
    EGRESS_DEPARSER,
    EGRESS_PARSER,
    INGRESS_DEPARSER,
    INGRESS_PARSER,
    NO_GROUP,
    NO_MIRROR,
    NO_PORT,
    TM,
    behind_bytes,
    egress_header,
    error_numbers,
    front_bytes,
    group_number,
    is_recirculating,
    reads_parser_error,
)
from softswitch.engine.trace import Trace

RECIRCULATED, RESUBMITTED = 4, 6
_PRIORITIES = 8
_NS = 1000


class TofinoInterpreter(Interpreter):
    """A `Pipeline` in Python, of a program for Tofino."""

    def __init__(self, program: ir.Program, *, seed: int = 0, trace: Trace | None = None) -> None:
        super().__init__(program, seed=seed, trace=trace)
        self._front, self._behind = front_bytes(program), behind_bytes(program)
        self._header = egress_header(program)
        self._errors = error_numbers(program)
        self._drops_errors = not reads_parser_error(program)
        self._parse_egress = compile_parser(program.egress_states, self._compiler.body, trace)
        self._deparse_ingress = self._compiler.scope(program.ingress_deparser)

    def ingress(
        self,
        frame: bytes,
        port: int,
        now_us: int = 0,
        instance_type: int = 0,
        previous: PacketState | None = None,
        field_list: int = -1,
    ) -> tuple[PacketState, Verdict]:
        """Parse a frame, run ingress and its deparser; see `Pipeline.ingress`."""
        del field_list
        self._externs.now_us = now_us
        self._tell("ingress", port=port, bytes=len(frame), instance_type=instance_type)
        again = previous is not None and instance_type == RESUBMITTED
        if previous is not None and instance_type == RECIRCULATED:
            port = previous.left_by
        told = (again << 15 | port & 0x1FF).to_bytes(2, "big") + (now_us * _NS & (1 << 48) - 1).to_bytes(
            6, "big"
        )
        room = self._front - len(told)
        of_port = previous.resubmitted[:room] if previous is not None and again else b""
        packet = self._fresh(told + of_port.ljust(room, b"\0") + frame)
        packet.counted = len(frame)
        stamp = now_us * _NS & (1 << 48) - 1
        packet.variables["standard_metadata"].fields["ingress"].fields |= {
            "resubmit_flag": int(again),
            "ingress_port": port & 0x1FF,
            "ingress_mac_tstamp": stamp,
        }
        _set(packet, TM, "ucast_egress_port", NO_PORT)
        _set(packet, TM, "mcast_grp_a", NO_GROUP)
        _set(packet, TM, "mcast_grp_b", NO_GROUP)
        _set(packet, INGRESS_PARSER, "global_tstamp", stamp)
        error = self._number_of_error(packet, self._parse)
        _set(packet, INGRESS_PARSER, "parser_err", error)
        if error and self._drops_errors:
            self._tell("drop", "ingress parser")
            return packet, Verdict(egress_spec=NO_PORT, dropped=1)
        self._ingress(packet)
        packet.frame = bytes(self._behind) + self._emitted(packet, self._deparse_ingress)
        packet.length = len(packet.frame) - self._behind
        drop = _get(packet, INGRESS_DEPARSER, "drop_ctl")
        tm = _fields(packet, TM)
        clone = packet.clone_session is not None and not drop & NO_MIRROR
        verdict = Verdict(
            egress_spec=NO_PORT, dropped=1, clone=int(clone), clone_session=packet.clone_session or 0
        )
        if drop & DROP:
            self._tell("drop", "ingress")
            return packet, verdict
        packet.queue, packet.cos, packet.bypass = tm["qid"], tm["ingress_cos"], tm["bypass_egress"]
        ucast, groups = tm["ucast_egress_port"], [group_number(tm[f"mcast_grp_{name}"]) for name in "ab"]
        return packet, Verdict(
            egress_spec=ucast,
            mcast_grp=groups[0],
            mcast_grp_2=groups[1],
            rid=tm["rid"],
            exclude_1=tm["level1_exclusion_id"],
            exclude_2=tm["level2_exclusion_id"],
            unicast=int(ucast != NO_PORT),
            dropped=int(ucast == NO_PORT and not any(groups)),
            clone=verdict.clone,
            clone_session=verdict.clone_session,
            resubmit=int(packet.resubmit_fields is not None),
            priority=min(packet.queue, _PRIORITIES - 1),
        )

    def egress(self, packet: PacketState, copy: Copy) -> tuple[bytes | None, Verdict]:
        """Parse what ingress left, run egress and its deparser: the frame, even if it is dropped."""
        self._externs.now_us = copy.now_us
        packet.forget_requests()
        packet.left_by = copy.egress_port
        recirculate = int(is_recirculating(copy.egress_port))
        if packet.bypass:
            return packet.frame[self._behind :], Verdict(recirculate=recirculate)
        cells = (packet.length + CELL - 1) // CELL
        told = {
            "egress_port": copy.egress_port,
            "enq_qdepth": copy.enq_qdepth * cells,
            "enq_tstamp": copy.enq_timestamp * _NS,
            "deq_qdepth": copy.deq_qdepth * cells,
            "deq_timedelta": copy.deq_timedelta * _NS,
            "egress_rid": copy.egress_rid,
            "egress_qid": packet.queue,
            "egress_cos": packet.cos,
            "pkt_length": packet.length,
        }
        values = self._values(told)
        packet.variables["standard_metadata"].fields["egress"].fields |= values
        packet.frame = self._as_bytes(values) + packet.frame[self._behind :]
        packet.cursor = 0
        packet.counted = packet.length
        for name, type_ in self.program.variables.items():
            packet.variables[name] = blank(type_)
        _set(packet, EGRESS_PARSER, "global_tstamp", copy.now_us * _NS & (1 << 48) - 1)
        _set(packet, EGRESS_PARSER, "parser_err", self._number_of_error(packet, self._parse_egress))
        self._egress(packet)
        frame = self._emitted(packet, self._deparse)
        drop = _get(packet, EGRESS_DEPARSER, "drop_ctl")
        self._tell("egress", port=copy.egress_port, bytes=len(frame))
        return frame, Verdict(
            dropped=drop & DROP,
            clone=int(packet.clone_session is not None and not drop & NO_MIRROR),
            clone_session=packet.clone_session or 0,
            recirculate=recirculate,
        )

    def copy_packet(self, packet: PacketState) -> PacketState:
        """The same bytes for another egress."""
        return self._kept(packet, packet.frame)

    def clone_packet(self, packet: PacketState, frame: bytes, field_list: int = -1) -> PacketState:
        """The mirror of `packet`: its header and the frame."""
        del field_list
        mirror = self._kept(packet, bytes(self._behind) + (packet.mirrored + frame)[:MAX_FRAME])
        mirror.length = len(mirror.frame) - self._behind
        mirror.queue = mirror.cos = mirror.bypass = 0
        return mirror

    def _kept(self, packet: PacketState, frame: bytes) -> PacketState:
        kept = self._fresh(frame)
        kept.length = packet.length
        kept.queue, kept.cos, kept.bypass = packet.queue, packet.cos, packet.bypass
        return kept

    def _number_of_error(self, packet: PacketState, parse: Any) -> int:
        try:
            parse(packet)
        except ParserError as error:
            self._tell("error", error.error)
            return self._errors[self.program.errors.members.index(error.error)]
        return 0

    def _emitted(self, packet: PacketState, deparse: Any) -> bytes:
        packet.output, packet.output_bits = 0, 0
        deparse(packet)
        headers = packet.output.to_bytes((packet.output_bits + 7) // 8, "big")
        return (headers + packet.payload)[:MAX_FRAME]

    def _values(self, told: dict[str, int]) -> dict[str, int]:
        """Return the fields of the header in front of a packet in egress."""
        return {
            name: wrapper(type_)(told.get(name, 0))
            for name, type_ in self._header.fields
            if not isinstance(type_, ir.VarBits)
        }

    def _as_bytes(self, values: dict[str, int]) -> bytes:
        """Return that header."""
        scratch = PacketState(b"", {})
        emit(scratch, self._header, HeaderValue(True, values))
        return scratch.output.to_bytes(self._behind, "big")


def _fields(packet: PacketState, struct: tuple[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = packet.variables[struct[0]].fields[struct[1]].fields
    return fields


def _get(packet: PacketState, struct: tuple[str, str], field: str) -> int:
    return int(_fields(packet, struct)[field])


def _set(packet: PacketState, struct: tuple[str, str], field: str, value: int) -> None:
    _fields(packet, struct)[field] = value
