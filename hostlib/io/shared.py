"""Rings of packets in memory shared with a switch on this machine (``runtime/shared_ring.h``)."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
from typing import Final

from hostlib import _native
from hostlib._native import IoStruct
from hostlib.io.datagrams import Carrier

MAGIC: Final = 0x52414E49
VERSION: Final = 1
LEAST_SLOTS: Final = 64
MOST_SLOTS: Final = 16384
BATCH: Final = 64
"""Number of packets to write before the switch is woken."""

_REQUEST: Final = struct.Struct("=IIII")
_OFFER: Final = struct.Struct("=IIIIQ")
_ANSWER_S: Final = 5.0
_SPARE_SLOTS: Final = 160
"""Number of slots to keep free of results, because the switch needs free slots for its longest frame."""


class SharedRings(Carrier):
    """A worker's two rings, to and from the switch, and the Unix socket whose bytes wake this process.

    The loops in C use `io`.
    """

    def __init__(self, path: str, packets: int, packet_bytes: int) -> None:
        """Connect to the switch's port, and request rings of at least `packets` packets.

        Raises:
            OSError: no switch listens at `path`, or the port there offers no rings.
        """
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.settimeout(_ANSWER_S)
            self._socket.connect(path)
            self._socket.send(_REQUEST.pack(MAGIC, VERSION, slots_for(packets), packet_bytes))
            slots, slot_bytes, self._memory = _take_offer(self._socket)
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise
        self.packets = slots - _SPARE_SLOTS if slots > 2 * _SPARE_SLOTS else slots // 2
        """Number of unread results that the ring can hold."""
        self.io = IoStruct(
            fd=self._socket.fileno(),
            send_packets=BATCH,
            area=ctypes.addressof(ctypes.c_char.from_buffer(self._memory)),
            slots=slots,
            slot_bytes=slot_bytes,
        )

    def readable(self) -> bool:
        """Return whether packets have arrived."""
        return bool(_native.load().ina_ring_readable(ctypes.byref(self.io)))

    def close(self) -> None:
        """Disconnect; the switch drops the rings. The memory is freed with this object."""
        self._socket.close()


def slots_for(packets: int) -> int:
    """Return the least number of slots that holds `packets` packets and leaves the spare slots free."""
    return min(MOST_SLOTS, 1 << max(LEAST_SLOTS, packets + _SPARE_SLOTS).bit_length())


def _take_offer(connected: socket.socket) -> tuple[int, int, mmap.mmap]:
    """Receive the switch's offer; return number of slots, bytes of a slot, and the memory."""
    answer, descriptors, _, _ = socket.recv_fds(connected, _OFFER.size, 1)
    try:
        if len(answer) != _OFFER.size or len(descriptors) != 1:
            raise ConnectionAbortedError(0, "the switch has refused the connection")
        magic, version, slots, slot_bytes, area_bytes = _OFFER.unpack(answer)
        if (magic, version) != (MAGIC, VERSION):
            raise ConnectionAbortedError(0, "the switch speaks another version of the shared memory protocol")
        return slots, slot_bytes, mmap.mmap(descriptors[0], area_bytes)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
