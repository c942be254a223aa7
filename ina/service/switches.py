"""Switches are compared with what they should hold, and looked at: which answer."""

from __future__ import annotations

import logging
import math

from controller.core import SwitchBack, SwitchGone
from controller.errors import ControllerError
from controller.switches.fleet import Report
from ina.service.ledger import Ledger
from ina.service.network import Network
from ina.service.records import Audit
from ina.service.threads import Blocking

CHECK_S = 2.0
"""Interval at which switches are compared with what they should hold."""
SOON_S = 0.25
"""The same while something waits, or does not answer."""
GONE_S = 3.0
"""Time for which a switch may not answer until its jobs get other trees: less than workers wait for it."""

_log = logging.getLogger(__name__)


class Switches:
    """Keeps the switches as they should be, and tells the core which are gone."""

    def __init__(self, ledger: Ledger, network: Network, blocking: Blocking) -> None:
        self._ledger = ledger
        self._network = network
        self._blocking = blocking
        self._silent: dict[str, tuple[float, str]] = {}
        """Switches that do not answer: since when, and why."""
        self._busy = False
        self._next_s = 0.0

    @property
    def next_s(self) -> float:
        """When they are to be compared next; infinite while they are."""
        return math.inf if self._busy else self._next_s

    def check_soon(self) -> None:
        """Have them be compared next."""
        self._next_s = 0.0

    async def check(self) -> None:
        """Compare the switches with what they should hold, and note which answer."""
        ledger = self._ledger
        self._busy = True
        self._next_s = math.inf  # `check_soon` meanwhile asks for another comparison
        soon = False
        try:
            report = await self._blocking.switches(self._reconcile)
            soon = bool(report.waiting or report.left_out)
        except ControllerError as error:
            _log.warning("comparing the switches: %s", error)
            return
        finally:
            self._busy = False
            self._next_s = min(self._next_s, ledger.now_s + (SOON_S if soon else CHECK_S))
        for action in report.actions:
            _log.info("%s", action)
        now_s = ledger.now_s
        self._silent = {
            name: (self._silent.get(name, (now_s, why))[0], why) for name, why in report.left_out.items()
        }
        for name in self._network.addresses:
            since_s, why = self._silent.get(name, (now_s, ""))
            if name not in ledger.down and why and now_s - since_s >= GONE_S:
                ledger.record([SwitchGone(now_s, name, why)])
            elif name in ledger.down and not why:
                ledger.record([SwitchBack(now_s, name)])
                if name in ledger.drained:
                    ledger.record([SwitchGone(now_s, name, ledger.drained[name])], drained=True)

    async def audit(self) -> Audit:
        """Compare what switches should hold with what they do; write nothing."""
        return await self._blocking.switches(self._audit)

    # These two run where all calls to switches do, admissions, too: so nothing is admitted meanwhile.

    def _reconcile(self) -> Report:
        holds = list(self._ledger.holds.values())  # the loop may change it
        return self._network.reconcile([each for hold in holds for each in hold.of_switches().values()])

    def _audit(self) -> Audit:
        holds = list(self._ledger.holds.values())
        wanted = {name: each for hold in holds for name, each in hold.of_switches().items()}
        known = {each.job for hold in holds for each in hold.admissions.values()}
        leaving = known - {each.job for each in wanted.values()}
        return self._network.audit(wanted, leaving, self._ledger.now_s)
