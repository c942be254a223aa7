"""The embedded switch without aggregation: forwarding in memory, look-ups in large tables, table writes.

The program forwards frames by an exact table of MAC addresses, and IP packets by a ternary table of filters
and a table of longest prefixes. Frames hit random entries, which together do not fit into the first levels
of cache. Times are processor times of the thread for a whole packet, from parser to deparser.
"""

from __future__ import annotations

import queue
import random
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

import softswitch
from ina.bench.frame_loop import FrameLoop, Frames
from p4src.messages import p4runtime_pb2 as p4
from p4src.messages import p4runtime_pb2_grpc
from softswitch.compiler import ir
from softswitch.engine.pipeline import Pipeline

LEAST_FRAMES, MOST_FRAMES = 4096, 1 << 19
"""Minimum and maximum number of frames in a round; between them, a round has four frames for each entry."""

WRITES_PER_BATCH = 1000

PORTS = 512
"""Number of ports of v1model. The entries that are written use these ports in turn, so that the entries'
actions differ."""

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> len; bit<32> fragment;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}
struct headers_t { ethernet_t ethernet; ipv4_t ipv4; }
struct metadata_t { }
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) { 0x800: ipv4; default: accept; }
    }
    state ipv4 { packet.extract(hdr.ipv4); transition accept; }
}
control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action forward(bit<9> port) { sm.egress_spec = port; }
    action route(bit<48> dst, bit<9> port) {
        hdr.ethernet.dst = dst;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        sm.egress_spec = port;
    }
    action drop() { mark_to_drop(sm); }
    table l2 {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; drop; }
        default_action = drop();
        size = 1 << 21;
    }
    table l3 {
        key = { hdr.ipv4.dst: lpm; }
        actions = { route; drop; }
        default_action = drop();
        size = 1 << 20;
    }
    table filter {
        key = { hdr.ipv4.src: ternary; hdr.ipv4.dst: ternary; hdr.ipv4.protocol: ternary; }
        actions = { drop; NoAction; }
        size = 1 << 17;
    }
    apply {
        if (hdr.ipv4.isValid()) {
            if (hdr.ethernet.src[0:0] == 1) { filter.apply(); }
            l3.apply();
        } else {
            l2.apply();
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), Verify(), I(), E(), Compute(), D()) main;
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement: the kind of look-up, the number of entries, and a packet's time in nanoseconds."""

    name: str
    entries: int
    ns_per_packet: float
    one_by_one_ns_per_packet: float
    """A packet's time if entries are not prefetched for later packets."""
    forwarded: float
    """Share of the packets that were forwarded, 0 to 1."""


@dataclass(frozen=True, slots=True)
class SwitchBench:
    """Times per packet by kind of look-up, and table entries written over P4Runtime per second."""

    cases: tuple[Case, ...]
    writes_per_s: float


def bench_switch(
    *, exact: int, lpm: int, ternary: int, round_s: float, rounds: int, writes: int = 20_000
) -> SwitchBench:
    """Measure forwarding with large tables, and table writes.

    Args:
        exact: Number of entries in the exact table.
        lpm: Number of entries in the longest-prefix table.
        ternary: Number of entries in the ternary table.
        round_s: Approximate time of a round, in seconds.
        rounds: Number of rounds; the fastest one counts.
        writes: Number of entries written over P4Runtime.
    """
    texts: dict[str, str] = {}

    def keep(step: str, render: Callable[[], str]) -> None:
        if step == "preprocess":
            texts[step] = render()

    program = softswitch.compile_source(PROGRAM, name="forwarding.p4", dump=keep)
    rng = random.Random(1)

    def measure(name: str, entries: int, fill: Callable[[Pipeline], Frames]) -> Case:
        pipeline = softswitch.load(program, backend="compiled")
        loop = FrameLoop(pipeline, fill(pipeline), replicas=(), number_offset=54, number_step=1)
        once = loop.run(1)
        return Case(name, entries, *_best_ns(loop, round_s, rounds), once.copies / once.packets)

    cases = [
        measure("L2, exact", 1, lambda pipeline: _exact(pipeline, 1, rng)),
        measure("L2, exact", exact, lambda pipeline: _exact(pipeline, exact, rng)),
        measure("L3, longest prefix", 1, lambda pipeline: _lpm(pipeline, 1, rng)),
        measure("L3, longest prefix", lpm, lambda pipeline: _lpm(pipeline, lpm, rng)),
        measure("L3 behind a filter, ternary", ternary, lambda pipeline: _ternary(pipeline, ternary, rng)),
    ]
    return SwitchBench(tuple(cases), _writes_per_s(texts["preprocess"], writes))


def _best_ns(loop: FrameLoop, round_s: float, rounds: int) -> tuple[float, float]:
    """Return the processor time per packet, in ns, of the fastest rounds with and without prefetching.

    Prefetching loads the table entries of later packets. Rounds with and without prefetching alternate.
    """
    passes, once = 1, loop.run(1)
    if once.cpu_s > 0:
        passes = max(1, int(round_s / once.cpu_s))
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for one_by_one, found in times.items():
            result = loop.run(passes, one_by_one=one_by_one)
            found.append(1e9 * result.cpu_s / result.packets)
    return min(times[False]), min(times[True])


