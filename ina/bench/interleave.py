"""Jobs and groups of `ina schedule interleave`, with predicted and measured speeds.

The jobs are `hostlib.demos.four_stages` with different options, so that each is long in another stage, as the
four models of the paper are (Muri, SIGCOMM'22, table 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.policies.grouping.efficiency import efficiency, round_s
from hostlib.interleave import Ranks, StageProfile
from hostlib.launch import command_line


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job: bytes per record, records per worker, views, dropout masks and width of the network."""

    record: int
    batch: int
    views: int
    masks: int
    hidden: int

    def command(self, data: Path, iterations: int, cores: str) -> list[str]:
        """Return the command of its workers."""
        options = {
            "data": data,
            "iterations": iterations,
            "cores": cores,
            "record": self.record,
            "batch": self.batch,
            "views": self.views,
            "masks": self.masks,
            "hidden": self.hidden,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return command_line.module("hostlib.demos.four_stages", *words)


KINDS: Mapping[str, Kind] = {
    "load": Kind(record=1 << 18, batch=384, views=1, masks=1, hidden=32),
    "augment": Kind(record=4096, batch=256, views=16, masks=1, hidden=32),
    "deep": Kind(record=4096, batch=256, views=1, masks=48, hidden=64),
    "wide": Kind(record=4096, batch=16, views=1, masks=1, hidden=384),
    "even": Kind(record=1 << 18, batch=128, views=24, masks=16, hidden=96),
}
"""Long in storage, CPU, GPU, network; and nowhere in particular."""

GROUPS = (
    "load+deep",
    "augment+wide",
    "load+augment",
    "deep+wide",
    "augment+deep",
    "even+even",
    "wide+wide",
    "load+deep+wide",
    "load+augment+deep+wide",
    "even+even+even+even",
)


def steady(ranks: Ranks) -> Ranks:
    """Leave out the first two iterations and the last.

    The first ones include one-time costs, and a group's jobs begin one by one; in the last some have ended.
    """
    return [measured[2:-1] for measured in ranks]


def pool(runs: Sequence[Ranks]) -> Ranks:
    """Combine the iterations of several runs of a job."""
    return [[each for measured in of_rank for each in measured] for of_rank in zip(*runs, strict=True)]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A group as predicted from its jobs' profiles, and as measured.

    Attributes:
        offsets: The stage at which each job starts a round: the best order by the first run's profiles.
        predicted_round_s: Equation 3 of the paper.
        contended_round_s: Equation 3 with the stage times that were measured while the members took turns:
            its excess over the prediction is the interference between stages on different resources.
        measured_round_s: The members' mean seconds per iteration: its excess over the contended round is the
            cost of barriers and varying stage times.
        predicted_efficiency: gamma, equation 4.
        measured_efficiency: The same with the measured round.
        predicted_speedup: The sum of the jobs' speeds together, each relative to its speed alone.
        measured_speedup: The same measured (the normalised throughput of the paper's table 2).
    """

    offsets: tuple[int, ...]
    predicted_round_s: float
    contended_round_s: float
    measured_round_s: float
    predicted_efficiency: float
    measured_efficiency: float
    predicted_speedup: float
    measured_speedup: float


def compare(
    alone: Sequence[StageProfile], together: Sequence[StageProfile], offsets: Sequence[int]
) -> Comparison:
    """Compare the prediction for a group that ran with these offsets with the measurements."""
    stages = [each.stages_s for each in alone]
    predicted_s = round_s(stages, offsets)
    measured_s = sum(each.iteration_s for each in together) / len(together)
    return Comparison(
        tuple(offsets),
        predicted_s,
        round_s([each.stages_s for each in together], offsets),
        measured_s,
        efficiency(stages, predicted_s),
        efficiency(stages, measured_s),
        sum(each.iteration_s for each in alone) / predicted_s,
        sum(one.iteration_s / many.iteration_s for one, many in zip(alone, together, strict=True)),
    )
