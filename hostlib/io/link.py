"""The loop that serves a window with a socket, or with shared memory."""

from __future__ import annotations

import ctypes
import enum
from typing import Protocol

from hostlib import _native
from hostlib._native import IoStruct
from hostlib._native.layout import require_constants
from hostlib.core.window import Window


class Pumped(enum.IntEnum):
    """Reason for which a pump came back (``PUMP_*`` in ``ina_core.h``)."""

    DONE = 0
    TIMER = 1
    INTERRUPTED = 2
    DISAGREE = 3
    ERROR = 4
    ROUND = 5


def receive_bytes_for(window: int, packet_bytes: int) -> int:
    """Return a receive buffer for a window of results and as many duplicates, with the kernel's overhead."""
    return max(1 << 20, 4 * window * packet_bytes)


class Carrier(Protocol):
    """Moves packets: `hostlib.io.datagrams.PacketSocket`, `hostlib.io.shared.SharedRings`."""

    io: IoStruct

    def readable(self) -> bool:
        """Return whether something has arrived."""
        ...

    @property
    def strangers(self) -> int:
        """Number of packets that did not come from the switch, and were dropped."""
        ...

    def last_error(self) -> str | None:
        """Return the last error as a text; None if there was none."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


class Link:
    """Serves a window: sends what it emits, feeds it what arrives; in C."""

    def __init__(self, carrier: Carrier, room_packets: int) -> None:
        """`room_packets`: how many results the carrier holds unread."""
        self.room_packets = room_packets
        self._carrier = carrier
        self._library = _native.load()
        require_constants(self._library, {f"PUMP_{each.name}": each.value for each in Pumped}, "PUMP_")

    def pump(self, window: Window, deadline: int) -> Pumped:
        """Serve until the collective is complete, a time-out is due or `deadline` (monotonic ns) is past.

        After `Pumped.ROUND` the caller owes the window an `on_round`.
        """
        struct, io = ctypes.byref(window.state.struct), ctypes.byref(self._carrier.io)
        return Pumped(self._library.ina_pump(struct, io, deadline))

    def serve(self, window: Window, deadline: int) -> None:
        """Answer reminders until `deadline`, or a signal comes; only while no collective is under way."""
        struct, io = ctypes.byref(window.state.struct), ctypes.byref(self._carrier.io)
        self._library.ina_serve(struct, io, deadline)

    def readable(self) -> bool:
        """Return whether something has arrived."""
        return self._carrier.readable()

    @property
    def strangers(self) -> int:
        """Number of packets that did not come from the switch, and were dropped."""
        return self._carrier.strangers

    def last_error(self) -> str | None:
        """Return the last error of the carrier as a text; None if there was none."""
        return self._carrier.last_error()

    def close(self) -> None:
        """Free the carrier."""
        self._carrier.close()