def _frame_count(entries: int) -> int:
    return min(MOST_FRAMES, max(LEAST_FRAMES, 4 * entries))


def _frame(dst: int, *, ipv4_dst: int | None = None, filtered: bool = False) -> bytes:
    ethernet = dst.to_bytes(6, "big") + int(filtered).to_bytes(6, "big")
    if ipv4_dst is None:
        return (ethernet + b"\x90\x00").ljust(64, b"\0")
    header = struct.pack(">BBHIBBHII", 0x45, 0, 50, 0, 64, 17, 0, 0x0A000001, ipv4_dst)
    return (ethernet + b"\x08\x00" + header).ljust(64, b"\0")


def _exact(pipeline: Pipeline, count: int, rng: random.Random) -> Frames:
    for number in range(count):
        key = (ir.Pattern("exact", 0x020000000000 + number),)
        pipeline.insert("I.l2", ir.ConstEntry(key, ir.Invocation("I.forward", (1 + number % 64,)), 0))
    chosen = (0x020000000000 + rng.randrange(count) for _ in range(_frame_count(count)))
    return [(_frame(mac), 1) for mac in chosen]


def _lpm(pipeline: Pipeline, count: int, rng: random.Random) -> Frames:
    """Insert random prefixes of 16 to 32 bits, most of them of 24 bits, as in the Internet's.

    Returns frames to random addresses in these prefixes.
    """
    prefixes: set[tuple[int, int]] = set()
    while len(prefixes) < count:
        length = rng.choice((*range(16, 25), *[24] * 8, *range(25, 33)))
        prefixes.add((rng.getrandbits(length) << (32 - length), length))
    for value, length in prefixes:
        mask = (1 << 32) - (1 << (32 - length))
        invocation = ir.Invocation("I.route", (0x020000000000 + length, 1))
        pipeline.insert("I.l3", ir.ConstEntry((ir.Pattern("mask", value, mask),), invocation, 0))
    known: Sequence[tuple[int, int]] = sorted(prefixes)
    chosen = (known[rng.randrange(count)] for _ in range(_frame_count(count)))
    return [(_frame(1, ipv4_dst=value | rng.getrandbits(32 - length)), 1) for value, length in chosen]


def _ternary(pipeline: Pipeline, count: int, rng: random.Random) -> Frames:
    """Insert filters, each of which passes packets to one destination, and a default route.

    Returns frames to random destinations that the filters pass.
    """
    full = (1 << 32) - 1
    for number in range(count):
        patterns = (ir.Pattern("any"), ir.Pattern("mask", number, full), ir.Pattern("mask", 17, 0xFF))
        pipeline.insert("I.filter", ir.ConstEntry(patterns, ir.Invocation("NoAction", ()), 1 + number))
    route = ir.Invocation("I.route", (0x020000000000, 1))
    pipeline.insert("I.l3", ir.ConstEntry((ir.Pattern("any"),), route, 0))
    return [(_frame(1, ipv4_dst=rng.randrange(count), filtered=True), 1) for _ in range(_frame_count(count))]


def _writes_per_s(text: str, count: int) -> float:
    """Return the number of entries inserted per second of processor time.

    The time includes the P4Runtime client and the server, which run in one process and use loopback.
    """
    with softswitch.Switch({0: softswitch.parse_port("memory")}) as switch:
        service = softswitch.serve(switch, source=text)
        try:
            with grpc.insecure_channel(service.address) as channel:
                return _insert(p4runtime_pb2_grpc.P4RuntimeStub(channel), count)
        finally:
            service.close()


def _insert(stub: Any, count: int) -> float:
    stream: queue.SimpleQueue[Any] = queue.SimpleQueue()
    claim = p4.MasterArbitrationUpdate(election_id=p4.Uint128(low=1))
    stream.put(p4.StreamMessageRequest(arbitration=claim))
    answers = stub.StreamChannel(iter(stream.get, None))
    next(answers)
    info = stub.GetForwardingPipelineConfig(p4.GetForwardingPipelineConfigRequest()).config.p4info
    batches = _batches(info, count)
    started = time.process_time()
    for batch in batches:
        stub.Write(batch)
    used_s = time.process_time() - started
    stream.put(None)
    return count / used_s


def _batches(info: Any, count: int) -> list[Any]:
    table = next(t.preamble.id for t in info.tables if t.preamble.alias == "l2")
    action = next(a.preamble.id for a in info.actions if a.preamble.alias == "forward")
    batches = []
    for first in range(0, count, WRITES_PER_BATCH):
        batch = p4.WriteRequest(election_id=p4.Uint128(low=1))
        for number in range(first, min(first + WRITES_PER_BATCH, count)):
            entry = batch.updates.add(type=p4.Update.INSERT).entity.table_entry
            entry.table_id = table
            entry.match.add(field_id=1).exact.value = (0x020000000000 + number).to_bytes(6, "big")
            entry.action.action.action_id = action
            port = number % PORTS
            entry.action.action.params.add(param_id=1, value=port.to_bytes(1 + (port > 0xFF), "big"))
        batches.append(batch)
    return batches
