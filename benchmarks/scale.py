"""Growth of a simulation's time and memory with the length of the trace.

`python -m benchmarks.scale` simulates generated traces of 1,000 to 100,000 jobs, each in a process of its
own, and prints a table; `--output docs/results` writes page, rows and plot. The load is the same for all
lengths, so that longer traces do not mean longer queues. A policy is not taken to a length for which it would
need more than `--budget` seconds, by what it needed for the one before.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.ablations import resolved
from benchmarks.apart import apart
from bmv2_topos.harness import markdown
from bmv2_topos.wrap import wrap
from controller.figures import PlotsMissing, new_figure, save
from controller.policies.families.base import SimulationConfig
from controller.simulator.runs import RunFailed, Source, Task, kind_for, run
from controller.vocabulary import Cluster

POLICIES = (
    "fifo,srtf,srsf,las,tiresias,muri-s,muri-replica:srtf,muri-replica:muri-s,"
    "synergy:fifo+tune,lucid:no-profiler"
)
LENGTHS = "1000,3000,10000,30000,100000"
LIMIT_MB = 2048


@dataclass(frozen=True, slots=True)
class ScaleRun:
    """One simulation: processor time without making the jobs, and the process's peak memory."""

    policy: str
    jobs: int
    time_s: float
    us_per_job: float
    decisions: int
    avg_queue: float
    memory_mb: float


