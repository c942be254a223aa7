"""How many aggregation packets a second one core puts through a pipeline, in memory.

The traffic of ``exclusive.p4`` is that of one job of `contributors` workers: bursts of consecutive packets
from one worker after the other, sequence numbers running on for ever. In ``shared.p4`` several such jobs
take turns on one array of slots, with different priorities; some contributions collide, and what that
strands is taken out by age or rank. Every packet goes through ingress; each one that completes a sum
goes through egress once per worker, each one that moves on to the fallback server once.
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

FIRST_JOB = 7
OUTCOMES_PER_ROW = 32
COMPLETED, COLLIDED, EVICTED = 1, 18, 22
"""Columns of the outcomes that are reported."""

COMPLETED_SHARE = 0.8
"""A run in which fewer of the possible sums were completed measures something else."""

UPLINK_PORT = 100
MAX_AGE_PASSES = 2
PSN_APART = 1_001_097
"""How far the jobs are apart in their sequence numbers: so that with 2048 shared slots neighbours, whose
packets follow each other through the slots, are a tenth of a burst into each other's."""

ETHERNET_IPV4_UDP_BYTES = 14 + 20 + 8
PSN_OFFSET = ETHERNET_IPV4_UDP_BYTES + 4
INA_UDP_PORT = 42592
SWITCH_MAC, SWITCH_IP = bytes.fromhex("020000000001"), bytes((10, 0, 0, 254))


@dataclass(frozen=True, slots=True)
class PipelineBench:
    """The rates of one program; `packets` count on the way in, `copies` on the way out."""

    program: str
    lanes: int
    jobs: int
    contributors: int
    region_slots: int
    compiler: str
    flags: str
    packets_per_s: float
    median_packets_per_s: float
    ns_per_packet: float
    copies_per_packet: float
    interpreter_packets_per_s: float
    completed_share: float
    """Sums that were completed in a slot, of those that could be."""
    collided_share: float
    """Packets that found their slot taken."""
    evicted_share: float
    """Packets that took another sum's slot."""


@dataclass(frozen=True, slots=True)
class _Traffic:
    """What goes in: `burst` packets of each worker of each job, all jobs on the same slots."""

    jobs: int
    contributors: int
    region_slots: int
    burst: int

    def frames(self, lanes: int) -> list[tuple[bytes, int]]:
        """Return one burst of each worker of each job in turn, with the ports they come from."""
        return [
            (_frame(lanes, self.contributors, job, rank, job * PSN_APART + psn), self.port(job, rank))
            for rank in range(self.contributors)
            for job in range(self.jobs)
            for psn in range(self.burst)
        ]

    def port(self, job: int, rank: int) -> int:
        """Return the port of a worker."""
        return job * self.contributors + rank + 1


def bench_pipeline(
    program: ir.Program,
    *,
    contributors: int = 4,
    jobs: int | None = None,
    region_slots: int | None = None,
    burst: int = 64,
    rounds: int = 15,
    round_s: float = 0.1,
) -> PipelineBench:
    """Measure `program`, an ``exclusive.p4`` or ``shared.p4`` of any number of lanes.

    One job with 512 slots, or for shared slots four jobs on 2048. `packets_per_s` is the best of `rounds`
    runs of about `round_s` seconds of processor time, beside their median; what else the machine does
    meanwhile can only make a run slower. Raises PipelineError if the packets were not aggregated,
    NoCompiler if there is nothing to measure.
    """
    lanes, shared = lane_count(program), is_shared(program)
    if jobs is None:
        jobs = 4 if shared else 1
    if region_slots is None:
        region_slots = 2048 if shared else 512
    traffic = _Traffic(jobs, contributors, region_slots, burst)
    pipeline = load(program, backend="compiled")
    assert isinstance(pipeline, CompiledPipeline)
    admit_jobs(pipeline, traffic)
    run = _Run(traffic, lanes)
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
    packets = (10 + passes * rounds) * run.parameters.frame_count
    shares = {
        outcome: sum(
            pipeline.read_counter("InaIngress.outcomes", (1 + job) * OUTCOMES_PER_ROW + outcome)[0]
            for job in range(jobs)
        )
        / packets
        for outcome in (COMPLETED, COLLIDED, EVICTED)
    }
    completed = shares[COMPLETED] * contributors
    if completed < (COMPLETED_SHARE if shared else 1):
        raise PipelineError(f"the pipeline completed {completed:.1%} of the sums: this measures nothing")
    best = max(rate for rate, _ in measured)
    return PipelineBench(
        program=program.name,
        lanes=lanes,
        jobs=jobs,
        contributors=contributors,
        region_slots=region_slots,
        compiler=find_compiler(),
        flags=" ".join(FLAGS),
        packets_per_s=best,
        median_packets_per_s=statistics.median(rate for rate, _ in measured),
        ns_per_packet=1e9 / best,
        copies_per_packet=measured[0][1],
        interpreter_packets_per_s=interpreter_rate(program, traffic),
        completed_share=completed,
        collided_share=shares[COLLIDED],
        evicted_share=shares[EVICTED],
    )


def interpreter_rate(program: ir.Program, traffic: _Traffic) -> float:
    """Return packets per second of the interpreter over one pass of the same frames."""
    pipeline = load(program, backend="interpreter")
    admit_jobs(pipeline, traffic)
    frames = traffic.frames(lane_count(program))
    started = time.perf_counter()
    for frame, port in frames:
        packet, verdict = pipeline.ingress(frame, port)
        if verdict.mcast_grp:
            for rank in range(traffic.contributors):
                copy = Copy(egress_port=rank + 1, egress_rid=rank + 1)
                pipeline.egress(pipeline.copy_packet(packet), copy)
        elif not verdict.dropped:
            pipeline.egress(packet, Copy(egress_port=verdict.egress_spec))
    return len(frames) / (time.perf_counter() - started)


