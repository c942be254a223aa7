"""Throughput of a compiled program in aggregation packets per second, in memory, on one core.

``exclusive.p4`` gets the traffic of one job with `contributors` workers: bursts of consecutive packets from
one worker after the other, with ever increasing sequence numbers. ``shared.p4`` gets the traffic of several
such jobs with different priorities, which alternate on one array of slots: some packets collide, and partial
sums that will not complete are evicted because of their age or priority. Every packet goes through ingress. A
packet that completes a sum goes through egress once per worker; a packet for the fallback server, once.
"""

from __future__ import annotations

import ctypes
import functools
import ipaddress
import statistics
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import softswitch
from bmv2_topos.testbeds.virtual.target import PipelineTarget
from controller.errors import ProgramMismatch
from controller.switches import names, tofino_rows
from controller.switches.jobs import job_row, supporting_rows
from controller.switches.model import COLUMNS, OUTCOMES, Admission, Member, Uplink
from controller.switches.programs import capabilities, objects
from controller.switches.target import Entry, TableEntry
from controller.vocabulary import Region
from hostlib import wire
from ina.bench.frame_loop import FrameLoop, compiled_loops, compiler_and_flags, frames_per_s
from softswitch.compiler import ir
from softswitch.engine.pipeline import Pipeline, PipelineError

FIRST_JOB = 7
REPORTED = ("completed", "collided", "evicted")

COMPLETED_SHARE = 0.8
"""Minimum share of completed sums; a run of ``shared.p4`` with a smaller share is no valid measurement."""

UPLINK_PORT = 100
MAX_AGE_PASSES = 2
PSN_APART = 1_001_097
"""Distance between the PSNs of successive jobs: with 2048 shared slots, the bursts of two successive jobs
have a tenth of their slots in common."""

SWITCH_MAC, SWITCH_IP = "02:00:00:00:00:01", "10.0.0.254"


@dataclass(frozen=True, slots=True)
class PipelineBench:
    """The rates of one program; packets are counted at ingress, copies at egress."""

    lanes: int
    jobs: int
    region_slots: int
    compiler: str
    """The C compiler and its flags."""
    packets_per_s: float
    median_packets_per_s: float
    ns_per_packet: float
    bare_ns_per_packet: float
    """Time per packet of additions and copies, without parsing and table look-ups, in the fastest round."""
    by_hand_ns_per_packet: float | None
    """Time per packet of the handwritten C program in the fastest round; None: the program is shared or
    for Tofino, and cannot be compared with the C program."""
    copies_per_packet: float
    interpreter_packets_per_s: float
    completed_share: float
    """Share of the possible sums that were completed in a slot, 0 to 1."""
    collided_share: float
    """Share of the packets that found their slot taken by another sum."""
    evicted_share: float
    """Share of the packets that took a slot from another sum."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The measured traffic: `burst` packets from each worker of each job. All jobs use the same slots."""

    jobs: int
    contributors: int
    region_slots: int
    burst: int

    def frames(self, lanes: int) -> list[tuple[bytes, int]]:
        """Return frames with their input ports: a burst of worker 0 of each job, then of worker 1, ..."""
        return [
            (_frame(lanes, self.contributors, job, rank, job * PSN_APART + psn), self.port(job, rank))
            for rank in range(self.contributors)
            for job in range(self.jobs)
            for psn in range(self.burst)
        ]

    def port(self, job: int, rank: int) -> int:
        """Return the port of a worker."""
        return job * self.contributors + rank + 1

    def replicas(self) -> list[tuple[int, int]]:
        """Return port and replication id of each copy of a multicast result."""
        return [(rank + 1, rank + 1) for rank in range(self.contributors)]


