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
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
