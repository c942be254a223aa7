"""Drives frames through a pipeline in memory at full speed: any program, any frames.

`FrameLoop` drives them from C, on one core, without queues; `frames_per_s` makes one pass from Python, with
any pipeline, for comparison; `packet_times` measures each packet of an STF script.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softswitch.compiler import ir
from softswitch.engine.build import FLAGS, build_c, find_compiler, load
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.pipeline import RECIRCULATED, Copy, Pipeline, PipelineError
from softswitch.engine.switch import Switch
from softswitch.engine.tofino import RECIRCULATING
from softswitch.stf import Control, PacketLine, Statement

Frames = Sequence[tuple[bytes, int]]
"""Frames and their input ports."""


@dataclass(frozen=True, slots=True)
class LoopPass:
    """Result of several passes.

    Attributes:
        packets: Number of packets that entered the pipeline.
        copies: Number of copies that left the pipeline.
        cpu_s: Processor time in seconds.
    """

    packets: int
    copies: int
    cpu_s: float


class FrameLoop:
    """Frames that go through a compiled pipeline in several passes, with new numbers in every pass.

    Each frame holds a number, such as its PSN, which every pass increments.

    Every frame goes through ingress. Each copy that leaves goes through egress. A frame leaves as one copy,
    or, if the program multicasts it to any group, as one copy for each item of `replicas`.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        frames: Frames,
        *,
        replicas: Sequence[tuple[int, int]],
        number_offset: int,
        number_step: int,
    ) -> None:
        """Prepare the loop.

        Args:
            pipeline: a compiled pipeline with filled tables.
            frames: in the order in which they arrive.
            replicas: port and replication id of each copy of a multicast.
            number_offset: offset in bytes of the 32-bit, big-endian number in each frame, such as the PSN.
            number_step: increment of that number from pass to pass.

        Raises:
            PipelineError: the pipeline is not a compiled one.
        """
        if not isinstance(pipeline, CompiledPipeline):
            raise PipelineError(f"the loop in C needs a compiled pipeline, not {type(pipeline).__name__}")
        self._pipeline = pipeline
        self._library = compiled_loops()
        # frames lie one after the other, at multiples of 64 bytes, as in a receive ring
        memory, table = bytearray(), []
        for frame, port in frames:
            table.append(_Frame(len(memory), len(frame), port))
            memory += frame + bytes(-len(frame) % 64)
        self._memory = ctypes.create_string_buffer(bytes(memory), len(memory))
        self._table = (_Frame * len(table))(*table)
        self._replicas = (_Replica * len(replicas))(*(_Replica(*replica) for replica in replicas))
        self._number = number_offset, number_step

    def frames(self, passes: int) -> Any:
        """Return the C structure of a loop that processes all frames `passes` times."""
        return _BenchLoop(
            ctypes.addressof(self._memory), self._table, len(self._table), *self._number, passes
        )

    def run(self, passes: int, *, one_by_one: bool = False) -> LoopPass:
        """Process all frames `passes` times.

        With `one_by_one`, table entries are not prefetched for later frames.

        Raises PipelineError if there is no memory for a packet.
        """
        run = _PipelineLoop(self.frames(passes), self._replicas, len(self._replicas), one_by_one)
        state = ctypes.c_void_p(self._pipeline.state_address)
        ops = ctypes.c_void_p(self._pipeline.ops_address)
        if self._library.bench_pipeline(ops, state, ctypes.byref(run)) != 0:
            raise PipelineError("no memory for a packet")
        return LoopPass(passes * len(self._table), run.sent, run.loop.nanoseconds * 1e-9)

    def run_sums(
        self, passes: int, *, values_offset: int, lanes: int, slots: int, contributors: int
    ) -> float:
        """Return the processor time in seconds of additions and copies alone: a lower bound for any program.

        The values of each frame, 32 bits and big endian, are added to a slot's values; the frame's number
        selects the slot; every sum of `contributors` frames is copied out `contributors` times.

        Args:
            passes: Number of passes over all frames.
            values_offset: Position of the values in a frame, in bytes.
            lanes: Number of values.
            slots: Number of slots.
            contributors: Frames that make one sum.

        Raises PipelineError if there is no memory.
        """
        run = _Sums(self.frames(passes), values_offset, lanes, slots, contributors)
        if self._library.bench_sums(ctypes.byref(run)) != 0:
            raise PipelineError("no memory for the slots")
        return float(run.loop.nanoseconds) * 1e-9


