"""A switch on loopback sockets: whole frames in UDP datagrams, port r for rank r.

Either the exclusive program, which has slots for everything, or one without any memory and the real core of
a fallback server behind it.
"""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from hostlib import JobConfig, TransportConfig, wire
from hostlib.fallback.config import FallbackJob, FallbackSettings
from hostlib.wire.tree import Tree
from softswitch.engine.switch import Switch
from tests.hostlib.compiled_switch import exclusive_switch
from tests.twins.fallback_core import NumpyCore

JOB = 7
LANES = 32
EPOCH = 200


class FallbackOnly:
    """A switch that passes everything up to the fallback server, and everything down to all ranks."""

    def __init__(self, size: int, window: int) -> None:
        self._size = size
        self._window = window
        self._outbox: dict[int, list[bytes]] = {}
        self.deaf: set[int] = set()
        """Ranks that no result reaches."""
        self.silent: set[int] = set()
        """Ranks whose contributions get lost; their answers do not."""
        self._lock = threading.Lock()
        """`restart` is another thread's."""
        self.restart()

    def restart(self) -> None:
        """Let the fallback server forget everything."""
        with self._lock:
            self._core = NumpyCore(FallbackSettings(lanes=LANES))
            self._core.add_job(FallbackJob(JOB, EPOCH, Tree.star(self._size)))

    def inject(self, port: int, frames: Sequence[bytes], now_us: int | None = None) -> None:
        for frame in frames:
            packet = np.frombuffer(frame, np.uint8)[wire.FRAME_PREFIX_BYTES :].copy()
            with self._lock:
                if packet[0] == wire.version_kind(wire.KIND_GRADIENT):
                    if port in self.silent:
                        continue
                    packet[0] = wire.version_kind(wire.KIND_PARTIAL)
                packet[1] &= ~wire.FLAG_BYPASS & 0xFF
                self._core.absorb(packet, len(packet), time.monotonic_ns())

    def drain(self, port: int) -> list[bytes]:
        buffer = np.zeros(1 << 16, np.uint8)
        with self._lock:
            while (batch := self._core.emit(buffer, time.monotonic_ns()))[0]:
                count, size = batch
                for start in range(0, count * size, size):
                    self._send_down(buffer[start : start + size].tobytes())
        return self._outbox.pop(port, [])

    def _send_down(self, packet: bytes) -> None:
        header = np.frombuffer(packet[: wire.INA_BYTES], wire.HEADER_DTYPE).copy()
        is_result = header["version_kind"] == wire.version_kind(wire.KIND_RESULT)
        for rank in range(self._size):
            if is_result and rank in self.deaf:
                continue
            data = packet
            if is_result and header["target"] not in (wire.TARGET_ALL, rank):
                header["lanes"] = header["valid"] = 0
                data = header.tobytes()
            self._outbox.setdefault(rank, []).append(_prefix(len(data)) + data)


def _prefix(payload_bytes: int) -> bytes:
    return wire.frame_prefix(TransportConfig("loopback", "a:0", "b:1").endpoints, payload_bytes)


class SocketSwitch:
    """A context manager; `configs` is what the workers need to know.

    `fields` are those of `JobConfig`; with ``fallback=True`` the switch is a `FallbackOnly`.
    """

    def __init__(
        self,
        size: int,
        *,
        slots: int = 64,
        loss: float = 0.0,
        framed: bool = True,
        **fields: Any,
    ) -> None:
        fields.setdefault("epoch", EPOCH)
        self.model: Switch | FallbackOnly
        if fields.get("fallback"):
            self.model = FallbackOnly(size, fields.get("window") or slots // 2)
        else:
            self.model = exclusive_switch(JOB, size, slots, generation=EPOCH)
        self.framed = framed
        self.largest_batch = 0
        self._loss = loss
        self._random = random.Random(1)
        self._sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(size)]
        self._peers: dict[int, tuple[str, int]] = {}
        for sock in self._sockets:
            sock.bind(("127.0.0.1", 0))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            sock.setsockopt(socket.IPPROTO_UDP, 104, 1)
        self.configs = [
            JobConfig(
                JOB,
                rank,
                size,
                LANES,
                TransportConfig(
                    "loopback" if framed else "udp", "127.0.0.1:0", f"127.0.0.1:{sock.getsockname()[1]}"
                ),
                slots=slots,
                **{"bare": True, **fields},
            )
            for rank, sock in enumerate(self._sockets)
        ]
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_writer.send(b"x")
        self._thread.join()
        for sock in (*self._sockets, self._stop_reader, self._stop_writer):
            sock.close()

    def _serve(self) -> None:
        while True:
            # the fallback server has timers
            timeout_s = 0.002 if isinstance(self.model, FallbackOnly) else None
            ready, _, _ = select.select([*self._sockets, self._stop_reader], [], [], timeout_s)
            for sock in ready:
                if sock is self._stop_reader:
                    return
                self._receive(self._sockets.index(sock))
            for port, peer in self._peers.items():
                for frame in self.model.drain(port):
                    if self._random.random() >= self._loss:
                        self._sockets[port].sendto(frame if self.framed else frame[42:], peer)

    def _receive(self, port: int) -> None:
        data, ancillary, _, self._peers[port] = self._sockets[port].recvmsg(65536, 64)
        segment = int(np.frombuffer(ancillary[0][2], np.int32)[0]) if ancillary else len(data)
        packets = [data[at : at + segment] for at in range(0, len(data), segment)]
        self.largest_batch = max(self.largest_batch, len(packets))
        for packet in packets:
            if self._random.random() >= self._loss:
                self.model.inject(port, [packet if self.framed else _prefix(len(packet)) + packet])
