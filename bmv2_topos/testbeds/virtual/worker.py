"""One worker of a job: a model of its computing, and the library's own `Window`, which sums its tensors."""

from __future__ import annotations

import ctypes
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bmv2_topos.testbeds.virtual.interfaces import Socket
from bmv2_topos.testbeds.virtual.settings import Prioritize, WrongSum
from bmv2_topos.trace import Sum
from hostlib.core.congestion import BadLimits, Congestion, Limits, Round, checked
from hostlib.core.driver import Arrivals, Driver
from hostlib.core.priority import Urgency
from hostlib.core.state import NEVER
from hostlib.core.window import Exchange, Window
from hostlib.wire import encodings
from hostlib.wire.encodings import Encoding

# ---------------------------------------------------------------------------
# Model of one rank of a training job: when it computes, and when tensors become ready.
#
# Theory of operation: An iteration is a forward pass through the layers, front to back, and a backward pass,
# back to front. Each layer has one tensor of gradients, which is complete when the backward pass leaves the
# layer, and all layers take equal parts of a pass. So tensors become ready back to front, during the backward
# pass, and are summed in that order, one at a time; all ranks of a data-parallel job must call collectives in
# the same order. The forward pass of the next iteration needs the sum of a layer's tensor before it enters
# the layer; it first needs the front layer's, which is ready last. So the backward pass hides all
# communication except what is left to send when it ends.
#
# Computing takes the time in the job, or another time for one rank (a straggler), plus or minus a jitter that
# is drawn for each pass of each rank. Nothing else takes time at a host.


FORWARD_SHARE: Final = 1 / 3
"""Fraction of an iteration's computing that is the forward pass: a backward pass costs twice as much."""


@dataclass
class Training:
    """Progress of one rank's training. Times are nanoseconds."""

    layers: int
    iterations: int
    compute_ns: int
    """Computing time of both passes of one iteration."""
    jitter: float
    random: random.Random
    done: int = 0
    """Number of iterations whose tensors are all summed."""
    ready: deque[int] = field(default_factory=deque)
    """Layers whose tensors wait to be summed, in the order of summing."""
    ready_ns: dict[int, int] = field(default_factory=dict)
    """Time at which each layer's tensor last became ready, by layer."""
    due: int = NEVER
    """Time at which computing of the present layer ends; NEVER: waiting for a sum, or finished."""
    _computed: int = 0
    _layer: int = 0
    _backward: bool = False
    _share: float = 1.0
    _summed: set[int] = field(default_factory=set)

    def start(self, now: int) -> None:
        """Start, or restart, computing at the iteration with the index `done`."""
        self._computed = self.done
        self.ready.clear()
        self._summed = set(range(self.layers))
        self.due = NEVER
        if not self.finished:
            self._enter_pass(now, backward=False)

    @property
    def finished(self) -> bool:
        """True once all iterations are done."""
        return self.done >= self.iterations

    def advance(self, now: int) -> None:
        """Advance the simulated computing to the time `now`."""
        while self.due <= now:
            at = self.due
            self.due = NEVER
            if self._backward:
                self._leave_backward(at)
            elif self._layer + 1 < self.layers:
                self._layer += 1
                self._enter_layer(at)
            else:
                self._enter_pass(at, backward=True)

    def summed(self, layer: int, now: int) -> None:
        """Record that a layer's tensor is summed; call it for the tensors in their order in `ready`."""
        self._summed.add(layer)
        if layer == 0:  # the last of its iteration
            self.done += 1
        waits = self.due == NEVER and not self._backward and layer == self._layer
        if waits and self._computed < self.iterations:
            self._enter_layer(now)

    def _leave_backward(self, at: int) -> None:
        self._summed.discard(self._layer)
        self.ready.append(self._layer)
        self.ready_ns[self._layer] = at
        if self._layer > 0:
            self._layer -= 1
            self._enter_layer(at)
            return
        self._computed += 1
        if self._computed < self.iterations:
            self._enter_pass(at, backward=False)
        else:
            self._backward = False

    def _enter_pass(self, at: int, *, backward: bool) -> None:
        self._backward = backward
        self._share = (1 - FORWARD_SHARE if backward else FORWARD_SHARE) / self.layers
        if self.jitter:
            self._share *= 1 + self.random.uniform(-self.jitter, self.jitter)
        self._layer = self.layers - 1 if backward else 0
        self._enter_layer(at)

    def _enter_layer(self, at: int) -> None:
        if self._backward or self._layer in self._summed:
            self.due = at + round(self.compute_ns * self._share)


