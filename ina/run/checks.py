"""Checks periodically whether switches, links and fallback servers work, and have the desired state."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Collection, Mapping

from controller.core import LinkBack, LinkGone, Place
from controller.switches.layout import TreeAdmission
from controller.vocabulary import ControllerError, Topology
from ina.errors import RunError
from ina.faults import fault_point
from ina.run.fallback.process import FallbackServers
from ina.run.ledger import Ledger
from ina.run.network import Network
from ina.run.steps import HeldRun
from ina.run.threads import Threads

WHOLE_S = 4.0
"""Interval, in s, at which all table entries of switches that report no changes are compared. Workers wait
for packets twice as long."""
SOON_S = 0.25
"""Interval, in s, of checks while a job waits for a switch, a switch does not answer, or a link is down."""
GONE_S = 3.0
"""A switch that has not answered for this time, in s, or a link that has been down for this time, counts as
lost. The jobs that use it get other trees. Workers wait longer for packets than this time."""
ILL_S = 20.0
"""Time, in s, after an outage of a switch or link, or the end of a fallback server. If a job that uses it
fails within this time, the outage counts as the cause. Workers wait for packets for a shorter time."""
HUNG_S = 4.0
"""If a check of the switches takes at least this time, in s, some switch has hung. Workers wait longer for
packets than this time. A check on a busy machine takes much less."""

_log = logging.getLogger(__name__)


class Switches:
    """Keeps the switches in their desired state, and tells the core which switches and links are lost."""

    def __init__(self, ledger: Ledger, network: Network, blocking: Threads) -> None:
        self._ledger = ledger
        self._network = network
        self._blocking = blocking
        self._silent: dict[str, tuple[float, str]] = {}
        """By switch that does not answer, the time at which this was first seen, and the reason."""
        self._cut: dict[tuple[str, str], tuple[float, str]] = {}
        """By link that is down, the time at which this was first seen, and the reason."""
        self._ill: dict[str | frozenset[str], tuple[float, str]] = {}
        """By name of a switch, or by the two ends of a link: the last time at which the switch or link did
        not work, and the reason."""
        self._busy = False
        self._next_s = 0.0
        self._whole_s = 0.0
        self.seen_s = -math.inf
        """Time at which the last completed check began."""

    @property
    def next_s(self) -> float:
        """Time of the next check; infinite during a check."""
        return math.inf if self._busy else self._next_s

    def check_soon(self) -> None:
        """Make the next check due now, and compare all table entries in it."""
        self._next_s = self._whole_s = 0.0

    def ill(self, cluster: Topology, place: Place) -> str:
        """Return the reason of an outage of a job's switches or links in the last `ILL_S`; "": none.

        `place` is the job's place in `cluster`.
        """
        tree = place.tree
        if tree is None:
            return ""
        way: list[str | frozenset[str]] = [*tree.switches, *map(frozenset, tree.parents.items())]
        ends = [*place.servers, *([] if place.fallback is None else [place.fallback])]
        way += [
            frozenset((server, cluster.rack_of[server])) for server in ends if server in cluster.server
        ]  # other servers have left the cluster
        for each in way:
            at_s, why = self._ill.get(each, (-math.inf, ""))
            if self._ledger.now_s - at_s <= ILL_S:
                return why
        return ""

    async def check(self) -> None:
        """Change the switches to their desired state; record which switches and links do not work."""
        self._busy = True
        self._next_s = math.inf  # `check_soon` during this check requests another one
        began_s, wiring, soon = self._ledger.now_s, self._ledger.wiring, False
        whole = began_s >= self._whole_s
        if whole:
            self._whole_s = began_s + WHOLE_S
        try:
            silent = frozenset(self._silent)
            report, links = await self._blocking.switches(
                lambda: self._network.compare(self._wanted(), wiring, whole=whole, silent=silent)
            )
            soon = bool(report.waiting or report.left_out) or any(links.values())
        except ControllerError as error:
            _log.warning("comparing the switches: %s", error)
            self._whole_s = 0.0
            return
        finally:
            self._busy = False
            self._next_s = min(self._next_s, self._ledger.now_s + (SOON_S if soon else self._network.check_s))
        for action in report.actions:
            _log.info("%s", action)
        self.seen_s = began_s
        self._see_hung(began_s)
        self._see_switches(report.left_out)
        self._see_links(links)

    def forget(self) -> None:
        """Discard the outages of switches and links that have left the cluster.

        New switches may get the names of switches that have left.
        """
        cluster = self._ledger.topology
        links = {(link.a, link.b) for link in cluster.links}
        self._silent = {name: each for name, each in self._silent.items() if name in cluster.switch}
        self._cut = {ends: each for ends, each in self._cut.items() if ends in links}
        self.check_soon()

    def _see_hung(self, began_s: float) -> None:
        """Record an outage of all switches if a check took longer than `HUNG_S`.

        The duration of a check does not show which switch has hung.
        """
        now_s = self._ledger.now_s
        if now_s - began_s >= HUNG_S:
            why = f"switches took {now_s - began_s:.0f} s to answer"
            self._ill |= dict.fromkeys(self._ledger.topology.switch, (now_s, why))

    def _see_switches(self, left_out: Mapping[str, str]) -> None:
        ledger, now_s = self._ledger, self._ledger.now_s
        self._silent = {
            name: (self._silent.get(name, (now_s, why))[0], why) for name, why in left_out.items()
        }
        self._ill |= {name: (now_s, f"switch {name}: {why}") for name, why in left_out.items()}
        for name in ledger.topology.switch:
            since_s, why = self._silent.get(name, (now_s, ""))
            if name not in ledger.down and why and now_s - since_s >= GONE_S:
                ledger.node_gone(name, why)
            elif name in ledger.down and not why:
                ledger.node_back(name)

    def _see_links(self, links: Mapping[tuple[str, str], str]) -> None:
        ledger, now_s = self._ledger, self._ledger.now_s
        known = {(link.a, link.b) for link in ledger.topology.links}
        for ends, why in links.items():
            if ends not in known:  # it left the cluster during the check
                continue
            if not why:
                self._cut.pop(ends, None)
                if ends in ledger.cut:
                    ledger.record([LinkBack(now_s, *ends)])
                continue
            since_s, _ = self._cut.setdefault(ends, (now_s, why))
            self._ill[frozenset(ends)] = now_s, f"link {'-'.join(ends)}: {why}"
            if ends not in ledger.cut and now_s - since_s >= GONE_S:
                ledger.record([LinkGone(now_s, *ends, why)])

    def _wanted(self) -> list[TreeAdmission]:
        """Return the jobs that the switches should have.

        This runs in the thread for calls to switches, as admissions do: no job is admitted in the meantime.
        """
        holds = list(self._ledger.holds.values())  # the loop may change it
        return [each for hold in holds for each in hold.of_switches().values()]


FALLBACK_S = 0.25
"""Interval, in s, at which fallback servers are checked. It is much shorter than the time for which workers
wait for packets."""


class FallbackJobs:
    """Makes fallback servers serve the jobs that are placed on them, and sees which servers have ended.

    All calls must be made in the thread of the service's loop.

    Args:
        ledger: The held runs.
        fallbacks: The fallback servers.
        blocking: Threads for blocking calls.
        on_loss: Called with the reason when the loss of a server is final: a command then ends its jobs. Its
            network makes the server serve them, and also groups of their ranks, which are no runs. None: a
            controller does that here, waits for a lost server, and runs again the jobs that fail meanwhile.
    """

    def __init__(
        self,
        ledger: Ledger,
        fallbacks: FallbackServers,
        blocking: Threads,
        on_loss: Callable[[str], object] | None,
    ) -> None:
        self._ledger = ledger
        self._fallbacks = fallbacks
        self._blocking = blocking
        self._on_loss = on_loss
        self.next_s = 0.0
        """Time of the next check of fallback servers, if any run is held; infinite during a check."""
        self._used: set[str] | None = None if on_loss is None else set()
        """Fallback servers of the runs that an earlier daemon has started, as no command has; None before the
        first check."""
        self._served: set[str] = set()
        """Fallback servers to which this daemon has sent jobs. Those in `_used` may still have jobs that an
        earlier daemon has sent."""
        self._lost: Mapping[str, str] = {}
        """The result of the last `FallbackServers.check`."""
        self._ended_s: dict[str, float] = {}
        """By fallback server that has ended, the time of its last end, in s on the service's clock."""

    def ill(self, place: Place) -> str:
        """Return a clause for users if a job's fallback server has ended in the last `ILL_S`; else ""."""
        gone = self._ledger.now_s - self._ended_s.get(place.fallback or "", -math.inf) <= ILL_S
        return f"its fallback server at {place.fallback} had ended" if gone else ""

    async def serve(self, hold: HeldRun) -> None:
        """Send each fallback server of a run's jobs the list of all jobs that are placed on that server.

        The list has only jobs of held runs. Raises RunError if a server does not work.
        """
        await self._serve({place.fallback for place in hold.run.places.values() if place.fallback})

    async def check(self) -> None:
        """See which fallback servers have ended. Send their jobs to those that an earlier daemon has used."""
        self.next_s = math.inf
        if self._used is None:  # the first check after a start
            running = (hold for hold in self._ledger.holds.values() if hold.stage == "running")
            places = (place for hold in running for place in hold.run.places.values())
            self._used = {place.fallback for place in places if place.fallback}
        ended: dict[str, str] = {}
        try:
            for server in sorted(self._used - self._served):
                try:
                    await self._serve({server}, resumed=True)
                except (RunError, OSError) as error:
                    ended[server] = str(error)
            with contextlib.suppress(OSError):  # a process cannot be started again; the next check retries it
                ended = await self._blocking.fallbacks(self._fallbacks.check) | ended
        finally:
            self.next_s = self._ledger.now_s + FALLBACK_S
        for server, why in ended.items():
            if self._on_loss is None:
                if not self._lost.get(server):
                    then = why or "its jobs continue"
                    _log.warning(
                        "the fallback server at %s has ended, and is being restarted; %s", server, then
                    )
                self._ended_s[server] = self._ledger.now_s
            elif why:
                self._on_loss(why)
        self._lost = ended

    async def _serve(self, servers: Collection[str], *, resumed: bool = False) -> None:
        if not servers or self._on_loss is not None:
            return
        wanted: dict[str, list[TreeAdmission]] = {server: [] for server in servers}
        for hold in self._ledger.holds.values():
            admissions = hold.of_switches()
            for name, place in hold.run.places.items():
                if place.fallback in wanted and name in admissions:
                    wanted[place.fallback].append(admissions[name])
        fallbacks, cluster = self._fallbacks, self._ledger.topology
        await self._blocking.fallbacks(lambda: fallbacks.serve(wanted, cluster, resumed=resumed))
        fault_point("served")
        self._served |= wanted.keys()
