"""Model of one rank of a training job: when it computes, and which tensors that makes ready.

Theory of operation
-------------------
An iteration is a forward pass through the layers, front to back, and a backward pass, back to front. Each
layer has one tensor of gradients, which is complete when the backward pass leaves the layer, and all layers
take equal parts of a pass. So tensors become ready back to front, while the backward pass still goes on, and
are summed in that order, one at a time: the order in which the collectives of a data-parallel job are called,
for all ranks must call them in the same. The forward pass of the next iteration needs the sum of a layer's
tensor before it enters that layer; the front layer's, which is ready last, it needs first. What is hidden
behind the backward pass is therefore all but what is left to send when it ends.

Computing takes what the job says, for one rank maybe something else (a straggler), plus or minus a jitter
that each pass of each rank draws anew. Nothing else takes time at a host.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from hostlib.core.state import NEVER


@dataclass
class Training:
    """One rank's progress. Times are nanoseconds."""

    layers: int
    iterations: int
    compute_ns: int
    """Both passes of one iteration."""
    forward_share: float
    jitter: float
    random: random.Random
    done: int = 0
    """Iterations whose tensors are all summed."""
    ready: deque[int] = field(default_factory=deque)
    """Layers whose tensors wait to be summed, in that order."""
    ready_ns: dict[int, int] = field(default_factory=dict)
    """When each layer's tensor became ready last."""
    due: int = NEVER
    """Time at which the layer that is being computed ends; NEVER: waiting for a sum, or finished."""
    _computed: int = 0
    _layer: int = 0
    _backward: bool = False
    _share: float = 1.0
    _summed: set[int] = field(default_factory=set)

    def start(self, now: int) -> None:
        """Begin, or after a restart begin again, with the iteration after those `done`."""
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
        """Compute up to `now`."""
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
        """Learn that a layer's tensor is summed, in the order in which they were `ready`."""
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
        self._share = (1 - self.forward_share if backward else self.forward_share) / self.layers
        if self.jitter:
            self._share *= 1 + self.random.uniform(-self.jitter, self.jitter)
        self._layer = self.layers - 1 if backward else 0
        self._enter_layer(at)

    def _enter_layer(self, at: int) -> None:
        if self._backward or self._layer in self._summed:
            self.due = at + round(self.compute_ns * self._share)
