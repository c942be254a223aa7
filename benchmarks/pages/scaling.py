"""Time of an allreduce by number of workers, in namespaces beside gloo's ring, and in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.pages import real
from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Run,
    Value,
    markdown,
    number,
    selected,
)
from bmv2_topos.plots import draw_lines
from bmv2_topos.testbeds.virtual import Report

SIZES: Final = {1e9: 64 << 20, 1e8: 16 << 20}
"""Bytes of the array by the links' rate, bits/s."""
WINDOWS: Final = {1e9: 1024, 1e8: 512}
"""Packets in flight: for 9 and 45 ms, for which the scheduler may leave a host out."""
WORKERS: Final = {1e9: (2, 4, 8), 1e8: (2, 4, 8)}
ITERATIONS = 3
VIRTUAL, NETNS = "virtual", "netns"


def scenarios(quick: bool) -> list[Run]:
    """Return all rates and numbers of workers, in namespaces and in virtual time.

    `quick`: four workers, at 1 Gb/s alone in namespaces; on links of 100 Mb/s the page few-bits has them.
    """
    return list(_scenarios(quick))


def _scenarios(quick: bool) -> Iterator[Run]:
    for rate_bps, size in SIZES.items():
        for workers in WORKERS[rate_bps][1:2] if quick else WORKERS[rate_bps]:
            size_bytes = size // 8 if quick else size
            labels: ResultRow = {
                "rate_bps": rate_bps,
                "workers": workers,
                "wire_s": real.wire_s(size_bytes, rate_bps),
            }
            run = real.RealAllreduce(
                labels={**labels, "runner": NETNS},
                workers=workers,
                rate_bps=rate_bps,
                size_bytes=size_bytes,
                iterations=2 if quick else ITERATIONS,
                window=WINDOWS[rate_bps],
                blocks=("block16",),
            )
            if not (quick and rate_bps < 1e9):
                yield run
            yield real.in_virtual_time(run, {**labels, "runner": VIRTUAL})


def measure(report: Report | real.Times) -> ResultRow:
    """Return times, of gloo's too where it ran."""
    if isinstance(report, Report):
        return {"time_s": report.jobs[0].mean_iteration_s, "resent_packets": report.jobs[0].resent_packets}
    row: dict[str, Value] = {
        "time_s": median(report.ina_s),
        "best_s": min(report.ina_s),
        "worst_s": max(report.ina_s),
        "processor_s": median(report.processor_s),
        "load": report.load,
        "resent_packets": report.resent_packets,
    }
    if report.gloo_s:
        row |= {"gloo_s": median(report.gloo_s), "gloo_best_s": min(report.gloo_s)}
        row |= {"ratio_vs_gloo": median(report.gloo_s) / median(report.ina_s)}
    if report.gloo_s and (block16_s := report.blocks_s.get("block16")):
        row |= {"block16_s": median(block16_s)}
        row |= {"block16_ratio_vs_gloo": median(report.gloo_s) / median(block16_s)}
    least_s = real.wire_s(report.of.size_bytes, report.of.rate_bps)
    return row | {"line_rate_share": least_s / median(report.ina_s), "switch_s": report.switch_s}


def share(row: ResultRow, time: str = "time_s") -> float:
    """Return the fraction of a link that data packets use in one direction."""
    return number(row, "wire_s") / number(row, time)


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table per rate."""
    heads = ["workers", "ina", "line rate", "best", "gloo", "ratio", "16 bits", "ratio"]
    heads += ["processor", "load", "virtual"]
    parts = []
    for rate_bps in dict.fromkeys(row["rate_bps"] for row in rows):
        lines = []
        for workers in dict.fromkeys(row["workers"] for row in selected(rows, rate_bps=rate_bps)):
            of = selected(rows, rate_bps=rate_bps, workers=workers)
            modelled = [f"{share(row):.1%}" for row in selected(of, runner=VIRTUAL)] or ["not run"]
            lines.append([f"{workers}", *_measured(selected(of, runner=NETNS)), *modelled])
        parts.append(f"### {_rate(rate_bps)}\n\n{markdown(heads, lines)}")
    return "\n\n".join(parts)


def _measured(found: Sequence[ResultRow]) -> list[str]:
    if not found:
        return ["not run"] * 9
    (row,) = found
    return [
        f"{number(row, 'time_s'):.3f} s",
        f"{share(row):.1%}",
        f"{share(row, 'best_s'):.1%}",
        f"{number(row, 'gloo_s'):.3f} s",
        f"**{number(row, 'ratio_vs_gloo'):.2f}**",
        *_in_16_bits(row),
        f"{number(row, 'processor_s'):.2f} s",
        f"{number(row, 'load'):.1f}",
    ]


def _in_16_bits(row: ResultRow) -> list[str]:
    if "block16_s" not in row:
        return ["not run"] * 2
    return [f"{number(row, 'block16_s'):.3f} s", f"**{number(row, 'block16_ratio_vs_gloo'):.2f}**"]


def _rate(rate_bps: Value) -> str:
    return "1 Gb/s" if rate_bps == 1e9 else "100 Mb/s"


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw times relative to what the wire takes, by workers."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for rate_bps in dict.fromkeys(row["rate_bps"] for row in rows):
        for name, runner, time in (
            ("ina", NETNS, "time_s"),
            ("gloo", NETNS, "gloo_s"),
            ("virtual", VIRTUAL, "time_s"),
        ):
            of = selected(rows, rate_bps=rate_bps, runner=runner)
            points = [(number(row, "workers"), 1 / share(row, time)) for row in of]
            if points:
                lines[f"{name}, {_rate(rate_bps)}"] = points
    path = directory / "scaling.svg"
    dashed = [name for name in lines if name.startswith("virtual")]
    draw_lines(lines, path, x="workers", y="time, relative to the packets' on a link", dashed=dashed)
    return [path]


EXPERIMENT = Experiment(
    name="scaling",
    title="Workers: allreduce through a switch against a ring",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
