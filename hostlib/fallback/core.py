"""The fallback server's core without I/O, in C: bytes and a clock in, bytes and timers out.

Theory of operation
-------------------
The key of an *entry* is a job and a PSN. An unfinished entry holds sums: for some nodes of the job's tree, a
bitmap of contributions and their sum. Only disjoint bitmaps are added, so each sum is exact even if packets
were lost, duplicated, evicted or dropped. A sum replaces a stored sum whose contributions it contains; any
other overlap is dropped. A complete sum becomes one contribution to the node above, and replaces the sums
that this contribution contains. When the root's sum is complete, or when a worker that has the result sends
the result up, the entry is *finished*: the result goes down to all workers. The result is sent again, at most
about once per round trip, to workers that still contribute.

An entry that overflowed is *repaired*: raw contributions are stored one by one until every rank's
contribution has arrived. Then they are added in the order of ranks, in double precision (int32: in 64 bits),
so that the result does not depend on the order of arrival. A worker that contributes to an entry under repair
without raw values is notified of the overflow.

An unfinished entry that has got no contribution for a while sends reminders: one per node with missing
contributions. The wait is twice the delay of this job's last contributions behind the first ones, but at
least `remind_s` and at most four times `remind_s`. It doubles with every reminder, up to `remind_max_s`.
Contributions after a reminder do not count as late, or the wait would increase itself. A reminder that is too
early costs only a few packets: the sum must be completed here in any case, because a part of it is here. A
reminder that is too late makes the workers wait.

Memory is bounded. Finished entries are dropped first, oldest first; then the unfinished entry that is
furthest ahead, because workers can only go on with the packet for which they have waited longest. Entries of
the job that uses more than its share are dropped. To drop an entry is safe at any time: a worker without a
result sends again. If the job's window W is known, packet i is also dropped after a contribution to i+2W, or
with the result of i+W: a worker that sends i+2W has the result of i+W, to which all contributed after the
result of i. A late copy may start an entry of a packet that all workers have finished. The answer to its
reminder shows that: it is the result of i+W, or, if that sum went to other ranks only, a notice that there is
a result. Such entries are the first unfinished ones to be dropped.
"""

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

Statistics = dict[int | None, dict[str, int]]


_SEND_BYTES = 65507
"""Largest UDP payload: the maximum number of bytes of one send with segmentation offload."""
_GAUGES = ("entries", "unfinished", "pieces")
_CONSTANTS = {
    "FALLBACK_LEVELS": LEVELS,
    "FALLBACK_STATUS_QUEUE": STATUS_QUEUE,
    "FALLBACK_BATCH": BATCH,
    **{f"FB_{each.name}": each.value for each in Count},
}


class FallbackCore:
    """Sums received packets, and sends results. Times are nanoseconds of a monotonic clock."""

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
        """Free the memory, which is otherwise freed with the object; do not use the core afterwards."""

    def add_job(self, job: FallbackJob) -> None:
        """Start to serve a job.

        Raises:
            ConfigError: the job's id is taken, or the memory is too small for another job.
        """
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
        """Remove a job and its entries. Raises KeyError for an unknown job."""
        del self._jobs[job]
        self.library.ina_fallback_remove_job(self.handle, job)

    def absorb(self, data: NDArray[Any], segment: int, now: int) -> None:
        """Process received packets (bytes) of `segment` bytes each; the last may be shorter."""
        self.library.ina_fallback_absorb(self.handle, data.ctypes.data, data.nbytes, segment, now)

    def emit(self, out: NDArray[Any], now: int) -> tuple[int, int]:
        """Write packets of one length to `out` (bytes); return their number, and that length.

        Call it until it returns 0 packets. `out` must have room for one packet with lanes.
        """
        size = ctypes.c_int64()
        count = self.library.ina_fallback_emit(
            self.handle, out.ctypes.data, out.nbytes, now, ctypes.byref(size)
        )
        return int(count), size.value

    def next_timeout(self) -> int:
        """Return the time of the next reminder, or `hostlib.core.state.NEVER`."""
        return int(self.library.ina_fallback_next_timeout(self.handle))

    def pump(self, io: _native.IoStruct, control: int, deadline: int) -> int:
        """Move packets between a socket and the core; return the reason for its end (``ina_pump.c``).

        Ends at `deadline` (monotonic ns), at a signal, or when `control` (-1: none) is readable.
        """
        return int(
            self.library.ina_fallback_pump(self.handle, ctypes.byref(io), _SEND_BYTES, control, deadline)
        )

    def statistics(self) -> Statistics:
        """Return the counters by job id; each has the name of a `Count` in lower case.

        The key None has the counters of packets without a job.

        A job also has ``entries``, ``unfinished`` and ``pieces``, which count the memory in use, in packets.
        """
        names = [count.name.lower() for count in Count]
        found: Statistics = {}
        for job in (None, *self._jobs):
            values = np.zeros(len(names) + len(_GAUGES), np.uint64)
            which = -1 if job is None else job
            self.library.ina_fallback_counters(self.handle, which, values.ctypes.data)
            found[job] = dict(
                zip(names if job is None else (*names, *_GAUGES), values.tolist(), strict=False)
            )
        return found
