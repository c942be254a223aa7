"""Packets to and from a fallback server, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostlib import wire
from hostlib.fallback import FallbackCore
from hostlib.wire.tree import Tree

LANES = 4
ENDPOINTS = wire.Endpoints("02:00:00:00:00:fb", "02:00:00:00:ff:01", "10.0.0.99", "10.0.255.1", 42592)
TREES = {
    "star of 1": Tree.star(1),
    "star of 3": Tree.star(3),
    "star of 32": Tree.star(32),
    "two racks": Tree.of({0: [-1, -2], 1: [0, 1], 2: [2, 3]}),
    "uneven": Tree.of({0: [-7, 0, -3], 7: [-9, 1, 2], 9: [3, 4], 3: [5]}),
    "chain": Tree.of({0: [-1], 1: [-2], 2: [0, 1]}),
}


def packet(
    kind: int,
    tree: Tree,
    *,
    node: int = 0,
    bitmap: int = 1,
    psn: int = 0,
    job: int = 7,
    flags: int = 0,
    epoch: int = 1,
    lanes: Any = None,
    **fields: int,
) -> bytes:
    """One packet as it reaches the server, by default well formed."""
    frame = np.zeros(1, wire.packet_dtype(LANES, framed=True))
    size = wire.INA_BYTES + 4 * LANES
    frame.view(np.uint8)[: wire.FRAME_PREFIX_BYTES] = np.frombuffer(
        wire.frame_prefix(ENDPOINTS, size), np.uint8
    )
    header = {
        "version_kind": wire.version_kind(kind),
        "flags": flags,
        "job": job,
        "psn": psn,
        "bitmap": bitmap,
        "fan_in": tree.fan_in(node) if node in tree.nodes else 1,
        "epoch": epoch,
        "valid": LANES,
        "lanes": LANES,
        "tag": 99,
        "node": node,
        "target": wire.TARGET_ALL,
    }
    for name, value in (header | fields).items():
        frame[name] = value
    values = np.array([0] * LANES if lanes is None else lanes)
    frame["values"] = values.view(np.int32) if values.dtype == np.float32 else values
    return frame.tobytes()


def partial(tree: Tree, **fields: Any) -> bytes:
    return packet(wire.KIND_PARTIAL, tree, **fields)


def absorb(core: FallbackCore, packets: list[bytes], now: int) -> None:
    for one in packets:
        core.absorb(np.frombuffer(one, np.uint8), len(one), now)


def emitted(core: FallbackCore, now: int, room: int = 1 << 16) -> list[bytes]:
    """Everything that the core has to send."""
    out = np.zeros(room, np.uint8)
    found: list[bytes] = []
    while True:
        count, size = core.emit(out, now)
        if not count:
            return found
        assert count * size <= room
        found += [out[i * size : (i + 1) * size].tobytes() for i in range(count)]


def header_of(data: bytes) -> dict[str, int]:
    start = wire.FRAME_PREFIX_BYTES
    fields = np.frombuffer(data[start : start + wire.INA_BYTES], wire.HEADER_DTYPE)[0]
    named = {name: int(fields[name]) for name in wire.HEADER_DTYPE.names or ()}
    return named | {"kind": named["version_kind"] & 0x0F}


def lanes_of(data: bytes) -> NDArray[np.int32]:
    return np.frombuffer(data[wire.FRAME_PREFIX_BYTES + wire.INA_BYTES :], ">i4").astype(np.int32)
