"""Traffic of two-level trees: a job's bytes on the links if no switch adds, the root, or the racks too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from bmv2_topos.harness import Experiment, ResultRow, Scenario, grouped, markdown, number
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, float32_bytes

SHAPES: Final = ((2, 4), (4, 4), (4, 8))
"""Racks, and workers in each."""
SERVER, ROOT, BOTH = "server alone", "root", "racks and root"


def scenarios(quick: bool) -> Iterator[Scenario]:
    """Return each tree with each choice of switches that add."""
    for (racks, per_rack), where in product(SHAPES[:1] if quick else SHAPES, (SERVER, ROOT, BOTH)):
        job = Job(
            name="job",
            workers=racks * per_rack,
            window=16,  # so few that with 32 workers nothing waits for the server until it is sent again
            numbers="fixed",
            iterations=2,
            layers_bytes=float32_bytes((32768,)),
            compute_s=0.0,
        )
        yield Scenario(
            labels={"racks": racks, "per_rack": per_rack, "where": where},
            jobs=(job,),
            settings=VirtualSettings(slots=0 if where == SERVER else 8192, samples=0),
            shape=(racks, per_rack),
            transit=(1,) if where == ROOT else (),
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


def tables(rows: Sequence[ResultRow]) -> str:
    """Return one table of all trees, beside the traffic of the server alone."""
    lines = []
    for (racks, per_rack), group in grouped(rows, "racks", "per_rack").items():
        for row in group:
            sent = [(number(row, name), number(group[0], name)) for name in ("trunk_bytes", "all_bytes")]
            cells = [
                cell for here, alone in sent for cell in (f"{here / 1e6:.2f} MB", f"{1 - here / alone:.0%}")
            ]
            name = f"{racks} x {per_rack}, {row['where']}"
            lines.append([name, *cells, f"{1e3 * number(row, 'iteration_s'):.2f} ms"])
    return markdown(["tree, who adds", "trunks", "less", "all links", "less", "time"], lines)


EXPERIMENT = Experiment(
    name="traffic",
    title="Traffic of two-level trees",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
)
