"""A worker that speaks SwitchML's format over UDP: bytes and a clock in, frames out.

A tensor goes out in chunks of 64 numbers of 32 bits. Chunk c has slot c % window of the switch, in the set
c // window % 2 of the two that each slot has, so that a slot's last results are there while the next are
summed. The result of a chunk frees its slot for the next one; without a result a chunk is sent again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.p4.switchml.session import SWITCH_IP, SWITCH_MAC, UDP_PORT, Host

VALUES = 64
_HEADERS = struct.Struct("!6s6sH BBHHHBBHII HHHH BBIHbb")
FRAME_BYTES = _HEADERS.size + 4 * VALUES
_IPV4_BYTES = FRAME_BYTES - 14
_MTU_256, _JOB, _SET = 1, 0, 1 << 15
_CHUNK, _POOL = struct.Struct("!I"), struct.Struct("!H")
_CHUNK_AT = 14 + 20 + 8 + 2
_RESULT = 1


@dataclass(slots=True)
class Pending:
    """A chunk without a result, and when it is sent again in microseconds."""

    frame: bytes
    again_us: int


class Worker:
    """One worker's allreduce of `values`, int32, with at most `window` chunks under way.

    Args:
        host: Its place.
        values: What it adds; a copy with the sums is `sums`.
        window: Chunks under way at a time; the switch gives each two cells of all its registers.
        patience_us: A chunk is sent again after so long without a result.
    """

    def __init__(self, host: Host, values: NDArray[np.int32], window: int, patience_us: int) -> None:
        self._host = host
        self._chunks = -(-len(values) // VALUES)
        padded = np.zeros(self._chunks * VALUES, np.int32)
        padded[: len(values)] = values
        self._values = padded.astype(">i4").reshape(-1, VALUES)
        self._results = np.zeros_like(self._values)
        self._length = len(values)
        self._window = window
        self._patience_us = patience_us
        self._pending: dict[int, Pending] = {}
        self.done = 0
        """Chunks with a result."""
        self.sent = 0
        self.resent = 0

    @property
    def sums(self) -> NDArray[np.int32]:
        """The results so far."""
        return self._results.reshape(-1)[: self._length].astype(np.int32)

    @property
    def is_done(self) -> bool:
        """True once all results are there."""
        return self.done == self._chunks

    def start(self, now_us: int) -> list[bytes]:
        """Return the first frames."""
        return [self._send(chunk, now_us) for chunk in range(min(self._window, self._chunks))]

    def receive(self, frame: bytes, now_us: int) -> list[bytes]:
        """Take a frame from the switch; return those that may go out for it."""
        if len(frame) != FRAME_BYTES or frame[_CHUNK_AT - 2] >> 4 != _RESULT:
            return []
        (chunk,) = _CHUNK.unpack_from(frame, _CHUNK_AT)
        if chunk not in self._pending:
            return []  # its result came before
        (pool,) = _POOL.unpack_from(frame, _CHUNK_AT + 4)
        assert pool == self._pool(chunk)
        del self._pending[chunk]
        self._results[chunk] = np.frombuffer(frame, ">i4", VALUES, FRAME_BYTES - 4 * VALUES)
        self.done += 1
        following = chunk + self._window
        return [self._send(following, now_us)] if following < self._chunks else []

    def resend(self, now_us: int) -> list[bytes]:
        """Return the frames whose results are overdue."""
        overdue = [pending for pending in self._pending.values() if pending.again_us <= now_us]
        for pending in overdue:
            pending.again_us = now_us + self._patience_us
        self.sent += len(overdue)
        self.resent += len(overdue)
        return [pending.frame for pending in overdue]

    def wakes_us(self) -> int | None:
        """Return when something is overdue next; None: never."""
        return min((pending.again_us for pending in self._pending.values()), default=None)

    def frames(self, window: int) -> list[bytes]:
        """Return the frames of all chunks, as a worker with this window sends them."""
        self._window = window
        return [self._frame(chunk) for chunk in range(self._chunks)]

    def _pool(self, chunk: int) -> int:
        return chunk % self._window | (_SET if chunk // self._window % 2 else 0)

    def _send(self, chunk: int, now_us: int) -> bytes:
        frame = self._frame(chunk)
        self._pending[chunk] = Pending(frame, now_us + self._patience_us)
        self.sent += 1
        return frame

    def _frame(self, chunk: int) -> bytes:
        host = self._host
        before = (0x45, 0, _IPV4_BYTES, 0, 0, 64, 17)
        words = struct.pack("!BBHHHBBHII", *before, 0, host.ip, SWITCH_IP)
        headers: tuple[Any, ...] = (
            *(SWITCH_MAC.to_bytes(6, "big"), host.mac.to_bytes(6, "big"), 0x0800),
            *(*before, _checksum(words), host.ip, SWITCH_IP),
            *(UDP_PORT, UDP_PORT, _IPV4_BYTES - 20, 0),
            *(_MTU_256, _JOB, chunk, self._pool(chunk), 0, 0),
        )
        return bytes(_HEADERS.pack(*headers) + self._values[chunk].tobytes())


def _checksum(words: bytes) -> int:
    total = sum(int.from_bytes(words[at : at + 2], "big") for at in range(0, len(words), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
