"""Congestion control: how many packets may be in flight, and how many of them may claim memory in the switch.

A congestion control is asked between batches, never per packet. It answers with `Limits`: once at `start`,
then after every *round*: as many results, in the order of their PSNs, as packets were allowed in flight. The
core counts what a round brought; everything here is arithmetic on those counts.

Every rank has a congestion control of its own, and all must reach the same limits: a rank with a smaller
window would hold up all others, and a packet that some ranks send to a slot and others past it would meet
only in the fallback server, late. So a `Round` holds nothing but what every rank sees alike: marks that
travel in results, PSN by PSN, whatever the order in which they came in. Nothing here has a clock, or hears of
a time-out. What one rank alone notices it tells the others in its contributions: a queue that only its copy
of a result met, a packet that was lost twice, how long it waits for others.

==========  ====================================================================================
``fixed``   SwitchML: the whole window, always; a result in is a packet out
``aimd``    ATP: slow start, then one MTU per round; half on ECN
``a2tp``    A2TP: ECN moves what may be in flight, collisions move what may claim a slot, each in
            proportion to how congested that resource has been lately
==========  ====================================================================================

One from outside is found by `hostlib.windows`. It follows the same rule: what it decides depends on the
rounds that were reported to it, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import ClassVar, Final, Literal, Protocol, get_args

CongestionName = Literal["fixed", "aimd", "a2tp"]

_ROUNDS_AHEAD: Final = 3
"""Rounds until results show a new line between claim and bypass: it holds for packets two windows ahead."""


RULE_STATE: Final = 16
"""Numbers that a congestion control in C remembers (``ina_window.h``)."""

SPREAD: Final = 8
"""With a fallback server, windows that fit into the range of the PSNs that may leave.

No packet leaves before all those a window earlier have their results. With a full window in flight one loss
would stop all; so, the others run on for as long as it takes to find out and repair it: three or four round
trips, or more if it takes another try. Measured with 1 % loss, of the goodput without (docs/results/loss.md):
half with 4, 87 % with 8, the same with 16.
"""


def window_for(in_flight: int) -> int:
    """Return the window that a job of ``shared.p4`` needs for this number of packets in flight."""
    return SPREAD * in_flight


class BadLimits(Exception):
    """A congestion control failed, or answered with limits that are none; says which, and what would do."""


@dataclass(frozen=True, slots=True)
class Round:
    """Outcome of one round, from its results."""

    results: int
    """As many as were allowed in flight before it or are since, whichever is more: so whatever a round brings
    was sent before its limits were set."""
    marked: int
    """Of them, with ECN: somewhere on the way a queue was long."""
    collided: int
    """Of them, with COLLISION: their slot is wanted by others, or they found theirs taken."""
    waiting: float
    """Of the results without COLLISION, the share that took longer than eight times the
    shortest round trip, at the rank that waits most for the others; as it last told. A window that stands in
    queues takes a few."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a worker from the end of a round on. 1 <= both <= window."""

    in_flight: int
    """Packets without a result."""
    claims: int
    """Packets of a window that may claim a slot: those whose place in it is below this. The rest travel with
    BYPASS. It holds from a PSN on that no rank has sent yet (`hostlib.core.window`), not from a moment on: so
    all ranks draw the line at the same packets."""


class Congestion(Protocol):
    """Decides the limits of one worker.

    One that does not look at `Round.waiting` may say so by `hears_waiting`, which is False then: no exponents
    are foreseen with others, for these leave no field to tell of waiting.
    One that the compiled core can ask by itself has `in_c`, too: the addresses of its function and of its
    state, which stay where they are.
    """

    @property
    def wants_rounds(self) -> bool:
        """True if rounds have to be counted at all; constant."""
        ...

    def start(self, window: int) -> Limits:
        """Return the limits to begin with; `window` is the most. Called once in the life of a job."""
        ...

    def on_round(self, outcome: Round) -> Limits:
        """Return the limits after a round."""
        ...


def asked(control: Congestion, ask: Callable[[], object], *, most: int, may_bypass: bool) -> Limits:
    """Return the answer of a congestion control, checked by `checked`.

    Args:
        control: The congestion control.
        ask: Calls it.
        most: The largest window.
        may_bypass: It may send packets past the aggregators.

    Raises:
        BadLimits: it raised an error, or its answer is invalid; names it.
    """
    name = f"congestion control {getattr(control, 'name', type(control).__name__)}"
    try:
        return checked(ask(), most=most, may_bypass=may_bypass)
    except BadLimits as error:
        raise BadLimits(f"{name}: {error}") from None
    except Exception as error:
        raise BadLimits(f"{name} raised {type(error).__name__}: {error}") from error


def checked(answer: object, *, most: int, may_bypass: bool) -> Limits:
    """Return an answer as limits; a whole number is the number of packets in flight, all with claims.

    Args:
        answer: What a congestion control returned.
        most: Packets of the window.
        may_bypass: Whether packets may go past the slots, to a fallback server.

    Raises:
        BadLimits: they cannot be.
    """
    limits = answer if isinstance(answer, Limits) else Limits(answer, most)  # type: ignore[arg-type]
    values = {"in_flight": limits.in_flight, "claims": limits.claims}
    if any(not isinstance(value, Integral) or isinstance(value, bool) for value in values.values()):
        raise BadLimits(f"the answer is {answer!r}, must be Limits or a whole number of packets")
    for name, value in values.items():
        if not 1 <= value <= most:
            raise BadLimits(f"{name} is {value}, must be 1 to {most}, the window")
    if limits.claims < most and not may_bypass:
        raise BadLimits(f"claims is {limits.claims}, must be {most}, the window, without a fallback server")
    return Limits(int(limits.in_flight), int(limits.claims))  # NumPy's do not fit into a structure


