"""Run a program straight from its IR; `interpreter` returns the interpreter for its architecture.

The interpreter is the test oracle for the compiled pipeline. Under the C engine, it also runs programs that
are traced, and all programs if there is no C compiler (`softswitch.engine.native`). Each statement and
expression becomes a Python function when the program is loaded (`statements`, `expressions`), so that no
packet has to walk the tree of the IR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from softswitch.compiler import ir
from softswitch.engine.interpreter.expressions import (
    HeaderValue,
    PacketState,
    ParserError,
    StructValue,
    TableState,
    blank,
    copy_value,
    wrapper,
)
from softswitch.engine.interpreter.externs import ExternState
from softswitch.engine.interpreter.statements import Execute, StatementCompiler, compile_parser, emit
from softswitch.engine.pipeline import (
    DROP_PORT,
    EGRESS_CLONE,
    MAX_FRAME,
    RECIRCULATED,
    RESUBMITTED,
    Copy,
    Event,
    Pipeline,
    TokenMeter,
    Trace,
    Verdict,
    check_index,
    look_up,
)
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

__all__ = ["Interpreter", "interpreter"]

T = TypeVar("T")


def interpreter(program: ir.Program, *, seed: int = 0, trace: Trace | None = None) -> Interpreter:
    """Return a new interpreter of `program`, for its architecture; `Interpreter` explains the arguments."""
    made = TofinoInterpreter if program.tofino else Interpreter
    return made(program, seed=seed, trace=trace)


class Interpreter(Pipeline):
    """A `Pipeline` in Python. `seed` is the seed of ``random``; `trace` receives each step of each packet."""

    def __init__(self, program: ir.Program, *, seed: int = 0, trace: Trace | None = None) -> None:
        self.program = program
        self._tables = {name: TableState(program, table) for name, table in program.tables.items()}
        self._externs = ExternState(program, seed, trace)
        self._compiler = compiler = StatementCompiler(program, self._tables, self._externs)
        self._parse = compile_parser(program.states, compiler.body, trace)
        self._trace = trace
        self._verify = compiler.scope(program.verify)
        self._ingress = compiler.scope(program.ingress)
        self._egress = compiler.scope(program.egress)
        self._compute = compiler.scope(program.compute)
        self._deparse = compiler.scope(program.deparser)
        self._standard_fields = {
            name: wrapper(type_)
            for name, type_ in program.standard_metadata.fields
            if not isinstance(type_, ir.Struct | ir.Header | ir.Stack)
        }

    # ----------------------------------------------------------------- control plane

    def read_counters(self, name: str) -> list[tuple[int, int]]:
        """Return (packets, bytes) of every cell of an indirect counter."""
        cells = look_up(self._externs.counters, "indirect counter", name)
        return [(packets, bytes_) for packets, bytes_ in cells]

    def take_digests(self) -> list[tuple[str, tuple[int, ...]]]:
        """Remove and return the waiting digests as (name, values), in the order of the program's calls."""
        taken, self._externs.digests = self._externs.digests, []
        return taken

    def read_register(self, name: str, index: int) -> int:
        """Return one cell of a register."""
        return _cells(self._externs.registers, "register", name, index)[index]

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set one cell of a register."""
        cells = _cells(self._externs.registers, "register", name, index)
        cells[index] = wrapper(self.program.registers[name].type)(value)

    def _counter(self, name: str, index: int) -> list[int]:
        return _cells(self._externs.counters, "indirect counter", name, index)[index]

    def _meter(self, name: str, index: int) -> TokenMeter:
        return _cells(self._externs.meters, "array of meters", name, index)[index]

    # ----------------------------------------------------------------- data plane

    def ingress(
        self,
        frame: bytes,
        port: int,
        now_us: int = 0,
        instance_type: int = 0,
        previous: PacketState | None = None,
        field_list: int = -1,
    ) -> tuple[PacketState, Verdict]:
        """Parse a frame, verify checksums, run ingress; see `Pipeline.ingress`."""
        self._externs.now_us = now_us
        self._trace_event("ingress", port=port, bytes=len(frame), instance_type=instance_type)
        packet = self._fresh(frame)
        if previous is not None:
            self._keep_fields(previous, packet, field_list)
        self._set_standard(
            packet,
            ingress_port=port,
            packet_length=len(frame),
            instance_type=instance_type,
            ingress_global_timestamp=now_us,
        )
        self._set_standard(packet, parser_error=self._run_parser(packet, self._parse))
        self._verify(packet)
        self._set_standard(packet, checksum_error=packet.checksum_error)
        self._ingress(packet)
        standard = packet.variables["standard_metadata"].fields
        egress_spec, mcast_grp = standard["egress_spec"], standard["mcast_grp"]
        dropped = egress_spec == DROP_PORT and mcast_grp == 0
        if dropped:
            self._trace_event("drop", "ingress")
        return packet, self._verdict(packet, dropped, egress_spec=egress_spec, mcast_grp=mcast_grp)

    def egress(self, packet: PacketState, copy: Copy) -> tuple[bytes | None, Verdict]:
        """Run egress, update checksums, deparse; return the frame, or None if it is dropped."""
        self._externs.now_us = copy.now_us
        packet.forget_requests()
        for name, type_ in self.program.variables.items():
            packet.variables[name] = blank(type_)
        self._set_standard(
            packet,
            egress_spec=0,
            egress_port=copy.egress_port,
            egress_rid=copy.egress_rid,
            instance_type=copy.instance_type,
            packet_length=packet.length,
            enq_timestamp=copy.enq_timestamp,
            enq_qdepth=copy.enq_qdepth,
            deq_timedelta=copy.deq_timedelta,
            deq_qdepth=copy.deq_qdepth,
            egress_global_timestamp=copy.now_us,
        )
        self._egress(packet)
        dropped = packet.variables["standard_metadata"].fields["egress_spec"] == DROP_PORT
        verdict = self._verdict(packet, dropped)
        if dropped:
            self._trace_event("drop", "egress")
            return None, verdict
        self._compute(packet)
        frame = _output(packet, self._deparse)
        self._trace_event("egress", port=copy.egress_port, bytes=len(frame))
        return frame, verdict

    def metadata(self, packet: PacketState, names: Sequence[str]) -> dict[str, int]:
        """Return the present values of metadata fields by name; leave out names that the program lacks."""
        found = {}
        for name in names:
            value = packet.variables["meta"]
            for part in name.split("."):
                value = getattr(value, "fields", {}).get(part)
            if isinstance(value, int):
                found[name] = int(value)
        return found

    def copy_packet(self, packet: PacketState) -> PacketState:
        """Return an independent copy of a packet, for replication."""
        return packet.copy()

    def clone_packet(
        self, packet: PacketState, frame: bytes, instance_type: int, field_list: int = -1
    ) -> PacketState:
        """Return a clone of `packet`; see `Pipeline.clone_packet`."""
        if instance_type == EGRESS_CLONE:
            clone = packet.copy()
            clone.truncate_to = MAX_FRAME
            clone.variables["meta"] = _without_scalars(clone.variables["meta"], self.program.meta)
        else:
            clone = self._fresh(frame)
            standard = packet.variables["standard_metadata"].fields
            self._set_standard(clone, ingress_port=standard["ingress_port"])
            self._run_parser(clone, self._parse)
            clone.variables["meta"] = blank(self.program.meta)
        clone.variables["standard_metadata"] = blank(self.program.standard_metadata)
        self._keep_fields(packet, clone, field_list)
        return clone

    def _trace_event(self, kind: str, name: str = "", **details: int) -> None:
        if self._trace is not None:
            self._trace(Event(kind, name, details))

    def _fresh(self, frame: bytes) -> PacketState:
        variables = {name: blank(type_) for name, type_ in self.program.variables.items()}
        variables["hdr"] = blank(self.program.hdr)
        variables["meta"] = blank(self.program.meta)
        variables["standard_metadata"] = blank(self.program.standard_metadata)
        return PacketState(frame, variables)

    def _keep_fields(self, source: PacketState, target: PacketState, field_list: int) -> None:
        for path in self.program.field_lists.get(field_list, ()):
            *outer, field = path
            _container(target, outer)[field] = copy_value(_container(source, outer)[field])

    def _set_standard(self, packet: PacketState, **values: int) -> None:
        for field, value in values.items():
            packet.variables["standard_metadata"].fields[field] = self._standard_fields[field](value)

    def _run_parser(self, packet: PacketState, parse: Execute) -> int:
        """Return the number of the parser's error, 0 for none."""
        try:
            parse(packet)
        except ParserError as error:
            self._trace_event("error", error.error)
            return self.program.errors.members.index(error.error)
        return 0

    def _verdict(
        self, packet: PacketState, dropped: bool, *, egress_spec: int = 0, mcast_grp: int = 0
    ) -> Verdict:
        return Verdict(
            egress_spec=egress_spec,
            mcast_grp=mcast_grp,
            clone=int(packet.clone_session is not None),
            clone_session=packet.clone_session or 0,
            clone_fields=packet.clone_fields,
            dropped=int(dropped),
            resubmit=int(packet.resubmit_fields is not None),
            resubmit_fields=-1 if packet.resubmit_fields is None else packet.resubmit_fields,
            recirculate=int(packet.recirculate_fields is not None),
            recirculate_fields=-1 if packet.recirculate_fields is None else packet.recirculate_fields,
            priority=packet.variables["standard_metadata"].fields["priority"],
        )


