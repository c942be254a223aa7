"""A compiled program behind the `Pipeline` interface, through ctypes.

This class checks and stores entries (`TableEntries`), then passes them to the object's control
functions (``runtime/control.h``). Packets go through ``struct p4_program`` (``runtime/pipeline.h``),
which the engine calls directly and this class wraps one packet at a time.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import indirect_meters
from softswitch.engine.entries import (
    ARG_WORDS,
    PARTS,
    TableEntries,
    lay_out_table,
    packed,
)
from softswitch.engine.pipeline import (
    EGRESS_CLONE,
    MAX_FRAME,
    Copy,
    MeterRates,
    MeterReading,
    Pipeline,
    PipelineError,
    Verdict,
    check_index,
    look_up,
)

ABI = 9
PACKET_ALIGNMENT = 64
MASK_64 = (1 << 64) - 1


_pointer = ctypes.c_void_p
_CREATE = ctypes.CFUNCTYPE(_pointer, ctypes.c_uint64)
_DESTROY = ctypes.CFUNCTYPE(None, _pointer)
INGRESS = ctypes.CFUNCTYPE(
    None,
    *(
        _pointer,
        _pointer,
        _pointer,
        ctypes.c_uint32,
        ctypes.c_uint16,
        ctypes.c_uint32,
        ctypes.c_uint64,
    ),
    *(_pointer, ctypes.c_int32, ctypes.POINTER(Verdict)),
)
COPY = ctypes.CFUNCTYPE(None, _pointer, _pointer)
CLONE = ctypes.CFUNCTYPE(
    None, *(_pointer, _pointer, _pointer, ctypes.c_uint32, _pointer, ctypes.c_uint32, ctypes.c_int32)
)
EGRESS = ctypes.CFUNCTYPE(
    ctypes.c_uint32, _pointer, _pointer, ctypes.POINTER(Copy), _pointer, ctypes.POINTER(Verdict)
)


class CProgram(ctypes.Structure):
    """The C struct ``p4_program``: the functions and sizes of a compiled program."""

    _fields_ = (
        ("abi", ctypes.c_uint32),
        ("packet_size", ctypes.c_uint32),
        ("create", _CREATE),
        ("destroy", _DESTROY),
        ("ingress", INGRESS),
        ("copy", COPY),
        ("lend", COPY),
        ("clone", CLONE),
        ("egress", EGRESS),
        ("waits", _pointer),
        ("ahead", _pointer),
        ("metadata", _pointer),
    )


_WORDS = ctypes.POINTER(ctypes.c_uint64)


def _control(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, f"p4_control_{name}")
    function.restype = result
    function.argtypes = (_pointer, *arguments)
    return function


class _Control:
    """The control functions of a compiled program, declared in ``runtime/control.h``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        u32, u64, packed = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p
        self.insert = _control(library, "insert", ctypes.c_int, u32, packed, u64, u32, packed)
        self.modify = _control(library, "modify", ctypes.c_int, u32, packed, u64, u32, packed)
        self.delete = _control(library, "delete", ctypes.c_int, u32, packed, u64)
        self.default = _control(library, "default", None, u32, u32, packed)
        self.part = _control(library, "part", _WORDS, u32, u32, packed, u64)
        self.meter = _control(library, "meter", _WORDS, u32, u64)
        self.digests = _control(library, "digests", _WORDS)
        self.counter = _control(library, "counter", _WORDS, u32)
        self.register_name = _control(library, "register_name", ctypes.c_char_p, u32)
        self.read_register = _control(library, "read_register", None, u32, u64, _WORDS)
        self.write_register = _control(library, "write_register", None, u32, u64, _WORDS)


