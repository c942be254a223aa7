"""Models that are trained, as MINA's simulator has them: the times of a step, and the sums of its gradients.

A model's gradients are summed in buckets, one after the other while the step goes on. The figures are those
of the public measurements (batches of four samples), each in one line: buckets between the first and the last
repeat a few sizes, and come evenly. `read` has the measurements themselves, from a clone of the repository.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.replicas.mina.steps import Profiles, Sum


@dataclass(frozen=True, slots=True)
class Model:
    """A model: the time to compute a step, and when each bucket is there, with its bytes."""

    step_s: float
    buckets: Sequence[tuple[float, int]]

    def faster(self, ratio: float) -> Model:
        """Return the model on GPUs that are so many times as fast."""
        return Model(self.step_s / ratio, [(start_s / ratio, size) for start_s, size in self.buckets])


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast sums go.

    Attributes:
        by_hosts_bytes: Bytes of a bucket that hosts sum among themselves per second.
        ratio: How many times as fast switches are.
        latency_s: What every sum takes besides; sums of a job on one host take only that.
    """

    by_hosts_bytes: float = 12.5e9
    ratio: float = 2.0
    latency_s: float = 50e-6

    def sum_of(self, start_s: float, size: int, *, alone: bool) -> Sum:
        """Return the times of the sum of a bucket."""
        fast_s, slow_s = size / (self.by_hosts_bytes * self.ratio), size / self.by_hosts_bytes
        if alone:
            fast_s = slow_s = 0.0
        return Sum(start_s, self.latency_s + fast_s, self.latency_s + slow_s)


def _model(
    step_ms: float,
    first: tuple[float, int],
    middle: tuple[int, float, float],
    sizes: Sequence[int],
    last: tuple[float, int],
) -> Model:
    """Return a model; times are in ms, and the middle is a number of buckets and the times of its ends."""
    count, begin_ms, end_ms = middle
    gap_ms = (end_ms - begin_ms) / (count - 1)
    between = [(begin_ms + at * gap_ms, sizes[at % len(sizes)]) for at in range(count)]
    return Model(step_ms / 1e3, [(start_ms / 1e3, size) for start_ms, size in (first, *between, last)])


BASE: Final = (28_351_488,)
LARGE: Final = (33_591_296, 29_396_992, 37_781_504)
MODELS: Final[Mapping[str, Model]] = {
    "opt-125m": _model(90.515, (41.55, 9_446_400), (11, 44.8, 76.8), BASE, (80.067, 179_644_416)),
    "opt-350m": _model(219.255, (75.78, 2_097_152), (36, 78.42, 193.67), LARGE, (194.805, 117_649_408)),
    "opt-1.3b": _model(
        761.735,
        (252.86, 67_133_440),
        (95, 299.9, 710.16),
        (67_141_632, 33_587_200, 33_570_816, 67_133_440),
        (713.203, 428_638_208),
    ),
    "bert-base": _model(80.706, (33.0, 2_490_600), (12, 36.12, 70.67), BASE, (71.515, 95_348_736)),
    "bert-large": _model(221.842, (80.23, 4_328_680), (36, 82.89, 196.43), LARGE, (197.641, 131_330_048)),
    "vit-base": _model(57.369, (14.41, 3_076_000), (12, 17.12, 45.11), BASE, (46.086, 2_976_768)),
    "vit-large": _model(141.54, (40.06, 4_100_000), (36, 41.83, 117.91), LARGE, (118.688, 8_167_424)),
}
"""In the order in which the public simulator draws them."""

SIZES: Final = (1, 2, 4, 8, 16, 32, 48, 64, 128)
"""Numbers of hosts of jobs."""
MIXES: Final[Mapping[str, Sequence[int]]] = {
    "all sizes": (10910, 9719, 16374, 23311, 23936, 13268, 2089, 329, 61),
    "many on one host": (44237, 14757, 18831, 15689, 5929, 550, 4),
    "from two hosts": (36941, 28960, 24127, 9117, 846, 6),
    "from eight hosts": (26464, 67247, 6241, 45),
}
"""How often each number of hosts is drawn; the last mixes leave out the smallest ones.

Numbers 0, 2, 6 and 9 of the ten of the public simulator, of which 1 and 5 are the same.
"""
FROM: Final[Mapping[str, int]] = {"from two hosts": 1, "from eight hosts": 3}
NUMBERS: Final[Mapping[str, int]] = {
    "all sizes": 0,
    "many on one host": 2,
    "from two hosts": 6,
    "from eight hosts": 9,
}


def sizes_of(mix: str) -> Sequence[int]:
    """Return the numbers of hosts that a mix draws from."""
    start = FROM.get(mix, 0)
    return SIZES[start : start + len(MIXES[mix])]


def read(folder: Path) -> dict[str, Model]:
    """Return the measured models from the folder ``traces`` of a clone of the public simulator."""
    models = {}
    for name in MODELS:
        found = json.loads((folder / f"{name}-4.json").read_text(encoding="utf-8"))
        buckets = [(float(each["start"]), int(each["size"])) for each in found["allreduces"]]
        models[name] = Model(float(found["duration"]), buckets)
    return models


class Kinds:
    """The profiles of models at given rates, on one host and on several."""

    def __init__(self, models: Sequence[Model], rates: Rates) -> None:
        self.profiles = Profiles()
        for model in models:
            for alone in (False, True):
                sums = [rates.sum_of(start_s, size, alone=alone) for start_s, size in model.buckets]
                self.profiles.add(model.step_s, sums)

    def profile(self, model: int, hosts: int) -> int:
        """Return the number of the profile of a model on so many hosts."""
        return 2 * model + (hosts == 1)

    def step_s(self, model: int, hosts: int, *, in_network: bool) -> float:
        """Return the time of a step with all sums in switches, or all by the hosts."""
        return self.profiles.step_s(self.profile(model, hosts), in_network=in_network)
