"""One worker's window over the life of a job, without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostlib.core.congestion import Congestion, FixedWindow
from hostlib.core.kernel import Kernel
from hostlib.core.state import Chain, CoreSettings, CoreState, Counter
from hostlib.errors import PsnRange

_MAX_DOUBLINGS = 20
_FIRST_PROBES = 8


@dataclass(frozen=True, slots=True)
class Mishaps:
    """What happened to a finished collective; each is the first element of the first packet concerned."""

    nonfinite: int | None
    """Some rank's values there are NaN or infinite; the packet's results are NaN."""
    overflow: int | None
    """An int32 sum there left the int32 range; the packet's results are wrong."""


class Window:
    """Sends the packets of one collective after another and takes in their results.

    A driver calls `begin`, then sends what `emit` writes, feeds what arrives to `absorb`, and calls
    `on_timeout` when `next_timeout` has come, until `complete`. Times are integer nanoseconds.
    """

    def __init__(self, settings: CoreSettings, kernel: Kernel, congestion: Congestion | None = None) -> None:
        self.settings = settings
        self.kernel = kernel
        self.state = CoreState(settings)
        self.congestion = congestion or FixedWindow()
        self._next_psn = settings.first_psn

    def begin(
        self, source: NDArray[Any], target: NDArray[Any], *, tag: int, average: bool = False, now: int
    ) -> None:
        """Start to sum `source` over all ranks into `target`; the previous collective must be complete.

        Both are flat, contiguous, of the same length and both float32 or both int32; they may be the same
        array. An empty array takes one packet, so that all ranks still meet.
        """
        core = self.state.struct
        data_packets = max(1, -(-len(source) // core.lanes))
        is_float = source.dtype == np.float32 and len(source) > 0
        core.lookahead = min(data_packets, core.window) if is_float else 0
        core.data_packets = data_packets
        core.total = data_packets + core.lookahead
        core.length = len(source)
        core.is_float = is_float
        core.average = average
        core.tag = tag
        core.base = self._next_psn
        self._next_psn = (self._next_psn + core.total) % core.psn_limit
        core.limit = self.congestion.limit(core.window)
        self.state.set_arrays(source, target)
        self.kernel.begin(self.state, now)

    def emit(self, out: NDArray[Any], now: int) -> int:
        """Write packets that may be sent now to `out` (bytes), as many as fit; return how many."""
        return self.kernel.emit(self.state, out, now)

    def absorb(self, data: NDArray[Any], segment: int, now: int) -> None:
        """Take in what arrived: packets of `segment` bytes, the last maybe shorter, with anything in them."""
        self.kernel.absorb(self.state, data, segment, now)

    def next_timeout(self) -> int:
        """Return when `on_timeout` is due; `NEVER` if nothing is in flight."""
        return self.kernel.next_timeout(self.state)

    def on_timeout(self, now: int) -> None:
        """Queue what is overdue to be sent again; without effect if nothing is.

        A late result means a lost packet or a slow rank, and for a slow rank it would be a waste to send the
        window again. So only a few are resent at first, and they ask for a status: what the switch has
        counted already is not sent again but for one packet, which keeps asking. Each time-out may resend
        more than the one before.
        """
        if now < self.next_timeout():
            return
        state, core = self.state, self.state.struct
        rto = min(core.rto << min(core.backoff, _MAX_DOUBLINGS), core.rto_max)
        waits = state.status & (Chain.FLIGHT | Chain.QUEUED) == int(Chain.FLIGHT)
        chains = np.flatnonzero(waits & (state.sent_at <= now - rto))
        chains = chains[np.argsort(state.index[chains])]
        counted = state.status[chains] & Chain.COUNTED != 0
        probes = _FIRST_PROBES << 2 * min(core.backoff, _MAX_DOUBLINGS)
        chains = np.concatenate([chains[counted][:1], chains[~counted][:probes]])
        state.status[chains] |= np.uint8(Chain.QUEUED | Chain.QUERY)
        tail = core.resend_head + core.resend_count
        state.resend_ring[(tail + np.arange(len(chains))) % core.window] = chains
        core.resend_count += len(chains)
        core.backoff += 1
        core.timeout_at = now
        self.congestion.on_timeout()
        core.limit = self.congestion.limit(core.window)

    @property
    def complete(self) -> bool:
        """Whether every result of the collective is in."""
        return bool(self.state.struct.completed == self.state.struct.total)

    @property
    def ranks_disagree(self) -> bool:
        """Whether the switch saw contributions with different tags: the collective can never complete."""
        return bool(self.state.struct.disagree_index >= 0)

    def mishaps(self) -> Mishaps:
        """Return what went wrong with the numbers of the complete collective."""
        core = self.state.struct
        nonfinite, overflow = int(core.nonfinite_index), int(core.overflow_index)
        return Mishaps(
            nonfinite=nonfinite * core.lanes if nonfinite >= 0 else None,
            overflow=(overflow - core.lookahead) * core.lanes if overflow >= 0 else None,
        )

    def psns(self) -> PsnRange:
        """Return the PSNs of the collective."""
        return PsnRange(self.state.psn(0), self.state.psn(self.state.struct.total - 1))

    def outstanding(self) -> PsnRange:
        """Return the PSNs from the first without a result to the collective's last."""
        first = min(int(self.state.index.min()), self.state.struct.total - 1)
        return PsnRange(self.state.psn(first), self.state.psn(self.state.struct.total - 1))

    def stalled_ns(self, now: int) -> int:
        """Return how long ago the last new result came (or the collective began)."""
        return now - int(self.state.struct.progress_at)

    def missing_ranks(self, *, since: int) -> tuple[int, ...] | None:
        """Return the ranks that the last status showed to be missing; None if none came after `since`."""
        core = self.state.struct
        if core.status_at < max(since, core.progress_at):
            return None
        absent = core.full_bitmap & ~core.status_bitmap
        return tuple(rank for rank in range(self.settings.size) if absent >> rank & 1)

    def count(self, counter: Counter) -> int:
        """Return a counter's value since the job began."""
        return int(self.state.struct.counters[counter])

    @property
    def srtt_ns(self) -> int:
        """Smoothed round trip time, the wait for the other ranks included; 0 before the first."""
        return int(self.state.struct.srtt)