def bench_pipeline(
    program: ir.Program,
    *,
    contributors: int = 4,
    burst: int = 64,
    rounds: int = 15,
    round_s: float = 0.1,
) -> PipelineBench:
    """Measure `program`: ``exclusive.p4`` or ``shared.p4``, compiled for any number of lanes.

    An exclusive program serves one job with 512 slots; a shared program, four jobs that share 2048 slots.

    `packets_per_s` is the rate of the fastest round, because other load on the machine can only make a round
    slower; `median_packets_per_s` is the median of all rounds.

    Args:
        program: The compiled program.
        contributors: Number of workers of each job.
        burst: Number of consecutive packets from one worker.
        rounds: Number of measurements.
        round_s: Approximate processor time of a measurement, in seconds.

    Raises PipelineError if too few sums were completed, ProgramMismatch if `program` cannot aggregate,
    NoCompiler if there is no C compiler.
    """
    shared = is_shared(program)
    lanes = lane_count(program)
    jobs, region_slots = (4, 2048) if shared else (1, 512)
    traffic = Traffic(jobs, contributors, region_slots, burst)
    frames, replicas = traffic.frames(lanes), traffic.replicas()
    psn_offset: int = wire.FRAME_PREFIX_BYTES + wire.HEADER_DTYPE.fields["psn"][1]  # type: ignore[index]

    pipeline = softswitch.load(program, backend="compiled")
    admit_jobs(pipeline, traffic)
    loop = FrameLoop(pipeline, frames, replicas=replicas, number_offset=psn_offset, number_step=burst)
    first = loop.run(10)
    passes = max(10, int(first.packets / first.cpu_s * round_s / len(frames)))
    by_hand = None if shared or program.tofino else admit_by_hand(traffic, lanes)
    measured, bare_s, by_hand_s = [], [], []
    for _ in range(rounds):  # in turn: a slower machine slows down all
        measured.append(loop.run(passes))
        if by_hand is not None:
            by_hand_s.append(by_hand.run_s(loop, passes))
        bare_s.append(
            loop.run_sums(
                passes,
                values_offset=wire.FRAME_PREFIX_BYTES + wire.INA_BYTES,
                lanes=lanes,
                slots=region_slots,
                contributors=contributors,
            )
        )
    counter = tofino_rows.COUNTER if program.tofino else names.OUTCOMES

    packets = sum(each.packets for each in (first, *measured))

    def share(outcome: str) -> float:
        cells = ((1 + job) * COLUMNS + OUTCOMES[outcome] for job in range(jobs))
        return sum(pipeline.read_counter(counter, cell)[0] for cell in cells) / packets

    shares = {outcome: share(outcome) for outcome in REPORTED}
    completed = shares["completed"] * contributors
    if completed < (COMPLETED_SHARE if shared else 1):
        raise PipelineError(f"only {completed:.1%} of the sums were completed: no valid measurement")
    rates = [each.packets / each.cpu_s for each in measured]
    interpreter = softswitch.load(program, backend="interpreter")
    admit_jobs(interpreter, traffic)
    return PipelineBench(
        lanes=lanes,
        jobs=jobs,
        region_slots=region_slots,
        compiler=compiler_and_flags(),
        packets_per_s=max(rates),
        median_packets_per_s=statistics.median(rates),
        ns_per_packet=1e9 / max(rates),
        bare_ns_per_packet=1e9 * min(bare_s) / (passes * len(frames)),
        by_hand_ns_per_packet=1e9 * min(by_hand_s) / (passes * len(frames)) if by_hand_s else None,
        copies_per_packet=measured[0].copies / measured[0].packets,
        interpreter_packets_per_s=frames_per_s(interpreter, frames, replicas),
        completed_share=completed,
        collided_share=shares["collided"],
        evicted_share=shares["evicted"],
    )


# --------------------------------------------------------------------------- the jobs


def lane_count(program: ir.Program) -> int:
    """Return the number of lanes in a packet of an aggregating program.

    Raises ProgramMismatch if the program has no header named ``lanes``.
    """
    headers: ir.Type = program.hdr
    if program.tofino:  # ingress and egress have headers of their own
        headers = dict(program.hdr.fields)["ingress"]
    assert isinstance(headers, ir.Struct)
    lanes = dict(headers.fields).get("lanes")
    if not isinstance(lanes, ir.Header):
        raise ProgramMismatch(f"the program {program.name} has no header 'lanes' for the values of a packet")
    return len(lanes.fields)


def is_shared(program: ir.Program) -> bool:
    """Return whether jobs compete for the program's slots. Raises ProgramMismatch if it cannot aggregate."""
    return capabilities(objects(softswitch.p4info(program)), f"the program {program.name}").shared


def admit_jobs(pipeline: Pipeline, traffic: Traffic) -> None:
    """Install the table entries of all jobs, with this switch as their root and worker r as child r."""
    program = pipeline.program
    described = objects(softswitch.p4info(program))
    with softswitch.Switch({}) as switch:
        target = PipelineTarget(program.name, switch, pipeline, described)
        for index in range(traffic.jobs):
            admission = _admission(traffic, index, shared=is_shared(program))
            found: Iterable[Entry] = (*supporting_rows(admission), job_row(admission))
            if program.tofino:
                found = _on_tofino(admission, traffic)
            target.write("INSERT", [row for row in found if isinstance(row, TableEntry)])


def _admission(traffic: Traffic, index: int, *, shared: bool) -> Admission:
    contributors = traffic.contributors
    members = tuple(
        Member(
            rank,
            traffic.port(index, rank),
            _worker_mac(index, rank),
            _worker_ip(index, rank),
            wire.INA_UDP_PORT,
        )
        for rank in range(contributors)
    )
    return Admission(
        job=FIRST_JOB + index,
        counter_row=1 + index,
        region=Region(0, traffic.region_slots),
        generation=1 + index,
        group=1 + index,
        members=members,
        fan_in=contributors,
        window=2 * traffic.burst,
        uplink=Uplink(UPLINK_PORT, SWITCH_MAC, SWITCH_IP) if shared else None,
        result_bitmap=(1 << contributors) - 1,
        preempt=shared,
        ageing=1,
        max_age_us=MAX_AGE_PASSES,
    )


