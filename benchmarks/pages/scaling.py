"""Time of an allreduce by number of workers, in namespaces beside gloo's ring, and in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.pages import real
from bmv2_topos.harness import Experiment, ResultRow, Run, grouped, markdown, number, selected

SIZES: Final = {1e9: 64 << 20, 1e8: 16 << 20}
"""Bytes of the array by the links' rate, bits/s."""
WINDOWS: Final = {1e9: 1024, 1e8: 512}
"""Packets in flight: for 9 and 45 ms, times for which the scheduler may pause a host."""
WORKERS: Final = (2, 4, 8)
VIRTUAL, NETNS = "virtual", "netns"


def scenarios(quick: bool) -> Iterator[Run]:
    """Return all rates and numbers of workers, in namespaces and in virtual time.

    `quick`: four workers, at 1 Gb/s alone in namespaces; on links of 100 Mb/s the page few-bits has them.
    """
    for rate_bps, size in SIZES.items():
        for workers in WORKERS[1:2] if quick else WORKERS:
            size_bytes = size // 8 if quick else size
            wire_s = real.wire_s(size_bytes, rate_bps)
            labels: ResultRow = {"rate_bps": rate_bps, "workers": workers, "wire_s": wire_s}
            run = real.RealAllreduce(
                labels={**labels, "runner": NETNS},
                workers=workers,
                rate_bps=rate_bps,
                size_bytes=size_bytes,
                iterations=2 if quick else 3,
                window=WINDOWS[rate_bps],
                blocks=("block16",),
            )
            if not (quick and rate_bps < 1e9):
                yield run
            yield real.in_virtual_time(run, {**labels, "runner": VIRTUAL})


def share(row: ResultRow, time: str = "time_s") -> float:
    """Return the fraction of a link that data packets use in one direction."""
    return number(row, "wire_s") / number(row, time)


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table per rate."""
    heads = ["workers", "ina", "line rate", "best", "gloo", "ratio", "16 bits", "ratio", "processor", "load"]
    parts = []
    for (rate_bps,), here in grouped(rows, "rate_bps").items():
        lines = []
        for (workers,), group in grouped(here, "workers").items():
            modelled = [f"{share(row):.1%}" for row in selected(group, runner=VIRTUAL)] or ["not run"]
            measured = [_measured(row) for row in selected(group, runner=NETNS)] or [["not run"] * 9]
            lines.append([f"{workers}", *measured[0], *modelled])
        rate = "1 Gb/s" if rate_bps == 1e9 else "100 Mb/s"
        parts.append(f"### {rate}\n\n{markdown([*heads, 'virtual'], lines)}")
    return "\n\n".join(parts)


def _measured(row: ResultRow) -> list[str]:
    times = {name: number(row, f"{name}_s") for name in ("time", "gloo", "block16") if f"{name}_s" in row}
    beside = [
        cell
        for name, measured in (("gloo", "time"), ("block16", "block16"))
        for cell in (
            (f"{times[name]:.3f} s", f"**{times['gloo'] / times[measured]:.2f}**")
            if name in times and "gloo" in times
            else ("not run",) * 2
        )
    ]
    shares = [f"{share(row):.1%}", f"{share(row, 'best_s'):.1%}"]
    costs = [f"{number(row, 'processor_s'):.2f} s", f"{number(row, 'load'):.1f}"]
    return [f"{times['time']:.3f} s", *shares, *beside, *costs]


EXPERIMENT = Experiment(
    name="scaling",
    title="Workers: allreduce through a switch against a ring",
    scenarios=scenarios,
    measure=real.measured,
    tables=tables,
)
