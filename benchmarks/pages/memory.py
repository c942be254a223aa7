"""Switch memory that aggregation needs: one array for all jobs against a region for each.

Jobs that communicate most of the time, each with eight workers on hosts of their own, share one switch whose
slots are swept from none to ample. Exclusive regions (SwitchML) limit the window to half a job's slots; in a
common array, this project's or ATP's, packets without a slot go to the job's fallback server.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    column,
    grouped,
    markdown,
    mean_iteration_s,
    number,
    selected,
    spread,
)
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, float32_bytes

JOBS: Final = (1, 4)
SLOTS: Final = (0, 32, 64, 128, 256, 512, 2048)
SEEDS: Final = (1, 2, 3, 4, 5)
PROGRAMS: Final = ("shared", "atp", "exclusive")


def entries(jobs: int, program: str, *, quick: bool = False) -> tuple[Job, ...]:
    """Return this number of equal jobs."""
    tensors = (8192, 16384, 8192) if quick else (32768, 65536, 32768)
    return tuple(
        Job(
            name=f"job{number}",
            workers=8,
            window=64,
            congestion="fixed" if program == "exclusive" else "aimd",
            numbers="fixed",
            iterations=2 if quick else 4,
            layers_bytes=float32_bytes(tensors),
            compute_s=300e-6,
            jitter=0.05,
        )
        for number in range(1, jobs + 1)
    )


def scenarios(quick: bool) -> Iterator[Scenario]:
    """Return the sweep; exclusive jobs cannot run with less than two slots each."""
    slots, seeds = (SLOTS[::3], SEEDS[:1]) if quick else (SLOTS, SEEDS)
    for jobs, program, size, seed in product(JOBS, PROGRAMS, slots, seeds):
        if program != "exclusive" or size // jobs >= 2:
            yield Scenario(
                labels={"jobs": jobs, "program": program, "slots": size, "seed": seed},
                jobs=entries(jobs, program, quick=quick),
                settings=VirtualSettings(program=program, slots=size, seed=seed, samples=0),
            )


def measure(report: Report) -> ResultRow:
    """Return the columns that a run adds to its labels."""
    iterations = sum(job.iterations for job in report.jobs)
    return {
        "iteration_s": mean_iteration_s(report),
        "longest_iteration_s": max(max(job.iteration_s) for job in report.jobs),
        "aggregated_share": sum(job.aggregated_share for job in report.jobs) / len(report.jobs),
        "fallback_bytes_per_iteration": sum(job.fallback_bytes for job in report.jobs) / iterations,
        "resent_packets": sum(job.resent_packets for job in report.jobs),
        "dropped_packets": report.dropped_packets,
    }


def speeds(rows: Sequence[ResultRow], jobs: int, program: str) -> dict[int, list[float]]:
    """Return the speeds of all seeds by slots, relative to the best mean with the most memory."""
    here = selected(rows, jobs=jobs)
    most = max(number(row, "slots") for row in here)
    ample = grouped(selected(here, slots=int(most)), "program").values()
    best = min(statistics.fmean(column(group, "iteration_s")) for group in ample)
    found = grouped(selected(here, program=program), "slots")
    return {
        slots: [best / time_s for time_s in column(group, "iteration_s")] for (slots,), group in found.items()
    }


def _named(jobs: int) -> str:
    return f"{jobs} job{'s' if jobs > 1 else ''}"


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table per number of jobs."""
    parts = []
    for (jobs,), here in grouped(rows, "jobs").items():
        by_program = [speeds(rows, jobs, program) for program in PROGRAMS]
        lines = []
        for (slots,), group in grouped(selected(here, program="shared"), "slots").items():
            speed = [spread(found[slots], ".0%") if slots in found else "cannot run" for found in by_program]
            names = ("aggregated_share", "fallback_bytes_per_iteration", "iteration_s", "longest_iteration_s")
            share, sent, mean_s, longest_s = (statistics.fmean(column(group, name)) for name in names)
            cells = [
                f"{share:.1%}",
                f"{sent / 1e6:.2f} MB",
                f"{1e3 * mean_s:.2f} ms",
                f"{1e3 * longest_s:.2f} ms",
            ]
            lines.append([f"{slots}", *speed, *cells])
        heads = ["slots", *(f"speed, {program}" for program in PROGRAMS), "in the switch", "fallback"]
        heads += ["iteration, shared", "longest"]
        parts.append(f"### {_named(jobs).capitalize()}\n\n{markdown(heads, lines)}")
    return "\n\n".join(parts)


EXPERIMENT = Experiment(
    name="memory",
    title="Memory sweep: shared and exclusive slots",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
)
