"""How many aggregation packets a second one core puts through a pipeline, in memory.

The traffic is that of a job of `contributors` workers with a region of `region_slots` slots: bursts of
consecutive packets from one worker after the other, sequence numbers running on for ever. Every
packet goes through ingress; each one that completes a sum goes through egress once per worker.
"""

from __future__ import annotations

import ctypes
import statistics
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softswitch.compiler import ir
from softswitch.engine.build import FLAGS, RUNTIME, build_c, find_compiler, load
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.pipeline import Copy, Pipeline, PipelineError

JOB = 7
GENERATION = 1
GROUP = 1
COUNTER_ROW = 1
OUTCOME_COMPLETED = 1
OUTCOMES_PER_ROW = 32
ETHERNET_IPV4_UDP_BYTES = 14 + 20 + 8
PSN_OFFSET = ETHERNET_IPV4_UDP_BYTES + 4
INA_BYTES = 24
INA_UDP_PORT = 42592
SWITCH_MAC, SWITCH_IP = bytes.fromhex("020000000001"), bytes((10, 0, 0, 254))


@dataclass(frozen=True, slots=True)
class PipelineBench:
    """The rates of one program; `packets` count on the way in, `copies` on the way out."""

    program: str
    lanes: int
    contributors: int
    region_slots: int
    compiler: str
    flags: str
    packets_per_s: float
    median_packets_per_s: float
    ns_per_packet: float
    copies_per_packet: float
    interpreter_packets_per_s: float


def bench_pipeline(
    program: ir.Program,
    *,
    contributors: int = 4,
    region_slots: int = 512,
    burst: int = 64,
    rounds: int = 15,
    round_s: float = 0.1,
) -> PipelineBench:
    """Measure `program`, an ``exclusive.p4`` of any number of lanes.

    `packets_per_s` is the best of `rounds` runs of about `round_s` seconds of processor time, beside
    their median; what else the machine does meanwhile can only make a run slower. Raises PipelineError
    if the packets were not all aggregated, NoCompiler if there is nothing to measure.
    """
    lanes = lane_count(program)
    pipeline = load(program, backend="compiled")
    assert isinstance(pipeline, CompiledPipeline)
    admit_job(pipeline, contributors, region_slots)
    run = _Run(aggregation_frames(lanes, contributors, burst), contributors, burst)
    bench = _library().bench_pipeline
    state = ctypes.c_void_p(pipeline.state_address)
    ops = ctypes.c_void_p(pipeline.ops_address)

    def once(passes: int) -> tuple[float, float]:
        run.parameters.passes = passes
        if bench(ops, state, ctypes.byref(run.parameters)) != 0:
            raise PipelineError("no memory for a packet")
        packets = passes * run.parameters.frame_count
        return packets / (run.parameters.nanoseconds * 1e-9), run.parameters.sent / packets

    rate, _ = once(10)
    passes = max(10, int(rate * round_s / run.parameters.frame_count))
    measured = [once(passes) for _ in range(rounds)]
    done, _ = pipeline.read_counter("InaIngress.outcomes", COUNTER_ROW * OUTCOMES_PER_ROW + OUTCOME_COMPLETED)
    expected = (10 + passes * rounds) * burst
    if done != expected:
        raise PipelineError(f"the pipeline completed {done} sums, not {expected}: this measures nothing")
    best = max(rate for rate, _ in measured)
    return PipelineBench(
        program=program.name,
        lanes=lanes,
        contributors=contributors,
        region_slots=region_slots,
        compiler=find_compiler(),
        flags=" ".join(FLAGS),
        packets_per_s=best,
        median_packets_per_s=statistics.median(rate for rate, _ in measured),
        ns_per_packet=1e9 / best,
        copies_per_packet=measured[0][1],
        interpreter_packets_per_s=interpreter_rate(program, contributors, region_slots, burst),
    )


def interpreter_rate(program: ir.Program, contributors: int, region_slots: int, burst: int) -> float:
    """Return packets per second of the interpreter over one pass of the same frames."""
    pipeline = load(program, backend="interpreter")
    admit_job(pipeline, contributors, region_slots)
    frames = aggregation_frames(lane_count(program), contributors, burst)
    started = time.perf_counter()
    for frame, port in frames:
        packet, verdict = pipeline.ingress(frame, port)
        if verdict.mcast_grp:
            for rank in range(contributors):
                pipeline.egress(pipeline.copy_packet(packet), Copy(egress_port=rank + 1, egress_rid=rank))
    return len(frames) / (time.perf_counter() - started)


# --------------------------------------------------------------------------- the job


def lane_count(program: ir.Program) -> int:
    """Return the number of lanes that the program's packets carry."""
    lanes = dict(program.hdr.fields)["lanes"]
    assert isinstance(lanes, ir.Header)
    return len(lanes.fields)


