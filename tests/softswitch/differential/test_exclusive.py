"""The aggregation program itself: valid, mutated and truncated packets through both back ends."""

from pathlib import Path
from random import Random

import pytest

from softswitch.compiler import compile_file

from .compare import Pair
from .script import parse_entry
from .stimuli import mutated

PROGRAM = Path(__file__).parents[3] / "p4src" / "exclusive.p4"
SLOTS = 64
WORKERS = 4
JOB, LONELY_JOB, STRANGE_JOB = 1, 2, 3  # of four workers, of one, of none
GROUP, FLOOD = 10, 20
SWITCH_MAC, SWITCH_IP = "0x020000000000", "0x0a000001"

ENTRIES = [
    f"job {JOB} => set_job(1, 8, 16, 77, {WORKERS}, 0xf, {GROUP})",
    f"job {LONELY_JOB} => set_job(2, 24, 8, 78, 1, 1, {GROUP})",
    f"member {LONELY_JOB} 1 => set_member(1)",
    *(f"member {JOB} {rank + 1} => set_member({1 << rank})" for rank in range(WORKERS)),
    *(
        f"receiver {JOB} {rank} => deliver(0x0200000001{rank:02x}, 0x0a0000{rank:02x}, {5000 + rank})"
        for rank in range(WORKERS)
    ),
    f"own_address {SWITCH_IP} => arp_reply({SWITCH_MAC})",
    f"own_mac {SWITCH_MAC} => NoAction()",
    f"bridge 0xffffffffffff => flood({FLOOD})",
    "bridge 0x020000000101 => forward(3)",
    f"routes 0x0a000000/8 => route(2, {SWITCH_MAC}, 0x020000000105)",
    f"routes 0x0a000100/24 => route(3, {SWITCH_MAC}, 0x020000000106)",
]


def checksum(header: bytes) -> bytes:
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (total ^ 0xFFFF).to_bytes(2, "big")


def ipv4(payload: bytes, *, source: int, destination: int, ttl: int = 64) -> bytes:
    length = (20 + len(payload)).to_bytes(2, "big")
    head = b"\x45\x00" + length + bytes(4) + bytes([ttl, 17])
    addresses = source.to_bytes(4, "big") + destination.to_bytes(4, "big")
    return head + checksum(head + bytes(2) + addresses) + addresses + payload


def gradient(random: Random, lanes: int, rank: int, base: int) -> bytes:
    """Return a packet that is nearly always right, of a PSN near `base`, so that packets meet."""
    job = random.choices((JOB, LONELY_JOB, STRANGE_JOB), (20, 2, 1))[0]
    fan_in = WORKERS if job == JOB else 1
    psn = (base + random.choice((0, 0, 0, 1, 1, 2, -1, -2, 16, -16))) % 2**32
    flags = random.choice((0, 0, 0, 1, 2, 3, 0xFF))
    values = [random.choice((0, 1, -1, 2**31 - 1, -(2**31), random.getrandbits(31))) for _ in range(lanes)]
    body = bytes([0x11, flags]) + job.to_bytes(2, "big") + psn.to_bytes(4, "big")
    body += (1 << rank).to_bytes(4, "big") + bytes([fan_in, 0, random.randrange(256), 0])
    body += lanes.to_bytes(2, "big") * 2 + random.choice((7, 7, 7, 7, 8)).to_bytes(4, "big")
    body += b"".join((value & 0xFFFFFFFF).to_bytes(4, "big") for value in values)
    udp = (5000 + rank).to_bytes(2, "big") + (42592).to_bytes(2, "big")
    udp += (8 + len(body)).to_bytes(2, "big") + bytes(2) + body
    packet = ipv4(udp, source=0x0A000010 + rank, destination=0x0A000001)
    return bytes.fromhex("020000000000") + bytes([2, 0, 0, 0, 1, rank]) + b"\x08\x00" + packet


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


@pytest.mark.parametrize(("lanes", "packets"), [(32, 4000), (256, 1000)])
def test_both_back_ends_agree_on_the_aggregation_program(lanes: int, packets: int) -> None:
    program = compile_file(PROGRAM, defines={"LANES": str(lanes), "SLOTS": str(SLOTS)})
    groups = {
        GROUP: [(rank + 1, rank) for rank in range(WORKERS)],
        FLOOD: [(port, 0) for port in range(1, WORKERS + 1)],
    }
    pair = Pair(program, 1, groups)
    for text in ENTRIES:
        for pipeline in pair.pipelines:
            pipeline.insert(*parse_entry(program, text))
    random = Random(lanes)
    results = 0
    for i in range(packets):
        rank = random.randrange(WORKERS)
        frame = gradient(random, lanes, rank, i // 16 - 9) if random.randrange(5) else ordinary(random)
        if random.randrange(4) == 0:
            frame = mutated(random, frame)
        port = rank + 1 if random.randrange(20) else random.randrange(8)
        results += len(pair.send(frame, port, i)) == WORKERS
    assert results > packets // 60  # the packets did meet
    pair.compare_state()
