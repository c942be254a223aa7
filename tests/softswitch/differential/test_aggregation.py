"""The aggregation programs themselves: valid, mutated and truncated packets through both back ends."""

from dataclasses import dataclass
from random import Random

import pytest

from softswitch.engine.pipeline import Pipeline
from tests import effort
from tests.programs import p4src_program
from tests.softswitch.differential.compare import Pair
from tests.softswitch.differential.script import parse_entry
from tests.softswitch.differential.stimuli import internet_checksum, mutated

SLOTS = 64
ABOVE = 6  # the port towards the root and the fallback server
FLOOD = 20
SEED = 16
"""One whose first 2,000 packets meet every outcome; the rarest two are met once in three thousand."""
SWITCH_MAC, SWITCH_IP = "0x020000000000", "0x0a000001"
GRADIENT, RESULT, STATUS, PARTIAL, REMINDER = range(1, 6)
LANELESS = (STATUS, REMINDER)
FLAGS = (0, 0, 0, 0, 0, 1, 1, 3, 2, 0x40, 0x41, 0x20, 0x04, 0x80, 0x81, 0xFF)
ALL = 0xFFFF


@dataclass(frozen=True)
class Job:
    """A job on this switch; `uplink` is (port, parent's node, bit there, parent's fan-in)."""

    job: int
    workers: int
    region: tuple[int, int]
    generation: int
    node: int = 0
    transit: int = 0
    preempt: int = 0
    uplink: tuple[int, int, int, int] | None = (ABOVE, 0, 0, 0)

    @property
    def full(self) -> int:
        return (1 << self.workers) - 1

    def entries(self) -> list[str]:
        offset, size = self.region
        root = int(self.node == 0)
        rows = [
            f"job {self.job} => set_job({self.job}, {offset}, {size}, {self.generation}, {self.workers}, "
            f"{self.full}, {self.job}, {self.node}, 0x3f, {root}, {self.transit}, {self.preempt}, 1, 8, 40)",
            f"member {self.job} {ABOVE} => set_parent()",
            f"receiver {self.job} 0 => deliver(0x02000000020{self.job}, 0x0a00010{self.job}, 4000, {ALL})",
        ]
        for rank in range(self.workers):
            mac, ip = f"0x0200000001{rank:02x}", f"0x0a0000{rank:02x}"
            rows.append(f"member {self.job} {rank + 1} => set_member({1 << rank}, 0, 0)")
            rows.append(f"receiver {self.job} {rank + 1} => deliver({mac}, {ip}, {5000 + rank}, {rank})")
        if self.uplink is not None:
            port, node, bit, fan_in = self.uplink
            own = f"{self.node}, {self.workers}"
            rows.append(
                f"uplink {self.job} => set_uplink({port}, {node}, {bit}, {fan_in}, {self.job}, {own})"
            )
        return rows


JOBS = [
    Job(1, 4, (8, 16), 0x101),
    Job(2, 1, (24, 8), 0x202),
    Job(3, 2, (8, 12), 0x303, preempt=1),
    Job(4, 3, (12, 16), 0x404, node=5, preempt=1, uplink=(ABOVE, 2, 4, 3)),
    Job(5, 4, (0, 0), 0x505, node=7, transit=1),
    Job(6, 2, (0, 0), 0x606),
    Job(7, 2, (16, 8), 0x707, uplink=None),
]
STRANGE_JOB = 8
WORKERS = 4

ENTRIES = [
    *(entry for job in JOBS for entry in job.entries()),
    f"own_address {SWITCH_IP} => arp_reply({SWITCH_MAC})",
    f"own_mac {SWITCH_MAC} => NoAction()",
    f"bridge 0xffffffffffff => flood({FLOOD})",
    "bridge 0x020000000101 => forward(3)",
    f"routes 0x0a000000/8 => route(2, {SWITCH_MAC}, 0x020000000105)",
    f"routes 0x0a000100/24 => route(3, {SWITCH_MAC}, 0x020000000106)",
]


def ipv4(payload: bytes, *, source: int, destination: int, ttl: int = 64) -> bytes:
    length = (20 + len(payload)).to_bytes(2, "big")
    head = b"\x45\x00" + length + bytes(4) + bytes([ttl, 17])
    addresses = source.to_bytes(4, "big") + destination.to_bytes(4, "big")
    checksum = internet_checksum(head + bytes(2) + addresses).to_bytes(2, "big")
    return head + checksum + addresses + payload


