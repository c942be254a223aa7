"""Options of the plain family's policies: options from the papers, and our own."""

from __future__ import annotations

from dataclasses import dataclass

from controller.policies.family import Options, option
from controller.policies.scheduling.policy import RESOURCES
from controller.policies.scheduling.ranked import DurationEstimates


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperOptions(Options):
    """Options of the plain family; `seed` is the seed of noise and of errors in durations."""

    interval_s: float = option("interval at which groups are formed, in s (muri)", 360.0, 1.0, 1e6)
    weave_interval_s: float = option(
        "interval at which groups are formed, in s (weave); 0: when jobs arrive or end", 0.0, 0.0, 1e6
    )
    quantum_s: float = option("length of a time slice, in s (las, 2d-las)", 360.0, 1.0, 1e6)
    noise: float = option("largest relative error of measured stage times (muri, weave)", 0.0, 0.0, 0.99)
    estimate_error: float = option(
        "standard deviation of the logarithm of errors in durations (sjf, srtf, srsf, muri-s, weave-s)",
        0.0,
        0.0,
        5.0,
    )
    restart_scale: float = option("factor on the cost of restarts", 1.0, 0.0, 1e6)
    members: int = option("maximum number of jobs in a group (muri)", len(RESOURCES), 1, len(RESOURCES))
    worst_order: bool = option("1: muri interleaves as badly as possible", False)
    in_order: bool = option("1: muri groups neighbours in the queue, instead of the best matches", False)
    short: float = option(
        "0: weave minimises completion times, 1: slowdowns, mainly of short jobs", 0.8, 0.0, 1.0
    )
    width: int = option(
        "weave considers the first jobs of its queue, up to this multiple of the cluster's GPUs", 8, 1, 100
    )
    seed: int = 0

    @property
    def estimates(self) -> DurationEstimates:
        """The durations that are reported to policies that know durations."""
        return DurationEstimates(self.estimate_error, self.seed)