def main() -> None:
    """Measure, print a table, and JSON and a page on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--jobs", default=LENGTHS, help="lengths of the traces, ascending, by comma")
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=120.0, metavar="SECONDS")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write scale.md, scale.json and scale.svg")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    lengths = [int(text) for text in options.jobs.split(",")]
    rows: list[ScaleRun] = []
    for policy in options.policies.split(","):
        try:
            rows += measure(policy, lengths, options.load, options.seed, options.budget)
        except RunFailed as error:
            raise SystemExit(f"benchmarks.scale: {error}") from None
        if sys.stderr.isatty():
            print(f"{policy}: done", file=sys.stderr)
    text = json.dumps(
        {"name": "scale", "load": options.load, "seed": options.seed, "rows": [asdict(row) for row in rows]},
        indent=1,
    )
    if options.output is not None:
        write(options.output, rows, text, options)
    print(text if options.json else tables(rows))


def measure(policy: str, lengths: Sequence[int], load: float, seed: int, budget_s: float) -> list[ScaleRun]:
    """Simulate `policy` on traces of these lengths, as long as the budget lasts. Raises RunFailed."""
    rows: list[ScaleRun] = []
    for jobs in lengths:
        if rows and rows[-1].time_s * (jobs / rows[-1].jobs) > budget_s:
            break
        rows.append(_apart(policy, jobs, load, seed))
    return rows


def _apart(policy: str, jobs: int, load: float, seed: int) -> ScaleRun:
    """Measure in a new process, so that the memory is that of this simulation alone."""
    found, memory_bytes = apart(policy, _simulated, policy, jobs, load, seed)
    took_s, decisions, avg_queue = found
    memory_mb = memory_bytes / 1024**2
    return ScaleRun(policy, jobs, took_s, took_s / jobs * 1e6, decisions, avg_queue, memory_mb)


def _simulated(policy: str, jobs: int, load: float, seed: int) -> tuple[float, int, float]:
    """Return the processor time of a simulation in seconds, its decisions, and the mean queue."""
    name, settings = resolved(policy)
    source = Source(count=jobs, load=load, seed=seed, kind=kind_for([name]))
    cluster = Cluster.uniform(8, 8, cpus=24, memory_gb=500)
    outcome = run(Task(name, source, SimulationConfig(cluster, seed=seed, settings=settings)))
    return outcome.cpu_s, outcome.metrics.decisions, outcome.metrics.avg_queue


def exponent(rows: Sequence[ScaleRun]) -> float:
    """Return b of time = a · jobs^b by least squares of the logarithms; NaN of fewer than two rows."""
    if len(rows) < 2:
        return math.nan
    x, y = [math.log(row.jobs) for row in rows], [math.log(row.time_s) for row in rows]
    return statistics.linear_regression(x, y).slope


def by_policy(rows: Sequence[ScaleRun]) -> dict[str, list[ScaleRun]]:
    """Return the rows of each policy."""
    found: dict[str, list[ScaleRun]] = {}
    for row in rows:
        found.setdefault(row.policy, []).append(row)
    return found


def tables(rows: Sequence[ScaleRun]) -> str:
    """Return tables by length: seconds with the exponent, mean queues, and memory."""
    lengths = sorted({row.jobs for row in rows})
    heads = [f"{length:,} jobs" for length in lengths]
    time_rows, queue_rows, memory_rows = [], [], []
    for policy, found in by_policy(rows).items():
        at = {row.jobs: row for row in found}
        # 1,000 jobs take so little time that the costs which do not depend on the length dominate
        fit = [row for row in found if row.jobs >= 3000]
        times = (f"{at[n].time_s:,.2f}" if n in at else "" for n in lengths)
        time_rows.append([f"`{policy}`", *times, "" if len(fit) < 2 else f"{exponent(fit):.2f}"])
        queues = (f"{at[n].avg_queue:,.1f}" if n in at else "" for n in lengths)
        queue_rows.append([f"`{policy}`", *queues])
        memory_rows.append([f"`{policy}`", *(f"{at[n].memory_mb:,.0f}" if n in at else "" for n in lengths)])
    return "\n\n".join(
        (
            "Processor seconds, and the exponent b of time = a · jobs^b from 3,000 jobs on:",
            markdown(["policy", *heads, "b"], time_rows),
            "Mean number of waiting jobs:",
            markdown(["policy", *heads], queue_rows),
            "Most memory of the process, MB:",
            markdown(["policy", *heads], memory_rows),
        )
    )


def write(directory: Path, rows: Sequence[ScaleRun], text: str, options: argparse.Namespace) -> None:
    """Write the page, its rows and its plot."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "scale.json").write_text(text + "\n", encoding="utf-8")
    picture = "![time and memory by length of the trace](scale.svg)"
    try:
        draw(rows, directory / "scale.svg")
    except PlotsMissing as error:
        print(f"no plot: {error}", file=sys.stderr)
        picture = ""
    longest = max(row.jobs for row in rows)
    complete = [name for name, found in by_policy(rows).items() if found[-1].jobs == longest]
    short = [name for name in by_policy(rows) if name not in complete]
    most = max(rows, key=lambda row: row.memory_mb)
    fits = [exponent([row for row in found if row.jobs >= 3000]) for found in by_policy(rows).values()]
    fits = [fit for fit in fits if not math.isnan(fit)]
    shown = [
        f"- Most memory: {most.memory_mb:,.0f} MB, `{most.policy}` on {most.jobs:,} jobs"
        f" ({'under' if most.memory_mb < LIMIT_MB else 'over'} 2 GB).",
        f"- Exponents are {min(fits):.2f} to {max(fits):.2f}; 1 is linear." if fits else "",
        f"- Up to {longest:,} jobs: {', '.join(f'`{name}`' for name in complete)}.",
    ]
    if short:
        names = ", ".join(f"`{name}`" for name in short)
        shown.append(f"- Left out beyond where the budget of {options.budget:g} s would end: {names}.")
    page = f"""# Long traces

How do time and memory of a simulation grow with the length of the trace?

## Setting

Generated jobs (`controller/simulator/generate.py`) on eight nodes of eight GPUs at load {options.load:g},
seed {options.seed}; every simulation in a process of its own. Time is the processor's, of the simulation
without making the jobs; for Lucid's policies with importing scikit-learn and training the packing tree.
Memory is the most that the process held, with Python and its libraries, the jobs and the results.
{os.cpu_count()} cores, Python {platform.python_version()}.

## Results

{tables(rows)}

{picture}

## What it shows

{chr(10).join(line for line in shown if line)}

The queue of `fifo` grows with the trace at this load, for a large job at its head leaves GPUs idle; its
decisions cost no more for that.

## Reproduce

```
python -m benchmarks.scale --budget {options.budget:g} --output docs/results
```

makes this page; the rows are in [scale.json](scale.json).
"""
    (directory / "scale.md").write_text(wrap(page), encoding="utf-8")


def draw(rows: Sequence[ScaleRun], path: Path) -> None:
    """Draw time and memory by length, with a line of slope one. Raises PlotsMissing."""
    figure, (above, below) = new_figure(2)
    for policy, found in by_policy(rows).items():
        lengths = [row.jobs for row in found]
        above.plot(lengths, [row.time_s for row in found], marker="o", markersize=3, label=policy)
        below.plot(lengths, [row.memory_mb for row in found], marker="o", markersize=3)
    least, most = min(row.jobs for row in rows), max(row.jobs for row in rows)
    start_s = min(row.time_s for row in rows)
    above.plot([least, most], [start_s, start_s * most / least], "k:", linewidth=1, label="linear")
    below.axhline(LIMIT_MB, color="0.5", linestyle=":", label="2 GB")
    above.set_ylabel("processor time (s)")
    below.set_ylabel("memory (MB)")
    below.set_xlabel("jobs")
    for panel in (above, below):
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.grid(alpha=0.3)
    above.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    below.legend(fontsize="x-small")
    save(figure, path)


if __name__ == "__main__":
    main()
