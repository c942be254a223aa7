"""Congestion control: how many packets may be in flight, and how many of them may claim memory in the switch.

A congestion control is asked between batches, never per packet. It answers with `Limits`: once at `start`,
then after every *round*. A round is a number of results in the order of their PSNs: the number of packets
that were allowed in flight. The core counts the results of a round; this module only does arithmetic on those
counts.

Every rank has a congestion control of its own, and all must reach the same limits. A rank with a smaller
window would delay all other ranks. And if some ranks sent a packet's contributions to a slot, and other ranks
past the slot, these would meet only in the fallback server, late. So a `Round` holds only data that are the
same on every rank: marks in the results, PSN by PSN, whatever the order of arrival. This module has no clock,
and learns of no time-out. If only one rank sees an event, the rank reports it to the others in its
contributions: a queue that only its copy of a result met, a packet that was lost twice, its time of waiting
for others.

==========  ====================================================================================
``fixed``   SwitchML: always the whole window; each result allows one further packet
``aimd``    ATP: slow start, then one MTU per round; half on ECN
``a2tp``    A2TP: ECN reduces the packets in flight, collisions the claims to slots, each in
            proportion to that resource's recent congestion
``tcp``     TCP's reaction to lost bytes: shares links fairly with TCP and with other jobs
==========  ====================================================================================

`hostlib.windows` loads congestion controls from outside the library. The same rule applies to them: their
decisions must depend on nothing but the rounds reported to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import ClassVar, Final, Literal, Protocol, get_args

CongestionName = Literal["fixed", "aimd", "a2tp", "tcp"]

_ROUNDS_AHEAD: Final = 3
"""Number of rounds until results show the effect of a new limit of claims: the limit applies to packets two
windows ahead."""


TCP_BYTES: Final = 1514
"""Bytes of a full TCP packet on Ethernet."""

LOSS_BYTES: Final = 1024
"""Number of bytes lost, in one or several rounds, for which `Tcp` cuts its window once."""

RULE_STATE: Final = 16
"""Number of values in the state of a congestion control in C (``ina_window.h``)."""

SPREAD: Final = 8
"""With a fallback server: length of the range of PSNs that may be under way, as a multiple of the
packets that may be in flight.

