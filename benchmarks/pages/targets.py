"""Packets per second of the embedded switch and of BMv2: the same P4, the same traffic, the same testbed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from benchmarks.pages import real
from bmv2_topos.harness import Experiment, ResultRow, Run, grouped, markdown, number, selected

EMBEDDED, BMV2, VIRTUAL = "embedded", "bmv2", "virtual"
LANES: Final = 32
WORKERS: Final = (2, 4)
SIZES: Final = {EMBEDDED: 4 << 20, BMV2: 1 << 18}
"""Bytes of the array: what takes about as long."""
VIRTUAL_BPS: Final = 1e10


def scenarios(quick: bool) -> Iterator[Run]:
    """Return both targets with each number of workers, and the same traffic in virtual time."""
    for workers in WORKERS[:1] if quick else WORKERS:
        for target, size_bytes in SIZES.items():
            run = real.RealAllreduce(
                labels={"workers": workers, "target": target, "size_bytes": size_bytes},
                workers=workers,
                rate_bps=0.0,
                size_bytes=size_bytes,
                iterations=2 if quick else 5,
                gloo=False,
                window=32,
                lanes=LANES,
                target=target,
            )
            yield run
        labels: ResultRow = {"workers": workers, "target": VIRTUAL, "size_bytes": SIZES[BMV2]}
        modelled = replace(run, rate_bps=VIRTUAL_BPS, size_bytes=SIZES[BMV2])
        yield real.in_virtual_time(modelled, labels, coalesce_us=5)


def tables(rows: Sequence[ResultRow]) -> str:
    """Return one table."""
    lines = []
    for (workers,), of in grouped(rows, "workers").items():
        for target in SIZES:
            cells = ["not run"] * 4
            for row in selected(of, target=target):
                packets = workers * number(row, "size_bytes") / (4 * LANES)
                counts = ((packets, "time_s"), (packets, "best_s"), (number(row, "sent_packets"), "switch_s"))
                rates = [f"{count / number(row, name):,.0f}" for count, name in counts]
                cells = [*rates, f"{number(row, 'load'):.1f}"]
            lines.append([f"{workers}, {target}", *cells])
    return markdown(["workers, target", "packets/s", "best", "of the switch", "load"], lines)


EXPERIMENT = Experiment(
    name="targets",
    title="Packet rate: the embedded switch against BMv2",
    scenarios=scenarios,
    measure=real.measured,
    tables=tables,
)
