"""Packets per second of the embedded switch and of BMv2: the same P4, the same traffic, the same testbed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.pages import real
from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Run,
    markdown,
    number,
)
from bmv2_topos.plots import draw_lines
from bmv2_topos.testbeds.virtual import Report

EMBEDDED, BMV2, VIRTUAL = "embedded", "bmv2", "virtual"
LANES = 32
WINDOW = 32
WORKERS = (2, 4)
SIZES = {EMBEDDED: 4 << 20, BMV2: 1 << 18}
"""Bytes of the array: what takes about as long."""
ITERATIONS = 5
VIRTUAL_BPS = 1e10


def scenarios(quick: bool) -> list[Run]:
    """Return both targets with each number of workers, and the same traffic in virtual time."""
    return list(_scenarios(quick))


def _scenarios(quick: bool) -> Iterator[Run]:
    for workers in WORKERS[:1] if quick else WORKERS:
        for target, size_bytes in SIZES.items():
            run = real.RealAllreduce(
                labels={"workers": workers, "target": target, "size_bytes": size_bytes},
                workers=workers,
                rate_bps=0.0,
                size_bytes=size_bytes,
                iterations=2 if quick else ITERATIONS,
                gloo=False,
                window=WINDOW,
                lanes=LANES,
                target=target,
            )
            yield run
        labels: ResultRow = {"workers": workers, "target": VIRTUAL, "size_bytes": SIZES[BMV2]}
        modelled = replace(run, rate_bps=VIRTUAL_BPS, size_bytes=SIZES[BMV2])
        yield real.in_virtual_time(modelled, labels, coalesce_us=5)


def measure(report: Report | real.Times) -> ResultRow:
    """Return packets, per second where it is real."""
    if isinstance(report, Report):
        (job,) = report.jobs
        return {"sent_packets": job.sent_packets, "resent_packets": job.resent_packets}
    return {
        "packets_per_s": report.of.packets / median(report.ina_s),
        "best_packets_per_s": report.of.packets / min(report.ina_s),
        "packets_per_switch_s": report.sent_packets / report.switch_s,
        "sent_packets": report.sent_packets,
        "resent_packets": report.resent_packets,
        "load": report.load,
    }


def _one(rows: Sequence[ResultRow], workers: object, target: str) -> ResultRow | None:
    found = [row for row in rows if row["workers"] == workers and row["target"] == target]
    return found[0] if found else None


def _workers(rows: Sequence[ResultRow]) -> list[object]:
    return list(dict.fromkeys(row["workers"] for row in rows))


def tables(rows: Sequence[ResultRow]) -> str:
    """Return one table."""
    lines = []
    for workers in _workers(rows):
        for target in SIZES:
            if row := _one(rows, workers, target):
                rates = (number(row, name) for name in ("packets_per_s", "best_packets_per_s"))
                line = [f"{workers}, {target}", *(f"{rate:,.0f}" for rate in rates)]
                line += [f"{number(row, 'packets_per_switch_s'):,.0f}", f"{number(row, 'load'):.1f}"]
            else:
                line = [f"{workers}, {target}", *["not run"] * 4]
            lines.append(line)
    return markdown(["workers, target", "packets/s", "best", "of the switch", "load"], lines)


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw packets per second by workers."""
    lines = {}
    for target in SIZES:
        of = [row for row in rows if row["target"] == target]
        for name, column in (("", "packets_per_s"), (" of the switch", "packets_per_switch_s")):
            if of:
                lines[f"{target}, per second{name}"] = [
                    (number(row, "workers"), number(row, column) / 1e3) for row in of
                ]
    path = directory / "targets.svg"
    dashed = [name for name in lines if name.endswith("switch")]
    draw_lines(lines, path, x="workers", y="thousand packets", dashed=dashed)
    return [path]


EXPERIMENT = Experiment(
    name="targets",
    title="Packet rate: the embedded switch against BMv2",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
