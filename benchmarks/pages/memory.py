"""Switch memory that aggregation needs: one array for all jobs against a region for each.

Jobs that communicate most of the time, each with eight workers on hosts of their own, share one switch whose
slots are swept from none to ample. Exclusive regions (SwitchML) limit the window to half a job's slots; in a
common array, this project's or ATP's, what finds no slot goes to the job's fallback server.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
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
AMPLE = 0.97
"""Least speed, relative to the best, at which memory counts as ample."""

QUESTION = """
How does the speed of jobs depend on the amount of switch memory, if each has its own region (program
`exclusive`, as in SwitchML), or all share one array (`shared`, and `atp`, which is ATP as published)?
Shared memory must never stop a job, and should degrade smoothly: ATP reports that half of the memory costs
5 to 10 %.
"""

ABOUT = f"""
{WORKERS} workers per job, each on a host of its own; all on one switch; links of 10 Gb/s and 2 µs; packets
of 64 values; tensors of {", ".join(map(str, TENSORS))} elements; {COMPUTE_S * 1e6:.0f} µs of computing per
iteration, ± 5 %; {ITERATIONS} iterations; means of {len(SEEDS)} seeds. `slots` are all that the switch has,
for all jobs together. A worker has up to {WINDOW} packets in flight, a bit more than a round trip's worth;
exclusive: no more than half of the job's region, which is a power of two; a job with fewer than two slots
cannot run. Congestion control: AIMD (shared, atp), fixed window (exclusive).

*Speed* is the iteration rate relative to that of the fastest program with the most memory in the sweep; the
mean over the jobs and the seeds (least..most of the seeds). *In the switch* is the share of contributions
that a slot took in, *fallback* the traffic of a job's fallback server, both ways, per iteration, *longest*
the longest iteration of any job; these are of the program shared.
"""

CONCLUSION = """
If a region holds fewer packets than a round trip needs, exclusive jobs are limited by the window; shared
ones keep their window, and packets that collide go on to the fallback server. The PSNs of a shared job use
consecutive slots of the array: alone, the job collides only if the array is smaller than its packets in
flight; beside others, only if they pass the same slots at the same time. ATP needs more memory for the same
speed, because it hashes positions, and holds a slot longer by a round trip to the server ([atp](atp.md) has
the cost of each).
"""

LIMITS = f"""
All jobs are alike, and each has a fallback server on a separate link: without switch memory, jobs that
shared one would be slower. A job without slots is limited by that link, which carries every worker's
packets; the ratio at 0 slots is therefore about that of link rate to incast, and depends on the number of
workers. Links lose nothing here. Seeds differ much where memory is scarce, and only their means are smooth.
AIMD makes windows smaller where slots are scarce, which [addressing](addressing.md) leaves out. ATP's
window is its number of packets in flight, up to {WINDOW}; a round trip through the server is longer, so
with ample memory ATP is limited by the window.

**What differs from the papers.** SwitchML's and ATP's workers poll on dedicated cores at 10 and 100 Gb/s;
ours look at their packets every 5 µs. What differs between `atp` and the paper is in
[protocol](../protocol.md).
"""


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


def findings(rows: Sequence[ResultRow]) -> str:
    """Compare no memory and half of the ample memory with enough, and the programs with each other."""
    lines = []
    for jobs in job_counts(rows):
        shared = speeds(rows, jobs, "shared")
        parts = [f"{_jobs(jobs)}:"]
        if 0 in shared:
            parts.append(f"shared without any slot runs at {shared[0]:.0%}.")
        parts.append(_halving(shared))
        parts += [_lead(shared, speeds(rows, jobs, program), program) for program in PROGRAMS[1:]]
        lines.append(f"- {' '.join(filter(None, parts))}")
    return "\n".join([*lines, CONCLUSION])


def _lead(shared: Mapping[int, float], other: Mapping[int, float], program: str) -> str:
    """Name the slots with which shared is faster and slower than another program."""
    lead = {slots: shared[slots] / other[slots] for slots in sorted(set(shared) & set(other))}
    faster = [slots for slots in lead if lead[slots] > 1.01]
    slower = [slots for slots in lead if lead[slots] < 0.99]
    parts = []
    if faster:
        best = max(faster, key=lead.__getitem__)
        parts.append(
            f"Shared is faster than {program} at {_list(faster)} slots, {lead[best]:.1f} times at {best}."
        )
    if slower:
        worst = min(slower, key=lead.__getitem__)
        parts.append(f"It is slower than {program} at {_list(slower)}: {lead[worst]:.0%} of it at {worst}.")
    return " ".join(parts)


def _halving(by_slots: Mapping[int, float]) -> str:
    """State the cost of half of the memory that is just ample."""
    ample = min((slots for slots, speed in by_slots.items() if speed >= AMPLE), default=None)
    if ample is None or ample // 2 not in by_slots:
        return ""
    lost = 1 - by_slots[ample // 2] / by_slots[ample]
    return f"{ample} slots are ample for shared ({AMPLE:.0%} of the best); half of them cost {lost:.1%}."


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


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
    question=QUESTION,
    about=ABOUT,
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    findings=findings,
    limits=LIMITS,
    plots=plots,
)
