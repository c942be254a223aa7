"""Traffic of two-level trees: a job's bytes on the links if no switch adds, the root, or the racks too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    markdown,
    number,
    selected,
)
from bmv2_topos.plots import draw_lines, ticks
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, float32_bytes

SHAPES = ((2, 4), (4, 4), (4, 8))
"""Racks, and workers in each."""
ELEMENTS = 32768
ITERATIONS = 2
WINDOW = 16
"""In flight: so few that with 32 workers nothing waits for the server so long that it is sent again."""

SERVER, ROOT, BOTH = "server alone", "root", "racks and root"
WHERE: Final = (SERVER, ROOT, BOTH)

QUESTION = """
How much of a job's traffic do two levels of aggregation take off the links, and how much of that is due to
which level? ATP's authors report 66 % less traffic in a simulated topology, with racks' switches and the
servers' rack's switch adding.
"""

ABOUT = f"""
One job, its workers in racks under one root, its fallback server at the root, program shared with ample
slots, {WINDOW} packets in flight, {ELEMENTS * 4 >> 10} KB per iteration. All switches add (*{BOTH}*), the
root alone (*{ROOT}*: those of the racks pass on), or none (*{SERVER}*: it gets every packet). *Trunks* are
the bytes between switches, both ways, per iteration; *all links* those of hosts and the fallback server too;
*less* what is missing of *{SERVER}*. *Time* is that of an iteration. Nothing here is random, so there are no
seeds.
"""

LIMITS = """
Going down, a result is sent once on each link, whichever node adds, which bounds what can be saved: a
server of today sends it to each worker. Racks that add while the root does not are left out, for a job's
root must. **What differs from the paper.** ATP's servers send results to workers one by one or have
switches copy them; the topology of its simulation is larger, and its figure is of traffic from many jobs.
"""


def scenarios(quick: bool) -> list[Scenario]:
    """Return each tree with each choice of switches that add."""
    return [
        Scenario(
            labels={"racks": racks, "per_rack": per_rack, "where": where},
            jobs=(_job(racks * per_rack),),
            settings=VirtualSettings(slots=0 if where == SERVER else 8192, samples=0),
            shape=(racks, per_rack),
            transit=(1,) if where == ROOT else (),
        )
        for racks, per_rack in (SHAPES[:1] if quick else SHAPES)
        for where in WHERE
    ]


def _job(workers: int) -> Job:
    return Job(
        name="job",
        workers=workers,
        window=WINDOW,
        numbers="fixed",
        iterations=ITERATIONS,
        layers_bytes=float32_bytes((ELEMENTS,)),
        compute_s=0.0,
    )


def measure(report: Report) -> ResultRow:
    """Return bytes per iteration and the time of one."""
    (job,) = report.jobs
    return {
        "iteration_s": job.mean_iteration_s,
        "trunk_bytes": report.trunk_bytes / job.iterations,
        "all_bytes": (report.trunk_bytes + report.host_bytes) / job.iterations,
        "resent_packets": job.resent_packets,
    }


def saved(rows: Sequence[ResultRow], row: ResultRow, column: str) -> float:
    """Return the part of the traffic of the server alone that a row has not."""
    (alone,) = selected(rows, racks=row["racks"], per_rack=row["per_rack"], where=SERVER)
    return 1 - number(row, column) / number(alone, column)


def tables(rows: Sequence[ResultRow]) -> str:
    """Return one table of all trees."""
    lines = [
        [
            f"{row['racks']} x {row['per_rack']}, {row['where']}",
            f"{number(row, 'trunk_bytes') / 1e6:.2f} MB",
            f"{saved(rows, row, 'trunk_bytes'):.0%}",
            f"{number(row, 'all_bytes') / 1e6:.2f} MB",
            f"{saved(rows, row, 'all_bytes'):.0%}",
            f"{1e3 * number(row, 'iteration_s'):.2f} ms",
        ]
        for row in rows
    ]
    return markdown(["tree, who adds", "trunks", "less", "all links", "less", "time"], lines)


def findings(rows: Sequence[ResultRow]) -> str:
    """Compare the levels in the largest tree."""
    last = rows[-1]
    of = {
        where: selected(rows, racks=last["racks"], per_rack=last["per_rack"], where=where)[0]
        for where in WHERE
    }
    less = {
        where: [saved(rows, row, name) for name in ("trunk_bytes", "all_bytes")] for where, row in of.items()
    }
    times = {where: 1e3 * number(row, "iteration_s") for where, row in of.items()}
    return f"""
- {last["racks"]} racks of {last["per_rack"]}: both levels take {less[BOTH][0]:.0%} of the bytes off the
  trunks and {less[BOTH][1]:.0%} off all links. ATP reports 66 % of all traffic.
- The root alone takes {less[ROOT][0]:.0%} and {less[ROOT][1]:.0%}: it relieves the server's link. What
  trunks gain is the racks' doing.
- An iteration takes {times[SERVER]:.2f} ms with the server alone, {times[ROOT]:.2f} with the root,
  {times[BOTH]:.2f} with both.
"""


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw traffic by tree."""
    shapes = list(dict.fromkeys((row["racks"], row["per_rack"]) for row in rows))
    lines = {
        where: [
            (float(place), number(row, "all_bytes") / 1e6)
            for place, (racks, per_rack) in enumerate(shapes)
            for row in selected(rows, racks=racks, per_rack=per_rack, where=where)
        ]
        for where in WHERE
    }
    path = directory / "traffic.svg"
    labels = ticks(f"{racks} x {per_rack}" for racks, per_rack in shapes)
    draw_lines(lines, path, x="racks x workers", y="all links, MB per iteration", x_ticks=labels)
    return [path]


EXPERIMENT = Experiment(
    name="traffic",
    title="Traffic of two-level trees",
    question=QUESTION,
    about=ABOUT,
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    findings=findings,
    limits=LIMITS,
    plots=plots,
)
