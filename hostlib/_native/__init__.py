"""The compiled kernel: ``*.c`` beside this file, built as a shared library and loaded by ctypes.

It does not use Python's C interface, so the interpreter lock is free while it runs.
"""

from __future__ import annotations

import ctypes
import functools
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hostlib import wire
from hostlib._native.layout import REMEDY, Field, fields_of, require_constants, require_fields
from hostlib.core.congestion import RULE_STATE
from hostlib.core.state import ALL_WAIT, Chain, CoreState, CoreStruct, Counter, Kept, Mark, Pattern
from hostlib.errors import NativeMissing


class IoStruct(ctypes.Structure):
    """``struct ina_io`` of ``ina_core.h``: a socket and its buffers, or shared memory."""

    _fields_ = (
        ("send_buffer", ctypes.c_void_p),
        ("receive_buffer", ctypes.c_void_p),
        ("send_packets", ctypes.c_int64),
        ("receive_bytes", ctypes.c_int64),
        ("pending", ctypes.c_int64),
        ("pending_from", ctypes.c_int64),
        ("fd", ctypes.c_int32),
        ("gso", ctypes.c_int32),
        ("last_error", ctypes.c_int32),
        ("errors", ctypes.c_uint32),
        ("peer_address", ctypes.c_uint32),
        ("peer_port", ctypes.c_uint16),
        ("strangers", ctypes.c_uint64),
        ("area", ctypes.c_void_p),
        ("slots", ctypes.c_uint32),
        ("slot_bytes", ctypes.c_uint32),
        ("written", ctypes.c_uint32),
        ("taken", ctypes.c_uint32),
        ("full", ctypes.c_uint32),
    )


def library_path() -> Path:
    """Return the path of the compiled library, in an installation or in a checkout."""
    # not sysconfig.get_config_var: it may return None while another thread makes the first call
    return Path(__file__).parent / f"_ina{EXTENSION_SUFFIXES[0]}"


def load() -> ctypes.CDLL:
    """Return the library, loaded once per process. Raises NativeMissing."""
    return _load(library_path())