class _CTable(TableEntries):
    """One table: its entries, and their copies in the shared object, in which `number` is the table's number.

    The control functions `control` work on ``struct p4_pipeline`` at the address `pipeline`.
    """

    def __init__(
        self, program: ir.Program, table: ir.Table, control: _Control, pipeline: int, number: int
    ) -> None:
        super().__init__(program, table)
        self._control = control
        self._where = pipeline, number
        self.layout = lay_out_table(table)
        self._numbers = {
            action: (at, [(1 << ir.width_of(param.type)) - 1 for param in program.actions[action].params])
            for at, action in enumerate(self.layout.actions)
        }
        """For each action, its number and the masks of its parameters."""
        self.set_default(None)
        if self.layout.kind in ("exact", "lpm", "ordered"):
            entries = self.ordered() if self.layout.kind == "ordered" else self.entries()
            for position, entry in enumerate(entries):
                self._insert(entry, position)

    def insert(self, entry: ir.ConstEntry) -> ir.ConstEntry:
        """Add an entry; see `TableEntries.insert`."""
        canonical = super().insert(entry)
        try:
            self._insert(canonical, self._place(canonical))
        except PipelineError:
            super().delete(canonical)
            raise
        return canonical

    def modify(self, entry: ir.ConstEntry) -> ir.ConstEntry:
        """Replace the action of the entry with the match of `entry`; the counter and meter stay."""
        canonical = super().modify(entry)
        match, action, args = self._words(canonical)
        self._control.modify(*self._where, match, self._place(canonical), action, args)
        return canonical

    def delete(self, entry: ir.ConstEntry) -> ir.ConstEntry:
        """Remove the entry with this match."""
        position = self._place(self.find(entry))
        gone = super().delete(entry)
        self._control.delete(*self._where, self.layout.pack(gone.patterns), position)
        return gone

    def set_default(self, invocation: ir.Invocation | None) -> ir.Invocation:
        """Set the default action; see `TableEntries.set_default`."""
        default = super().set_default(invocation)
        self._control.default(*self._where, *self._invocation(default))
        return default

    def _part(self, part: str, entry: ir.ConstEntry | None) -> Any:
        match, position = (
            (None, 0) if entry is None else (self.layout.pack(entry.patterns), self._place(entry))
        )
        words = self._control.part(*self._where, PARTS.index(part), match, position)
        return _CMeter(words) if words and part == "direct meter" else words

    def _insert(self, entry: ir.ConstEntry, position: int) -> None:
        match, action, args = self._words(entry)
        if self._control.insert(*self._where, match, position, action, args) != 0:
            raise PipelineError(f"no memory for an entry of table {self.table.name}")

    def _place(self, entry: ir.ConstEntry) -> int:
        """Return the position of an entry in the shared object.

        In a table of kind "ordered", entries are in the order of precedence; in a table of kind "code", in
        source order. Entries of other tables have no positions: return 0.
        """
        kind = self.layout.kind
        if kind == "ordered":
            return self.position(entry)
        return self.entries().index(entry) if kind == "code" else 0

    def _words(self, entry: ir.ConstEntry) -> tuple[bytes, int, bytes]:
        action, args = self._invocation(entry.invocation)
        return self.layout.pack(entry.patterns), action, args

    def _invocation(self, invocation: ir.Invocation) -> tuple[int, bytes]:
        number, masks = self._numbers[invocation.action]
        args = zip(masks, invocation.args, strict=True)
        return number, b"".join([packed(value & mask, ARG_WORDS) for mask, value in args])


class _CMeter:
    """A meter, given by the words of its C struct ``p4_meter``."""

    def __init__(self, words: Any) -> None:
        self._words = words

    def read(self) -> MeterReading:
        """Return the meter's rates and counts."""
        words = self._words
        counts = ((words[10], words[11]), (words[12], words[13]), (words[14], words[15]))
        return MeterReading(MeterRates(words[2], words[3], words[6], words[7]) if words[0] else None, counts)

    def configure(self, rates: MeterRates | None) -> None:
        """Set the rates and fill the buckets; with `rates` None, mark all packets green."""
        self._words[0] = int(rates is not None)
        if rates is not None:
            buckets = (rates.cir, rates.cburst, rates.cburst, 0, rates.pir, rates.pburst, rates.pburst, 0)
            for position, word in enumerate(buckets, 2):
                self._words[position] = word


class CField(ctypes.Structure):
    """The C struct ``p4_field``: name, offset and size in bytes of a metadata field."""

    _fields_ = (("name", ctypes.c_char_p), ("offset", ctypes.c_size_t), ("bytes", ctypes.c_size_t))


