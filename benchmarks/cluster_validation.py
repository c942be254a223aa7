"""The tables of docs/results/cluster-validation.md: the flow-level simulator beside the packet testbed.

`python -m benchmarks.cluster_validation --output docs/results` runs each scenario twice: packet by packet in
the virtual testbed, and as flows, in phases and on average. A scenario is one to sixteen jobs on one switch
or on two racks, with a policy for switch memory. Nothing is fitted to a scenario: what the flows know of
packets is the frame's size, the window, and a round trip, from the topology.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import check, fill
from bmv2_topos.experiments.cases import LANES, RESENT, WINDOW, Case, alone_s, as_flows, as_packets
from bmv2_topos.experiments.harness import markdown
from bmv2_topos.jobfile import JobEntry
from bmv2_topos.testbeds.virtual import VirtualSettings, VirtualTestbed, build

NAME = "cluster-validation"
POLICY_NAMES = ("shared", "static", "deadline", "preemptive")

Row = dict[str, Any]


# ---------------------------------------------------------------------- scenarios


def cases() -> list[Case]:
    """Return all scenarios."""
    return [*_random(), *_by_policy()]


def _random() -> Iterator[Case]:
    """Yield 1 to 16 jobs of random sizes on one switch or two racks, with ample or scarce memory."""
    for seed in range(40):
        rng = random.Random(seed)
        count = (1, 2, 3, 4, 6, 8, 12, 16)[seed % 8]
        shape = (2, 2) if seed % 3 == 2 else None
        jobs = tuple(
            JobEntry(
                name=f"job{number}",
                workers=rng.choice((2, 3, 4)) if shape is None else 4,
                window=WINDOW,
                iterations=rng.randrange(4, 10),
                tensors=tuple(rng.choice((4096, 8192, 16384, 32768)) for _ in range(rng.choice((1, 2, 3)))),
                compute_s=rng.choice((1e-4, 2e-4, 4e-4)),
                jitter=rng.choice((0.0, 0.05, 0.1)),
                congestion="aimd",
                start_s=rng.choice((0.0, 1e-3, 2e-3)),
            )
            for number in range(1, count + 1)
        )
        slots = rng.choice((32 * count, 64 * count, 8192, 8192))
        yield Case(f"{'racks' if shape else 'switch'} {seed}", jobs, slots, "shared", shape)


def _by_policy() -> Iterator[Case]:
    """Yield the same jobs under each policy, so that policies can be ranked."""
    for seed in range(6):
        rng = random.Random(1000 + seed)
        count = (4, 8)[seed % 2]
        jobs = tuple(
            JobEntry(
                name=f"job{number}",
                workers=4,
                window=WINDOW,
                iterations=6,
                tensors=(rng.choice((8192, 16384)),),
                compute_s=rng.choice((1e-4, 3e-4)),
                jitter=0.1,
                congestion="aimd",
            )
            for number in range(1, count + 1)
        )
        slots = rng.choice((16, 24, 32)) * count
        times_s = [alone_s(job) * job.iterations for job in jobs]
        deadlines = tuple(
            time_s * rng.uniform(1.15, 1.6) if number < count // 2 else None
            for number, time_s in enumerate(times_s)
        )
        for memory in POLICY_NAMES:
            yield Case(f"policies {seed}", jobs, slots, memory, None, deadlines)


# ---------------------------------------------------------------------- both


def by_cost(chosen: Sequence[Case]) -> list[Case]:
    """Return the scenarios, those with fewest elements to be summed first; those of one name together."""
    return sorted(chosen, key=lambda case: (case.elements, case.name))


def compare(case: Case) -> list[Row]:
    """Return a row for each job of a scenario."""
    packets = as_packets(case)
    flows = {model: as_flows(case, model) for model in ("phases", "average")}
    found = {
        model: {each.spec.id: each.jct_s for each in simulated.result.jobs}
        for model, simulated in flows.items()
    }
    return [
        {
            "case": case.name,
            "memory": case.memory,
            "jobs": len(case.jobs),
            "slots": case.slots,
            "job": name,
            "packets_s": packet.jct_s,
            "sent": packet.sent_packets,
            "resent": packet.resent_packets,
            **{f"{model}_s": times[name] for model, times in found.items()},
        }
        for name, packet in packets.items()
    ]


def error(row: Row, model: str) -> float:
    """Return the relative error of a completion time."""
    return float(row[f"{model}_s"] / row["packets_s"] - 1)


def text(rows: Sequence[Row]) -> str:
    """Return all tables."""
    parts = []
    names = list(dict.fromkeys((row["case"], row["memory"]) for row in rows))
    cells = []
    for kind, chosen in {
        "all": rows,
        "one switch": [row for row in rows if row["case"].startswith("switch")],
        "two racks": [row for row in rows if row["case"].startswith("racks")],
        **{
            f"policies, {p}": [r for r in rows if r["case"].startswith("pol") and r["memory"] == p]
            for p in POLICY_NAMES
        },
    }.items():
        for model in ("phases", "average"):
            errors = sorted(abs(error(row, model)) for row in chosen)
            if errors:
                cells.append(
                    [
                        f"{kind}, {model}",
                        str(len({(row["case"], row["memory"]) for row in chosen})),
                        str(len(errors)),
                        f"{statistics.median(errors):.1%}",
                        f"{errors[min(len(errors) - 1, math.ceil(0.95 * len(errors)) - 1)]:.1%}",
                        f"{errors[-1]:.1%}",
                        f"{statistics.fmean(error(row, model) for row in chosen):+.1%}",
                    ]
                )
    columns = ["scenarios, model", "scenarios", "jobs", "median error", "p95", "worst", "mean, signed"]
    parts += [
        f"Completion times of jobs in {len(names)} of {len(cases())} scenarios:",
        markdown(columns, cells),
    ]
    parts += [_resends(rows)]
    parts += ["Ranks of the policies by mean completion time:", _ranks(rows)]
    bad = sorted(
        (row for row in rows if abs(error(row, "phases")) > 0.15), key=lambda row: -abs(error(row, "phases"))
    )
    cells = [
        [
            f"{row['case']}, {row['memory']}",
            row["job"],
            str(row["jobs"]),
            str(row["slots"]),
            f"{row['packets_s'] * 1e3:.2f}",
            f"{row['phases_s'] * 1e3:.2f}",
            f"{error(row, 'phases'):+.0%}",
        ]
        for row in bad[:40]
    ]
    parts += [f"Jobs that are off by more than 15 % in phases ({len(bad)} of {len(rows)}):"]
    if cells:
        parts.append(
            markdown(["scenario", "job", "jobs", "slots", "packets, ms", "phases, ms", "error"], cells)
        )
    return "\n\n".join(parts)


def _resends(rows: Sequence[Row]) -> str:
    """Return what jobs send again on links that they share, counted on every other scenario and the rest."""

    def part(odd: int) -> str:
        here = [row for row in rows if row["case"].startswith("racks") and row["jobs"] > 1]
        chosen = [row for row in here if int(row["case"].split()[1]) % 2 == odd]
        others = sum(row["sent"] * (row["jobs"] - 1) for row in chosen)
        return f"{sum(row['resent'] for row in chosen) / max(1, others):.2%}"

    return (
        f"For each further job on two racks {part(0)} of the packets are sent again in the scenarios with"
        f" even numbers and {part(1)} in those with odd ones; the flows count with {RESENT:.1%}."
    )


def _ranks(rows: Sequence[Row]) -> str:
    cells = []
    correlations: dict[str, list[float]] = {"phases": [], "average": []}
    for name in dict.fromkeys(row["case"] for row in rows if row["case"].startswith("policies")):
        means = {
            (memory, column): statistics.fmean(
                row[column] for row in rows if (row["case"], row["memory"]) == (name, memory)
            )
            for memory in POLICY_NAMES
            for column in ("packets_s", "phases_s", "average_s")
        }
        for model in correlations:
            correlations[model].append(
                _spearman(
                    [means[m, "packets_s"] for m in POLICY_NAMES],
                    [means[m, f"{model}_s"] for m in POLICY_NAMES],
                )
            )
        cells.append(
            [
                name,
                *(
                    f"{means[m, 'packets_s'] * 1e3:.2f} / {means[m, 'phases_s'] * 1e3:.2f}"
                    for m in POLICY_NAMES
                ),
                f"{correlations['phases'][-1]:.2f}",
                f"{correlations['average'][-1]:.2f}",
            ]
        )
    columns = [
        "jobs",
        *(f"{m}, packets / phases, ms" for m in POLICY_NAMES),
        "correlation, phases",
        "average",
    ]
    mean = {model: statistics.fmean(found) for model, found in correlations.items() if found}
    said = ", ".join(f"{value:.2f} ({model})" for model, value in mean.items())
    return f"{markdown(columns, cells)}\n\nMean rank correlation: {said}."


def _spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the rank correlation; times within 1 % of each other are of one rank."""
    a, b = (_rank(values) for values in (one, other))
    if np.std(a) == 0 or np.std(b) == 0:
        return 1.0 if np.std(a) == np.std(b) else 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _rank(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value * 0.99 for other in values)
        + (sum(abs(other / value - 1) <= 0.01 for other in values) - 1) / 2
        for value in values
    ]


