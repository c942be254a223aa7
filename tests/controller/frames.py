"""INA frames as workers and fallback servers send them, written from docs/reference/protocol.md."""

import struct
from dataclasses import dataclass

from controller import Admission

KIND_GRADIENT, KIND_RESULT, KIND_STATUS, KIND_PARTIAL, KIND_REMINDER = range(1, 6)
RESEND, QUERY, COLLISION, BYPASS = 0x01, 0x02, 0x10, 0x40
SWITCH_MAC = bytes.fromhex("0200000000fe")
SWITCH_IP = bytes([10, 0, 0, 254])
INA_PORT = 42592
TO_ALL = 0xFFFF

_INA = struct.Struct("!BBHIIBBBBHHIHH")


@dataclass(frozen=True)
class Packet:
    """What a test looks at in a frame."""

    eth_dst: str
    ip_dst: str
    udp_dst: int
    kind: int
    flags: int
    job: int
    psn: int
    bitmap: int
    fan_in: int
    epoch: int
    node: int
    lanes: tuple[int, ...]


def gradient(
    admission: Admission,
    psn: int,
    rank: int,
    lanes: list[int],
    *,
    flags: int = 0,
    priority: int = 0,
    target: int = TO_ALL,
) -> bytes:
    """A contribution as the worker of that rank, a member of the admission, sends it."""
    (member,) = (m for m in admission.members if m.rank == rank)
    return _frame(
        admission, KIND_GRADIENT, psn, member.bitmap, admission.node, lanes, flags, priority, target, rank
    )


def reminder(admission: Admission, psn: int, *, node: int = 0) -> bytes:
    """A reminder of the fallback server for a node."""
    return _frame(admission, KIND_REMINDER, psn, admission.full_bitmap, node, [], 0, 0, TO_ALL, 99)


def result(admission: Admission, psn: int, lanes: list[int]) -> bytes:
    """A result of the fallback server."""
    return _frame(admission, KIND_RESULT, psn, admission.result_bitmap, 0, lanes, 0, 0, TO_ALL, 99)


def _frame(
    admission: Admission,
    kind: int,
    psn: int,
    bitmap: int,
    node: int,
    lanes: list[int],
    flags: int,
    priority: int,
    target: int,
    sender: int,
) -> bytes:
    numbers = (priority, 0, admission.epoch, len(lanes), len(lanes), 0, node, target)
    ina = _INA.pack(0x20 | kind, flags, admission.job, psn, bitmap, admission.fan_in, *numbers)
    payload = ina + struct.pack(f"!{len(lanes)}i", *lanes)
    udp = struct.pack("!HHHH", 9000 + sender, INA_PORT, 8 + len(payload), 0)
    source = bytes([10, 0, 0, sender + 1])
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp) + len(payload), 0, 0, 64, 17, 0) + source + SWITCH_IP
    total = sum(struct.unpack("!10H", ip))
    checksum = ~(total + (total >> 16)) & 0xFFFF
    ip = ip[:10] + checksum.to_bytes(2, "big") + ip[12:]
    ethernet = SWITCH_MAC + bytes([2, 0, 0, 0, 0, sender]) + b"\x08\x00"
    return ethernet + ip + udp + payload


def parse(frame: bytes) -> Packet:
    version_kind, flags, job, psn, bitmap, fan_in, _, _, epoch, _, count, _, node, _ = _INA.unpack_from(
        frame, 42
    )
    assert version_kind >> 4 == 2
    return Packet(
        eth_dst=frame[:6].hex(":"),
        ip_dst=".".join(map(str, frame[30:34])),
        udp_dst=int.from_bytes(frame[36:38], "big"),
        kind=version_kind & 0xF,
        flags=flags,
        job=job,
        psn=psn,
        bitmap=bitmap,
        fan_in=fan_in,
        epoch=epoch,
        node=node,
        lanes=struct.unpack_from(f"!{count}i", frame, 70),
    )
