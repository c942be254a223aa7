"""What gradients in 16, 8 and 4 bits save on slow links: goodput by size of the array, beside float32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from benchmarks.pages import real
from bmv2_topos.harness import Experiment, ResultRow, Run, grouped, markdown, number, selected
from hostlib.wire import encodings

RANKS: Final = 4
RATE_BPS: Final = 1e8
SIZES: Final = (4096, 65536, 1 << 20, 16 << 20)
"""Bytes of the arrays that are summed, as float32."""
VIRTUAL, NETNS = "virtual time", "namespaces"


def scenarios(quick: bool) -> Iterator[Run]:
    """Return the allreduces: in virtual time by encoding, by real processes all encodings in turns."""
    for size in SIZES[1:2] if quick else SIZES:
        allreduce = real.RealAllreduce(
            labels={"part": NETNS, "size_bytes": size},
            workers=RANKS,
            rate_bps=RATE_BPS,
            size_bytes=size,
            iterations=2 if quick else 5,
            beside=(),
            blocks=encodings.BLOCKS,
        )
        for numbers in encodings.NUMBERS:
            labels: ResultRow = {"part": VIRTUAL, "size_bytes": size, "way": numbers}
            simulated = real.in_virtual_time(allreduce, labels)
            yield replace(simulated, jobs=(replace(simulated.jobs[0], numbers=numbers),))
        yield allreduce


def gains(rows: Sequence[ResultRow]) -> list[float]:
    """Return the goodput of the blocks relative to float32's with exponents, for one size on one runner."""
    times = {str(row.get("way", "exponent")): number(row, "time_s") for row in rows}
    times |= {block: number(rows[0], f"{block}_s") for block in encodings.BLOCKS if f"{block}_s" in rows[0]}
    return [times["exponent"] / times[block] for block in encodings.BLOCKS]


def tables(rows: Sequence[ResultRow]) -> str:
    """Return goodput by size."""
    lines = [
        [part, f"{size:,} B", *(f"{gain:.2f}" for gain in gains(group))]
        for part in (VIRTUAL, NETNS)
        for (size,), group in grouped(selected(rows, part=part), "size_bytes").items()
    ]
    return markdown(["goodput", "array", *(f"{block} ÷ float32" for block in encodings.BLOCKS)], lines)


EXPERIMENT = Experiment(
    name="few-bits",
    title="Gradients in 16, 8 and 4 bits",
    scenarios=scenarios,
    measure=real.measured,
    tables=tables,
)
