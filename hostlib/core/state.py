"""State of the window core: one C structure and the arrays it points to, shared by both kernels.

Theory of operation
-------------------
A collective is `total` packets, numbered from 0 (their *index*); packet i carries PSN ``base + i``. The PSNs
that are equal modulo the window W form a *chain*: packet i+W is sent only with the result of packet i in
hand, so a chain has at most one packet in flight and W chains make the window. Per chain the core keeps
which packet is next or in flight (`index`), when it was last sent, and `status`, a set of `Chain` flags.

PSNs count modulo `psn_limit`, the largest multiple of the region's size up to 2**32, so that ``psn % size``
and ``psn % W`` run on smoothly where they wrap.

A float32 collective announces the exponent of data packet i in packet i and carries data packet j in packet
``j + lookahead``, scaled by the exponent that result j brought. It writes data packet j to the output only
when nothing can ask for it again, so input and output may be the same memory.
"""

from __future__ import annotations

import ctypes
import enum
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hostlib import wire

NEVER: Final = 2**63 - 1
"""A time that does not come."""

_HEADER_ROOM: Final = 72


class Chain(enum.IntFlag):
    """Status of a chain; none of these: its next packet has to wait."""

    READY = 0x01
    """In the ready ring."""
    FLIGHT = 0x02
    """Sent, no result yet."""
    RESENT = 0x04
    """Sent more than once: its round trip time is ambiguous (Karn)."""
    COUNTED = 0x08
    """A status showed our contribution in the slot."""
    QUEUED = 0x10
    """In the resend ring."""
    QUERY = 0x20
    """The resend is to ask for a status."""


class Counter(enum.IntEnum):
    """What the core counts; the last nine are packets that it ignored."""

    SENT = 0
    RESENT = 1
    RESULTS = 2
    STATUSES = 3
    STALE = 4
    BAD_LENGTH = 5
    FOREIGN = 6
    BAD_VERSION = 7
    BAD_KIND = 8
    BAD_LANES = 9
    WRONG_JOB = 10
    WRONG_TAG = 11
    BAD_BITMAP = 12


class CoreStruct(ctypes.Structure):
    """``struct ina_core`` of ``_native/ina_core.h``, field for field."""

    _fields_ = (
        ("header", ctypes.c_uint8 * _HEADER_ROOM),
        ("prefix", ctypes.c_uint32),
        ("packet_bytes", ctypes.c_uint32),
        ("lanes", ctypes.c_uint32),
        ("window", ctypes.c_uint32),
        ("job", ctypes.c_uint32),
        ("fan_in", ctypes.c_uint32),
        ("own_bitmap", ctypes.c_uint32),
        ("full_bitmap", ctypes.c_uint32),
        ("psn_limit", ctypes.c_uint64),
        ("index", ctypes.c_void_p),
        ("sent_at", ctypes.c_void_p),
        ("status", ctypes.c_void_p),
        ("exponent", ctypes.c_void_p),
        ("ready_ring", ctypes.c_void_p),
        ("resend_ring", ctypes.c_void_p),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("length", ctypes.c_int64),
        ("data_packets", ctypes.c_int64),
        ("lookahead", ctypes.c_int64),
        ("total", ctypes.c_int64),
        ("base", ctypes.c_uint64),
        ("tag", ctypes.c_uint32),
        ("is_float", ctypes.c_uint32),
        ("average", ctypes.c_uint32),
        ("ready_head", ctypes.c_uint32),
        ("ready_count", ctypes.c_uint32),
        ("resend_head", ctypes.c_uint32),
        ("resend_count", ctypes.c_uint32),
        ("status_bitmap", ctypes.c_uint32),
        ("completed", ctypes.c_int64),
        ("in_flight", ctypes.c_int64),
        ("limit", ctypes.c_int64),
        ("progress_at", ctypes.c_int64),
        ("status_at", ctypes.c_int64),
        ("overflow_index", ctypes.c_int64),
        ("nonfinite_index", ctypes.c_int64),
        ("disagree_index", ctypes.c_int64),
        ("srtt", ctypes.c_int64),
        ("rto", ctypes.c_int64),
        ("rto_margin", ctypes.c_int64),
        ("rto_max", ctypes.c_int64),
        ("timeout_at", ctypes.c_int64),
        ("newest_sent", ctypes.c_int64),
        ("backoff", ctypes.c_uint32),
        ("counters", ctypes.c_uint64 * len(Counter)),
    )