@functools.cache
def _load(path: Path) -> ctypes.CDLL:
    """Load the library, compare its layout with Python's, and declare its functions."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeMissing(f"hostlib's compiled library cannot be loaded ({error}); {REMEDY}") from error
    require_fields(library, "ina_core_fields", fields_of(CoreStruct))
    require_fields(library, "ina_io_fields", fields_of(IoStruct))
    require_fields(library, "ina_header_fields", _header_fields())
    require_constants(library, _constants(), *_PREFIXES)
    pointer, i64, u32, size = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32, ctypes.c_size_t
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "ina_begin": (None, [pointer, i64]),
        "ina_emit": (i64, [pointer, pointer, i64, i64, i64]),
        "ina_absorb": (None, [pointer, pointer, i64, i64, i64]),
        "ina_next_timeout": (i64, [pointer]),
        "ina_time_out": (None, [pointer, i64]),
        "ina_end_round": (None, [pointer, i64, i64]),
        "ina_pump": (ctypes.c_int, [pointer, pointer, i64]),
        "ina_ring_readable": (ctypes.c_int, [pointer]),
        "ina_serve": (ctypes.c_int, [pointer, pointer, i64]),
        "ina_local_sum_f32": (i64, [pointer, pointer, size, size, ctypes.c_double]),
        "ina_local_sum_i32": (i64, [pointer, pointer, size, size]),
        "ina_local_note": (None, [pointer, size]),
        "ina_local_reach": (ctypes.c_int, [pointer, size, i64]),
        "ina_fallback_new": (pointer, [u32, u32, u32, ctypes.c_char_p, ctypes.c_char_p, i64, i64, i64]),
        "ina_fallback_free": (None, [pointer]),
        "ina_fallback_add_job": (
            ctypes.c_int,
            [pointer, u32, u32, u32, u32, ctypes.c_uint64, u32, pointer],
        ),
        "ina_fallback_remove_job": (None, [pointer, u32]),
        "ina_fallback_absorb": (None, [pointer, pointer, i64, i64, i64]),
        "ina_fallback_emit": (i64, [pointer, pointer, i64, i64, pointer]),
        "ina_fallback_next_timeout": (i64, [pointer]),
        "ina_fallback_counters": (None, [pointer, i64, pointer]),
        "ina_fallback_pump": (ctypes.c_int, [pointer, pointer, i64, ctypes.c_int, i64]),
    }
    try:
        for name, (result, arguments) in signatures.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError as error:
        raise NativeMissing(f"{path} does not match this version of hostlib ({error}); {REMEDY}") from error
    return library


_FLAGS_AND_COUNTERS = {"CHAIN": Chain, "KEPT": Kept, "MARK": Mark, "COUNT": Counter, "PATTERN": Pattern}
_WIRE = (
    *("INA_", "FRAME_PREFIX_BYTES", "MAX_FAN_IN", "ROOT_NODE", "KIND_", "FLAG_", "VALID_INT32", "ECN_"),
    *("FLAGS_", "TARGET_"),
)
_PREFIXES = (*_WIRE, *(f"{prefix}_" for prefix in _FLAGS_AND_COUNTERS))


def _constants() -> dict[str, int]:
    """Return the constants of the window core and of the wire, by their names in C."""
    of_wire = {name: getattr(wire, name) for name in vars(wire) if name.startswith(_WIRE)}
    of_core = {
        f"{prefix}_{each.name}": each.value for prefix, kinds in _FLAGS_AND_COUNTERS.items() for each in kinds
    }
    return of_wire | of_core | {"INA_ALL_WAIT": ALL_WAIT, "INA_WINDOW_STATE": RULE_STATE}


def _header_fields() -> list[Field]:
    """Return the fields of an INA header, and at the end a field "" with the header's length in bytes."""
    fields = wire.HEADER_DTYPE.fields
    assert fields is not None
    found = [Field(name, offset, dtype.itemsize) for name, (dtype, offset, *_) in fields.items()]
    return [*found, Field("", wire.HEADER_DTYPE.itemsize, 0)]


class NativeKernel:
    """`hostlib.core.window.Kernel` in C."""

    def __init__(self) -> None:
        """Load the compiled library. Raises NativeMissing."""
        self.library = load()

    def begin(self, state: CoreState, now: int) -> None:
        """Reset the window for the collective described in `state`."""
        self.library.ina_begin(ctypes.byref(state.struct), now)

    def emit(self, state: CoreState, out: NDArray[Any], now: int) -> int:
        """Write the next packets, all of one length, into `out` until it is full; return their number."""
        room = out.nbytes // state.packet_dtype.itemsize
        return int(self.library.ina_emit(ctypes.byref(state.struct), out.ctypes.data, room, 0, now))

    def absorb(self, state: CoreState, data: NDArray[Any], segment: int, now: int) -> None:
        """Process received packets; see `Kernel.absorb`."""
        self.library.ina_absorb(ctypes.byref(state.struct), data.ctypes.data, data.nbytes, segment, now)

    def next_timeout(self, state: CoreState) -> int:
        """Return the time when the oldest packet in flight is overdue or needs a probe.

        Return `NEVER` if no packet is in flight.
        """
        return int(self.library.ina_next_timeout(ctypes.byref(state.struct)))

    def time_out(self, state: CoreState, now: int) -> None:
        """Queue overdue packets for resending, or for a probe: see `Window.on_timeout`."""
        self.library.ina_time_out(ctypes.byref(state.struct), now)

    def end_round(self, state: CoreState, in_flight: int, claims: int) -> None:
        """Start a round with new limits; count the results of the new round that have arrived already."""
        self.library.ina_end_round(ctypes.byref(state.struct), in_flight, claims)