A packet is sent only when all packets that are a range or more earlier have results. With a factor of 1, one
loss would stop all packets; with a longer range the other packets go on while the loss is detected and
repaired, for three or four round trips, or more if the repair is lost. Goodput at 1 % loss, as a share of the
goodput without loss (docs/results/loss.md): half with a factor of 4, 87 % with 8, 87 % with 16.
"""


def window_for(in_flight: int) -> int:
    """Return the window that a job of ``shared.p4`` needs for this number of packets in flight."""
    return SPREAD * in_flight


class BadLimits(Exception):
    """A congestion control failed, or a limit is invalid; the message names the limit and its valid range."""


@dataclass(frozen=True, slots=True)
class Round:
    """Outcome of one round, from its results."""

    results: int
    """Number of results in this round: equal to the round's limit of packets in flight, or to the previous
    limit if that is higher, because results of packets sent under the previous limit arrive first."""
    marked: int
    """Number of results with ECN: a queue on their path was long."""
    collided: int
    """Number of results with COLLISION: packets of other sums claimed the same slot."""
    waiting: float
    """Share of the results without COLLISION that took longer than eight times the shortest round trip, as
    last reported by the rank that waits most for the others. (A window that fills queues takes only a few
    times the shortest round trip.)"""
    lost: int = 0
    """Number of results that report a lost packet; 0 for congestion controls without `hears_losses`
    (`Congestion`)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a worker from the end of a round on. Both are at least 1, and at most the window."""

    in_flight: int
    """Maximum number of packets without a result."""
    claims: int
    """Number of packets of each window that may claim a slot: the packets whose position in their window is
    below this number. All other packets carry BYPASS. A new number applies from a PSN on that no rank has
    sent yet (`hostlib.core.window`), so that all ranks treat a packet alike."""


class Congestion(Protocol):
    """Decides the limits of one worker.

    Optional attributes:

    - `hears_losses` is True: ranks report packets that were lost, and `Round.lost` counts the results with
      such a report. Ranks then do not report queues on the path of their results.
    - `packet_bytes`: the library sets it, before `start`, to the bytes of a packet with lanes on the wire.
    - `hears_waiting` is False: the control does not use `Round.waiting`. Only then are exponents foreseen,
      because packets with foreseen exponents have no field to report waiting.
    - `in_c`: constant addresses of the control's C function and state, if the compiled core can call it.
    """

    @property
    def wants_rounds(self) -> bool:
        """True if the core must count rounds; constant."""

    def start(self, window: int) -> Limits:
        """Return the initial limits, which are at most `window`. The core calls this once per job."""

    def on_round(self, outcome: Round) -> Limits:
        """Return the limits after a round."""


def call_control(control: Congestion, call: Callable[[], object], *, most: int, may_bypass: bool) -> Limits:
    """Return the answer of a congestion control, checked by `checked`.

    Args:
        control: The congestion control.
        call: Function that calls the congestion control.
        most: Number of packets of the window: the maximum of each limit.
        may_bypass: Whether packets may go past the slots, to a fallback server.

    Raises:
        BadLimits: the congestion control raised an error, or its answer is invalid; the message names it.
    """
    name = f"congestion control {getattr(control, 'name', type(control).__name__)}"
    try:
        return checked(call(), most=most, may_bypass=may_bypass)
    except BadLimits as error:
        raise BadLimits(f"{name}: {error}") from None
    except Exception as error:
        raise BadLimits(f"{name} raised {type(error).__name__}: {error}") from error


def checked(answer: object, *, most: int, may_bypass: bool) -> Limits:
    """Return the answer of a congestion control as limits.

    An answer may be a whole number: the number of packets in flight, all of which may claim slots.

    Args:
        answer: The value that a congestion control returned.
        most: Number of packets of the window: the maximum of each limit.
        may_bypass: Whether packets may go past the slots, to a fallback server.

    Raises:
        BadLimits: the answer is invalid.
    """
    limits = answer if isinstance(answer, Limits) else Limits(answer, most)  # type: ignore[arg-type]
    values = {"in_flight": limits.in_flight, "claims": limits.claims}
    if any(not isinstance(value, Integral) or isinstance(value, bool) for value in values.values()):
        raise BadLimits(f"the answer is {answer!r}, must be Limits or a whole number of packets")
    for name, value in values.items():
        if not 1 <= value <= most:
            raise BadLimits(f"{name} is {value}, must be at least 1 and at most {most}, the window")
    if limits.claims < most and not may_bypass:
        raise BadLimits(f"claims is {limits.claims}, must be {most}, the window, without a fallback server")
    return Limits(int(limits.in_flight), int(limits.claims))  # NumPy's do not fit into a structure


class FixedWindow:
    """Always the whole window in flight, with claims for all packets (SwitchML)."""

    wants_rounds: ClassVar[bool] = False
    hears_waiting: ClassVar[bool] = False

    def __init__(self) -> None:
        self._limits = Limits(1, 1)

    def start(self, window: int) -> Limits:
        """Return limits that are both equal to the window."""
        self._limits = Limits(window, window)
        return self._limits

    def on_round(self, outcome: Round) -> Limits:
        """Return the same limits as `start`."""
        return self._limits


@dataclass(slots=True)
class _OneWindow:
    """A congestion control with one window, of packets in flight; all packets claim slots."""

    _most: int = field(default=1, init=False)
    _packets: float = field(default=1.0, init=False)
    _deaf: bool = field(default=False, init=False)

    wants_rounds: ClassVar[bool] = True
    hears_waiting: ClassVar[bool] = False

    def _begin(self, initial: float, window: int) -> Limits:
        self._most, self._packets = window, min(initial, window)
        return self._limits()

    def _limits(self) -> Limits:
        return Limits(int(self._packets), self._most)


@dataclass(slots=True)
class Aimd(_OneWindow):
    """Additive increase, multiplicative decrease on ECN (ATP, NSDI 2021).

    ATP starts with 200 packets. In slow start every result adds an MTU to the window, up to a threshold.
    Above the threshold, every window of results adds an MTU. A mark, or a loss, halves the window and sets
    the threshold to the new window. ATP's MTU of 1500 bytes is five of its 306-byte packets; here the step is
    `step_packets`, whatever the size of packets.

    Differences: a loss halves the window only if every rank can know of it. So a loss, too, is reported as a
    mark, on the second resend of a packet (`hostlib.core.window`). A loss that is repaired sooner is mostly
    one packet of some other rank, and shows nothing about queues. And the round after a cut changes nothing:
    its packets were under way when the window was cut, so their marks report the same queue, and would halve
    the window again.
    """

    initial_packets: int = 200
    step_packets: int = 5
    threshold: float = float("inf")
    """Number of packets in flight at which slow start ends."""

    def start(self, window: int) -> Limits:
        """Return the initial limits: the initial window, with claims for all packets."""
        return self._begin(self.initial_packets, window)

    def on_round(self, outcome: Round) -> Limits:
        """Return the limits after a round: halve the window if a result was marked, else increase it."""
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
    0) gives up about half of its slots at once, because packets would only wait in them; a job without one
    gives up slots in proportion to the contention. The defaults come from the published code
    (CSU-NetLab/A2TP-Eurosys2023, ``CC_manager.h``), which never looks at losses.

    Differences: there, each worker samples promptness by its own clock, and only in some rounds; here all
    ranks use the promptness of the rank that waits most, because the straggler itself finds all results
    prompt, and its contributions would wait alone in slots. Collided results do not count for promptness: the
    detour by the fallback server alone makes them late. There, the first packets of each window claim slots,
    up to the size of the aggregator window; here windows are counted from PSN 0 on and all have the size of
    the core's window, so the share of a window that claims slots is aggregator window / cwnd. And after a cut
    each window stays as it is while results still belong to packets sent before the cut: a round for cwnd,
    three for the aggregator window, whose cuts apply to later packets.
    """

    gain: float = 1 / 8
    straggler_gain: float = 1 / 64
    tolerance: float = 0.1
    """Fraction of collisions (beta) up to which the aggregator window is not cut."""
    initial_packets: int | None = None
    """Initial cwnd in packets; None: the core's window."""
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
        """Return the initial limits: the initial window, with claims for all packets."""
        self._most = window
        self._cwnd = self._aggregator = min(self.initial_packets or window, window)
        return self._limits()

    def on_round(self, outcome: Round) -> Limits:
        """Return the limits by the formulas above. A round without results changes nothing."""
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


