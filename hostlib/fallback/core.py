"""The fallback server's core without I/O: bytes and a clock in, bytes and timers out.

Theory of operation
-------------------
The key of an *entry* is a job and a PSN. An unfinished entry holds sums: for some nodes of the job's tree a
bitmap and the sum over the contributions in it. Only disjoint bitmaps are ever added, so each sum is exact
whatever was lost, doubled, evicted or forgotten. A sum with more contributions takes the place of one that it
contains; any other overlap is dropped. A sum that is full becomes one contribution to the node above, and
takes the place of whatever was held below that bit. When the root's is full, or when somebody who has the
result sends it up, the entry is *finished*: the result goes down to everybody, and again, at most about once
per round trip, to those who still contribute.

An entry that overflowed is *repaired*: raw contributions are kept one by one until all ranks' are in, then
added in the order of ranks in double precision (int32: in 64 bits), so that the result does not depend on the
order of arrival. A worker that contributes to an entry under repair without raw values is notified of the
overflow.

An unfinished entry to which nothing has been added for a while asks for what it lacks: one reminder per node
with something missing. The wait is twice what the last contributions of this job took to follow the first
ones, between `remind_s` and four times that; it doubles with every reminder up to `remind_max_s`. What a
reminder brought in does not count as late, or the wait would feed itself. To ask too early costs a packet or
twice as many: the sum has to meet here anyway, for a part of it came here. To ask late stops the workers.

Memory is bounded. Finished entries go first, oldest first; then the unfinished one that is furthest ahead,
for the packet that the workers wait for longest is what lets them go on. The job that uses more than its
share pays. Forgetting is safe at any time: a worker that lacks a result sends again. With the job's window W
known, a packet i is also dropped when a contribution to i+2W has been seen, or when the result of i+W is
there: to send i+2W somebody had the result of i+W, to which all contributed, and they did so with that of i
in hand. A late copy may begin an entry of what everybody has finished. The answer to its reminder tells so:
it is the result of i+W, or, where the sum went to others, only that there is one. Such entries are the first
of the unfinished ones to make room.
"""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from hostlib.fallback.config import Count, FallbackJob, FallbackSettings

__all__ = ["Count", "FallbackCore", "Statistics"]

Statistics = dict[int | None, dict[str, int]]


class FallbackCore(Protocol):
    """Sums what reaches it, and answers. Times are nanoseconds of a clock that never goes back."""

    settings: FallbackSettings

    def add_job(self, job: FallbackJob) -> None:
        """Serve a job from now on.

        Raises:
            ConfigError: its id is taken, or the memory is too small for another job.
        """
        ...

    def remove_job(self, job: int) -> None:
        """Forget a job and all of its entries. Raises KeyError for an unknown one."""
        ...

    def absorb(self, data: NDArray[Any], segment: int, now: int) -> None:
        """Take in received packets (bytes): `segment` bytes each, the last may be shorter."""
        ...

    def emit(self, out: NDArray[Any], now: int) -> tuple[int, int]:
        """Write packets of one length to `out` (bytes); return how many, and that length.

        To be called until it writes none. `out` must have room for one packet with lanes.
        """
        ...

    def next_timeout(self) -> int:
        """Return when `emit` will have a reminder to send, or `hostlib.core.state.NEVER`."""
        ...

    def statistics(self) -> Statistics:
        """Return the counters of every job (`Count`, in lower case); under None, what belongs to no job.

        A job has also ``entries``, ``unfinished`` and ``pieces``: packets' worth of memory in use.
        """
        ...
