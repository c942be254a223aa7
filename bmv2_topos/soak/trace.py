"""Packets in words, to examine a failed schedule."""

from __future__ import annotations

from collections import deque

import numpy as np

from bmv2_topos.soak.network import START_NS
from hostlib import wire

_KINDS = {
    wire.KIND_GRADIENT: "GRADIENT",
    wire.KIND_RESULT: "RESULT",
    wire.KIND_STATUS: "STATUS",
    wire.KIND_PARTIAL: "PARTIAL",
    wire.KIND_REMINDER: "REMINDER",
}
_FLAGS = {
    wire.FLAG_RESEND: "resend",
    wire.FLAG_QUERY: "query",
    wire.FLAG_OVERFLOW: "overflow",
    wire.FLAG_DISAGREE: "disagree",
    wire.FLAG_COLLISION: "collision",
    wire.FLAG_ECN: "ecn",
    wire.FLAG_BYPASS: "bypass",
    wire.FLAG_RAW: "raw",
}


class Log:
    """Keeps the last packets of a schedule."""

    def __init__(self, most: int) -> None:
        self._packets: deque[tuple[int, str, str, bytes, str]] = deque(maxlen=most)

    def __call__(self, now: int, source: str, to: str, frame: bytes, fate: str) -> None:
        """Note a packet."""
        self._packets.append((now, source, to, frame, fate))

    def lines(self) -> list[str]:
        """Return a line for each packet."""
        return [
            f"{(now - START_NS) / 1000:10.1f} us  {source:>5} > {to:<5} {describe(frame)}"
            + (f"  [{fate}]" if fate else "")
            for now, source, to, frame, fate in self._packets
        ]


def describe(frame: bytes) -> str:
    """Say what a frame is, in a line."""
    start = wire.FRAME_PREFIX_BYTES
    if len(frame) < start + wire.INA_BYTES:
        return f"{len(frame)} bytes"
    header = np.frombuffer(frame, wire.HEADER_DTYPE, 1, start)[0]
    kind = int(header["version_kind"]) & 0x0F
    flags = " ".join(name for bit, name in _FLAGS.items() if int(header["flags"]) & bit)
    parts = [
        f"{_KINDS.get(kind, kind):<8} job {header['job']} epoch {header['epoch']:3} psn {header['psn']}",
        f"node {header['node']} bits {int(header['bitmap']):b} of {header['fan_in']}",
        f"exponent {header['exponent']} valid {int(header['valid']) & ~wire.VALID_INT32}",
    ]
    if header["lanes"]:
        lane = int.from_bytes(frame[start + wire.INA_BYTES :][:4], "big", signed=True)
        parts.append(f"lane 0 {lane}")
    return ", ".join([*parts, flags] if flags else parts)
