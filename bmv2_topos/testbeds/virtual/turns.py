"""The turns of the hosts' stations at a tick, most of which are taken in C.

Every station of a host (a worker, a fallback server or the sink of a flow) has a numbered *seat*. It has a
turn at a tick if a packet may have arrived for it, or if it is due. Which seat goes first changes with every
tick. In most turns a worker in the middle of a sum receives results and sends further packets, or a sink
counts packets: these turns are taken in C (``turns.c``), which calls the engine and the host library
directly. Turns are taken in Python if a sum begins or ends, if computing has ended, or if a congestion
control must be called. At hosts with a fallback server or several workers, all turns are taken in Python.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bmv2_topos.testbeds.virtual.fabric import Fabric
from bmv2_topos.testbeds.virtual.interfaces import Interfaces
from bmv2_topos.testbeds.virtual.traffic import RunningFlow
from bmv2_topos.testbeds.virtual.worker import BATCH_PACKETS, TrainingWorker
from controller.vocabulary.lists import by_key
from hostlib._native import NativeKernel, library_path
from hostlib.core.state import NEVER
from softswitch import build_c, join_c
from softswitch.engine.cables import Cabling

_TURN: Final = 7  # any number without a common factor with most numbers of seats

_WINDOW: Final = ("ina_absorb", "ina_emit", "ina_next_timeout", "ina_time_out")
_CABLING: Final = ("frames", "forget", "send", "waiting")

_SEAT: Final = np.dtype(
    [
        ("core", np.uint64),
        ("due", np.int64),
        ("computed", np.int64),
        ("arrived", np.uint64),
        ("end", np.uint32),
        ("port", np.uint16),
        ("called", np.uint8),
        ("busy", np.uint8),
        ("sink", np.uint8),
    ],
    align=True,
)
"""``struct seat`` of turns.c."""


class Pollable(Protocol):
    """An object with a seat at a host: a worker, a fallback server or a sink. Times are nanoseconds."""

    host: str
    port: int
    """UDP port at which the object receives packets."""
    due: int
    """Time at which the object gets its next turn even if no packet arrives."""

    def poll(self, now: int) -> None:
        """Take a turn: process arrived packets, and do due work."""


class _SeatTable(ctypes.Structure):
    """``struct table`` of turns.c."""

    _fields_ = (
        ("calls", ctypes.c_void_p),
        ("cabling", ctypes.c_void_p),
        ("seats", ctypes.c_void_p),
        ("first", ctypes.c_void_p),
        ("at", ctypes.c_void_p),
        ("waiting", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("lengths", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
        ("batch", ctypes.c_uint32),
        ("own", ctypes.c_uint64 * 4),  # ``struct own``
    )


class HostTurns:
    """The seats of all stations, and their turns (see the module). Times are nanoseconds."""

    def __init__(self, fabric: Fabric, interfaces: Interfaces, *, quick: bool) -> None:
        """Make an object without seats. With `quick`, C code takes the turns that need no Python."""
        self._fabric = fabric
        self._interfaces = interfaces
        self._quick = quick
        self._table = _Table(fabric.cabling)
        self._seated: list[Pollable] = []
        self._seats = np.zeros(0, _SEAT)

    def assign_seats(self, seated: Sequence[Pollable]) -> None:
        """Replace all seats: each of these objects gets one, and has a turn at the next tick."""
        self.sync()
        self._seated = list(seated)
        self._seats = seats = np.zeros(len(self._seated), _SEAT)
        workers = [each if isinstance(each, TrainingWorker) else None for each in self._seated]
        seats["end"] = [self._fabric.end_of(each.host) for each in self._seated]
        seats["called"] = 1
        seats["due"] = [each.due for each in self._seated]
        seats["computed"] = [0 if each is None else each.training.due for each in workers]
        seats["busy"] = [each is not None and each.waits for each in workers]
        hosts = by_key((each.host, number) for number, each in enumerate(self._seated))
        for host, numbers in hosts.items():
            if self._quick and self._may_be_quick(host, numbers):
                self._make_quick(host, numbers)
        packet_bytes = max((each.packet_bytes for each in workers if each is not None), default=1)
        self._table.seat(seats, self._fabric.hosts, packet_bytes)

    def sync(self) -> None:
        """Copy state from C to the Python objects: the counters of sinks, and the due times of workers."""
        for number in np.flatnonzero(self._seats["arrived"]):
            flow = self._seated[number]
            assert isinstance(flow, RunningFlow), "the C code counts packets only for sinks of flows"
            flow.count(int(self._seats["arrived"][number]))
        self._seats["arrived"] = 0
        for number in np.flatnonzero(self._seats["core"]):
            self._sync_worker(int(number))

    def due(self) -> int:
        """Return the earliest time at which a seat is due; NEVER if no seat is due."""
        return int(self._seats["due"].min(initial=NEVER))

    def run_tick(self, now: int, tick: int) -> set[int]:
        """Take all turns of a tick; return the seats whose turns were taken in Python."""
        count = len(self._seated)
        first = tick * _TURN % max(1, count)
        had: set[int] = set()
        number = unfinished = -1
        while True:
            found = self._table.take(now, first, number + 1, unfinished)
            if found is None:
                return had
            number, rest = found
            seat = (first + number) % count
            each = self._seated[seat]
            unfinished = seat if rest else -1
            if rest and isinstance(each, TrainingWorker):
                each.decide(now)
            elif self._seats["sink"][seat] and isinstance(each, RunningFlow):
                each.schedule(now)
            else:
                self._sync_worker(seat)
                each.poll(now)
            had.add(seat)
            self._note(seat)

    def _may_be_quick(self, host: str, numbers: Sequence[int]) -> bool:
        """Return whether C code may take the turns of the seats `numbers`, which are the seats at a host.

        It may if there is at most one worker and no fallback server, and if no received frames wait at the
        host.
        """
        seated = [self._seated[number] for number in numbers]
        workers = sum(isinstance(each, TrainingWorker) for each in seated)
        has_servers = workers < sum(not isinstance(each, RunningFlow) for each in seated)
        return workers <= 1 and not has_servers and not self._interfaces.holds(host)

    def _make_quick(self, host: str, numbers: Sequence[int]) -> None:
        alone = self._interfaces.alone(host)
        for number in numbers:
            each = self._seated[number]
            if isinstance(each, TrainingWorker):
                self._seats["core"][number] = each.core_address
            else:
                self._seats["sink"][number] = 1
            self._seats["port"][number] = 0 if alone else each.port

    def _sync_worker(self, number: int) -> None:
        self._seated[number].due = int(self._seats["due"][number])

    def _note(self, number: int) -> None:
        """Copy the state that C needs from the Python object at a seat to the table of seats."""
        each, seats = self._seated[number], self._seats
        seats["due"][number] = each.due
        if isinstance(each, TrainingWorker):
            seats["computed"][number] = each.training.due
            seats["busy"][number] = each.waits


class _Table:
    """The table of seats for the C code (``turns.c``), which takes turns or says which ones Python takes."""

    def __init__(self, cabling: Cabling) -> None:
        self._take = _library().turns_take
        functions = (getattr(NativeKernel().library, name) for name in _WINDOW)
        addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
        addresses += [cabling.addresses[name] for name in _CABLING]
        self._calls = np.array(addresses, np.uint64)
        self._arrays: list[NDArray[Any]] = []
        self._table = _SeatTable(
            calls=self._calls.ctypes.data, cabling=cabling.addresses["cabling"], batch=BATCH_PACKETS
        )
        weakref.finalize(self, _library().turns_free, ctypes.byref(self._table))
        self._rest = ctypes.c_int32()

    def seat(self, seats: NDArray[Any], ends: int, packet_bytes: int) -> None:
        """Replace the table's seats.

        Args:
            seats: The seats.
            ends: Number of ends of the cabling.
            packet_bytes: Size of the largest packet of any worker.
        """
        by_end = np.argsort(seats["end"], kind="stable").astype(np.uint32)
        first = np.zeros(ends + 1, np.uint32)  # at each end: index in `by_end` of its first seat
        first[1:] = np.cumsum(np.bincount(seats["end"], minlength=ends))
        waiting = np.zeros(ends + 1, np.uint32)
        out, lengths = np.zeros(BATCH_PACKETS * packet_bytes, np.uint8), np.zeros(BATCH_PACKETS, np.uint32)
        # kept alive as long as C uses them
        self._arrays = [seats, first, by_end, waiting, out, lengths]
        table = self._table
        table.seats, table.first, table.at, table.waiting, table.out, table.lengths = (
            array.ctypes.data for array in self._arrays
        )
        table.count = len(seats)

    def take(self, now: int, first: int, number: int, unfinished: int) -> tuple[int, bool] | None:
        """Finish the turn of the seat `unfinished` (-1: none), and take turns from `number` on, in C.

        Turns are numbered from 0 at each tick; turn 0 is the turn of the seat `first`.

        Stop at a turn that needs Python; return the turn's number, and whether C has begun the turn. A turn
        that C has begun must be finished by the next call. Return None after the last turn.
        """
        rest = self._rest
        found = int(self._take(ctypes.byref(self._table), now, first, number, unfinished, ctypes.byref(rest)))
        return None if found < 0 else (found, bool(rest.value))


@functools.cache
def _library() -> ctypes.CDLL:
    """Return ``turns.c`` as a library, compiled here or for the wheel. Raises NoCompiler, BuildFailed."""
    parts = library_path().with_name("ina_core.h"), Path(__file__).with_name("turns.c")
    library = ctypes.CDLL(str(build_c(join_c(parts))))
    library.turns_free.restype, library.turns_free.argtypes = None, [ctypes.c_void_p]
    library.turns_take.restype = ctypes.c_int64
    library.turns_take.argtypes = [
        *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_void_p)
    ]
    return library