def admit_job(pipeline: Pipeline, contributors: int, region_slots: int) -> None:
    """Install the table entries of one job whose worker r is at port r + 1."""
    full = (1 << contributors) - 1
    _insert(
        pipeline,
        "InaIngress.admission.job",
        (JOB,),
        (
            "InaIngress.admission.set_job",
            (COUNTER_ROW, 0, region_slots, GENERATION, contributors, full, GROUP),
        ),
    )
    for rank in range(contributors):
        member = ("InaIngress.admission.set_member", (1 << rank,))
        _insert(pipeline, "InaIngress.admission.member", (JOB, rank + 1), member)
        mac, ip = int.from_bytes(_worker_mac(rank), "big"), int.from_bytes(_worker_ip(rank), "big")
        deliver = ("InaEgress.delivery.deliver", (mac, ip, INA_UDP_PORT))
        _insert(pipeline, "InaEgress.delivery.receiver", (JOB, rank), deliver)


def _insert(pipeline: Pipeline, table: str, key: Sequence[int], action: tuple[str, tuple[int, ...]]) -> None:
    patterns = tuple(ir.Pattern("exact", value) for value in key)
    pipeline.insert(table, ir.ConstEntry(patterns, ir.Invocation(*action), 0))


def aggregation_frames(lanes: int, contributors: int, burst: int) -> list[tuple[bytes, int]]:
    """Return one burst of contributions from each worker in turn, with the ports they come from."""
    return [
        (_frame(lanes, contributors, rank, psn), rank + 1)
        for rank in range(contributors)
        for psn in range(burst)
    ]


def _frame(lanes: int, contributors: int, rank: int, psn: int) -> bytes:
    ina = struct.pack(
        ">BBHIIBBBBHHI",
        0x11,  # version 1, KIND_GRADIENT
        0,
        JOB,
        psn,
        1 << rank,
        contributors,
        *(0, 120, 0),  # priority, exponent, reserved
        *(lanes, lanes),
        0xDECAF,  # tag
    )
    values = struct.pack(f">{lanes}i", *((rank + 1) * (lane - lanes // 2) for lane in range(lanes)))
    payload = ina + values
    udp = struct.pack(">HHHH", INA_UDP_PORT, INA_UDP_PORT, 8 + len(payload), 0)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp) + len(payload), 0, 0, 64, 17, 0)
    addresses = _worker_ip(rank) + SWITCH_IP
    checksum = struct.pack(">H", _internet_checksum(head + addresses))
    ipv4 = head[:10] + checksum + addresses
    return SWITCH_MAC + _worker_mac(rank) + b"\x08\x00" + ipv4 + udp + payload


def _internet_checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def _worker_mac(rank: int) -> bytes:
    return bytes((2, 0, 0, 0, 1, rank))


def _worker_ip(rank: int) -> bytes:
    return bytes((10, 0, 0, rank + 1))


# --------------------------------------------------------------------------- the C loop


class _Frame(ctypes.Structure):
    """``struct bench_frame``."""

    _fields_ = (("offset", ctypes.c_uint32), ("length", ctypes.c_uint32), ("port", ctypes.c_uint16))


class _Replica(ctypes.Structure):
    """``struct bench_replica``."""

    _fields_ = (("port", ctypes.c_uint16), ("rid", ctypes.c_uint16))


class _Parameters(ctypes.Structure):
    """``struct bench_run``."""

    _fields_ = (
        ("frames", ctypes.c_void_p),
        ("frame", ctypes.POINTER(_Frame)),
        ("frame_count", ctypes.c_uint32),
        ("replica", ctypes.POINTER(_Replica)),
        ("replica_count", ctypes.c_uint32),
        ("number_offset", ctypes.c_uint32),
        ("number_step", ctypes.c_uint32),
        ("passes", ctypes.c_uint32),
        ("sent", ctypes.c_uint64),
        ("nanoseconds", ctypes.c_uint64),
    )


class _Run:
    """The memory of a run: frames one after the other at multiples of 64 bytes, as in a receive ring."""

    def __init__(self, frames: Sequence[tuple[bytes, int]], contributors: int, burst: int) -> None:
        memory, table = bytearray(), []
        for frame, port in frames:
            table.append(_Frame(len(memory), len(frame), port))
            memory += frame + bytes(-len(frame) % 64)
        self._frames = ctypes.create_string_buffer(bytes(memory), len(memory))
        self._table = (_Frame * len(table))(*table)
        self._replicas = (_Replica * contributors)(
            *(_Replica(rank + 1, rank) for rank in range(contributors))
        )
        self.parameters = _Parameters(
            frames=ctypes.addressof(self._frames),
            frame=self._table,
            frame_count=len(table),
            replica=self._replicas,
            replica_count=contributors,
            number_offset=PSN_OFFSET,
            number_step=burst,
        )


def _library() -> Any:
    library = ctypes.CDLL(str(build_c(Path(RUNTIME / "bench.c").read_text())))
    library.bench_pipeline.restype = ctypes.c_int
    library.bench_pipeline.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(_Parameters))
    return library
