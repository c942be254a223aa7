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

COMPARED: Final = (4, 8)
"""Numbers of workers whose times are compared with gloo's in words."""

QUESTION = """
Does the time of an allreduce stay the same however many workers there are, how much of the links' rate does
it use, in both directions at once, and how does it compare with a ring on the same links? SwitchML's authors
report a time that is constant in the number of workers, and more than twice the speed of NCCL with RDMA.
"""

ABOUT = f"""
One job of n workers, each on a host of its own at one switch, program exclusive, packets of {real.LANES}
values; on links of 1 Gb/s {SIZES[1e9] >> 20} MB of float32 and {WINDOWS[1e9]} packets in flight, on links of
100 Mb/s {SIZES[1e8] >> 20} MB and {WINDOWS[1e8]}. *netns*: processes in network namespaces, HTB at hosts, the
embedded switch's own rate at its ports; beside it gloo's ring (`torch.distributed`) by TCP in the same
processes on the same links, and ina in 16 bits, all taking turns; medians of {ITERATIONS}, the slowest rank
counts. *virtual*:
the same in virtual time, where hosts and switch need no time to compute, and hosts look at their packets
every {real.COALESCE_US} µs.

*Line rate* is what the data packets take of the link, payload and headers counted, in each direction; *best*
is that of the fastest allreduce. *Ratio* is gloo's median time over ina's, or over ina's in *16 bits*.
*Processor* are the seconds of all workers, without the switch, and *load* that of the machine before the run:
this one has two cores.
"""

LIMITS = """
All hosts and the switch share the machine's two cores: at 1 Gb/s they need most of both, and other load on
the machine affects the figures. At 100 Mb/s they do not. `ina` sends one more window of packets than there
is data, which announces exponents. The ring sends 2 (n - 1) / n times the array and TCP has headers of its
own, so that a ratio above 2 is out of reach: about 1.5 for 4 and 1.75 for 8 workers. On an overloaded
machine TCP suffers more than `ina` does; this explains larger ratios.

**What differs from the paper.** SwitchML's figures are of 10 and 100 Gb/s, a Tofino, and workers with DPDK
or RDMA; NCCL's ring is there what gloo's is here.
"""


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


def findings(rows: Sequence[ResultRow]) -> str:
    """Compare the times by number of workers, and with gloo's."""
    lines = []
    for rate_bps in dict.fromkeys(row["rate_bps"] for row in rows):
        of = selected(rows, rate_bps=rate_bps, runner=NETNS)
        if not of:
            continue
        times = [number(row, "time_s") for row in of]
        rings = [number(row, "gloo_s") for row in of]
        counts = f"{of[0]['workers']} to {of[-1]['workers']}"
        lines.append(
            f"- {_rate(rate_bps)}, {counts} workers: ina's times are within {max(times) / min(times):.2f} of"
            f" each other, gloo's within {max(rings) / min(rings):.2f}."
        )
        lines += [f"- {_rate(rate_bps)}: {_beside_gloo(row)}." for row in of if row["workers"] in COMPARED]
    return "\n".join(lines)


def _beside_gloo(row: ResultRow) -> str:
    workers = int(number(row, "workers"))
    parts = [f"{workers} workers are {number(row, 'ratio_vs_gloo'):.2f} times as fast as gloo's ring"]
    if workers == 4:
        parts.append(f"at {share(row):.1%} of line rate (best {share(row, 'best_s'):.1%})")
    if "block16_s" in row:
        parts.append(f"and in 16 bits {number(row, 'block16_ratio_vs_gloo'):.2f} times as fast")
    return " ".join(parts)


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
    question=QUESTION,
    about=ABOUT,
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    findings=findings,
    limits=LIMITS,
    plots=plots,
)
