"""What the switches of test_exclusive.py are given: table entries, multicast groups, packets."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether

from softswitch.compiler import ir
from tests.bmv2 import packets
from tests.bmv2.packets import (
    LANES,
    QUERY,
    RESEND,
    SWITCH_IP,
    SWITCH_MAC,
    Ipv4,
    Job,
    Worker,
    contribution,
    gradient,
)
from tests.bmv2.targets import Delete, Insert, Members, Modify, Phase, Write

PORTS = range(8)
FLOOD_GROUP = 100
LARGEST, SMALLEST = 2**31 - 1, -(2**31)
ONES = [1] * LANES
INA = packets.INA_UDP_PORT

WORKERS = tuple(
    Worker(port=i, mac=0x02_00_00_00_00_10 + i, ip=0x0A_00_00_10 + i, udp_port=40000 + i) for i in PORTS
)

PAIR = Job(id=1, row=1, offset=0, size=8, generation=1, group=1, members=WORKERS[0:2])
FOUR = Job(id=2, row=2, offset=8, size=6, generation=2, group=2, members=WORKERS[0:4])
THREE = Job(
    id=0xFFFF,
    row=255,
    offset=16,
    size=4,
    generation=0xFFFFFFFF,
    group=3,
    members=(WORKERS[5], WORKERS[2], WORKERS[4]),
)
ALONE = Job(id=300, row=3, offset=30, size=2, generation=7, group=4, members=(WORKERS[3],))
JOBS = (PAIR, FOUR, THREE, ALONE)

# Afterwards PAIR is gone, FOUR has been admitted anew at another place, and a new job has PAIR's slots.
FOUR_AGAIN = replace(FOUR, offset=10, size=4, generation=8)
HEIR = Job(id=5, row=1, offset=0, size=8, generation=9, group=5, members=(WORKERS[6], WORKERS[7]))


def admission(job: Job, make: type[Write] = Insert) -> Iterator[Write]:
    """Yield the table entries of a job."""
    full = (1 << job.fan_in) - 1
    yield make(
        "InaIngress.admission.job",
        _entry(
            [job.id],
            "InaIngress.admission.set_job",
            job.row,
            job.offset,
            job.size,
            job.generation,
            job.fan_in,
            full,
            job.group,
        ),
    )
    for rank, worker in enumerate(job.members):
        yield make(
            "InaIngress.admission.member",
            _entry([job.id, worker.port], "InaIngress.admission.set_member", 1 << rank),
        )
        yield make(
            "InaEgress.delivery.receiver",
            _entry([job.id, rank], "InaEgress.delivery.deliver", worker.mac, worker.ip, worker.udp_port),
        )


def forwarding() -> Iterator[Write]:
    """Yield the entries for ordinary traffic: all workers bridged, three prefixes routed."""
    own = "InaIngress.forwarding."
    yield Insert(own + "own_address", _entry([SWITCH_IP], own + "arp_reply", SWITCH_MAC))
    yield Insert(own + "own_mac", _entry([SWITCH_MAC], "NoAction"))
    yield Insert(own + "bridge", _entry([0xFFFFFFFFFFFF], own + "flood", FLOOD_GROUP))
    for worker in WORKERS[:7]:
        yield Insert(own + "bridge", _entry([worker.mac], own + "forward", worker.port))
    yield Insert(own + "bridge", _entry([WORKERS[7].mac], own + "drop"))
    for prefix, length, port in ((0x0A010000, 16, 1), (0x0A010200, 24, 2), (0x0A010203, 32, 3)):
        mask = (1 << 32) - (1 << (32 - length))
        hop = (port, SWITCH_MAC, 0x02_00_00_00_01_00 + port)
        patterns = (ir.Pattern("mask", prefix, mask),)
        yield Insert(own + "routes", ir.ConstEntry(patterns, ir.Invocation(own + "route", hop), 0))


def _entry(keys: Sequence[int], action: str, *args: int) -> ir.ConstEntry:
    return ir.ConstEntry(tuple(ir.Pattern("exact", key) for key in keys), ir.Invocation(action, args), 0)


def groups(*jobs: Job) -> dict[int, Members]:
    """Return the multicast groups of jobs."""
    return {job.group: [(worker.port, rank) for rank, worker in enumerate(job.members)] for job in jobs}


def readmission() -> Iterator[Write]:
    """Yield what the controller writes when PAIR ends, HEIR begins and FOUR starts again."""
    for write in admission(PAIR):
        yield Delete(write.table, write.entry)
    yield from admission(HEIR)
    yield next(admission(FOUR_AGAIN, Modify))


def phases() -> list[Phase]:
    """Return all there is, in the order in which it is to happen."""
    setup = [write for job in JOBS for write in admission(job)]
    return [
        Phase(
            [*setup, *forwarding()],
            groups(*JOBS) | {FLOOD_GROUP: [(port, 0) for port in PORTS]},
            list(handwritten()),
        ),
        Phase([], {}, [packet for job in (PAIR, ALONE, FOUR) for packet in wrap_around(job)]),
        Phase([], {}, list(random_traffic(1, JOBS, 2000))),
        Phase(list(readmission()), groups(HEIR), list(random_traffic(2, (FOUR_AGAIN, HEIR, THREE), 1000))),
    ]


# --------------------------------------------------------------------------- aggregation, case by case


def rounds(job: Job, first: int, count: int) -> Iterator[tuple[int, bytes]]:
    """Yield `count` sums in order, contributions from all members."""
    for psn in range(first, first + count):
        for rank in range(job.fan_in):
            values = [(rank + 1) * (psn % 1000 + lane) * (-1) ** lane for lane in range(LANES)]
            yield gradient(job, rank, psn, values, exponent=(40 * rank + psn) % 256, valid=LANES - psn % 3)


def life_of_a_slot(job: Job) -> Iterator[tuple[int, bytes]]:
    """Yield every row of the decision table, more than once, in one slot."""
    psn, later = 3, 3 + job.size
    last = job.fan_in - 1
    yield gradient(job, 0, psn, ONES, exponent=100)
    yield gradient(job, 0, psn, ONES, flags=RESEND, exponent=255)  # duplicate
    yield gradient(job, 0, psn, [9] * LANES, flags=RESEND | QUERY)  # status
    yield gradient(job, 0, psn, ONES, flags=0xFF)  # status again; all flags set
    for rank in range(1, last + 1):
        yield gradient(job, rank, psn, [1 << rank] * LANES, exponent=255 if rank == last else 7)  # completed
    for rank in range(job.fan_in):
        yield gradient(job, rank, psn, [77] * LANES, flags=rank)  # replayed
    yield gradient(job, last, later, ONES)  # the slot moves on
    yield gradient(job, 0, psn, ONES, flags=QUERY)  # stale
    yield gradient(job, last, psn - job.size, ONES)  # stale, before zero
    yield gradient(job, 0, later + (1 << 31) - job.size % 8, ONES)  # as far ahead as it can be
    yield gradient(job, 0, later, ONES)  # stale now


def overflow_and_disagreement(job: Job) -> Iterator[tuple[int, bytes]]:
    """Yield sums at the edges of int32, and contributions with different tags."""
    edges = [LARGEST, SMALLEST, LARGEST, SMALLEST, -1, 0, LARGEST - 1, SMALLEST + 1]
    addends = [1, -1, 0, 0, SMALLEST, SMALLEST, 1, -1]
    for psn, (edge, addend) in enumerate(zip(edges, addends, strict=True), 20):
        yield gradient(job, 0, psn, [edge] * LANES)
        yield gradient(job, 1, psn, [addend] * LANES)
    for psn in range(30, 30 + LANES):  # each lane alone, both ways
        term = [0] * LANES
        term[psn - 30] = (LARGEST, SMALLEST)[psn % 2]
        yield gradient(job, 0, psn, term)
        yield gradient(job, 1, psn, term)
        yield gradient(job, 0, psn, term, flags=RESEND)  # replays the flag
    yield gradient(job, 0, 70, ONES, tag=1)
    yield gradient(job, 1, 70, ONES, tag=2)
    yield gradient(job, 1, 70, ONES, tag=1)
    yield gradient(job, 0, 71, ONES, tag=0)
    yield gradient(job, 0, 71, ONES, tag=3, flags=QUERY)  # one rank disagrees with itself: no matter
    yield gradient(job, 1, 71, ONES, tag=0, valid=0)


def refused(job: Job) -> Iterator[tuple[int, bytes]]:
    """Yield what admission refuses, for each reason, and twice wrong to show which reason comes first."""
    good = contribution(job, 0, 80)
    worker = job.members[0]

    def send(port: int = worker.port, **changes: int) -> tuple[int, bytes]:
        return port, packets.frame(worker, replace(good, **changes), ONES)

    for version in (0, 2, 15):
        yield send(version=version)
    for kind in (0, 2, 3, 15):
        yield send(kind=kind)
    for lanes in (0, LANES - 1, LANES + 1, 256, 0xFFFF):
        yield send(lanes=lanes)
    yield send(valid=LANES + 1)
    yield send(valid=0xFFFF)
    yield send(job=4)
    yield send(job=0)
    yield send(port=7)
    yield send(port=job.members[1].port)
    yield send(bitmap=0)
    yield send(bitmap=2)
    yield send(bitmap=3)
    yield send(bitmap=1 << 31)
    yield send(fan_in=0)
    yield send(fan_in=job.fan_in + 1)
    yield send(version=2, kind=9)
    yield send(kind=9, lanes=4, job=4)
    yield send(job=4, bitmap=0)
    yield send(bitmap=0, fan_in=0)
    for values in ([], ONES[1:], [*ONES, 1], ONES * 2, ONES * 60):
        yield worker.port, packets.frame(worker, good, values)
    for length in (8, 31, 32, 159, 161, 8 + 24 + 4 * LANES - 4):
        yield worker.port, packets.frame(worker, good, ONES, udp_length=length)
    for length in (0, 20, 179, 181, 0xFFFF):
        yield worker.port, packets.frame(worker, good, ONES, ipv4=Ipv4(src=worker.ip, total_len=length))
    for checksum in (0, 0xFFFF, 0x1234):
        yield worker.port, packets.frame(worker, good, ONES, ipv4=Ipv4(src=worker.ip, checksum=checksum))
    whole = send()[1]
    for length in (0, 1, 13, 14, 15, 33, 34, 41, 42, 65, 66, 67, 150, len(whole) - 1):
        yield worker.port, whole[:length] or b"\1"
    yield worker.port, whole + b"\0"
    yield worker.port, whole + bytes(1400)
    yield worker.port, whole + bytes(9000 - len(whole))
    yield send()  # and now one that is right


def disguised(job: Job) -> Iterator[tuple[int, bytes]]:
    """Yield contributions that only look like some: fragments, options, other ports and protocols."""
    worker = job.members[0]
    good = contribution(job, 0, 90)
    for ipv4 in (
        Ipv4(src=worker.ip, fragment=1),
        Ipv4(src=worker.ip, fragment=0x2000),  # a first fragment: still read
        Ipv4(src=worker.ip, options=b"\x94\x04\0\0"),
        Ipv4(src=worker.ip, options=b"\x94\x04\0\0", checksum=0),  # not checked with options
        Ipv4(src=worker.ip, protocol=6),
        Ipv4(src=worker.ip, ttl=1, tos=3),
        Ipv4(src=worker.ip, ttl=0, dst=WORKERS[6].ip),
    ):
        yield worker.port, packets.frame(worker, good, ONES, ipv4=ipv4)
    yield worker.port, packets.frame(worker, good, ONES, dst_port=42593)
    yield worker.port, packets.frame(worker, replace(good, psn=91, reserved=255, priority=9), ONES)


# --------------------------------------------------------------------------- ordinary traffic


def ordinary() -> Iterator[tuple[int, bytes]]:
    """Yield ARP, bridged and routed traffic."""

    def ether(source: int, target: int | None) -> Ether:
        dst = 0xFFFFFFFFFFFF if target is None else target
        return Ether(src=_mac(WORKERS[source].mac), dst=_mac(dst))

    for asked in ("10.0.0.254", "10.0.0.17", "0.0.0.0"):
        request = ARP(op=1, hwsrc=_mac(WORKERS[1].mac), psrc="10.0.0.17", pdst=asked)
        yield 1, bytes(ether(1, None) / request)
        yield 1, bytes(ether(1, None) / request) + bytes(18)
    yield 2, bytes(ether(2, WORKERS[0].mac) / ARP(op=2, psrc="10.0.0.18", pdst="10.0.0.254"))
    yield 2, bytes(ether(2, None) / ARP(op=1, pdst="10.0.0.254"))[:41]
    yield 3, bytes(ether(3, WORKERS[5].mac) / IP(dst="10.0.0.21") / TCP(dport=80) / b"hello")
    yield 3, bytes(ether(3, WORKERS[3].mac) / IP(dst="10.0.0.19") / ICMP())  # back out of the same port
    yield 4, bytes(ether(4, WORKERS[7].mac) / IP(dst="10.0.0.23") / UDP(dport=53))  # to a drop entry
    yield 4, bytes(ether(4, 0x02_00_00_00_99_99) / IP(dst="10.0.0.99") / UDP(dport=53))  # unknown address
    yield 5, bytes(ether(5, None) / IP(dst="255.255.255.255") / UDP(sport=68, dport=67) / bytes(300))
    yield 6, bytes(ether(6, WORKERS[0].mac) / IPv6(dst="fe80::1") / UDP(dport=INA) / bytes(152))
    yield 6, bytes(ether(6, WORKERS[0].mac) / Dot1Q(vlan=5) / IP(dst="10.0.0.16") / UDP(dport=INA))
    yield 6, bytes(ether(6, WORKERS[0].mac))
    yield 6, bytes(ether(6, None) / (b"\x88\xb5" + bytes(range(256)) * 5))
    for worker in WORKERS:
        yield 6, bytes(ether(6, worker.mac) / (b"\x08\x00" + bytes(20)))  # an IPv4 header of zeros
        yield (
            6,
            bytes(ether(6, worker.mac) / IP(src="10.0.0.22", dst="10.9.9.9", ttl=1) / UDP(dport=worker.port)),
        )
    for target in ("10.1.0.1", "10.1.2.1", "10.1.2.3", "10.2.0.1", "10.1.255.255"):
        for ttl in (0, 1, 2, 64, 255):
            ipv4 = IP(dst=target, ttl=ttl, tos=7, flags=2)
            yield 0, bytes(ether(0, SWITCH_MAC) / ipv4 / UDP(dport=9) / b"payload")
    ipv4 = IP(dst="10.1.2.3", options=[IPOption_Router_Alert()])
    yield 0, bytes(ether(0, SWITCH_MAC) / ipv4 / UDP(dport=INA) / b"x")
    yield 0, bytes(ether(0, SWITCH_MAC) / IP(dst="10.1.2.3", frag=100, proto=17) / bytes(60))
    yield 0, bytes(ether(0, SWITCH_MAC) / IP(dst="10.1.2.3", chksum=0xABCD) / TCP())
    yield 0, bytes(ether(0, SWITCH_MAC) / IP(dst="10.1.2.3", version=6) / UDP())
    yield 0, bytes(ether(0, SWITCH_MAC) / IP(dst="10.1.2.3") / UDP())[:37]
    yield 0, bytes(ether(0, SWITCH_MAC) / ARP(op=2, pdst="10.0.0.254"))


def _mac(address: int) -> str:
    return ":".join(f"{byte:02x}" for byte in address.to_bytes(6, "big"))


# --------------------------------------------------------------------------- at random


def random_traffic(seed: int, jobs: Sequence[Job], count: int) -> Iterator[tuple[int, bytes]]:
    """Yield `count` packets of workers that lose, repeat, reorder and garble."""
    rng = random.Random(seed)
    firsts = {job.id: rng.choice((0, 5000, (1 << 32) - 12)) for job in jobs}
    done = {(job.id, rank): 0 for job in jobs for rank in range(job.fan_in)}
    for _ in range(count):
        job = rng.choice(jobs)
        slowest = min(range(job.fan_in), key=lambda rank: (done[job.id, rank], rng.random()))
        rank = slowest if rng.random() < 0.6 else rng.randrange(job.fan_in)
        ahead = min(done[job.id, r] for r in range(job.fan_in)) + job.size
        position = done[job.id, rank]
        psn = position
        if rng.random() < 0.3 or position >= ahead:
            psn = max(0, position - rng.randrange(1, job.size + 2))
        else:
            done[job.id, rank] += 1
        port, frame = gradient(
            job,
            rank,
            firsts[job.id] + psn,
            _random_values(rng),
            flags=rng.choice((0, 0, RESEND, QUERY, RESEND | QUERY, rng.randrange(256))),
            exponent=rng.randrange(256),
            valid=rng.randrange(LANES + 1),
            tag=rng.choice((7, 7, 7, 7, 7, 8)),
        )
        yield _garbled(rng, port, frame) if rng.random() < 0.1 else (port, frame)


def _random_values(rng: random.Random) -> list[int]:
    if rng.random() < 0.8:
        return [rng.randrange(-1000, 1000) for _ in range(LANES)]
    return [rng.choice((LARGEST, SMALLEST, -1, 0, 1, rng.randrange(SMALLEST, LARGEST))) for _ in range(LANES)]


def _garbled(rng: random.Random, port: int, frame: bytes) -> tuple[int, bytes]:
    match rng.randrange(4):
        case 0:
            return rng.choice(PORTS), frame
        case 1:
            return port, frame[: rng.randrange(1, len(frame))]
        case 2:
            return port, frame + rng.randbytes(rng.randrange(1, 60))
        case _:
            changed = bytearray(frame)
            changed[rng.randrange(66)] ^= 1 << rng.randrange(8)
            return port, bytes(changed)


def handwritten() -> Iterator[tuple[int, bytes]]:
    """Yield all the cases above."""
    for job in JOBS:
        yield from rounds(job, 0, 3)
    yield from ordinary()
    for job in (PAIR, FOUR, THREE):
        yield from life_of_a_slot(job)
    yield from rounds(ALONE, 3, 4)
    yield gradient(ALONE, 0, 6, ONES)
    yield gradient(ALONE, 0, 4, ONES)
    yield from overflow_and_disagreement(PAIR)
    yield from refused(PAIR)
    yield from disguised(PAIR)


def wrap_around(job: Job) -> Iterator[tuple[int, bytes]]:
    """Yield sums whose PSN runs over 2**32, and late copies from before."""
    yield from rounds(job, (1 << 32) - 6, 12)
    yield gradient(job, 0, (1 << 32) - 1, ONES)
    yield gradient(job, job.fan_in - 1, 4, ONES)