@dataclass(frozen=True, slots=True)
class RtoLimits:
    """Bounds of the retransmission time-out, seconds."""

    initial_s: float = 0.05
    """Until the first round trip has been measured."""
    margin_s: float = 0.005
    """Least distance from the smoothed round trip time: what the scheduler may add to any packet's."""
    max_s: float = 0.25
    """Where doubling ends; also how often a stalled worker asks who is missing."""


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """What does not change during the life of a job."""

    job: int
    rank: int
    size: int
    slots: int
    """Slots of the job's region; the window is half of it."""
    lanes: int
    endpoints: wire.Endpoints | None
    """Addresses to put into frames; None: packets are UDP payloads."""
    rto: RtoLimits = RtoLimits()
    first_psn: int = 0


class CoreState:
    """The structure, the arrays behind its pointers, and views of them by name."""

    def __init__(self, settings: CoreSettings) -> None:
        window = settings.slots // 2
        packet = wire.packet_dtype(settings.lanes, framed=settings.endpoints is not None)
        self.struct = struct = CoreStruct()
        self.packet_dtype = packet

        struct.packet_bytes = packet.itemsize
        struct.lanes = settings.lanes
        struct.window = window
        struct.job = settings.job
        struct.fan_in = settings.size
        struct.own_bitmap = 1 << settings.rank
        struct.full_bitmap = (1 << settings.size) - 1
        struct.psn_limit = 2**32 - 2**32 % settings.slots
        struct.base = settings.first_psn
        struct.limit = window
        struct.rto = round(settings.rto.initial_s * 1e9)
        struct.rto_margin = round(settings.rto.margin_s * 1e9)
        struct.rto_max = round(settings.rto.max_s * 1e9)

        header = _header_template(settings)
        struct.prefix = len(header) - wire.INA_BYTES
        ctypes.memmove(struct.header, header, len(header))

        self.index = self._array("index", window, np.int64)
        self.sent_at = self._array("sent_at", window, np.int64)
        self.status = self._array("status", window, np.uint8)
        self.exponent = self._array("exponent", window, np.uint8)
        self.ready_ring = self._array("ready_ring", window, np.uint32)
        self.resend_ring = self._array("resend_ring", window, np.uint32)
        self.input: NDArray[Any] = np.empty(0, np.int32)
        self.output: NDArray[Any] = np.empty(0, np.int32)

    def set_arrays(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        """Let the collective read from and write to these flat arrays, and keep them alive."""
        self.input, self.output = source, target
        self.struct.input = source.ctypes.data
        self.struct.output = target.ctypes.data

    def psn(self, index: int) -> int:
        """Return the PSN of a packet of the collective."""
        return int(self.struct.base + index) % int(self.struct.psn_limit)

    def _array(self, field: str, length: int, dtype: type[np.generic]) -> NDArray[Any]:
        array = np.zeros(length, dtype)
        setattr(self.struct, field, array.ctypes.data)
        return array


def _header_template(settings: CoreSettings) -> bytes:
    header = np.zeros(1, wire.HEADER_DTYPE)
    header["version_kind"] = wire.version_kind(wire.KIND_GRADIENT)
    header["job"] = settings.job
    header["bitmap"] = 1 << settings.rank
    header["fan_in"] = settings.size
    header["lanes"] = settings.lanes
    prefix = b""
    if settings.endpoints:
        prefix = wire.frame_prefix(settings.endpoints, wire.INA_BYTES + 4 * settings.lanes)
    return prefix + header.tobytes()