def _metadata(address: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield offset and size in bytes of the fields in a C array, which ends with a field without a name."""
    fields = ctypes.cast(address, ctypes.POINTER(CField))
    for number in itertools.count():
        if not fields[number].name:
            return
        yield fields[number].name.decode(), (fields[number].offset, fields[number].bytes)


class CompiledPacket:
    """A C struct ``p4_packet``, with its frame and the packet from which it borrows headers."""

    __slots__ = ("_lender", "_memory", "address", "frame")

    def __init__(self, size: int, frame: bytes, lender: CompiledPacket | None = None) -> None:
        self._lender = lender
        self._memory = ctypes.create_string_buffer(size + PACKET_ALIGNMENT)
        base = ctypes.addressof(self._memory)
        self.address = base + -base % PACKET_ALIGNMENT
        self.frame = frame


class CompiledPipeline(Pipeline):
    """A `Pipeline` whose data plane is the shared object `path`, built from `program`."""

    def __init__(self, program: ir.Program, path: Path, *, seed: int = 0) -> None:
        self.program = program
        library = ctypes.PyDLL(str(path))  # control calls are short: they keep the GIL
        self._ops = CProgram.in_dll(library, "p4_program")
        if self._ops.abi != ABI:
            raise PipelineError(f"{path} was built for ABI {self._ops.abi} of the engine; want {ABI}")
        self._control = _Control(library)
        self._metadata = dict(_metadata(self._ops.metadata))
        state = self._ops.create(seed & MASK_64)
        if state is None:
            raise PipelineError(f"no memory for the registers and tables of {program.name}")
        self._state: int = state
        weakref.finalize(self, self._ops.destroy, state)
        self._tables = {
            name: _CTable(program, table, self._control, state, number)
            for number, (name, table) in enumerate(program.tables.items())
        }
        numbers = itertools.count()
        names = iter(lambda: self._control.register_name(state, next(numbers)), None)
        self._registers = {name.decode(): number for number, name in enumerate(names)}
        indirect = [name for name, counter in program.counters.items() if counter.table is None]
        self._counters = {name: number for number, name in enumerate(indirect)}
        self._meters = {meter.name: number for number, meter in enumerate(indirect_meters(program))}
        self._digests = [
            (name, [ir.width_of(scalar) for _, scalar in digest.data.leaves()])
            for name, digest in program.digests.items()
        ]
        self._out = ctypes.create_string_buffer(MAX_FRAME)

    @property
    def ops_address(self) -> int:
        """Address of the program's ``struct p4_program``."""
        return ctypes.addressof(self._ops)

    @property
    def state_address(self) -> int:
        """Address of the program's ``struct p4_pipeline``, which lives as long as this object."""
        return self._state

    # ----------------------------------------------------------------- counters, meters and registers

    def read_counters(self, name: str) -> list[tuple[int, int]]:
        """Return (packets, bytes) of every cell of an indirect counter."""
        cells = self._control.counter(self._state, look_up(self._counters, "indirect counter", name))
        flat = cells[: 2 * self.program.counters[name].size]
        return list(zip(flat[::2], flat[1::2], strict=True))

    def take_digests(self) -> list[tuple[str, tuple[int, ...]]]:
        """Remove and return the waiting digests as (name, values), in the order of the program's calls."""
        if not self._digests:
            return []
        memory = self._control.digests(self._state)
        words = memory[2 : 2 + memory[0]]
        memory[0] = 0
        taken, at = [], 0
        while at < len(words):
            name, widths = self._digests[words[at]]
            pairs = zip(words[at + 1 :: 2], words[at + 2 :: 2], widths, strict=False)
            taken.append((name, tuple((low | high << 64) & ((1 << width) - 1) for low, high, width in pairs)))
            at += 1 + 2 * len(widths)
        return taken

    def read_register(self, name: str, index: int) -> int:
        """Return one cell of a register."""
        number = self._register(name, index)
        words = _array([0, 0])
        self._control.read_register(self._state, number, index, words)
        type_ = self.program.registers[name].type
        value: int = words[0] | words[1] << 64
        if isinstance(type_, ir.Bits) and type_.signed and value >> (type_.width - 1):
            value -= 1 << type_.width
        return value

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set one cell of a register."""
        number = self._register(name, index)
        bits = value & ((1 << ir.width_of(self.program.registers[name].type)) - 1)
        self._control.write_register(self._state, number, index, _array([bits & MASK_64, bits >> 64]))

    def _counter(self, name: str, index: int) -> Any:
        number = look_up(self._counters, "indirect counter", name)
        check_index(name, index, self.program.counters[name].size)
        cells = self._control.counter(self._state, number)
        return (ctypes.c_uint64 * 2).from_address(ctypes.addressof(cells.contents) + 16 * index)

    def _meter(self, name: str, index: int) -> Any:
        number = look_up(self._meters, "array of meters", name)
        check_index(name, index, self.program.meters[name].size)
        return _CMeter(self._control.meter(self._state, number, index))

    def _register(self, name: str, index: int) -> int:
        number = look_up(self._registers, "register", name)
        check_index(name, index, self.program.registers[name].size)
        return number

    # ----------------------------------------------------------------- data plane

    def ingress(
        self,
        frame: bytes,
        port: int,
        now_us: int = 0,
        instance_type: int = 0,
        previous: CompiledPacket | None = None,
        field_list: int = -1,
    ) -> tuple[CompiledPacket, Verdict]:
        """Parse a frame, verify checksums, run ingress; see `Pipeline.ingress`."""
        packet = self._packet(frame)
        verdict = Verdict()
        self._ops.ingress(
            *(self._state, packet.address, packet.frame, len(frame), port, instance_type, now_us & MASK_64),
            *(None if previous is None else previous.address, field_list, ctypes.byref(verdict)),
        )
        return packet, verdict

    def egress(self, packet: CompiledPacket, copy: Copy) -> tuple[bytes | None, Verdict]:
        """Run egress, update checksums, deparse; return the frame, or None if it is dropped."""
        verdict = Verdict()
        out = ctypes.addressof(self._out)
        length = self._ops.egress(self._state, packet.address, ctypes.byref(copy), out, ctypes.byref(verdict))
        frame = None if verdict.dropped and not length else ctypes.string_at(out, length)
        return frame, verdict

    def metadata(self, packet: CompiledPacket, names: Sequence[str]) -> dict[str, int]:
        """Return the present values of metadata fields by name; leave out names that the program lacks."""
        places = {name: self._metadata[name] for name in names if name in self._metadata}
        return {
            name: int.from_bytes(ctypes.string_at(packet.address + offset, size), "little")
            for name, (offset, size) in places.items()
        }

    def copy_packet(self, packet: CompiledPacket) -> CompiledPacket:
        """Return an independent copy of a packet, for replication."""
        twin = self._packet(packet.frame)
        self._ops.copy(twin.address, packet.address)
        return twin

    def lend_packet(self, packet: CompiledPacket) -> CompiledPacket:
        """Return a copy that reads large headers from `packet`.

        `packet` must not change while the copy is in use.
        """
        twin = CompiledPacket(self._ops.packet_size, packet.frame, packet)
        self._ops.lend(twin.address, packet.address)
        return twin

    def clone_packet(
        self, packet: CompiledPacket, frame: bytes, instance_type: int, field_list: int = -1
    ) -> CompiledPacket:
        """Return a clone of `packet`; see `Pipeline.clone_packet`."""
        clone = self._packet(packet.frame if instance_type == EGRESS_CLONE else frame)  # what it refers to
        parts = (instance_type, frame, len(frame), field_list)
        self._ops.clone(self._state, clone.address, packet.address, *parts)
        return clone

    def _packet(self, frame: bytes) -> CompiledPacket:
        if len(frame) > MAX_FRAME:
            raise ValueError(f"a frame of {len(frame)} bytes; the longest is {MAX_FRAME}")
        return CompiledPacket(self._ops.packet_size, bytes(frame))


def _array(words: Sequence[int]) -> Any:
    return (ctypes.c_uint64 * max(1, len(words)))(*words)
