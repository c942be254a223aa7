"""Cables between switches of the C engine: runtime/engine_cables.c, and a thin class over it."""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final

from softswitch.engine.cabling import Cable, End, Survives
from softswitch.engine.native import NativeEngine

_NEVER = 2**64 - 1

_SURVIVES = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32)


class _Cable(ctypes.Structure):
    """``struct engine_cable``."""

    _fields_ = (
        ("source", ctypes.c_uint32),
        ("target", ctypes.c_uint32),
        ("port", ctypes.c_uint16),
        ("target_port", ctypes.c_uint16),
        ("delay_us", ctypes.c_uint64),
    )


class _End(ctypes.Structure):
    """``struct engine_end``."""

    _fields_ = (("engine", ctypes.c_uint32), ("port", ctypes.c_uint16))


_POINTER, _U32, _U64, _INT = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int
_SIGNATURES: Final[Mapping[str, tuple[Any, list[Any]]]] = {
    "create": (_POINTER, [_POINTER, _U32, _POINTER, _U32, _POINTER, _U32, _SURVIVES]),
    "destroy": (None, [_POINTER]),
    "ask": (None, [_POINTER, _U32, _INT]),
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


class NativeCabling:
    """See `softswitch.engine.cabling.Cabling`."""

    def __init__(
        self,
        engines: Sequence[NativeEngine],
        cables: Sequence[Cable],
        ends: Sequence[End],
        survives: Survives,
    ) -> None:
        self._library = library = _declare(engines[0].library)
        self._survives = _SURVIVES(survives)  # kept alive as long as C may call it
        self._told = (ctypes.c_uint32 * max(1, len(ends)))()
        self._cabling = library.cabling_create(
            (ctypes.c_void_p * len(engines))(*(engine.address for engine in engines)),
            len(engines),
            (_Cable * len(cables))(
                *(
                    _Cable(each.source, each.target, each.port, each.target_port, each.delay_us)
                    for each in cables
                )
            ),
            len(cables),
            (_End * len(ends))(*(_End(end.switch, end.port) for end in ends)),
            len(ends),
            self._survives,
        )
        if not self._cabling:
            raise MemoryError("no memory for the cables between switches")

    @property
    def addresses(self) -> Mapping[str, int]:
        """See `Cabling.addresses`."""
        functions = {name: getattr(self._library, f"cabling_{name}") for name in _SIGNATURES}
        found = {name: ctypes.cast(each, ctypes.c_void_p).value or 0 for name, each in functions.items()}
        return {"cabling": int(self._cabling or 0), **found}

    def close(self) -> None:
        """Free everything; nothing may be called after it."""
        cabling, self._cabling = self._cabling, None
        if cabling is not None:
            self._library.cabling_destroy(cabling)

    def next_event_us(self) -> int | None:
        """See `Cabling.next_event_us`."""
        due = int(self._library.cabling_next_event(self._cabling))
        return None if due == _NEVER else due

    def advance(self, now_us: int, *, one_step: bool = False) -> int:
        """See `Cabling.advance`."""
        now = int(self._library.cabling_advance(self._cabling, now_us, one_step))
        if now == _NEVER:
            raise MemoryError("no memory for the frames under way between switches")
        return now

    def send(self, end: int, data: bytes, lengths: array[int], now_us: int) -> None:
        """See `Cabling.send`."""
        address, count = lengths.buffer_info()
        self._library.cabling_send(self._cabling, end, data, address, count, now_us)

    def send_later(self, end: int, frame: bytes, times_us: array[int]) -> None:
        """See `Cabling.send_later`."""
        address, count = times_us.buffer_info()
        self._library.cabling_send_later(self._cabling, end, frame, len(frame), address, count)

    def waiting(self) -> Sequence[int]:
        """See `Cabling.waiting`."""
        count = self._library.cabling_waiting(self._cabling, self._told)
        return self._told[:count] if count else ()

    def discard(self, end: int) -> int:
        """See `Cabling.discard`."""
        count, lengths = ctypes.c_uint32(), ctypes.c_void_p()
        self._library.cabling_frames(self._cabling, end, ctypes.byref(count), ctypes.byref(lengths))
        self._library.cabling_forget(self._cabling, end)
        return count.value

    def ask(self, entrance: int, asks: bool) -> None:
        """See `Cabling.ask`."""
        self._library.cabling_ask(self._cabling, entrance, asks)
