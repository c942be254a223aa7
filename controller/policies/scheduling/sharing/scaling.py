"""From pairs on one GPU to jobs of any sizes: the ground truth of simulations. Ours, not measured.

No public data set has jobs of several GPUs share them, so these speeds are derived. A job that is synchronous
over ``g`` GPUs is in its allreduce for the fraction ``n = 1 - 1 / (1 + s log2 g)`` of an iteration (``s`` per
kind); meanwhile another job can use its GPU. So the slowdown of a pair on one GPU, ``1/v - 1``, applies only
while both compute, and while both use the network they take turns. Of several neighbours the worst counts,
because all GPUs wait for the slowest, and the more GPUs ``b`` are shared the more often one is late:

    1 / speed = 1 + (1 + jitter log2 b) max_k [ (1/v_k - 1) (1 - n) (1 - n_k) + n n_k ]
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence

from controller.policies.scheduling.sharing.corun import Pairs
from controller.policies.scheduling.sharing.errors import BadMeasurement, UnknownModel
from controller.policies.scheduling.sharing.interference import InterferenceModel, Load


class Scaling:
    """The interference model of the module's docstring.

    `sync` is each kind's ``s``; other kinds have 0.1. Raises BadMeasurement for negative ones.
    """

    def __init__(
        self, pairs: Pairs, sync: Mapping[str, float] | None = None, *, jitter: float = 0.08
    ) -> None:
        self._pairs = pairs
        self._sync = dict(sync or {})
        self._jitter = jitter
        self._known: dict[tuple[Load, tuple[Load, ...]], float] = {}
        bad = [kind for kind, share in self._sync.items() if not (share >= 0 and math.isfinite(share))]
        if bad:
            raise BadMeasurement(f"sync of {bad[0]} is {self._sync[bad[0]]}; it must not be negative")
        if not (jitter >= 0 and math.isfinite(jitter)):
            raise BadMeasurement(f"a jitter of {jitter}; it must not be negative")

    @property
    def kinds(self) -> Collection[str]:
        """The kinds of the pairs."""
        return self._pairs.kinds

    def speed(self, load: Load, beside: Sequence[Load]) -> float:
        """Return the speed; see the module's docstring. It is 0 for jobs that do not fit into memory."""
        if load.kind not in self.kinds:
            raise UnknownModel(load.kind, self.kinds)
        if not beside:
            return 1.0
        key = load, tuple(sorted(beside))
        if key not in self._known:
            self._known[key] = self._speed(*key)
        return self._known[key]

    def _speed(self, load: Load, beside: tuple[Load, ...]) -> float:
        mine = self._network(load)
        worst = -1.0
        for other in beside:
            theirs = self._network(other)
            alike = self._pairs.beside(load.kind, other.kind)
            if alike == 0.0:
                return 0.0
            wait = 1.0 / alike - 1.0
            worst = max(worst, wait * (1.0 - mine) * (1.0 - theirs) + mine * theirs)
        shared = min(load.gpus, sum(other.gpus for other in beside))
        if worst > 0.0:
            worst *= 1.0 + self._jitter * math.log2(shared)
        return 1.0 / (1.0 + worst)

    def _network(self, load: Load) -> float:
        return 1.0 - 1.0 / (1.0 + self._sync.get(load.kind, 0.1) * math.log2(load.gpus))


def make_sync(kinds: Collection[str], *, seed: int = 0) -> dict[str, float]:
    """Generate the ``s`` of each kind."""
    rng = random.Random(seed)
    return {kind: rng.uniform(0.02, 0.2) for kind in kinds}


class Noisy:
    """Measurements of an interference model: each speed has an error by a random factor, always the same."""

    def __init__(self, interference: InterferenceModel, noise: float, *, seed: int = 0) -> None:
        if not 0 <= noise < 1:
            raise BadMeasurement(f"a noise of {noise}; it must be at least 0 and below 1")
        self._interference = interference
        self._noise = noise
        self._seed = seed

    @property
    def kinds(self) -> Collection[str]:
        """The model's kinds."""
        return self._interference.kinds

    def speed(self, load: Load, beside: Sequence[Load]) -> float:
        """Return the model's speed, with its noise."""
        exact = self._interference.speed(load, beside)
        if not beside:
            return exact
        rng = random.Random(f"{self._seed} {load} {sorted(beside)}")
        return exact * math.exp(rng.gauss(0.0, self._noise))
