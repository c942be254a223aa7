"""Decide when to give up a collective that makes no progress, and for which reason."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from hostlib.core import Patience, Peers
from hostlib.core.window import Window
from hostlib.errors import JobBroken, JobFault, PeerLost, PeerTimeout

_log = logging.getLogger("hostlib")

SUSPICIOUS_NS: Final = 200_000_000
"""Length of a stall, in nanoseconds, after which the watchdog checks for dead ranks."""


class Watchdog:
    """Decides whether a stalled worker goes on waiting."""

    def __init__(
        self,
        window: Window,
        peers: Peers,
        patience: Patience,
        *,
        switch: str = "",
        ranks: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Make a watchdog for `window`.

        `switch` is the switch's address, for messages. `ranks` lists the ranks of each worker of the switch;
        None: each worker is one rank.
        """
        self._ranks = ranks
        self._window = window
        self._switch = f"the switch at {switch}" if switch else "the switch"
        self._peers = peers
        self._patience = patience
        self._told_of: int | None = None

    def check(self, now: int, collectives: int) -> JobBroken | None:
        """Return the error to raise, or None to go on waiting; call it a few times per second.

        `collectives` is the number of collectives that this worker has completed.
        """
        window = self._window
        stalled_ns = window.stalled_ns(now)
        if stalled_ns < SUSPICIOUS_NS:
            return None
        job, psns = window.settings.job, window.outstanding()
        timeout_ns = round(self._patience.timeout_s * 1e9)
        missing = self._missing(now - timeout_ns)

        if fault := self._peers.news.fault:
            return JobFault(fault, job=job, psns=psns, missing=missing or ())
        gone = {
            rank: why for rank, why in self._peers.news.gone.items() if missing is None or rank in missing
        }
        if not gone:  # a dead rank is the reason why others leave
            gone = {
                rank: f"it left the job after {number} collective{'s' if number != 1 else ''}"
                for rank, number in self._peers.news.left.items()
                if number <= collectives
            }
        if gone:
            return PeerLost(gone, job=job, psns=psns)
        if stalled_ns < timeout_ns:
            return None
        if missing is None:
            reason = (
                f"no answer from {self._switch} for {stalled_ns / 1e9:.1f} s: it is down or out of reach, or "
                f"it refuses packets of rank {window.settings.rank} (wrong job, admission, rank, size or "
                "number of lanes)"
            )
            return PeerTimeout(reason, job=job, psns=psns, missing=self._behind(range(window.settings.size)))
        names = f"from rank {', '.join(map(str, missing))}" if missing else "from another part of the tree"
        reason = f"no contribution {names} for {stalled_ns / 1e9:.1f} s"
        if not self._peers.alive(missing) or stalled_ns >= self._patience.straggler_timeout_s * 1e9:
            return PeerTimeout(reason, job=job, psns=psns, missing=missing)
        if self._told_of != psns.first:
            self._told_of = psns.first
            _log.warning("job %d, %s: %s; still waiting: no process of a rank has ended", job, psns, reason)
        return None

    def _missing(self, since: int) -> Sequence[int] | None:
        workers = self._window.missing_ranks(since=since)
        return None if workers is None else self._behind(workers)

    def _behind(self, workers: Sequence[int]) -> Sequence[int]:
        """Return the ranks of these workers of the switch."""
        if self._ranks is None:
            return workers
        return [rank for worker in workers for rank in self._ranks[worker]]
