"""INA frames as workers send them, written from docs/protocol.md."""

import struct
from dataclasses import dataclass

KIND_GRADIENT, KIND_RESULT = 1, 2
SWITCH_MAC = bytes.fromhex("0200000000fe")
SWITCH_IP = bytes([10, 0, 0, 254])
INA_PORT = 42592

_INA = struct.Struct("!BBHIIBBBBHHI")


@dataclass(frozen=True)
class Packet:
    """What a test looks at in a frame."""

    eth_dst: str
    ip_dst: str
    udp_dst: int
    kind: int
    job: int
    psn: int
    bitmap: int
    lanes: tuple[int, ...]


def gradient(job: int, psn: int, rank: int, fan_in: int, lanes: list[int]) -> bytes:
    ina = _INA.pack(0x10 | KIND_GRADIENT, 0, job, psn, 1 << rank, fan_in, 0, 0, 0, len(lanes), len(lanes), 0)
    payload = ina + struct.pack(f"!{len(lanes)}i", *lanes)
    udp = struct.pack("!HHHH", 9000 + rank, INA_PORT, 8 + len(payload), 0)
    source = bytes([10, 0, 0, rank + 1])
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp) + len(payload), 0, 0, 64, 17, 0) + source + SWITCH_IP
    total = sum(struct.unpack("!10H", ip))
    checksum = ~(total + (total >> 16)) & 0xFFFF
    ip = ip[:10] + checksum.to_bytes(2, "big") + ip[12:]
    ethernet = SWITCH_MAC + bytes([2, 0, 0, 0, 0, rank]) + b"\x08\x00"
    return ethernet + ip + udp + payload


def parse(frame: bytes) -> Packet:
    version_kind, _, job, psn, bitmap, _, _, _, _, _, count, _ = _INA.unpack_from(frame, 42)
    return Packet(
        eth_dst=frame[:6].hex(":"),
        ip_dst=".".join(map(str, frame[30:34])),
        udp_dst=int.from_bytes(frame[36:38], "big"),
        kind=version_kind & 0xF,
        job=job,
        psn=psn,
        bitmap=bitmap,
        lanes=struct.unpack_from(f"!{count}i", frame, 66),
    )