@dataclass(slots=True)
class Tcp(_OneWindow):
    """Takes TCP's share of a queue that drops packets when full; counts bytes (RFC 5681, RFC 9438, 4.3).

    A window of results without loss adds 0.53 of a TCP packet, as in CUBIC's Reno-friendly region. A loss
    leaves 0.7 of the window; further losses in that round and in the next, whose packets were under way,
    change nothing. Queues drop packets, not bytes, so that a flow of small packets would lose more of them:
    so a cut requires a loss of `LOSS_BYTES`, in one packet or in several. The window starts with the size of
    TCP's initial window, and doubles in each round until the first cut.

    Marks of long queues change nothing: a TCP flow that reacts to losses alone keeps the queue long in any
    case, so a job that reacted to the marks would only leave its share to that flow.
    """

    packet_bytes: int = 1500
    _slow_start: bool = field(default=True, init=False)
    _lost_bytes: int = field(default=0, init=False)

    hears_losses: ClassVar[bool] = True

    def start(self, window: int) -> Limits:
        """Return the initial limits: TCP's initial window of ten packets, with claims for all packets."""
        return self._begin(10 * TCP_BYTES / self.packet_bytes, window)

    def on_round(self, outcome: Round) -> Limits:
        """Return the limits after a round: cut the window if enough bytes were lost, else increase it."""
        self._lost_bytes += outcome.lost * self.packet_bytes
        if self._deaf:
            self._deaf, self._lost_bytes = False, 0
        elif self._lost_bytes >= LOSS_BYTES:
            self._packets *= 0.7
            self._slow_start, self._deaf, self._lost_bytes = False, True, 0
        elif self._slow_start:
            self._packets *= 2
        else:
            self._packets += 0.53 * TCP_BYTES / self.packet_bytes
        self._packets = min(max(self._packets, 1.0), self._most)
        return self._limits()


CONGESTION: Final[dict[CongestionName, Callable[[], Congestion]]] = {
    "fixed": FixedWindow,
    "aimd": Aimd,
    "a2tp": A2tp,
    "tcp": Tcp,
}
"""Constructors of congestion controls, by their name in a configuration."""

CONGESTION_NAMES: Final = get_args(CongestionName)