def _on_tofino(admission: Admission, traffic: Traffic) -> Iterator[TableEntry]:
    """Yield a job's table rows for Tofino, where the egress port selects the addresses of a result.

    The loop sends results to the ports of `Traffic.replicas`, not to the workers' ports. So each row for the
    port of a worker is repeated for the worker's port in `Traffic.replicas`.
    """
    ports = {
        member.port: port for member, (port, _) in zip(admission.members, traffic.replicas(), strict=True)
    }
    for row in tofino_rows.rows(admission, shared=admission.uplink is not None):
        yield row
        port = row.match.get(tofino_rows.EGRESS_PORT)
        if isinstance(port, int) and ports.get(port, port) != port:
            yield replace(row, match={**row.match, tofino_rows.EGRESS_PORT: ports[port]})


def admit_by_hand(traffic: Traffic, lanes: int) -> ByHand:
    """Return the handwritten C program with the first job's entries."""
    workers = _admission(traffic, 0, shared=False).members
    return ByHand(FIRST_JOB, workers, lanes=lanes, slots=traffic.region_slots)


def _frame(lanes: int, contributors: int, job: int, rank: int, psn: int) -> bytes:
    packet = np.zeros(1, wire.packet_dtype(lanes, framed=True))
    packet["version_kind"] = wire.version_kind(wire.KIND_GRADIENT)
    packet["job"], packet["psn"], packet["epoch"] = FIRST_JOB + job, psn, 1 + job
    packet["bitmap"], packet["fan_in"] = 1 << rank, contributors
    packet["priority"], packet["exponent"] = 1 << job, 120
    packet["valid"], packet["lanes"], packet["tag"] = lanes, lanes, 0xDECAF
    packet["node"], packet["target"] = wire.ROOT_NODE, wire.TARGET_ALL
    packet["values"] = (rank + 1) * (np.arange(lanes) - lanes // 2)
    endpoints = wire.Endpoints(
        _worker_mac(job, rank), SWITCH_MAC, _worker_ip(job, rank), SWITCH_IP, wire.INA_UDP_PORT
    )
    prefix = wire.frame_prefix(endpoints, wire.INA_BYTES + 4 * lanes)
    return prefix + packet.tobytes()[len(prefix) :]


def _worker_mac(job: int, rank: int) -> str:
    return bytes((2, 0, 0, 0, 1 + job, rank)).hex(":")


def _worker_ip(job: int, rank: int) -> str:
    return str(ipaddress.IPv4Address(bytes((10, 0, job, rank + 1))))


# --------------------------------------------------------------------------- by hand


class ByHand:
    """A switch program handwritten in C (``by_hand.c``): the upper bound of speed.

    It has the entries and the slots of one job, whose root is this switch.
    """

    def __init__(self, job: int, workers: Sequence[Member], *, lanes: int, slots: int) -> None:
        """Admit a job.

        Args:
            job: The job's number.
            workers: The job's workers, by rank; up to 32.
            lanes: Number of values in a packet.
            slots: Number of the job's slots.

        Raises MemoryError, NoCompiler.
        """
        self._library = library = _library()
        self._state = library.by_hand_create(lanes, slots)
        if not self._state:
            raise MemoryError(f"no memory for {slots} slots of {lanes} values")
        weakref.finalize(self, library.by_hand_destroy, self._state)
        self._copies = len(workers)
        library.by_hand_admit(self._state, job, slots, len(workers))
        for worker in workers:
            addresses = bytes(wire.mac_bytes(worker.mac)), ipaddress.IPv4Address(worker.ip).packed
            library.by_hand_member(self._state, job, worker.rank, worker.port, *addresses, worker.udp_port)

    def process(self, frame: bytes, port: int) -> list[bytes]:
        """Process a frame that arrived at a port.

        Returns the result packets, one for each rank, if this frame completed a sum; empty if it did not.
        """
        out = ctypes.create_string_buffer(self._copies * len(frame))
        length = self._library.by_hand_process(self._state, frame, len(frame), port, self._copies, out)
        each = length // self._copies
        return [out.raw[at : at + each] for at in range(0, length, each)] if length else []

    def run_s(self, loop: FrameLoop, passes: int) -> float:
        """Process all frames of a loop `passes` times; return the processor time in seconds.

        The number that `FrameLoop` increments in each frame must be the frame's PSN.
        """
        frames = loop.frames(passes)
        self._library.by_hand_run(self._state, ctypes.byref(frames), self._copies)
        return float(frames.nanoseconds) * 1e-9


@functools.cache
def _library() -> Any:
    library = compiled_loops()
    u8, u16, u32 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32
    state, text = ctypes.c_void_p, ctypes.c_char_p
    library.by_hand_create.restype = state
    library.by_hand_create.argtypes = (u32, u32)
    library.by_hand_destroy.argtypes = (state,)
    library.by_hand_admit.argtypes = (state, u32, u32, u8)
    library.by_hand_member.argtypes = (state, u32, u16, u16, text, text, u16)
    library.by_hand_process.restype = u32
    library.by_hand_process.argtypes = (state, text, u32, u16, u16, text)
    library.by_hand_run.restype = None
    library.by_hand_run.argtypes = (state, ctypes.c_void_p, u16)
    return library
