"""Cost of changing a job's slots while it runs: consistently, at once, or not at all.

The controller moves one job twelve times through the memory, with and without losses, on one switch and on a
tree. A consistent change puts the new region in force from a PSN on that nobody has sent yet; a change at
once, which is how it was before, leaves the parts of sums that are under way in the old region.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from benchmarks.pages.preemption_mixes import communicating
from bmv2_topos.faults import ChangeRegion
from bmv2_topos.harness import Experiment, ResultRow, Scenario, column, grouped, markdown, number, spread
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Link

SEEDS: Final = (1, 2, 3, 4, 5)
SLOTS: Final = 1024
SIZE: Final = 512
"""Slots of every region: as many as PSNs may be under way, so that losses cost the same in each region."""
CHANGES: Final = 12
EVERY: Final = 3.3
"""Iterations from a change to the next."""
SHAPES: Final[Mapping[str, tuple[int, ...] | None]] = {"one switch": None, "tree of 2 x 4": (2, 4)}
PERIODS_S: Final[Mapping[tuple[str, float], float]] = {
    ("one switch", 0.0): 0.351e-3 * EVERY,
    ("one switch", 1e-3): 0.371e-3 * EVERY,
    ("one switch", 1e-2): 0.448e-3 * EVERY,
    ("tree of 2 x 4", 0.0): 0.361e-3 * EVERY,
    ("tree of 2 x 4", 1e-3): 0.389e-3 * EVERY,
    ("tree of 2 x 4", 1e-2): 0.547e-3 * EVERY,
}
"""Time from a change to the next, by network and loss: `EVERY` iterations of a run without changes."""
NONE, CONSISTENT, MIXED, AT_ONCE = "none", "consistent", "consistent, overlapping", "at once"
OFFSETS: Final[Mapping[str, Sequence[int]]] = {
    NONE: (),
    CONSISTENT: (512, 0),
    MIXED: (512, 256, 64, 400, 128, 0),
    AT_ONCE: (512, 0),
}
"""Offsets of the regions that the job moves to, over and over; the last is where it begins."""
TARGET: Final = 1.03
"""Greatest ratio of iterations across a change to the same ones of a run without changes."""


def scenarios(quick: bool) -> Iterator[Scenario]:
    """Return the sweep."""
    job = replace(communicating("job", 12 if quick else 44), slots=SIZE)
    for network, loss in itertools.islice(PERIODS_S, 2) if quick else PERIODS_S:
        link = Link("a", "b", loss=loss)
        for seed, (changes, offsets) in itertools.product(SEEDS[:1] if quick else SEEDS, OFFSETS.items()):
            moves = enumerate(itertools.islice(itertools.cycle(offsets), CHANGES), start=1)
            yield Scenario(
                labels={"network": network, "loss": loss, "changes": changes, "seed": seed},
                jobs=(job,),
                settings=VirtualSettings(slots=SLOTS, seed=seed, samples=0, moves_at_once=changes == AT_ONCE),
                shape=SHAPES[network],
                link=link,
                trunk=link,
                faults=tuple(
                    ChangeRegion(PERIODS_S[network, loss] * place, job.name, offset, SIZE)
                    for place, offset in moves
                ),
            )


def measure(report: Report) -> ResultRow:
    """Return the columns that a run adds to its labels, with the times of all iterations."""
    (job,) = report.jobs
    return {
        "iteration_s": job.mean_iteration_s,
        "resent": job.resent_packets,
        "pulled": job.outcomes["pulled"],
        "collided": job.outcomes["collided"],
        "fallback_bytes": job.fallback_bytes,
        **{f"iteration_{place}_s": took_s for place, took_s in enumerate(job.iteration_s)},
    }


class Slowdown(NamedTuple):
    """Iteration times relative to those of the same run without changes."""

    across: float
    others: float


def slowdown(row: ResultRow, without: ResultRow) -> Slowdown:
    """Compare a run with changes to one of the same seed without, iteration by iteration."""
    took, usual = (
        [number(each, name) for name in each if name.startswith("iteration_") and name != "iteration_s"]
        for each in (row, without)
    )
    ends = list(itertools.accumulate(took))
    period_s = PERIODS_S[str(row["network"]), number(row, "loss")]
    met = {sum(end < period_s * place for end in ends) for place in range(1, CHANGES + 1)}
    across = {place for first in met for place in (first, first + 1) if place < len(took)}

    def ratio(places: set[int]) -> float:
        return sum(took[place] for place in places) / sum(usual[place] for place in places)

    return Slowdown(ratio(across), ratio(set(range(len(took))) - across))


def slowdowns(rows: Sequence[ResultRow], changes: str) -> list[Slowdown]:
    """Return the slowdown of each seed in the rows of one network and loss."""
    of = {(row["changes"], row["seed"]): row for row in rows}
    return [slowdown(row, of[NONE, seed]) for (kind, seed), row in of.items() if kind == changes]


def tables(rows: Sequence[ResultRow]) -> str:
    """Return one table: a line per network, loss and kind of change."""
    lines = []
    for (network, loss), here in grouped(rows, "network", "loss").items():
        for (changes,), of in grouped(here, "changes").items():
            took = spread([1e3 * value for value in column(of, "iteration_s")], ".3f")
            found = slowdowns(here, changes) if changes != NONE else []
            relative = [spread(values, ".3f") for values in zip(*found, strict=True)] or ["", ""]
            counts = (spread(column(of, name), ".0f") for name in ("resent", "pulled", "collided"))
            lines.append([network, f"{loss:.1%}", changes, f"{took} ms", *relative, *counts])
    heads = ["network", "loss", "changes", "iteration", "across", "others", "sent again", "pulled"]
    return markdown([*heads, "collided"], lines)


EXPERIMENT = Experiment(
    name="regions",
    title="Changing a job's region while it runs",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
)
