"""A worker on its host: the real window, and a simulated caller of collectives."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence

from bmv2_topos.soak.schedule import Defector
from bmv2_topos.soak.sums import SoakSum
from bmv2_topos.testbeds.virtual.network import Network, Station
from bmv2_topos.testbeds.virtual.settings import WrongSum
from hostlib.core import Patience, Peers
from hostlib.core.driver import Arrivals, Driver
from hostlib.core.state import NEVER
from hostlib.core.state import Counter as Count
from hostlib.core.watchdog import Watchdog
from hostlib.core.window import Exchange, Window
from hostlib.errors import JobBroken, RanksDisagree

BATCH = 16
"""Maximum number of packets that a core writes at a time."""

_WATCH_NS = 50_000_000
_PATIENCE = Patience(timeout_s=0.3, straggler_timeout_s=0.3)
"""Limits of the watchdog: far longer than any repair in a schedule takes."""


def _ignore() -> None:
    """Do nothing."""


class WrongError(Exception):
    """A worker gave up without a reason, or its error does not name the reason."""


class WorkerStation:
    """The worker of one rank, on its host."""

    def __init__(
        self,
        network: Network,
        host: str,
        rank: int,
        sums: Sequence[SoakSum],
        counts: Counter[str],
        defector: Defector | None = None,
    ) -> None:
        self.rank = rank
        self.error: JobBroken | None = None
        """Error with which the worker gave up; None: the worker has not given up."""
        self.silent = False
        """True once the worker has died (`Defector.dies`)."""
        self._defector = defector
        self.done = 0
        """Number of collectives that the worker has finished."""
        self._driver: Driver | None = None
        """The driver of the worker's window; None while the worker is not running."""
        self.on_call: Callable[[], None] = _ignore
        self.on_done: Callable[[], None] = _ignore
        """`on_call` is called when the worker calls a collective, `on_done` when it has finished one."""
        self._network = network
        self._send = functools.partial(network.send_all, host)
        self._sums = sums
        self._counts = counts
        self._station = Station(network, host, self.serve, ring=self._time_out)
        self._life = 0

    @property
    def finished(self) -> bool:
        """True once the worker has finished all collectives, has given up with an error, or has died."""
        return self.done == len(self._sums) or self.error is not None or self.silent

    @property
    def window(self) -> Window | None:
        """The worker's window; None while the worker is not running."""
        return None if self._driver is None else self._driver.window

    @property
    def busy(self) -> bool:
        """Whether the worker has called a collective that has not ended yet."""
        return self._driver is not None and self._driver.busy

    def start(self, window: Window, done: int) -> None:
        """Start the worker at the collective with index `done`, on a new window."""
        self._driver, self.done = Driver(window, self._send, batch=BATCH), done
        self._life += 1
        if self._defector is not None:
            self._watch(Watchdog(window, Peers(), _PATIENCE), self._life)
        self._call_later()

    def stop(self) -> None:
        """Stop the worker; keep only the number of its finished collectives."""
        self.note()
        self._driver = None
        self._life += 1

    def note(self) -> None:
        """Add the counters of the worker's window to the counters of the schedule."""
        if self.window is not None:
            for counter in Count:
                if value := self.window.count(counter):
                    self._counts[counter.name.lower()] += value

    def serve(self, now: int, arrivals: Arrivals) -> int:
        """Process arrived packets, finish collectives, send packets; return when to call `serve` again (ns).

        Raises:
            WrongSum: the worker received a result that is not the sum.
            WrongError: the worker gave up without a reason, or its error does not name the reason.
        """
        driver = self._driver
        if driver is None:
            return NEVER
        called = driver.busy
        try:
            driver.take(now, arrivals)
        except RanksDisagree as error:
            self._give_up(error)
            return NEVER
        if called and not driver.busy:
            self._finish(driver.window)
        return driver.transmit(now)

    def _time_out(self) -> None:
        if self._driver is not None:
            self._driver.time_out(self._network.now)

    def _call_later(self) -> None:
        """Call the next collective after the rank's `waits_us`, or at once if that is 0."""
        if self.finished:
            return
        wait_us = self._sums[self.done].collective.waits_us[self.rank]
        if wait_us:
            self._network.call_at(self._network.now + wait_us * 1000, self._call, self._life)
        else:
            self._call(self._life)

    def _call(self, life: int) -> None:
        driver, now = self._driver, self._network.now
        if life != self._life or driver is None:
            return
        total = self._sums[self.done]
        collective = total.collective
        tag = total.tag
        defector = self._defector
        if defector is not None and defector.rank == self.rank and self.done == len(self._sums) - 1:
            if defector.dies:
                self.stop()
                self.silent = True
                return
            tag ^= 1
        source, self._output = total.output_for(self.rank)
        exchange = Exchange(
            *(source, self._output, tag, collective.pattern),
            average=collective.average,
            priority=collective.priority,
            target=collective.target,
            series=[("named", collective.length)] if collective.named else (),
        )
        driver.window.begin(exchange, now)
        driver.start(now)
        self.on_call()
        self._station.wake(driver.transmit(now))

    def _finish(self, window: Window) -> None:
        self._sums[self.done].accept(self.rank, self._output, window.numeric_errors())
        if self._defector is not None and self.done == len(self._sums) - 1:
            raise WrongSum(f"rank {self.rank} has a result of a collective that a defector made impossible")
        self.done += 1
        self.on_done()
        self._call_later()

    def _watch(self, watchdog: Watchdog, life: int) -> None:
        """Give up if the watchdog reports an error; otherwise call this check again later.

        A real worker calls its watchdog in the same way.
        """
        if life != self._life or self.error is not None:
            return
        error = watchdog.check(self._network.now, 0)
        if error is not None and self.busy:
            self._give_up(error)
        else:
            self._network.call_at(self._network.now + _WATCH_NS, self._watch, watchdog, life)

    def _give_up(self, error: JobBroken) -> None:
        """Check the error that the caller of a real worker would get, and stop the worker.

        Raises:
            WrongError: there is no reason for `error`, or it names a wrong job, wrong PSNs or wrong ranks.
        """
        defector, window = self._defector, self.window
        assert window is not None, "only a running worker gives up"
        if defector is None or (defector.dies and isinstance(error, RanksDisagree)):
            raise WrongError(f"rank {self.rank} gave up without a reason: {error}")
        if error.job != window.settings.job or error.psns != window.outstanding():
            raise WrongError(f"rank {self.rank} waits for {window.outstanding()}, and reports: {error}")
        if defector.dies and error.missing and defector.rank not in error.missing:
            raise WrongError(f"rank {self.rank} does not report rank {defector.rank}, which is dead: {error}")
        self.stop()
        self.error = error
        self._counts[f"raised {type(error).__name__}"] += 1
