"""A window by itself: what it sends, and packets that it is handed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostlib import wire
from hostlib.core.window import Exchange, Window
from tests.hostlib.cases import JOB, LANES

PACKET = wire.packet_dtype(LANES, framed=True)
TAG = 5


def begin(window: Window, packets: int, now: int = 0, dtype: type = np.int32, **fields: Any) -> None:
    """Begin a sum of ones, so many packets' worth."""
    source = np.ones(packets * LANES, dtype)
    window.begin(Exchange(source, np.zeros_like(source), TAG, **fields), now)


def sent(window: Window, now: int = 0) -> NDArray[np.void]:
    """Return the headers of all that a window sends now."""
    out, found = np.zeros(100 * PACKET.itemsize, np.uint8), [np.zeros(0, wire.HEADER_DTYPE)]
    start = int(window.state.struct.prefix)
    while count := window.emit(out, now):
        packets = out[: count * window.emitted_bytes].reshape(count, -1)
        found.append(packets[:, start : start + wire.INA_BYTES].copy().view(wire.HEADER_DTYPE)[:, 0])
    return np.concatenate(found).astype(wire.HEADER_DTYPE)


def hear(window: Window, kind: int, psns: int | Sequence[int], now: int = 0, **fields: Any) -> None:
    """Hand packets to a window; each field is of all of them, or one for each."""
    psns = [psns] if isinstance(psns, int) else psns
    lanes = LANES if kind == wire.KIND_RESULT else 0
    packets = np.zeros(len(psns), window.state.packet_dtype)
    prefix = bytes(window.state.struct.header)[: window.state.struct.prefix]
    packets.view(np.uint8).reshape(len(psns), -1)[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    header = {"version_kind": wire.version_kind(kind), "job": JOB, "psn": psns, "bitmap": 3, "tag": TAG}
    header |= {"valid": lanes, "lanes": lanes, "target": wire.TARGET_ALL}
    if prefix:
        header["udp_src"] = wire.INA_UDP_PORT
    for name, value in (header | fields).items():
        packets[name] = value
    if len(psns):
        window.absorb(packets.view(np.uint8), packets.dtype.itemsize, now)