def frames_per_s(pipeline: Pipeline, frames: Frames, replicas: Sequence[tuple[int, int]]) -> float:
    """Send all frames through any pipeline once, one call from Python for each; return frames per second."""
    copies = [Copy(egress_port=port, egress_rid=rid) for port, rid in replicas]
    started = time.perf_counter()
    for frame, port in frames:
        packet, verdict = pipeline.ingress(frame, port)
        if verdict.mcast_grp:
            for copy in copies:
                pipeline.egress(pipeline.copy_packet(packet), copy)
        elif not verdict.dropped and (verdict.unicast or not verdict.mcast_grp_2):
            pipeline.egress(pipeline.copy_packet(packet), Copy(egress_port=verdict.egress_spec))
        if verdict.mcast_grp_2:
            again, _ = pipeline.egress(packet, Copy(egress_port=RECIRCULATING.start))
            if again:
                pipeline.ingress(again, 0, 0, RECIRCULATED, packet)
    return len(frames) / (time.perf_counter() - started)


def compiler_and_flags() -> str:
    """Return the C compiler and the flags that programs are built with. Raises NoCompiler."""
    return " ".join((find_compiler(), *FLAGS))


# --------------------------------------------------------------------------- the packets of a script

_PASSES = 2000
_TURNS = 5


@dataclass(frozen=True, slots=True)
class PacketTime:
    """A packet of a script, its processor time from parser to deparser, and its number of sent copies."""

    line: int
    port: int
    bytes: int
    ns: float
    copies: int


def packet_times(program: ir.Program, statements: Sequence[Statement]) -> list[PacketTime]:
    """Return the processor time of each packet of an STF script.

    All table entries and multicast groups of the script are installed first. The program then processes each
    packet in five rounds of 2000 times, and the fastest round counts. So registers hold values from earlier
    runs of the same packet, and all data is in the processor's caches. The time does not include the further
    processing of a packet that is resubmitted, recirculated or cloned. Raises ScriptError, NoCompiler.
    """
    pipeline = load(program, backend="compiled")
    with Switch({}) as switch:
        Control(program, pipeline, switch).configure(statements)
        groups = switch.multicast_groups()
        packets = [statement for statement in statements if isinstance(statement, PacketLine)]
        return [_time(pipeline, groups, packet) for packet in packets]


def _time(pipeline: Pipeline, groups: dict[int, list[tuple[int, int]]], packet: PacketLine) -> PacketTime:
    _, verdict = pipeline.ingress(packet.data, packet.port)
    replicas = groups.get(verdict.mcast_grp, [])
    frames = [(packet.data, packet.port)]
    loop = FrameLoop(pipeline, frames, replicas=replicas, number_offset=0, number_step=0)
    turns = [loop.run(_PASSES) for _ in range(_TURNS)]
    ns = min(turn.cpu_s for turn in turns) / _PASSES * 1e9
    return PacketTime(packet.line, packet.port, len(packet.data), round(ns, 1), turns[-1].copies // _PASSES)


# --------------------------------------------------------------------------- C


class _Frame(ctypes.Structure):
    """The C type ``struct bench_frame`` of ``frame_loop.c``."""

    _fields_ = (("offset", ctypes.c_uint32), ("length", ctypes.c_uint32), ("port", ctypes.c_uint16))


class _Replica(ctypes.Structure):
    """The C type ``struct bench_replica`` of ``frame_loop.c``."""

    _fields_ = (("port", ctypes.c_uint16), ("rid", ctypes.c_uint16))


class _BenchLoop(ctypes.Structure):
    """The C type ``struct bench_loop`` of ``frame_loop.c``."""

    _fields_ = (
        ("frames", ctypes.c_void_p),
        ("frame", ctypes.POINTER(_Frame)),
        ("frame_count", ctypes.c_uint32),
        ("number_offset", ctypes.c_uint32),
        ("number_step", ctypes.c_uint32),
        ("passes", ctypes.c_uint32),
        ("nanoseconds", ctypes.c_uint64),
    )


class _PipelineLoop(ctypes.Structure):
    """The C type ``struct bench_run`` of ``frame_loop.c``."""

    _fields_ = (
        ("loop", _BenchLoop),
        ("replica", ctypes.POINTER(_Replica)),
        ("replica_count", ctypes.c_uint32),
        ("one_by_one", ctypes.c_uint32),
        ("sent", ctypes.c_uint64),
    )


class _Sums(ctypes.Structure):
    """The C type ``struct bench_sums`` of ``frame_loop.c``."""

    _fields_ = (
        ("loop", _BenchLoop),
        ("values_offset", ctypes.c_uint32),
        ("lanes", ctypes.c_uint32),
        ("slots", ctypes.c_uint32),
        ("contributors", ctypes.c_uint32),
    )


@functools.cache
def compiled_loops() -> Any:
    """Return the library of ``frame_loop.c`` and ``by_hand.c``. Raises NoCompiler."""
    text = "".join(Path(__file__).with_name(name).read_text() for name in ("frame_loop.c", "by_hand.c"))
    library = ctypes.CDLL(str(build_c(text)), use_errno=True)
    library.bench_pipeline.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(_PipelineLoop))
    library.bench_sums.argtypes = (ctypes.POINTER(_Sums),)
    library.bench_send.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32)
    return library
