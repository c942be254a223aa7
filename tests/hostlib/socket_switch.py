"""The reference switch on loopback sockets: whole frames in UDP datagrams, port r for rank r."""

from __future__ import annotations

import random
import select
import socket
import threading
from typing import Self

import numpy as np

from hostlib import JobConfig, TransportConfig
from tests.hostlib.reference_switch import Job, ReferenceSwitch

JOB = 7
LANES = 32


class SocketSwitch:
    """A context manager; `configs` is what the workers need to know."""

    def __init__(
        self, size: int, *, slots: int = 64, loss: float = 0.0, timeout_s: float = 8.0, framed: bool = True
    ) -> None:
        self.model = ReferenceSwitch({JOB: Job(size, slots)}, LANES)
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
                timeout_s=timeout_s,
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
            ready, _, _ = select.select([*self._sockets, self._stop_reader], [], [])
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
                self.model.inject(port, [packet if self.framed else bytes(42) + packet])
