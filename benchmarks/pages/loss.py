"""Cost of lost packets: goodput under loss relative to none, exclusive and shared, by size of the tensor.

One job does nothing but sum; every link loses packets at random, in both directions. Each run is made with
tail probes and without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Final

from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    column,
    grouped,
    markdown,
    mean_iteration_s,
    selected,
    spread,
)
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, Link, Straggler, float32_bytes

SLOTS: Final = 8192
WORKERS: Final = (4, 8)
SEEDS: Final = (1, 2, 3, 4, 5)
LOSSES: Final = (0.0, 1e-4, 1e-3, 1e-2)
MORE_LOSSES: Final = (*LOSSES, 2e-2, 5e-2)
"""Losses of the runs with the largest tensors."""
SIZES_KB: Final[Mapping[int, int]] = {16: 80, 64: 30, 256: 12, 1024: 5, 4096: 2}
"""Iterations by size of the tensor: about as many losses for each size."""
ON, OFF = "on", "off"
DRAWN: Final = 1e-3
"""Loss of the plot."""
KINDS: Final[Mapping[str, tuple[str, int]]] = {
    "exclusive": ("exclusive", 256),
    "shared": ("shared", 80),
    "shared, 256 in flight": ("shared", 256),
}
"""A program, and the number of packets that a worker may have in flight."""
STRAGGLER_S: Final = 2e-3


def scenarios(quick: bool) -> Iterator[Scenario]:
    """Return the sweep, and runs in which one rank of four computes for longer.

    The latter lose nothing, so that all retransmissions are needless. Their `size_kb` is 0.
    """
    job = Job(name="job", workers=4, numbers="fixed", compute_s=0.0)
    for kind, workers, size_kb in product(
        KINDS, WORKERS[:1] if quick else WORKERS, (16, 64) if quick else SIZES_KB
    ):
        summing = replace(
            job,
            workers=workers,
            iterations=10 if quick else SIZES_KB[size_kb],
            layers_bytes=float32_bytes((size_kb * 256,)),
        )
        losses = MORE_LOSSES if size_kb == max(SIZES_KB) else LOSSES
        for loss in (0.0, 1e-2) if quick else losses:
            for seed in SEEDS[:1] if quick or not loss else SEEDS:
                yield from _with_and_without(kind, summing, size_kb, loss, seed)
    straggling = replace(
        job,
        name="straggling",
        iterations=3 if quick else 20,
        layers_bytes=float32_bytes((4096,) * 12),
        compute_s=STRAGGLER_S / 8,
        straggler=Straggler(1, STRAGGLER_S),
    )
    for kind in KINDS:
        yield from _with_and_without(kind, straggling, 0, 0.0, 1)


def _with_and_without(kind: str, job: Job, size_kb: int, loss: float, seed: int) -> Iterator[Scenario]:
    program, in_flight = KINDS[kind]
    labels: ResultRow = {
        "kind": kind, "workers": job.workers, "size_kb": size_kb, "loss": loss, "seed": seed
    }  # fmt: skip
    for probes in (ON, OFF):
        settings = VirtualSettings(program=program, slots=SLOTS, seed=seed, samples=0)
        if probes == OFF:
            settings = replace(settings, rto=replace(settings.rto, probe_s=None))
        yield Scenario(
            labels={**labels, "probes": probes},
            jobs=(replace(job, window=in_flight),),
            settings=settings,
            link=Link("a", "b", loss=loss),
        )


def measure(report: Report) -> ResultRow:
    """Return the columns that a run adds to its labels."""
    (job,) = report.jobs
    elements = job.checked_elements / job.workers / job.iterations
    return {
        "goodput_bps": 32 * elements / mean_iteration_s(report),
        "resent_share": job.resent_packets / (job.sent_packets - job.resent_packets),
        "lost_packets": report.lost_packets,
        "aggregated_share": job.aggregated_share,
    }


def relative(rows: Sequence[ResultRow], loss: float) -> list[float]:
    """Return goodputs relative to those without loss, in the rows of one kind, workers, size and probes."""
    whole = fmean(column(rows, "goodput_bps", loss=0.0))
    return [goodput / whole for goodput in column(rows, "goodput_bps", loss=loss)]


def by_kind(rows: Sequence[ResultRow]) -> Iterator[tuple[str, str, list[ResultRow]]]:
    """Return the rows of each kind, with probes and without."""
    for kind, probes in product(KINDS, (ON, OFF)):
        yield kind, probes, selected(rows, kind=kind, probes=probes)


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table per number of workers, and tables of goodput without loss and of the straggler."""
    parts, without = [], []
    sums = [row for row in rows if row["size_kb"]]
    for (workers,), here in grouped(sums, "workers").items():
        lines = []
        for (size_kb,), group in grouped(here, "size_kb").items():
            whole = [fmean(column(each, "goodput_bps", loss=0.0)) / 1e9 for _, _, each in by_kind(group)]
            size = _size(size_kb)
            without.append([f"{workers} workers, {size}", *(f"{goodput:.2f} Gb/s" for goodput in whole)])
            for (loss,) in grouped(group, "loss"):
                if loss:
                    cells = (cell for _, _, each in by_kind(group) for cell in _cells(each, loss))
                    lines.append([size, f"{loss:.2%}", *cells])
        heads = [head for kind in KINDS for head in (kind, "again", "no probes", "again")]
        parts.append(f"### {workers} workers\n\n{markdown(['tensor', 'loss', *heads], lines)}")
    heads = [head for kind in KINDS for head in (kind, "no probes")]
    parts.append(f"### Without loss\n\n{markdown(['goodput', *heads], without)}")
    straggling = selected(rows, size_kb=0)
    again = [
        [
            kind,
            *(
                f"{fmean(column(straggling, 'resent_share', kind=kind, probes=probes)):.2%}"
                for probes in (ON, OFF)
            ),
        ]
        for kind in KINDS
    ]
    title = "### Packets sent again for a straggler, nothing being lost"
    return "\n\n".join([*parts, f"{title}\n\n{markdown(['', 'probes', 'no probes'], again)}"])


def _cells(rows: Sequence[ResultRow], loss: float) -> list[str]:
    again = fmean(column(rows, "resent_share", loss=loss))
    return [spread(relative(rows, loss), ".0%"), f"{again:.1%}"]


def _size(size_kb: float) -> str:
    return f"{size_kb:g} KB" if size_kb < 1024 else f"{size_kb / 1024:g} MB"


EXPERIMENT = Experiment(
    name="loss",
    title="Loss: goodput relative to a network that loses nothing",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
)
