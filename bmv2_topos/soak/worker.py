"""A worker on its host: the real window, and what its caller would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from bmv2_topos.soak.network import Network
from bmv2_topos.soak.schedule import Defector
from bmv2_topos.soak.stations import BATCH, Alarm, Inbox
from bmv2_topos.soak.sums import Sum, WrongSum
from hostlib.core.state import Counter as Count
from hostlib.core.watchdog import Patience, Watchdog
from hostlib.core.window import Window
from hostlib.errors import JobBroken, RanksDisagree
from hostlib.peers import NoPeers

_WATCH_NS = 50_000_000
_PATIENCE = Patience(timeout_s=0.3, straggler_timeout_s=0.3)
"""Far longer than it takes to repair anything here."""


def _ignore() -> None:
    """Take no notice."""


class WrongError(Exception):
    """A worker gave up without reason, or does not say why as it should."""


class WorkerStation:
    """A rank on its host."""

    def __init__(
        self,
        network: Network,
        host: str,
        rank: int,
        sums: Sequence[Sum],
        coalesce_us: int,
        counts: Counter[str],
        defector: Defector | None = None,
    ) -> None:
        self.rank = rank
        self.error: JobBroken | None = None
        """Why it has given up."""
        self.silent = False
        """Whether it has died."""
        self._defector = defector
        self.done = 0
        """Collectives that it has finished."""
        self.window: Window | None = None
        """None: it is not running."""
        self.busy = False
        """Whether it has called a collective that it has not finished."""
        self.on_call: Callable[[], None] = _ignore
        self.on_done: Callable[[], None] = _ignore
        """Told of every call and every end."""
        self._network = network
        self._host = host
        self._sums = sums
        self._counts = counts
        self._inbox = Inbox(network, coalesce_us, self.serve)
        self._alarm = Alarm(network, self._time_out)
        self._life = 0
        self.deliver = self._inbox.deliver

    @property
    def finished(self) -> bool:
        """Whether it has done all that it has to, or given up as it has to."""
        return self.done == len(self._sums) or self.error is not None or self.silent

    def start(self, window: Window, done: int) -> None:
        """Begin with the collective after those `done`."""
        self.window, self.done = window, done
        self._life += 1
        self.busy = False
        self._bytes = int(window.state.struct.packet_bytes)
        self._out = np.zeros(BATCH * self._bytes, np.uint8)
        if self._defector is not None:
            self._watch(Watchdog(window, NoPeers(), _PATIENCE), self._life)
        self._call_later()

    def stop(self) -> None:
        """Forget everything but what is finished."""
        self.note()
        self.window = None
        self._life += 1

    def note(self) -> None:
        """Add the core's counters to those of the schedule."""
        if self.window is not None:
            for counter in Count:
                if value := self.window.count(counter):
                    self._counts[counter.name.lower()] += value

    def serve(self) -> None:
        """Take in what has arrived, finish what is finished, send what may be sent.

        Raises:
            WrongSum: it was handed something that is not the sum.
            WrongError: it gave up, and should not have, or not so.
        """
        window, now = self.window, self._network.now
        runs = self._inbox.empty()
        if window is None:
            return
        for data, length in runs:
            window.absorb(np.frombuffer(data, np.uint8), length, now)
        if self.busy:
            if window.complete:
                self._finish(window)
            elif window.ranks_disagree:
                psns = window.outstanding()
                self._give_up(RanksDisagree("ranks disagree", job=window.settings.job, psns=psns))
                return
        self._transmit(window, now)
        if self.busy:
            self._alarm.set(window.next_timeout())

    def _time_out(self) -> None:
        if self.window is not None and self.busy:
            self.window.on_timeout(self._network.now)
        self.serve()

    def _call_later(self) -> None:
        """Call the next collective after its wait; without one, at once."""
        if self.finished:
            return
        wait_us = self._sums[self.done].collective.waits_us[self.rank]
        if wait_us:
            self._network.at(self._network.now + wait_us * 1000, self._call, self._life)
        else:
            self._call(self._life)

    def _call(self, life: int) -> None:
        window, now = self.window, self._network.now
        if life != self._life or window is None:
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
        window.begin(
            source,
            self._output,
            tag=tag,
            average=collective.average,
            priority=collective.priority,
            target=collective.target,
            now=now,
        )
        self.busy = True
        self.on_call()
        self._transmit(window, now)
        self._alarm.set(window.next_timeout())

    def _finish(self, window: Window) -> None:
        self.busy = False
        self._sums[self.done].take(self.rank, self._output, window.mishaps())
        if self._defector is not None and self.done == len(self._sums) - 1:
            raise WrongSum(f"rank {self.rank} has a result, which cannot be")
        self.done += 1
        self.on_done()
        self._call_later()

    def _watch(self, watchdog: Watchdog, life: int) -> None:
        """Ask now and then whether waiting is pointless, as every real worker does."""
        if life != self._life or self.error is not None:
            return
        error = watchdog.check(self._network.now, 0)
        if error is not None and self.busy:
            self._give_up(error)
        else:
            self._network.at(self._network.now + _WATCH_NS, self._watch, watchdog, life)

    def _give_up(self, error: JobBroken) -> None:
        """Raise an error in the caller, for whom nothing more happens then.

        Raises:
            WrongError: there is no reason for it, or it does not name what it has to.
        """
        defector, window = self._defector, self.window
        assert window is not None, "only a running worker gives up"
        if defector is None or (defector.dies and isinstance(error, RanksDisagree)):
            raise WrongError(f"rank {self.rank} gave up: {error}")
        if error.job != window.settings.job or error.psns != window.outstanding():
            raise WrongError(f"rank {self.rank}, waiting for {window.outstanding()}: {error}")
        if defector.dies and error.missing and defector.rank not in error.missing:
            raise WrongError(f"rank {self.rank} does not miss rank {defector.rank}, which is dead: {error}")
        self.stop()
        self.error = error
        self._counts[f"raised {type(error).__name__}"] += 1

    def _transmit(self, window: Window, now: int) -> None:
        size = self._bytes
        while count := window.emit(self._out, now):
            data = self._out[: count * size].tobytes()
            for at in range(0, len(data), size):
                self._network.send(self._host, data[at : at + size])
            if count < BATCH:
                break