# ---------------------------------------------------------------------------
# Contributions of the ranks of a job, and the required sums.


_SHIFTS = 997  # a prime: number of tensors after which values repeat
_LARGEST = 15.0
_ROUNDED, _TO = 1.5, 2.0
"""Magnitude of all values for encodings that cannot hold 1 exactly, and the magnitude to which these
encodings round it. In such an encoding, a packet whose largest magnitude is from 1 to 2 has the unit 2."""


def largest_exact(workers: int, numbers: Encoding) -> int:
    """Return the largest n for which the encoding holds all whole numbers up to n exactly; 0: none.

    All whole numbers up to n are exact if the unit of each block is at most 1. So n must fit the bits of a
    value without the sign bit and without the bits that are reserved for the sum of all ranks.
    """
    bits = 32 // encodings.per_lane(numbers) - 1 - (workers - 1).bit_length()
    return int(min(_LARGEST, 2 ** max(bits, 0) - 1))


class ExactGradients:
    """Tensors of every rank, layer and iteration, and their sums.

    Values are small whole numbers, so that every sum is exact in every encoding, and results can be checked
    by comparison. In encodings that hold no whole number but 0 exactly (`largest_exact`), all values are 1.5
    or -1.5, which every packet rounds to 2 or -2, and the expected sums are sums of these. Each tensor of
    each iteration is a different part of a rank's array, so that a packet of a wrong iteration is noticed.
    """

    def __init__(
        self,
        workers: int,
        tensors: tuple[int, ...],
        *,
        numbers: Encoding = "fixed",
        scale_bits: int,
        seed: int,
    ) -> None:
        """Draw the values of all ranks.

        Args:
            workers: Number of ranks.
            tensors: Elements of each layer.
            numbers: Encoding in packets, with room for the sum of all ranks (`encodings.most_ranks`).
            scale_bits: Fraction bits of the job's fixed-point scale, within whose range all sums must be.
            seed: Seed of the values.
        """
        # at a fixed scale, ranks * largest must stay below 2**31
        largest = max(1.0, min(largest_exact(workers, numbers), (2**31 - 1) // workers / 2**scale_bits))
        generator = np.random.default_rng(seed)
        shape = (workers, max(tensors) + _SHIFTS)
        limit = int(largest)
        numbers_of_each = generator.integers(-limit, limit, shape, np.int8, endpoint=True)
        scale = received = 1.0
        if largest_exact(workers, numbers) < 1:
            numbers_of_each = 2 * generator.integers(0, 1, shape, np.int8, endpoint=True) - 1
            scale, received = _ROUNDED, _TO
        self._values: NDArray[np.float32] = np.float32(scale) * numbers_of_each
        self._sum: NDArray[np.float32] = (received * numbers_of_each.sum(axis=0)).astype(np.float32)
        self.lengths = tensors
        """Number of elements of each tensor, front layer first."""

    def contribution(self, rank: int, iteration: int, layer: int) -> NDArray[np.float32]:
        """Return one rank's tensor, which must not be changed."""
        return self._values[rank, self._part(iteration, layer)]

    def total(self, iteration: int, layer: int) -> NDArray[np.float32]:
        """Return a tensor's sum over all ranks, which must not be changed."""
        return self._sum[self._part(iteration, layer)]

    def _part(self, iteration: int, layer: int) -> slice:
        start = (iteration * len(self.lengths) + layer) * 7 % _SHIFTS
        return slice(start, start + self.lengths[layer])


# ---------------------------------------------------------------------------
# Checks that the ranks of a job use one rule for their windows.
#
# A user's congestion control may look at a clock, draw random numbers, or remember something of another rank.
# Then ranks with the same reports get different windows, which costs time and is hard to see. Here all ranks
# of a job run in one process, so the error is found at once: limits must be a function of the rounds that
# were reported to a rank. Ranks with different reports (a loss can cause that) are not compared.


class RankAgreement:
    """Limits that the congestion controls of one job's ranks have returned so far."""

    def __init__(self) -> None:
        self._answers: dict[tuple[int, int], Limits] = {}

    def check(self, number: int, digest: int, limits: Limits) -> None:
        """Check a rank's limits after its first `number` rounds; `digest` identifies the rounds.

        Raises BadLimits if another rank got different limits after the same rounds.
        """
        first = self._answers.setdefault((number, digest), limits)
        if first != limits:
            raise BadLimits(
                f"two ranks with equal reports of all rounds up to {number} got different limits:"
                f" {first.in_flight} and {limits.in_flight} packets in flight, {first.claims} and"
                f" {limits.claims} claims; limits must depend on the rounds' reports alone"
            )


class CheckedCongestion:
    """The congestion control of one rank, whose limits are compared with the limits of other ranks."""

    def __init__(self, inner: Congestion, rule: RankAgreement, *, may_bypass: bool) -> None:
        self.name = getattr(inner, "name", type(inner).__name__)
        self.wants_rounds = inner.wants_rounds
        self._inner = inner
        self._rule = rule
        self._may_bypass = may_bypass
        self._most = 1
        self._number = self._digest = 0

    def start(self, window: int) -> Limits:
        """Start the congestion control; return its limits.

        Raises BadLimits if another rank got other limits at its start.
        """
        self._most = window
        self._number = self._digest = 0
        return self._compared(self._inner.start(window))

    def on_round(self, outcome: Round) -> Limits:
        """Report a round to the congestion control; return its new limits.

        Raises BadLimits if another rank got other limits after the same rounds.
        """
        self._number += 1
        self._digest = hash((self._digest, outcome))
        return self._compared(self._inner.on_round(outcome))

    def _compared(self, answer: object) -> Limits:
        limits = checked(answer, most=self._most, may_bypass=self._may_bypass)
        self._rule.check(self._number, self._digest, limits)
        return limits


BATCH_PACKETS = 256


class TrainingWorker:
    """The worker of one rank, on its host. Times are nanoseconds."""

    def __init__(
        self,
        socket: Socket,
        window: Window,
        training: Training,
        gradients: ExactGradients,
        priority: int | Prioritize,
        now: int,
    ) -> None:
        """Start the worker. `priority` is the priority of all its sums, or computes the priority of a sum."""
        self.on_sum: Callable[[Sum], None] | None = None
        """Function to call with every finished sum; None: no function."""
        self._begun = now
        self.host = socket.host
        self.port = socket.port
        self.rank = window.settings.rank
        self.window = window
        self.training = training
        self.compared = 0
        """Number of elements that were compared with the exact sum."""
        self.due = now
        """Time at which the worker gets its next turn even if no packet arrives."""
        self._socket = socket
        self._gradients = gradients
        self._priority = priority
        self._urgency = Urgency(now)
        self._layer: int | None = None
        self._driver = Driver(window, socket.send, batch=BATCH_PACKETS)
        self._sums = np.zeros(max(gradients.lengths), np.float32)
        self._urgency.progress(training.done, training.iterations, now)
        training.start(now)

    def poll(self, now: int) -> None:
        """Process arrived packets, compute, and send further packets.

        Raises:
            WrongSum: a result is not the sum.
            RanksDisagree: the ranks' packets disagree, which only an error of this program can cause.
        """
        arrival = self._socket.receive()
        if arrival is not None or now >= self.due:
            self._go_on(now, () if arrival is None else arrival.segments())

    def _go_on(self, now: int, arrivals: Arrivals) -> None:
        self.decide(now, arrivals)
        self._driver.time_out(now)
        self.due = min(self._driver.transmit(now), self.training.due)

    def decide(self, now: int, arrivals: Arrivals = ()) -> None:
        """Do the steps of `poll` with these arrived packets, without sending. Raises the errors of `poll`."""
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
        """Address of the window's ``struct ina_core``."""
        return ctypes.addressof(self.window.state.struct)

    @property
    def packet_bytes(self) -> int:
        """Size of the worker's largest packet in bytes."""
        return int(self.window.state.struct.packet_bytes)

    @property
    def waits(self) -> bool:
        """True while the worker waits for the result of a sum."""
        return self._layer is not None

    def _begin(self, layer: int, now: int) -> None:
        self._layer = layer
        self._begun = now
        training = self.training
        source = self._gradients.contribution(self.rank, training.done, layer)
        priority = self._priority
        if not isinstance(priority, int):
            priority = priority(self._urgency, (layer, training.layers), now)
        tag = layer << 24 ^ len(source)
        self.window.begin(Exchange(source, self._sums[: len(source)], tag, priority=priority), now)
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
        if self.on_sum is not None:
            job, ready_ns = self.window.settings.job, training.ready_ns[layer]
            self.on_sum(Sum(job, training.done, layer, self.rank, ready_ns, self._begun, now))
        before = training.done
        self._urgency.collective(self.window.first_result_at, now)
        training.summed(layer, now)
        if training.done > before:
            self._urgency.progress(training.done, training.iterations, now)
