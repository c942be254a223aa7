"""Switch memory that aggregation needs: one array for all jobs against a region for each.

Jobs that communicate most of the time, each with eight workers on hosts of their own, share one switch whose
slots are swept from none to ample. Exclusive regions (SwitchML) limit the window to half a job's slots; in a
common array, this project's or ATP's, what finds no slot goes to the job's fallback server.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    averaged,
    markdown,
    mean_iteration_s,
    number,
    selected,
    spread,
)
from bmv2_topos.plots import draw_lines
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, float32_bytes

WORKERS = 8
WINDOW = 64
TENSORS = (32768, 65536, 32768)
COMPUTE_S = 300e-6
JOBS = (1, 4)
SLOTS = (0, 32, 64, 128, 256, 512, 2048)
SEEDS = (1, 2, 3, 4, 5)
ITERATIONS = 4
PROGRAMS: tuple[str, ...] = ("shared", "atp", "exclusive")


def entries(jobs: int, program: str, *, quick: bool = False) -> tuple[Job, ...]:
    """Return that many equal jobs."""
    return tuple(
        Job(
            name=f"job{number}",
            workers=WORKERS,
            window=WINDOW,
            congestion="fixed" if program == "exclusive" else "aimd",
            numbers="fixed",
            iterations=2 if quick else ITERATIONS,
            layers_bytes=float32_bytes(tuple(length // 4 for length in TENSORS) if quick else TENSORS),
            compute_s=COMPUTE_S,
            jitter=0.05,
        )
        for number in range(1, jobs + 1)
    )


def scenarios(quick: bool) -> list[Scenario]:
    """Return the sweep."""
    found = []
    for jobs in JOBS[:2] if quick else JOBS:
        for program in PROGRAMS:
            for slots in SLOTS[::3] if quick else SLOTS:
                if program == "exclusive" and slots // jobs < 2:
                    continue
                for seed in SEEDS[:1] if quick else SEEDS:
                    labels: ResultRow = {"jobs": jobs, "program": program, "slots": slots, "seed": seed}
                    settings = VirtualSettings(program=program, slots=slots, seed=seed, samples=0)
                    of = entries(jobs, program, quick=quick)
                    found.append(Scenario(labels=labels, jobs=of, settings=settings))
    return found


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


def speeds(rows: Sequence[ResultRow], jobs: int, program: str) -> dict[int, float]:
    """Return the mean speed of that many jobs by slots, relative to the best with the most memory."""
    return {slots: statistics.fmean(values) for slots, values in _speeds(rows, jobs, program).items()}


def _speeds(rows: Sequence[ResultRow], jobs: int, program: str) -> dict[int, list[float]]:
    """Return the speeds of all seeds by slots."""
    means = averaged(selected(rows, jobs=jobs), ("program", "slots"))
    most = max(number(row, "slots") for row in means)
    best = min(number(row, "iteration_s") for row in means if row["slots"] == most)
    found: dict[int, list[float]] = {}
    for row in selected(rows, jobs=jobs, program=program):
        found.setdefault(int(number(row, "slots")), []).append(best / number(row, "iteration_s"))
    return found


def job_counts(rows: Sequence[ResultRow]) -> list[int]:
    """Return the numbers of jobs that were run."""
    return list(dict.fromkeys(int(number(row, "jobs")) for row in rows))


def _jobs(count: int) -> str:
    return f"{count} job{'s' if count > 1 else ''}"


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table per number of jobs."""
    parts = []
    means = averaged(rows, ("jobs", "program", "slots"))
    for jobs in job_counts(rows):
        by_program = {program: _speeds(rows, jobs, program) for program in PROGRAMS}
        lines = []
        for row in selected(means, jobs=jobs, program="shared"):
            slots = int(number(row, "slots"))
            of = [found.get(slots) for found in by_program.values()]
            lines.append(
                [
                    f"{slots}",
                    *(spread(values, ".0%") if values else "cannot run" for values in of),
                    f"{number(row, 'aggregated_share'):.1%}",
                    f"{number(row, 'fallback_bytes_per_iteration') / 1e6:.2f} MB",
                    f"{1e3 * number(row, 'iteration_s'):.2f} ms",
                    f"{1e3 * number(row, 'longest_iteration_s'):.2f} ms",
                ]
            )
        columns = ["slots", *(f"speed, {program}" for program in PROGRAMS), "in the switch", "fallback"]
        columns += ["iteration, shared", "longest"]
        parts.append(f"### {_jobs(jobs).capitalize()}\n\n{markdown(columns, lines)}")
    return "\n\n".join(parts)


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw speed over memory."""
    lines = {}
    slots_used = sorted({int(number(row, "slots")) for row in rows})
    place = {slots: float(position) for position, slots in enumerate(slots_used)}
    for jobs in job_counts(rows):
        for program in PROGRAMS:
            points = [(place[slots], 100 * speed) for slots, speed in speeds(rows, jobs, program).items()]
            if points:
                lines[f"{_jobs(jobs)}, {program}"] = points
    path = directory / "memory.svg"
    ticks = [(position, f"{slots}") for slots, position in place.items()]
    dashed = [name for name in lines if not name.endswith("shared")]
    draw_lines(lines, path, x="slots of the switch", y="speed (% of the best)", x_ticks=ticks, dashed=dashed)
    return [path]


EXPERIMENT = Experiment(
    name="memory",
    title="Memory sweep: shared and exclusive slots",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
