"""One worker of a job: a host that computes, and the real window that sums its tensors."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bmv2_topos.testbeds.virtual.errors import WrongSum
from bmv2_topos.testbeds.virtual.gradients import Gradients
from bmv2_topos.testbeds.virtual.interfaces import Socket
from bmv2_topos.testbeds.virtual.settings import Prioritize
from bmv2_topos.testbeds.virtual.training import Training
from hostlib.core.driver import Arrivals, Driver
from hostlib.core.priority import Urgency
from hostlib.core.state import Counter
from hostlib.core.window import Window

BATCH_PACKETS = 256


@dataclass(frozen=True, slots=True)
class Tally:
    """Packets of a worker since its window was made."""

    sent: int = 0
    resent: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.sent + other.sent, self.resent + other.resent)


@dataclass(frozen=True, slots=True)
class Summed:
    """A tensor's sum at a rank: when the tensor was ready, its sum begun and there."""

    iteration: int
    layer: int
    rank: int
    ready_ns: int
    begin_ns: int
    end_ns: int


class Worker:
    """A rank on its host. Times are nanoseconds."""

    def __init__(
        self,
        socket: Socket,
        rank: int,
        window: Window,
        training: Training,
        gradients: Gradients,
        *,
        priority: int | None,
        prioritize: Prioritize,
        now: int,
        note: Callable[[Summed], None] | None = None,
    ) -> None:
        """Begin; `note` is called with every finished sum."""
        self._note = note
        self._begun = now
        self.host = socket.host
        self.port = socket.port
        self.rank = rank
        self.window = window
        self.training = training
        self.compared = 0
        """Elements that were compared with the exact sum."""
        self.due = now
        """Time at which it has to be served even if nothing arrives."""
        self._socket = socket
        self._gradients = gradients
        self._priority = priority
        self._prioritize = prioritize
        self._urgency = Urgency(now)
        self._layer: int | None = None
        self._driver = Driver(window, socket.send, batch=BATCH_PACKETS)
        self._sums = np.zeros(max(gradients.lengths), np.float32)
        self._urgency.progress(training.done, training.iterations, now)
        training.start(now)

    def poll(self, now: int) -> None:
        """Take in what has arrived, compute, send what may be sent.

        Raises:
            WrongSum: a result is not the sum.
            RanksDisagree: the ranks' packets do, which cannot be.
        """
        arrival = self._socket.receive()
        if arrival is not None or now >= self.due:
            self._go_on(now, () if arrival is None else arrival.segments())

    def _go_on(self, now: int, arrivals: Arrivals) -> None:
        self.decide(now, arrivals)
        self._driver.time_out(now)
        self.due = min(self._driver.transmit(now), self.training.due)

    def decide(self, now: int, arrivals: Arrivals = ()) -> None:
        """Do what `poll` does but for sending, with what has arrived or is in already. Raises alike."""
        driver, training = self._driver, self.training
        self.window.on_round()
        driver.take(now, arrivals)
        if self._layer is not None and not driver.busy:
            self._finish(self._layer, now)
        training.advance(now)
        if self._layer is None and training.ready:
            self._begin(training.ready.popleft(), now)

    @property
    def core_address(self) -> int:
        """The window's ``struct ina_core``."""
        return ctypes.addressof(self.window.state.struct)

    @property
    def packet_bytes(self) -> int:
        """Bytes of its packets, at most."""
        return int(self.window.state.struct.packet_bytes)

    @property
    def waits(self) -> bool:
        """True while a sum is under way."""
        return self._layer is not None

    def tally(self) -> Tally:
        """Count what the window has sent."""
        return Tally(self.window.count(Counter.SENT), self.window.count(Counter.RESENT))

    def _begin(self, layer: int, now: int) -> None:
        self._layer = layer
        self._begun = now
        training = self.training
        source = self._gradients.contribution(self.rank, training.done, layer)
        priority = self._priority
        if priority is None:
            priority = self._prioritize(self._urgency, (layer, training.layers), now)
        self.window.begin(
            source, self._sums[: len(source)], tag=layer << 24 ^ len(source), priority=priority, now=now
        )
        self._driver.start(now)

    def _finish(self, layer: int, now: int) -> None:
        training = self.training
        expected = self._gradients.total(training.done, layer)
        got = self._sums[: len(expected)]
        if not np.array_equal(got, expected):
            at = int(np.flatnonzero(got != expected)[0])
            wrong = int((got != expected).sum())
            raise WrongSum(
                f"rank {self.rank} on {self.host}, iteration {training.done}, tensor {layer}: {wrong} of"
                f" {len(expected)} elements are not the sum: element {at} is {got[at]:g},"
                f" not {expected[at]:g}"
            )
        self.compared += len(expected)
        self._layer = None
        if self._note is not None:
            self._note(Summed(training.done, layer, self.rank, training.ready_ns[layer], self._begun, now))
        before = training.done
        self._urgency.collective(self.window.first_result_at, now)
        training.summed(layer, now)
        if training.done > before:
            self._urgency.progress(training.done, training.iterations, now)