def _without_scalars(value: Any, type_: ir.Type) -> Any:
    """Return metadata with its scalars zero; headers in it stay."""
    match type_:
        case ir.Struct():
            return StructValue(
                {name: _without_scalars(value.fields[name], part) for name, part in type_.fields}
            )
        case ir.Header() | ir.Stack():
            return value
        case _:
            return blank(type_)


def _output(packet: PacketState, deparse: Execute) -> bytes:
    packet.output, packet.output_bits = 0, 0
    deparse(packet)
    padding = -packet.output_bits % 8
    headers = (packet.output << padding).to_bytes((packet.output_bits + padding) // 8, "big")
    return (headers + packet.payload)[: packet.truncate_to]


def _container(packet: PacketState, path: list[str]) -> dict[str, object]:
    value = packet.variables[path[0]]
    for name in path[1:]:
        value = value.fields[name]
    assert isinstance(value, StructValue)
    return value.fields


def _cells(arrays: Mapping[str, list[T]], kind: str, name: str, index: int) -> list[T]:
    """Return the cells of an array. Raises NoSuchObject if there is no such array, or no cell `index`."""
    cells = look_up(arrays, kind, name)
    check_index(name, index, len(cells))
    return cells


_PRIORITIES = 8
_NS = 1000


class TofinoInterpreter(Interpreter):
    """The interpreter of programs for Tofino."""

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
        self._trace_event("ingress", port=port, bytes=len(frame), instance_type=instance_type)
        again = previous is not None and instance_type == RESUBMITTED
        if previous is not None and instance_type == RECIRCULATED:
            port = previous.left_by
        intrinsic = (again << 15 | port & 0x1FF).to_bytes(2, "big") + (now_us * _NS & (1 << 48) - 1).to_bytes(
            6, "big"
        )
        room = self._front - len(intrinsic)
        of_port = previous.resubmitted[:room] if previous is not None and again else b""
        packet = self._fresh(intrinsic + of_port.ljust(room, b"\0") + frame)
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
        error = self._run_parser(packet, self._parse)
        _set(packet, INGRESS_PARSER, "parser_err", error)
        if error and self._drops_errors:
            self._trace_event("drop", "ingress parser")
            return packet, Verdict(egress_spec=NO_PORT, dropped=1)
        self._ingress(packet)
        packet.frame = bytes(self._behind) + _output(packet, self._deparse_ingress)
        packet.length = len(packet.frame) - self._behind
        drop = _get(packet, INGRESS_DEPARSER, "drop_ctl")
        tm = _fields(packet, TM)
        clone = packet.clone_session is not None and not drop & NO_MIRROR
        verdict = Verdict(
            egress_spec=NO_PORT, dropped=1, clone=int(clone), clone_session=packet.clone_session or 0
        )
        if drop & DROP:
            self._trace_event("drop", "ingress")
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
        """Parse ingress's output, run egress and its deparser; return the frame, even if it is dropped."""
        self._externs.now_us = copy.now_us
        packet.forget_requests()
        packet.left_by = copy.egress_port
        recirculate = int(is_recirculating(copy.egress_port))
        if packet.bypass:
            return packet.frame[self._behind :], Verdict(recirculate=recirculate)
        cells = (packet.length + CELL - 1) // CELL
        intrinsic = {
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
        values = self._values(intrinsic)
        packet.variables["standard_metadata"].fields["egress"].fields |= values
        packet.frame = self._as_bytes(values) + packet.frame[self._behind :]
        packet.cursor = 0
        packet.counted = packet.length
        for name, type_ in self.program.variables.items():
            packet.variables[name] = blank(type_)
        _set(packet, EGRESS_PARSER, "global_tstamp", copy.now_us * _NS & (1 << 48) - 1)
        _set(packet, EGRESS_PARSER, "parser_err", self._run_parser(packet, self._parse_egress))
        self._egress(packet)
        frame = _output(packet, self._deparse)
        drop = _get(packet, EGRESS_DEPARSER, "drop_ctl")
        self._trace_event("egress", port=copy.egress_port, bytes=len(frame))
        return frame, Verdict(
            dropped=drop & DROP,
            clone=int(packet.clone_session is not None and not drop & NO_MIRROR),
            clone_session=packet.clone_session or 0,
            recirculate=recirculate,
        )

    def copy_packet(self, packet: PacketState) -> PacketState:
        """Return a packet with the same bytes for another egress."""
        return self._kept(packet, packet.frame)

    def clone_packet(
        self, packet: PacketState, frame: bytes, instance_type: int, field_list: int = -1
    ) -> PacketState:
        """Return a mirror of `packet`: the header given to ``Mirror.emit``, then `frame`; see `Pipeline`."""
        del instance_type, field_list
        mirror = self._kept(packet, bytes(self._behind) + (packet.mirrored + frame)[:MAX_FRAME])
        mirror.length = len(mirror.frame) - self._behind
        mirror.queue = mirror.cos = mirror.bypass = 0
        return mirror

    def _kept(self, packet: PacketState, frame: bytes) -> PacketState:
        kept = self._fresh(frame)
        kept.length = packet.length
        kept.queue, kept.cos, kept.bypass = packet.queue, packet.cos, packet.bypass
        return kept

    def _run_parser(self, packet: PacketState, parse: Execute) -> int:
        return self._errors[super()._run_parser(packet, parse)]

    def _values(self, intrinsic: dict[str, int]) -> dict[str, int]:
        """Return all fields of the intrinsic metadata header in egress.

        Fields that `intrinsic` does not have are 0.
        """
        return {
            name: wrapper(type_)(intrinsic.get(name, 0))
            for name, type_ in self._header.fields
            if not isinstance(type_, ir.VarBits)
        }

    def _as_bytes(self, values: dict[str, int]) -> bytes:
        """Return the bytes of the intrinsic metadata header in front of a packet in egress."""
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
