"""Sends each fallback server the jobs that are placed on it, and restarts ended fallback servers."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from controller.core import Place
from controller.switches.layout import TreeAdmission
from ina.errors import RunError
from ina.faults import fault_point
from ina.service.holds import HeldRun
from ina.service.ledger import Ledger
from ina.service.threads import Threads

if TYPE_CHECKING:
    from ina.fallback.servers import FallbackServers

ILL_S = 20.0
"""Time, in s, after the end of a fallback server. If a job of the server fails within this time, the end of
the server counts as the cause. Workers wait for packets for a shorter time."""
LOOK_S = 1.0
"""Interval, in s, at which fallback servers are checked. It is shorter than the time for which workers wait
for packets."""

_log = logging.getLogger(__name__)


class FallbackJobs:
    """Sends fallback servers their jobs. All calls must be made in the thread of the service's loop."""

    def __init__(self, ledger: Ledger, fallbacks: FallbackServers | None, blocking: Threads) -> None:
        self._ledger = ledger
        self._fallbacks = fallbacks
        self._blocking = blocking
        self._busy = False
        self._next_s = 0.0
        self._told: set[str] = set()
        """Fallback servers to which this daemon has sent jobs. Other fallback servers may still have jobs
        that an earlier daemon has sent."""
        self._ended_s: dict[str, float] = {}
        """By fallback server that has ended, the time of its last end, in s on the service's clock."""

    def ill(self, place: Place) -> str:
        """Return a clause for users if a job's fallback server has ended in the last `ILL_S`; else ""."""
        ended_s = self._ended_s.get(place.fallback or "", -math.inf)
        gone = self._ledger.now_s - ended_s <= ILL_S
        return f"its fallback server at {place.fallback} had ended" if gone else ""

    @property
    def next_s(self) -> float:
        """Time of the next check of fallback servers; infinite during a check, and if no check is needed."""
        if self._busy or self._fallbacks is None or not self._ledger.holds:
            return math.inf
        return self._next_s

    async def serve(self, hold: HeldRun) -> None:
        """Send each fallback server of a run's jobs the list of all jobs that are placed on that server.

        The list has only jobs of held runs. Raises RunError if a server does not work.
        """
        await self._serve({place.fallback for place in hold.places.values() if place.fallback})

    async def look(self) -> None:
        """Restart the fallback servers that have ended, and send them their jobs again.

        These jobs continue: their workers resend the packets that a server had not summed.
        """
        fallbacks = self._fallbacks
        assert fallbacks is not None
        self._busy = True
        try:
            used = {
                place.fallback
                for hold in self._ledger.holds.values()
                if hold.stage == "running"
                for place in hold.places.values()
                if place.fallback
            }
            cluster = self._ledger.topology
            ended = await self._blocking.fallbacks(
                lambda: [server for server in sorted(used) if not fallbacks.lives(server, cluster)]
            )
            if ended:
                _log.warning("fallback servers at %s have ended, and are being restarted", ", ".join(ended))
                self._ended_s |= dict.fromkeys(ended, self._ledger.now_s)
            await self._serve({*ended, *(used - self._told)})
            self._ended_s |= dict.fromkeys(ended, self._ledger.now_s)
        except (RunError, OSError) as error:
            _log.warning("%s; trying again in %g s", error, LOOK_S)
        finally:
            self._busy = False
            self._next_s = self._ledger.now_s + LOOK_S

    async def _serve(self, servers: Collection[str]) -> None:
        if (fallbacks := self._fallbacks) is None:
            return
        wanted: dict[str, list[TreeAdmission]] = {server: [] for server in servers}
        for hold in self._ledger.holds.values():
            admissions = hold.of_switches()
            for name, place in hold.places.items():
                if place.fallback in wanted and name in admissions:
                    wanted[place.fallback].append(admissions[name])
        if wanted:
            cluster = self._ledger.topology
            await self._blocking.fallbacks(lambda: fallbacks.serve(wanted, cluster))
            fault_point("served")
            self._told |= wanted.keys()
