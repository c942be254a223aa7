"""Several switches in virtual time, and the cables between their memory ports.

The rate, queue and loss of a link are impairments of the sending port. The delay belongs to the cable, as a
frame must enter the receiving switch at the right time. A frame that is sent now cannot reach another switch
sooner than after the shortest delay of all cables. So all switches advance, one after the other, by steps of
at most this delay, and exchange frames between steps: each frame enters in the right microsecond. Frames that
enter in the same microsecond are ordered by the step in which they were sent, then by the sending switch's
position in the list, then by port.

Ports without a cable are *ends*, where hosts send and receive. Frames enter a switch only from cables and
ends.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final

from softswitch.engine.native import NativeEngine
from softswitch.engine.ports import MemoryPort, SwitchError
from softswitch.engine.switch import Switch


class Cable(ctypes.Structure):
    """One direction of a link: frames that leave switch `source` by `port` enter switch `target`.

    It is the C struct ``engine_cable``.
    """

    _fields_ = (
        ("source", ctypes.c_uint32),
        ("target", ctypes.c_uint32),
        ("port", ctypes.c_uint16),
        ("target_port", ctypes.c_uint16),
        ("delay_us", ctypes.c_uint64),
    )

    def __init__(self, source: int, port: int, target: int, target_port: int, delay_us: int) -> None:
        if delay_us < 1:
            raise SwitchError(f"a cable's delay is {delay_us} µs, must be 1 or more")
        super().__init__(source, target, port, target_port, delay_us)


class End(ctypes.Structure):
    """A port without a cable: the C struct ``engine_end``."""

    _fields_ = (("switch", ctypes.c_uint32), ("port", ctypes.c_uint16))


_NEVER = 2**64 - 1
_POINTER, _U32, _U64, _INT = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int
_SIGNATURES: Final[Mapping[str, tuple[Any, list[Any]]]] = {
    "create": (_POINTER, [_POINTER, _U32, _POINTER, _U32, _POINTER, _U32]),
    "destroy": (None, [_POINTER]),
    "next_event": (_U64, [_POINTER]),
    "advance": (_U64, [_POINTER, _U64, _INT]),
    "send": (None, [_POINTER, _U32, _POINTER, _POINTER, _U32, _U64]),
    "send_later": (None, [_POINTER, _U32, _POINTER, _U32, _POINTER, _U32]),
    "waiting": (_U32, [_POINTER, _POINTER]),
    "frames": (_POINTER, [_POINTER, _U32, _POINTER, _POINTER]),
    "forget": (None, [_POINTER, _U32]),
}


@functools.cache
def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, f"cabling_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class Cabling:
    """Switches, the cables between them, and the ends (ports without a cable), run by engine_cables.c.

    Times are microseconds.
    """

    def __init__(
        self,
        engines: Sequence[NativeEngine],
        cables: Sequence[Cable],
        ends: Sequence[End],
    ) -> None:
        self._interpreting = [engine for engine in engines if engine.interprets]
        self._library = library = _declare(engines[0].library)
        self._cabling = library.cabling_create(
            (ctypes.c_void_p * len(engines))(*(engine.address for engine in engines)),
            len(engines),
            (Cable * len(cables))(*cables),
            len(cables),
            (End * len(ends))(*ends),
            len(ends),
        )
        if not self._cabling:
            raise MemoryError("no memory for the cables between switches")

    @property
    def addresses(self) -> Mapping[str, int]:
        """Addresses for C callers: the ``struct cabling`` under "cabling", and its functions (engine.h)."""
        functions = {name: getattr(self._library, f"cabling_{name}") for name in _SIGNATURES}
        found = {name: ctypes.cast(each, ctypes.c_void_p).value or 0 for name, each in functions.items()}
        return {"cabling": int(self._cabling or 0), **found}

    def close(self) -> None:
        """Free everything. Call it before the switches are closed; no method may be called after it."""
        cabling, self._cabling = self._cabling, None
        if cabling is not None:
            self._library.cabling_destroy(cabling)

    def next_event_us(self) -> int | None:
        """Return the time of the next event; None: no event is scheduled."""
        due = int(self._library.cabling_next_event(self._cabling))
        return None if due == _NEVER else due

    def advance(self, now_us: int, *, one_step: bool = False) -> int:
        """Process the events up to `now_us` or, with `one_step`, of the first step only.

        Return the time reached.
        """
        now = int(self._library.cabling_advance(self._cabling, now_us, one_step))
        self._check()
        if now == _NEVER:
            raise MemoryError("no memory for the frames under way between switches")
        return now

    def send(self, end: int, data: bytes, lengths: array[int], now_us: int) -> None:
        """Send frames from an end.

        Args:
            end: The end.
            data: The frames, back to back.
            lengths: Length of each frame in bytes, as ``array("I")``.
            now_us: The time, equal to the last step's.
        """
        address, count = lengths.buffer_info()
        self._library.cabling_send(self._cabling, end, data, address, count, now_us)
        self._check()

    def send_later(self, end: int, frame: bytes, times_us: array[int]) -> None:
        """Schedule a frame from an end at each of these future times (``array("Q")``)."""
        address, count = times_us.buffer_info()
        self._library.cabling_send_later(self._cabling, end, frame, len(frame), address, count)

    def discard(self, end: int) -> int:
        """Discard the frames waiting at an end; return their number."""
        count, lengths = ctypes.c_uint32(), ctypes.c_void_p()
        self._library.cabling_frames(self._cabling, end, ctypes.byref(count), ctypes.byref(lengths))
        self._library.cabling_forget(self._cabling, end)
        return count.value

    def _check(self) -> None:
        for engine in self._interpreting:
            engine.check()


def connect(switches: Sequence[Switch], cables: Sequence[Cable], ends: Sequence[End]) -> Cabling:
    """Connect switches at time 0.

    Args:
        switches: The switches, with memory ports other than CPU ports.
        cables: The cables, sorted by their source switch.
        ends: The hosts' ports.

    Raises:
        SwitchError: a switch has a port of another kind, or the cables are in another order.
    """
    for number, switch in enumerate(switches):
        for port, spec in switch.ports.items():
            if not isinstance(spec, MemoryPort) or spec.cpu:
                raise SwitchError(f"port {port} of switch {number} is not a memory port for frames")
    if any(after.source < before.source for before, after in itertools.pairwise(cables)):
        raise SwitchError("the cables must be sorted by their source switch")
    return Cabling([switch.engine for switch in switches], cables, ends)
