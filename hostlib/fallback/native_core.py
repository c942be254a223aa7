"""The fallback server's core in C."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostlib import _native, wire
from hostlib._native.layout import require_constants
from hostlib.errors import ConfigError
from hostlib.fallback.config import (
    BATCH,
    LEVELS,
    STATUS_QUEUE,
    Count,
    FallbackJob,
    FallbackSettings,
    flatten,
    require_room,
)

_SEND_BYTES = 65507
"""Largest UDP payload: what one send with segmentation offload may carry."""
_GAUGES = ("entries", "unfinished", "pieces")
_CONSTANTS = {
    "FALLBACK_LEVELS": LEVELS,
    "FALLBACK_STATUS_QUEUE": STATUS_QUEUE,
    "FALLBACK_BATCH": BATCH,
    **{f"FB_{each.name}": each.value for each in Count},
}


class NativeCore:
    """`hostlib.fallback.core.FallbackCore` in C."""

    def __init__(self, settings: FallbackSettings) -> None:
        """Load the compiled library.

        Raises:
            NativeMissing: the compiled library cannot be loaded.
            MemoryError: there is no memory for `FallbackSettings.capacity`.
        """
        self.settings = settings
        self.library = _native.load()
        require_constants(self.library, _CONSTANTS, "FB_", "FALLBACK_")
        self._jobs: dict[int, FallbackJob] = {}
        handle = self.library.ina_fallback_new(
            settings.lanes,
            settings.capacity,
            settings.prefix_bytes,
            settings.prefix(settings.lanes),
            settings.prefix(0),
            round(settings.remind_s * 1e9),
            round(settings.remind_max_s * 1e9),
            round(settings.forget_s * 1e9),
        )
        if not handle:
            raise MemoryError(f"no memory for a fallback server of {settings.capacity} packets")
        self.handle = ctypes.c_void_p(handle)
        self.close = weakref.finalize(self, self.library.ina_fallback_free, self.handle)
        """Free the memory, which otherwise happens with the object; it cannot be used afterwards."""

    def add_job(self, job: FallbackJob) -> None:
        """Serve a job from now on. Raises ConfigError."""
        require_room(self.settings, job, self._jobs)
        nodes = flatten(job.tree)
        table = np.zeros((len(nodes), 5 + wire.MAX_FAN_IN), np.int64)
        for row, node in zip(table, nodes, strict=True):
            row[:5] = node.id, node.parent, node.bit, node.full, len(node.children)
            row[5 : 5 + len(node.children)] = node.children
        packed = table.astype(np.int32)
        added = self.library.ina_fallback_add_job(
            self.handle,
            job.job,
            job.epoch & 0xFF,
            job.tree.size,
            job.window or 0,
            job.psn_limit,
            len(nodes),
            packed.ctypes.data,
        )
        if not added:
            raise ConfigError(f"job {job.job}: no memory for its tree")
        self._jobs[job.job] = job

    def remove_job(self, job: int) -> None:
        """Forget a job and all of its entries. Raises KeyError for an unknown one."""
        del self._jobs[job]
        self.library.ina_fallback_remove_job(self.handle, job)

    def absorb(self, data: NDArray[Any], segment: int, now: int) -> None:
        """Take in received packets: `segment` bytes each, the last may be shorter."""
        self.library.ina_fallback_absorb(self.handle, data.ctypes.data, data.nbytes, segment, now)

    def emit(self, out: NDArray[Any], now: int) -> tuple[int, int]:
        """Write packets of one length to `out`; return how many, and that length."""
        size = ctypes.c_int64()
        count = self.library.ina_fallback_emit(
            self.handle, out.ctypes.data, out.nbytes, now, ctypes.byref(size)
        )
        return int(count), size.value

    def next_timeout(self) -> int:
        """Return when `emit` will have a reminder to send, or `NEVER`."""
        return int(self.library.ina_fallback_next_timeout(self.handle))

    def pump(self, io: _native.IoStruct, control: int, deadline: int) -> int:
        """Move packets between a socket and the core; ``ina_fallback_pump.c`` says until when."""
        return int(
            self.library.ina_fallback_pump(self.handle, ctypes.byref(io), _SEND_BYTES, control, deadline)
        )

    def statistics(self) -> dict[int | None, dict[str, int]]:
        """Return the counters of every job; under None, what belongs to no job."""
        names = [count.name.lower() for count in Count]
        found: dict[int | None, dict[str, int]] = {}
        for job in (None, *self._jobs):
            values = np.zeros(len(names) + len(_GAUGES), np.uint64)
            which = -1 if job is None else job
            self.library.ina_fallback_counters(self.handle, which, values.ctypes.data)
            found[job] = dict(
                zip(names if job is None else (*names, *_GAUGES), values.tolist(), strict=False)
            )
        return found
