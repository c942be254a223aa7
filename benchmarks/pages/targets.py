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
FASTEST = 50_000
"""Packets/s of a BMv2 that is built with -O3 and without logging, on one core: not measured here."""
VIRTUAL_BPS = 1e10

QUESTION = """
How many packets per second do the embedded switch and BMv2 aggregate? BMv2's authors state 1 Gb/s or 80,000
packets/s at best, for a tiny program built without logging; users see 10 to 30 Mb/s. Those who published GRID
refused BMv2 for that.
"""

ABOUT = f"""
`p4src/exclusive.p4` with {LANES} lanes on both, one switch in a namespace of its own, its hosts' links
without a rate; allreduces of float32 by {" and ".join(map(str, WORKERS))} workers with {WINDOW} packets in
flight. *Packets* are those that workers send and the switch takes in, per second of the median allreduce;
results go out besides, one per worker and sum. *Of the switch* are all packets of the run per second of the
switch's own processor time, admission included: that is what a loaded machine disturbs least. *{VIRTUAL}* is
the same traffic in virtual time at {VIRTUAL_BPS / 1e9:.0f} Gb/s: how many packets it takes if none is lost.
"""

LIMITS = f"""
Workers and switch share two cores, so that the embedded switch is not the only limit: `ina bench pipeline`
measures its program alone. BMv2 gets no superframes, and takes and sends each frame by itself; with the
embedded switch the kernel joins those of a flow. BMv2 here is 1.15.5, built with -O1 and with its logging
compiled in (but off), which is several times slower than its fastest build: hence the ratios to what that
build is known to do on a machine like this, {FASTEST:,} packets/s with {LANES} lanes. Without BMv2 on PATH
this page has no rows of it: `simple_switch_grpc` is built from <https://github.com/p4lang/behavioral-model>,
`p4c-bm2-ss` from <https://github.com/p4lang/p4c>.
"""


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


def ratio(rows: Sequence[ResultRow], workers: object, name: str) -> float | None:
    """Return a column of the embedded switch relative to BMv2's; None: one is missing."""
    ours, reference = (_one(rows, workers, target) for target in SIZES)
    return number(ours, name) / number(reference, name) if ours and reference else None


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


def findings(rows: Sequence[ResultRow]) -> str:
    """State the ratios."""
    lines = []
    for workers in _workers(rows):
        of_time, of_switch = (ratio(rows, workers, f"packets_per_{name}") for name in ("s", "switch_s"))
        if of_time is not None and of_switch is not None:
            lines.append(
                f"- {workers} workers: the embedded switch aggregates {of_time:.1f} times as many packets per"
                f" second as BMv2, and {of_switch:.1f} times as many per second of"
                " the switch's processor time."
            )
        if ours := _one(rows, workers, EMBEDDED):
            load = number(ours, "load")
            names = ("packets_per_s", "packets_per_switch_s")
            of_time, of_switch = (number(ours, name) / FASTEST for name in names)
            lines.append(
                f"- {workers} workers, against {FASTEST:,} packets/s of BMv2's fastest build: {of_time:.1f}"
                f" times per second, workers included, and {of_switch:.1f} per second of the switch's"
                f" processor time (load {load:.0f} on two cores)."
            )
    return "\n".join(lines)


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
    question=QUESTION,
    about=ABOUT,
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    findings=findings,
    limits=LIMITS,
    plots=plots,
)
