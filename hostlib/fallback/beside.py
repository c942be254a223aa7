"""The socket of a fallback server on a machine that also has workers, at the machine's only switch port.

A switch distinguishes a job's children from its parent by the port, so a worker at the port of its job's
fallback server cannot be a child of the switch. It is *beside* the server: the worker is one child of the
tree's root, whose sums the server computes, and the switch is the other child. The server treats both
children's contributions as parts of the root's sum, as if a switch without slots had sent them up. It sends
results down to both, to the switch without lanes if only the worker takes the sum.

One socket serves the switch and the workers, distinguished by the source address of datagrams. The core is
the same as in other servers: only the kinds of packets are changed before the core gets them.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hostlib import wire
from hostlib.addresses import parse_address
from hostlib.config import TransportConfig
from hostlib.errors import ConfigError, InaError
from hostlib.fallback.config import BATCH, RECEIVE_BUFFER_BYTES, FallbackJob
from hostlib.fallback.core import FallbackCore
from hostlib.io.datagrams import DATAGRAM_BYTES, UDP_GRO, UDP_SEGMENT, enable, open_socket

_RECEIVE_BYTES: Final = 65536
_PASSES: Final = 64
"""Maximum number of calls to receive in a row before packets are sent."""
_REFUSED: Final = (wire.INA_VERSION ^ 0xF) << 4
"""Version and kind to write into a packet that the core must drop: the core counts the packet as one of
another version."""


class BesideLink:
    """An ordinary UDP socket for the root switch and for workers of this machine."""

    def __init__(self, transport: TransportConfig) -> None:
        """Open the socket.

        Raises:
            ConfigError: the socket cannot be opened at that address, or the transport is not *udp*.
        """
        if transport.kind != "udp":
            raise ConfigError(
                f"workers beside a fallback server need the transport udp, not {transport.kind}"
            )
        self._switch = parse_address(transport.switch)
        try:
            self.socket = open_socket(parse_address(transport.local), None, RECEIVE_BUFFER_BYTES)
            """The socket itself."""
        except OSError as error:
            raise ConfigError(f"cannot open {transport.local}: {error.strerror}") from error
        enable(self.socket, UDP_GRO, 1)
        self._segments = enable(self.socket, UDP_SEGMENT, 0)
        self._workers: dict[tuple[str, int], tuple[int, int]] = {}
        """By the worker's address: its job, and its bit in the contribution bitmap of the root's sum."""
        self._of_job: dict[int, tuple[tuple[str, int], int]] = {}
        """By job: address and rank of its worker beside the server."""
        self._incoming = np.zeros(_RECEIVE_BYTES, np.uint8)
        self._outgoing = np.zeros(DATAGRAM_BYTES, np.uint8)
        self.strangers = 0
        """Number of datagrams dropped because they came neither from the switch nor from a worker."""
        self.errors = 0
        """Number of failed calls to send or receive."""

    def add(self, job: FallbackJob) -> None:
        """Add this job's worker beside the server, if it has one. Raises ConfigError."""
        if job.beside is None:
            return
        address = parse_address(job.beside)
        if address in self._workers:
            raise ConfigError(f"job {job.job}: the worker at {job.beside} belongs to another job already")
        children = enumerate(job.tree.nodes[wire.ROOT_NODE])
        bit, rank = next((bit, child) for bit, child in children if child >= 0)
        self._workers[address] = job.job, 1 << bit
        self._of_job[job.job] = address, rank

    def remove(self, job: int) -> None:
        """Remove the worker of a job."""
        if (worker := self._of_job.pop(job, None)) is not None:
            del self._workers[worker[0]]

    def introduce(self) -> None:
        """Do nothing: this socket needs no introduction to a software switch (`FallbackLink.introduce`)."""

    def pump(self, core: FallbackCore, control: int, deadline: int) -> None:
        """Serve until `deadline` (monotonic ns), a signal, or until `control` (-1: none) is readable.

        Raises:
            InaError: the socket failed.
        """
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        if control >= 0:
            poller.register(control, select.POLLIN)
        while (now := time.monotonic_ns()) < deadline:
            until = min(deadline, core.next_timeout())
            # rounded up: a wait that ends too early would cost another pass
            ready = dict(poller.poll(max(0, -(-(until - now) // 1_000_000))))
            if control in ready:
                return
            if ready.get(self.socket.fileno(), 0) & select.POLLNVAL:
                raise InaError("the fallback server's socket failed: it is closed")
            self._receive(core)
            self._send(core)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def _receive(self, core: FallbackCore) -> None:
        for _ in range(_PASSES):
            try:
                count, controls, _, source = self.socket.recvmsg_into(
                    [self._incoming.data], socket.CMSG_SPACE(4)
                )
            except BlockingIOError:
                return
            except OSError:  # from an earlier datagram, refused by a worker that has ended
                self.errors += 1
                continue
            segment = _segment(controls) or max(count, 1)
            data = self._incoming[:count]
            if source == self._switch:
                _as_parts(data, segment, None)
            elif (worker := self._workers.get(source)) is not None:
                _as_parts(data, segment, worker)
            else:
                self.strangers += -(-count // segment)
                continue
            core.absorb(data, segment, time.monotonic_ns())

    def _send(self, core: FallbackCore) -> None:
        while True:
            count, size = core.emit(self._outgoing, time.monotonic_ns())
            if not count:
                return
            packets = self._outgoing[: count * size].reshape(count, size)
            headers = _headers(packets)
            only_beside = np.zeros(count, np.bool_)
            for job, (address, rank) in self._of_job.items():
                own = headers["job"] == job
                if own.any():
                    self._transmit(packets[own], address)
                    only_beside |= own & (headers["lanes"] > 0) & (headers["target"] == rank)
            if only_beside.any():
                self._transmit(_without_lanes(packets[only_beside]), self._switch)
                packets = packets[~only_beside]
            self._transmit(packets, self._switch)

    def _transmit(self, packets: NDArray[Any], to: tuple[str, int]) -> None:
        """Send packets; packets that the kernel refuses are lost, as on any link."""
        count, size = packets.shape
        for first in range(0, count, BATCH if self._segments else 1):
            batch = packets[first : first + (BATCH if self._segments else 1)]
            controls = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", size))] if len(batch) > 1 else []
            try:
                self.socket.sendmsg([np.ascontiguousarray(batch).data], controls, 0, to)
            except OSError:
                self.errors += 1


def _without_lanes(packets: NDArray[Any]) -> NDArray[Any]:
    """Return the packets with their lanes removed, for receivers that do not take the sum."""
    bare = np.ascontiguousarray(packets[:, : wire.INA_BYTES])
    headers = _headers(bare)
    headers["lanes"] = headers["valid"] = 0
    return bare


def _segment(controls: list[tuple[int, int, bytes]]) -> int:
    """Return the length of each of the packets that the kernel has merged; 0 if there is only one."""
    for level, kind, value in controls:
        if (level, kind) == (socket.IPPROTO_UDP, UDP_GRO):
            return int.from_bytes(value[:4], sys.byteorder)
    return 0


def _headers(packets: NDArray[Any]) -> NDArray[Any]:
    """Return a view of the headers of packets of one length, in rows."""
    found: NDArray[Any] = packets[:, : wire.INA_BYTES].view(wire.HEADER_DTYPE)[:, 0]
    return found


def _as_parts(data: NDArray[Any], segment: int, worker: tuple[int, int] | None) -> None:
    """Change the kind of contributions to the root's sum to PARTIAL, in place, as the core expects.

    `worker`: job and bit of the worker that has sent the packets; None: the switch. A worker may send its own
    contributions to its job, and results; its other packets are made invalid.
    """
    whole, rest = divmod(len(data), segment)
    if segment >= wire.INA_BYTES and whole:
        _rewrite(data[: whole * segment].reshape(whole, segment), worker)
    if rest >= wire.INA_BYTES:
        _rewrite(data[whole * segment :].reshape(1, rest), worker)


def _rewrite(packets: NDArray[Any], worker: tuple[int, int] | None) -> None:
    headers = _headers(packets)
    kinds = headers["version_kind"]
    gradient = kinds == wire.INA_VERSION << 4 | wire.KIND_GRADIENT
    if worker is not None:
        job, bit = worker
        own = (headers["node"] == wire.ROOT_NODE) & (headers["bitmap"] == bit)
        answer = kinds == wire.INA_VERSION << 4 | wire.KIND_RESULT
        kinds[~((headers["job"] == job) & (answer | (gradient & own)))] = _REFUSED
    kinds[gradient & (headers["node"] == wire.ROOT_NODE) & (kinds != _REFUSED)] = (
        wire.INA_VERSION << 4 | wire.KIND_PARTIAL
    )