# --------------------------------------------------------------------------- the jobs


def lane_count(program: ir.Program) -> int:
    """Return the number of lanes that the program's packets carry."""
    lanes = dict(program.hdr.fields)["lanes"]
    assert isinstance(lanes, ir.Header)
    return len(lanes.fields)


def is_shared(program: ir.Program) -> bool:
    """Return whether jobs compete for the slots: then a slot says whose it is."""
    return "InaIngress.aggregator.slot_job" in program.registers


def admit_jobs(pipeline: Pipeline, traffic: _Traffic) -> None:
    """Install the table entries of all jobs: worker r is child r of the root, which is this switch."""
    contributors = traffic.contributors
    full = (1 << contributors) - 1
    for index in range(traffic.jobs):
        job, row, generation, group = (FIRST_JOB + index, *[1 + index] * 3)
        region = (0, traffic.region_slots)
        tree = (contributors, full, group, 0, full)
        role, preempt, ageing = (1, 0), 1, 1  # the root, not transit
        policy = (*role, preempt, ageing, 2 * traffic.burst, MAX_AGE_PASSES)
        set_job = ("InaIngress.admission.set_job", (row, *region, generation, *tree, *policy))
        _insert(pipeline, "InaIngress.admission.job", (job,), set_job)
        set_uplink = ("InaIngress.uplink.set_uplink", (UPLINK_PORT, 0, 0, 0, row, 0, contributors))
        _insert(pipeline, "InaIngress.uplink.uplink", (job,), set_uplink)
        _deliver(pipeline, job, 0, SWITCH_MAC, SWITCH_IP, 0xFFFF)
        for rank in range(contributors):
            member = ("InaIngress.admission.set_member", (1 << rank, 0, 0))
            _insert(pipeline, "InaIngress.admission.member", (job, traffic.port(index, rank)), member)
            _deliver(pipeline, job, 1 + rank, _worker_mac(index, rank), _worker_ip(index, rank), rank)


def _deliver(pipeline: Pipeline, job: int, replica: int, mac: bytes, ip: bytes, rank: int) -> None:
    arguments = (int.from_bytes(mac, "big"), int.from_bytes(ip, "big"), INA_UDP_PORT, rank)
    deliver = ("InaEgress.delivery.deliver", arguments)
    _insert(pipeline, "InaEgress.delivery.receiver", (job, replica), deliver)


def _insert(pipeline: Pipeline, table: str, key: Sequence[int], action: tuple[str, tuple[int, ...]]) -> None:
    patterns = tuple(ir.Pattern("exact", value) for value in key)
    pipeline.insert(table, ir.ConstEntry(patterns, ir.Invocation(*action), 0))


def _frame(lanes: int, contributors: int, job: int, rank: int, psn: int) -> bytes:
    ina = struct.pack(
        ">BBHIIBBBBHHIHH",
        0x21,  # version 2, KIND_GRADIENT
        0,
        FIRST_JOB + job,
        psn,
        1 << rank,
        contributors,
        *(1 << job, 120, 1 + job),  # priority, exponent, epoch
        *(lanes, lanes),
        0xDECAF,  # tag
        *(0, 0xFFFF),  # node, target
    )
    values = struct.pack(f">{lanes}i", *((rank + 1) * (lane - lanes // 2) for lane in range(lanes)))
    payload = ina + values
    udp = struct.pack(">HHHH", INA_UDP_PORT, INA_UDP_PORT, 8 + len(payload), 0)
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp) + len(payload), 0, 0, 64, 17, 0)
    addresses = _worker_ip(job, rank) + SWITCH_IP
    checksum = struct.pack(">H", _internet_checksum(head + addresses))
    ipv4 = head[:10] + checksum + addresses
    return SWITCH_MAC + _worker_mac(job, rank) + b"\x08\x00" + ipv4 + udp + payload


def _internet_checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def _worker_mac(job: int, rank: int) -> bytes:
    return bytes((2, 0, 0, 0, 1 + job, rank))


def _worker_ip(job: int, rank: int) -> bytes:
    return bytes((10, 0, job, rank + 1))


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

    def __init__(self, traffic: _Traffic, lanes: int) -> None:
        memory, table = bytearray(), []
        for frame, port in traffic.frames(lanes):
            table.append(_Frame(len(memory), len(frame), port))
            memory += frame + bytes(-len(frame) % 64)
        self._frames = ctypes.create_string_buffer(bytes(memory), len(memory))
        self._table = (_Frame * len(table))(*table)
        self._replicas = (_Replica * traffic.contributors)(
            *(_Replica(rank + 1, rank + 1) for rank in range(traffic.contributors))
        )
        self.parameters = _Parameters(
            frames=ctypes.addressof(self._frames),
            frame=self._table,
            frame_count=len(table),
            replica=self._replicas,
            replica_count=traffic.contributors,
            number_offset=PSN_OFFSET,
            number_step=traffic.burst,
        )


def _library() -> Any:
    library = ctypes.CDLL(str(build_c(Path(RUNTIME / "bench.c").read_text())))
    library.bench_pipeline.restype = ctypes.c_int
    library.bench_pipeline.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(_Parameters))
    return library
