"""How many packets may be in flight, and how many of them may claim memory in the switch.

A congestion control is asked between batches, never per packet. It answers with `Limits`: once at `start`,
then after every *round* (as many new results as packets were allowed in flight: one window's worth), and
when results stay out. The core counts what a round brought; everything here is arithmetic on those counts.

==========  ====================================================================================
``fixed``   SwitchML: the whole window, always; a result in is a packet out
``aimd``    ATP: slow start, then one MTU per round; half on ECN and on time-outs
``a2tp``    A2TP: ECN moves what may be in flight, collisions move what may claim a slot, each in
            proportion to how congested that resource has been lately
==========  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Literal, Protocol, get_args

CongestionName = Literal["fixed", "aimd", "a2tp"]


@dataclass(frozen=True, slots=True)
class Round:
    """What the results of one round brought."""

    results: int
    """New results; at least the packets that were allowed in flight."""
    marked: int
    """Of them, with ECN: somewhere on the way a queue was long."""
    collided: int
    """Of them, with COLLISION: their slot is wanted by others, or they found theirs taken."""
    prompt: int
    """Of those without COLLISION, back within twice the shortest round trip: no rank kept them waiting."""
    claims: int
    """How many packets of a window might claim a slot in the end: the limit, or that of a rank with less."""
    srtt_ns: int
    """Smoothed round trip time."""
    duration_ns: int
    """From the end of the round before to the end of this one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a worker may do until the next round ends. 1 <= both <= window."""

    in_flight: int
    """Packets without a result."""
    claims: int
    """Packets of a window that may claim a slot: those whose PSN modulo the window is below this. The rest
    travel with BYPASS. All ranks draw the line at the same PSNs as long as their limits agree: a packet
    that one rank sends to a slot and another past it would meet only in the fallback server, late. So the
    lowest line counts: results tell of it (`Round.claims`)."""


class Congestion(Protocol):
    """Decides the limits of one worker."""

    @property
    def wants_rounds(self) -> bool:
        """Whether rounds have to be counted at all; constant."""
        ...

    def start(self, window: int) -> Limits:
        """Return the limits to begin with; `window` is the most. Called once in the life of a job."""
        ...

    def on_round(self, outcome: Round) -> Limits:
        """Return the limits after a round."""
        ...

    def on_timeout(self) -> Limits:
        """Return the limits after packets of ours were lost, and lost again."""
        ...


class FixedWindow:
    """The whole window at any time, all of it with claims: a result in is a packet out (SwitchML)."""

    wants_rounds: ClassVar[bool] = False

    def __init__(self) -> None:
        self._limits = Limits(1, 1)

    def start(self, window: int) -> Limits:
        """Return the window twice."""
        self._limits = Limits(window, window)
        return self._limits

    def on_round(self, outcome: Round) -> Limits:
        """Change nothing."""
        return self._limits

    def on_timeout(self) -> Limits:
        """Change nothing: self-clocking already sends nothing new without a result."""
        return self._limits


@dataclass(slots=True)
class Aimd:
    """Additive increase, multiplicative decrease on ECN (ATP, NSDI 2021).

    ATP starts with 200 packets. In slow start every result adds an MTU, up to a threshold; from there on
    every window of results does. A mark, or a loss, halves the window and sets the threshold to it. ATP's
    MTU of 1500 bytes is five of its 306-byte packets; here it is `step_packets`, whatever their size.

    Of losses only those count that were not mended by sending again once: what the core recovers quickly is
    mostly one packet of some other rank, and says nothing about queues.
    """

    initial_packets: int = 200
    step_packets: int = 5
    threshold: float = float("inf")
    """Where slow start ends, packets."""
    _most: int = field(default=1, init=False)
    _packets: float = field(default=1.0, init=False)
    _heard: bool = field(default=True, init=False)

    wants_rounds: ClassVar[bool] = True

    def start(self, window: int) -> Limits:
        """Return the initial window, all of it with claims."""
        self._most = window
        self._packets = min(self.initial_packets, window)
        return self._limits()

    def on_round(self, outcome: Round) -> Limits:
        """Halve if anything was marked, else grow."""
        self._heard = True
        if outcome.marked:
            self._halve()
        elif self._packets < self.threshold:
            grown = self._packets + self.step_packets * outcome.results
            self._packets = min(max(self.threshold, self._packets + self.step_packets), grown)
        else:
            self._packets += self.step_packets
        self._packets = min(self._packets, self._most)
        return self._limits()

    def on_timeout(self) -> Limits:
        """Halve, once until a round ends again."""
        if self._heard:
            self._heard = False
            self._halve()
        return self._limits()

    def _halve(self) -> None:
        self._packets = max(1.0, self._packets / 2)
        self.threshold = self._packets

    def _limits(self) -> Limits:
        return Limits(int(self._packets), self._most)


@dataclass(slots=True)
class A2tp:
    """Two windows: one for the links, one for the switch's memory (A2TP, EuroSys 2023).

    With the shares of a round's packets that were marked, that collided, and that were prompt::

        alpha = 7/8 alpha + 1/8 marked / cwnd                      how congested the links are
        beta  = 7/8 beta  + 1/8 collided / aggregator window       how contended the memory is
        gamma = 63/64 gamma + 1/64 prompt                          1: no straggler; 0: always one

        marked:                     cwnd *= 1 - alpha/2                                   else += 1
        collided and beta > 0.1:    aggregator window *= 1 - (beta - 0.1)^gamma / 1.9     else += 1

    in whole packets, 1 <= aggregator window <= cwnd <= the core's window. A job with a straggler (gamma near
    0) gives up about half of its slots at once, for they would only wait in them; one without gives up in
    proportion to the contention. The defaults are those of the published code (CSU-NetLab/A2TP-Eurosys2023,
    ``CC_manager.h``), which samples promptness only in some rounds and never looks at losses.

    Three things differ here. There, the first packets of each window claim slots; here packets are told apart
    by PSN modulo the core's window, of which only cwnd are in flight, so the claims are the same share of the
    core's window that the aggregator window is of cwnd. No rank's aggregator window stays above another's:
    the straggler itself finds all results prompt, and its contributions would wait alone in slots. And what
    collided does not count for gamma: it came by the fallback server, later for that alone.
    """

    gain: float = 1 / 8
    straggler_gain: float = 1 / 64
    tolerance: float = 0.1
    """Share of collisions that changes nothing."""
    initial_packets: int | None = None
    """None: the core's window."""
    alpha: float = 0.0
    beta: float = 0.0
    gamma: float = 1.0
    _most: int = field(default=1, init=False)
    _cwnd: int = field(default=1, init=False)
    _aggregator: int = field(default=1, init=False)

    wants_rounds: ClassVar[bool] = True

    def start(self, window: int) -> Limits:
        """Return the initial window, all of it with claims."""
        self._most = window
        self._cwnd = self._aggregator = min(self.initial_packets or window, window)
        return self._limits()

    def on_round(self, outcome: Round) -> Limits:
        """Move both windows by the formulas above. A round without results changes nothing."""
        if outcome.results <= 0:
            return self._limits()
        self._aggregator = max(1, min(self._aggregator, -(-outcome.claims * self._cwnd // self._most)))
        claimed = outcome.results * self._aggregator / self._cwnd
        if uncollided := outcome.results - outcome.collided:
            self.gamma += self.straggler_gain * (min(1.0, outcome.prompt / uncollided) - self.gamma)
        self.alpha += self.gain * (min(1.0, outcome.marked / outcome.results) - self.alpha)
        self.beta += self.gain * (min(1.0, outcome.collided / claimed) - self.beta)

        if outcome.collided and self.beta > self.tolerance:
            cut = (self.beta - self.tolerance) ** self.gamma / (2 - self.tolerance)
            self._aggregator = int(self._aggregator * (1 - cut))
        else:
            self._aggregator += 1
        self._cwnd = int(self._cwnd * (1 - self.alpha / 2)) if outcome.marked else self._cwnd + 1

        self._cwnd = min(max(self._cwnd, 1), self._most)
        self._aggregator = min(max(self._aggregator, 1), self._cwnd)
        return self._limits()

    def on_timeout(self) -> Limits:
        """Change nothing, as published: the time-out itself keeps the rate down."""
        return self._limits()

    @property
    def aggregator_window(self) -> int:
        """Slots to hold at a time, packets."""
        return self._aggregator

    def _limits(self) -> Limits:
        return Limits(self._cwnd, max(1, self._most * self._aggregator // self._cwnd))


class Capped:
    """Another congestion control below a limit of its own: what the socket can hold unread, for instance."""

    def __init__(self, inner: Congestion, packets: int) -> None:
        """`packets`: the most that may be in flight, at least 1."""
        self.inner = inner
        self._packets = max(1, packets)
        self._window = 1

    @property
    def wants_rounds(self) -> bool:
        """Whether the other one wants rounds."""
        return self.inner.wants_rounds

    def start(self, window: int) -> Limits:
        """Start the other one with the smaller window."""
        self._window = window
        return self._widen(self.inner.start(min(self._packets, window)))

    def on_round(self, outcome: Round) -> Limits:
        """Ask the other one."""
        inner = min(self._packets, self._window)
        return self._widen(
            self.inner.on_round(replace(outcome, claims=-(-outcome.claims * inner // self._window)))
        )

    def on_timeout(self) -> Limits:
        """Ask the other one."""
        return self._widen(self.inner.on_timeout())

    def _widen(self, limits: Limits) -> Limits:
        """Return the limits with the claims as the same share of the whole window."""
        inner = min(self._packets, self._window)
        return Limits(limits.in_flight, max(1, self._window * limits.claims // inner))


CONGESTION: Final[dict[CongestionName, Callable[[], Congestion]]] = {
    "fixed": FixedWindow,
    "aimd": Aimd,
    "a2tp": A2tp,
}
"""Constructors by the name that a configuration uses."""

CONGESTION_NAMES: Final = get_args(CongestionName)