def held() -> list[Row]:
    """Return what one job takes for an iteration with so many slots, its ranks in step or not."""
    rows = []
    for jitter in (0.0, 0.05, 0.1):
        job = JobEntry(
            name="a", workers=4, window=WINDOW, iterations=6, tensors=(65536,), compute_s=3e-4, jitter=jitter
        )
        for slots in (16, 35, WINDOW, 2 * WINDOW):
            topology, placements = build((job,), None, servers=True)
            settings = VirtualSettings(slots=slots, lanes=LANES, samples=0)
            report = VirtualTestbed(topology, (job,), placements, settings).run()
            rows.append({"jitter": jitter, "slots": slots, "iteration_s": report.jobs[0].mean_iteration_s})
    return rows


def held_text(rows: Sequence[Row]) -> str:
    """Return the table of how many slots a job needs."""
    slots = list(dict.fromkeys(row["slots"] for row in rows))
    cells = [
        [
            f"{jitter:.0%}",
            *(f"{r['iteration_s'] * 1e6:.0f}" for r in rows if r["jitter"] == jitter),
        ]
        for jitter in dict.fromkeys(row["jitter"] for row in rows)
    ]
    table = markdown(["jitter", *(f"{count} slots" for count in slots)], cells)
    return f"An iteration of one job of four workers, microseconds, packet by packet:\n\n{table}"


def main() -> None:
    """Run, print the tables, and write page and rows on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, metavar="DIR", help=f"write {NAME}.json, and into {NAME}.md")
    parser.add_argument(
        "--budget", type=float, default=math.inf, metavar="SECONDS", help="begin no scenario after this time"
    )
    given = parser.parse_args()
    if given.output is not None:
        check(given.output / f"{NAME}.md")
    rows: list[Row] = []
    began_s = time.monotonic()
    for case in by_cost(cases()):
        if time.monotonic() - began_s > given.budget:
            break
        rows += compare(case)
    of_slots = held()
    shown = f"{text(rows)}\n\n{held_text(of_slots)}"
    print(shown)
    if given.output is not None:
        fill(given.output / f"{NAME}.md", shown)
        document = json.dumps({"name": NAME, "rows": rows, "held": of_slots}, indent=1)
        (given.output / f"{NAME}.json").write_text(document + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