def aggregation(random: Random, lanes: int, base: int) -> tuple[bytes, int]:
    """Return a packet that is nearly always right, its PSN near `base` so that packets meet, and a port."""
    job = random.choices(JOBS, (20, 2, 10, 10, 3, 2, 3))[0]
    rank = random.randrange(job.workers)
    kind, port, bitmap = GRADIENT, rank + 1, 1 << rank
    if random.randrange(6) == 0:
        kind, port = random.choice((RESULT, RESULT, REMINDER, REMINDER, STATUS, GRADIENT)), ABOVE
    elif random.randrange(10) == 0:
        kind, bitmap = random.choice((PARTIAL, RESULT)), random.getrandbits(4)
    number = STRANGE_JOB if random.randrange(60) == 0 else job.job
    psn = (base + random.choice((0, 0, 0, 1, 1, 2, -1, -2, 8, -8, 16, -16))) % 2**32
    node = job.node if random.randrange(40) else random.randrange(8)
    epoch = job.generation & 0xFF if random.randrange(40) else 9
    count = 0 if kind in LANELESS or (kind == RESULT and random.randrange(4) == 0) else lanes
    target = random.choice((ALL, ALL, ALL, 0, 1))
    body = bytes([0x20 | kind, random.choice(FLAGS)]) + number.to_bytes(2, "big") + psn.to_bytes(4, "big")
    body += bitmap.to_bytes(4, "big") + bytes(
        [job.workers, random.randrange(8), random.randrange(256), epoch]
    )
    body += random.choice((count, count, count | 0x8000)).to_bytes(2, "big") + count.to_bytes(2, "big")
    body += (
        random.choice((7, 7, 7, 7, 8)).to_bytes(4, "big")
        + node.to_bytes(2, "big")
        + target.to_bytes(2, "big")
    )
    values = [random.choice((0, 1, -1, 2**31 - 1, -(2**31), random.getrandbits(31))) for _ in range(count)]
    body += b"".join((value & 0xFFFFFFFF).to_bytes(4, "big") for value in values)
    udp = (5000 + rank).to_bytes(2, "big") + (42592).to_bytes(2, "big")
    udp += (8 + len(body)).to_bytes(2, "big") + bytes(2) + body
    packet = ipv4(udp, source=0x0A000010 + rank, destination=0x0A000001)
    frame = bytes.fromhex("020000000000") + bytes([2, 0, 0, 0, 1, rank]) + b"\x08\x00" + packet
    return frame, port if random.randrange(30) else random.randrange(8)


def ordinary(random: Random) -> bytes:
    """Return an ARP request, a routed or bridged packet, or a flooded frame."""
    source = bytes.fromhex("020000000107")
    match random.randrange(4):
        case 0:
            target = random.choice(("0a000001", "0a000002"))
            asked = "0001080006040001" + source.hex() + "0a000007" + "00" * 6 + target
            return b"\xff" * 6 + source + b"\x08\x06" + bytes.fromhex(asked)
        case 1:
            routed = ipv4(
                bytes(12),
                source=0x0A000007,
                destination=random.choice((0x0A010203, 0x0A000105, 0x08080808)),
                ttl=random.choice((0, 1, 2, 64)),
            )
            return bytes.fromhex("020000000000") + source + b"\x08\x00" + routed
        case _:
            destination = random.choice(("020000000101", "020000000102", "ffffffffffff"))
            return bytes.fromhex(destination) + source + b"\x88\xb5" + random.randbytes(random.randrange(50))


def outcomes_seen(pipeline: Pipeline) -> set[int]:
    counts = pipeline.read_counters("InaIngress.outcomes")
    return {cell % 32 for cell, (packets, _) in enumerate(counts) if packets}


ONLY_SHARED = {18, 19, 20, 21, 22, 23, 24}
ONLY_EXCLUSIVE = {5}


@pytest.mark.parametrize(
    ("program", "lanes", "packets"),
    [
        ("exclusive", 32, effort.cases(6000, at_least=2000)),
        ("shared", 32, effort.cases(6000, at_least=2000)),
        ("shared", 256, effort.cases(600)),
    ],
)
def test_both_back_ends_agree_on_an_aggregation_program(program: str, lanes: int, packets: int) -> None:
    compiled = p4src_program(program, LANES=lanes, SLOTS=SLOTS)
    groups = {
        **{job.job: [(rank + 1, rank + 1) for rank in range(job.workers)] for job in JOBS},
        FLOOD: [(port, 0) for port in range(1, WORKERS + 1)],
    }
    pair = Pair(compiled, 1, groups)
    for text in ENTRIES:
        for pipeline in pair.pipelines:
            pipeline.insert(*parse_entry(compiled, text))
    threshold, depth = parse_entry(compiled, "threshold => set_threshold(6)")
    random = Random(SEED)
    for i in range(packets):
        if i == packets // 2:
            for pipeline in pair.pipelines:  # every packet finds a queue of six
                pipeline.set_default(threshold, depth.invocation)
        if random.randrange(6):
            frame, port = aggregation(random, lanes, i // 48 - 9)
        else:
            frame, port = ordinary(random), random.randrange(8)
        if random.randrange(4) == 0:
            frame = mutated(random, frame)
        pair.send(frame, port, i)
    pair.compare_state()
    if lanes == 32:
        missing = set(range(32)) - outcomes_seen(pair.pipelines[1])
        assert missing == (ONLY_EXCLUSIVE if program == "shared" else ONLY_SHARED)