class FixedWindow:
    """The whole window at any time, all of it with claims: a result in is a packet out (SwitchML)."""

    wants_rounds: ClassVar[bool] = False
    hears_waiting: ClassVar[bool] = False

    def __init__(self) -> None:
        self._limits = Limits(1, 1)

    def start(self, window: int) -> Limits:
        """Return the window twice."""
        self._limits = Limits(window, window)
        return self._limits

    def on_round(self, outcome: Round) -> Limits:
        """Change nothing."""
        return self._limits


@dataclass(slots=True)
class Aimd:
    """Additive increase, multiplicative decrease on ECN (ATP, NSDI 2021).

    ATP starts with 200 packets. In slow start every result adds an MTU, up to a threshold; from there on
    every window of results does. A mark, or a loss, halves the window and sets the threshold to it. ATP's
    MTU of 1500 bytes is five of its 306-byte packets; here it is `step_packets`, whatever their size.

    What differs: a loss halves the window only if every rank can know of it, so it comes as a mark too, on
    the second resend of a packet (`hostlib.core.window`). What is mended sooner is mostly one packet of some
    other rank, and says nothing about queues. And the round after a cut changes nothing: its packets were
    under way when the window was cut, so their marks are about the same queue, and would halve the window
    again.
    """

    initial_packets: int = 200
    step_packets: int = 5
    threshold: float = float("inf")
    """Packets at which slow start ends."""
    _most: int = field(default=1, init=False)
    _packets: float = field(default=1.0, init=False)
    _deaf: bool = field(default=False, init=False)

    wants_rounds: ClassVar[bool] = True
    hears_waiting: ClassVar[bool] = False

    def start(self, window: int) -> Limits:
        """Return the initial window, all of it with claims."""
        self._most = window
        self._packets = min(self.initial_packets, window)
        return self._limits()

    def on_round(self, outcome: Round) -> Limits:
        """Halve if anything was marked, else grow."""
        if self._deaf:
            self._deaf = False
        elif outcome.marked:
            self._packets = self.threshold = max(1.0, self._packets / 2)
            self._deaf = True
        elif self._packets < self.threshold:
            grown = self._packets + self.step_packets * outcome.results
            self._packets = min(max(self.threshold, self._packets + self.step_packets), grown)
        else:
            self._packets += self.step_packets
        self._packets = min(self._packets, self._most)
        return self._limits()

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
    proportion to the contention. The defaults come from the published code (CSU-NetLab/A2TP-Eurosys2023,
    ``CC_manager.h``), which never looks at losses.

    What differs: there, each worker samples promptness by its own clock, and only in some rounds; here it is
    that of the rank that waits most, which all are told, for the straggler itself finds all results prompt,
    and its contributions would wait alone in slots. What collided does not count for it: that came by the
    fallback server, later for that alone. There, the first packets of each window claim slots, as many as the
    aggregator window; here windows are counted from PSN 0 on and are all of the greatest size, so the claims
    are the same share of that as the aggregator window is of cwnd. And after a cut each window stays as it is
    for as long as results still tell of packets sent before it: a round for cwnd, three for the aggregator
    window, whose cuts begin a while ahead.
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
    _deaf: bool = field(default=False, init=False)
    _unseen: int = field(default=0, init=False)

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
        claimed = outcome.results * self._aggregator / self._cwnd
        self.gamma += self.straggler_gain * (1 - min(1.0, outcome.waiting) - self.gamma)
        self.alpha += self.gain * (min(1.0, outcome.marked / outcome.results) - self.alpha)
        self.beta += self.gain * (min(1.0, outcome.collided / claimed) - self.beta)

        if self._unseen:
            self._unseen -= 1
        elif outcome.collided and self.beta > self.tolerance:
            self._unseen = _ROUNDS_AHEAD
            cut = (self.beta - self.tolerance) ** self.gamma / (2 - self.tolerance)
            self._aggregator = int(self._aggregator * (1 - cut))
        else:
            self._aggregator += 1
        if self._deaf:
            self._deaf = False
        elif outcome.marked:
            self._deaf = True
            self._cwnd = int(self._cwnd * (1 - self.alpha / 2))
        else:
            self._cwnd += 1

        self._cwnd = min(max(self._cwnd, 1), self._most)
        self._aggregator = min(max(self._aggregator, 1), self._cwnd)
        return self._limits()

    def _limits(self) -> Limits:
        return Limits(self._cwnd, max(1, self._most * self._aggregator // self._cwnd))


CONGESTION: Final[dict[CongestionName, Callable[[], Congestion]]] = {
    "fixed": FixedWindow,
    "aimd": Aimd,
    "a2tp": A2tp,
}
"""Constructors by the name that a configuration uses."""

CONGESTION_NAMES: Final = get_args(CongestionName)
