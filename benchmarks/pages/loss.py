"""Cost of lost packets: goodput under loss relative to none, exclusive and shared, by size of the tensor.

One job does nothing but sum; every link loses packets at random, in both directions. Each run is made with
tail probes and without.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from bmv2_topos.harness import Experiment, ResultRow, Scenario, markdown, mean_iteration_s, number
from bmv2_topos.plots import draw_lines
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
PROBES: Final = ("on", "off")
STRAGGLER_S, STRAGGLER_ITERATIONS = 2e-3, 20


@dataclass(frozen=True, slots=True)
class Kind:
    """A program, and the number of packets that a worker may have in flight."""

    program: str
    in_flight: int


KINDS: Final[Mapping[str, Kind]] = {
    "exclusive": Kind("exclusive", 256),
    "shared": Kind("shared", 80),
    "shared, 256 in flight": Kind("shared", 256),
}


def scenarios(quick: bool) -> list[Scenario]:
    """Return the sweep, and the runs with a straggler."""
    return [*_losses(quick), *_stragglers(quick)]


def _losses(quick: bool) -> Iterator[Scenario]:
    for kind in KINDS:
        for workers in WORKERS[:1] if quick else WORKERS:
            for size_kb in (16, 64) if quick else SIZES_KB:
                losses = MORE_LOSSES if size_kb == max(SIZES_KB) else LOSSES
                for loss in (0.0, 1e-2) if quick else losses:
                    for seed in SEEDS[:1] if quick or not loss else SEEDS:
                        yield from _with_and_without(
                            {
                                "kind": kind,
                                "workers": workers,
                                "size_kb": size_kb,
                                "loss": loss,
                                "seed": seed,
                            },
                            Job(
                                name="job",
                                workers=workers,
                                window=KINDS[kind].in_flight,
                                numbers="fixed",
                                iterations=10 if quick else SIZES_KB[size_kb],
                                layers_bytes=float32_bytes((size_kb * 256,)),
                                compute_s=0.0,
                            ),
                        )


def _stragglers(quick: bool) -> Iterator[Scenario]:
    """One rank of four computes for longer, and nothing is lost: all that is sent again is for nothing."""
    for kind in KINDS:
        yield from _with_and_without(
            {"kind": kind, "workers": 4, "size_kb": 0, "loss": 0.0, "seed": 1},
            Job(
                name="straggling",
                workers=4,
                window=KINDS[kind].in_flight,
                numbers="fixed",
                iterations=3 if quick else STRAGGLER_ITERATIONS,
                layers_bytes=float32_bytes((4096,) * 12),
                compute_s=STRAGGLER_S / 8,
                straggler=Straggler(1, STRAGGLER_S),
            ),
        )


def _with_and_without(labels: ResultRow, job: Job) -> Iterator[Scenario]:
    kind, loss, seed = KINDS[str(labels["kind"])], labels["loss"], labels["seed"]
    assert isinstance(loss, float)
    assert isinstance(seed, int)
    for probes in PROBES:
        settings = VirtualSettings(program=kind.program, slots=SLOTS, seed=seed, samples=0)
        if probes == "off":
            settings = replace(settings, rto=replace(settings.rto, probe_s=None))
        yield Scenario(
            labels={**labels, "probes": probes},
            jobs=(job,),
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


class Target(NamedTuple):
    """A least share of the lossless goodput, for one size of tensors and one loss."""

    size_kb: int
    loss: float
    least: float


TARGETS: Final = (Target(64, 1e-3, 0.8), Target(1024, 1e-3, 0.9), Target(4096, 1e-2, 0.8))


class Spread(NamedTuple):
    """One figure over several seeds."""

    mean: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.mean:.0%} ({self.least:.0%}..{self.most:.0%})"


def select(rows: Sequence[ResultRow], **labels: object) -> list[ResultRow]:
    """Return the rows with these labels."""
    return [row for row in rows if all(row[name] == value for name, value in labels.items())]


def values(rows: Sequence[ResultRow], label: str) -> list[float]:
    """Return a label's numbers, each once, leaving out the runs with a straggler."""
    return list(dict.fromkeys(number(row, label) for row in rows if row["size_kb"]))


def lossless(
    rows: Sequence[ResultRow], kind: str, workers: float, size_kb: float, probes: str = "on"
) -> float:
    """Return the goodput without loss, bits per second."""
    of = select(rows, kind=kind, workers=workers, size_kb=size_kb, loss=0.0, probes=probes)
    return statistics.fmean(number(row, "goodput_bps") for row in of)


def relative(
    rows: Sequence[ResultRow], kind: str, workers: float, size_kb: float, loss: float, probes: str = "on"
) -> Spread:
    """Return the goodput relative to that without loss."""
    whole = lossless(rows, kind, workers, size_kb, probes)
    of = select(rows, kind=kind, workers=workers, size_kb=size_kb, loss=loss, probes=probes)
    left = [number(row, "goodput_bps") / whole for row in of]
    return Spread(statistics.fmean(left), min(left), max(left))


def resent(rows: Sequence[ResultRow], **labels: object) -> float:
    """Return the packets sent again relative to those sent once."""
    return statistics.fmean(number(row, "resent_share") for row in select(rows, **labels))


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table per number of workers, that of the goodput without loss, and that of the straggler."""
    parts = [_of_workers(rows, workers) for workers in values(rows, "workers")]
    return "\n\n".join([*parts, _without_loss(rows), _straggler(rows)])


def _of_workers(rows: Sequence[ResultRow], workers: float) -> str:
    columns = ["tensor", "loss"]
    for kind in KINDS:
        columns += [kind, "again", "no probes", "again"]
    lines = []
    for size_kb in values(rows, "size_kb"):
        for loss in values(select(rows, size_kb=size_kb), "loss"):
            if not loss:
                continue
            line = [_size(size_kb), f"{loss:.2%}"]
            for kind in KINDS:
                for probes in ("on", "off"):
                    again = resent(
                        rows, kind=kind, workers=workers, size_kb=size_kb, loss=loss, probes=probes
                    )
                    line += [str(relative(rows, kind, workers, size_kb, loss, probes)), f"{again:.1%}"]
            lines.append(line)
    return f"### {workers:g} workers\n\n{markdown(columns, lines)}"


def _without_loss(rows: Sequence[ResultRow]) -> str:
    lines = []
    for workers in values(rows, "workers"):
        for size_kb in values(rows, "size_kb"):
            line = [f"{workers:g} workers, {_size(size_kb)}"]
            for kind in KINDS:
                on, off = (lossless(rows, kind, workers, size_kb, probes) / 1e9 for probes in ("on", "off"))
                line += [f"{on:.2f} Gb/s", f"{off:.2f} Gb/s"]
            lines.append(line)
    columns = ["goodput"]
    for kind in KINDS:
        columns += [kind, "no probes"]
    return f"### Without loss\n\n{markdown(columns, lines)}"


def _straggler(rows: Sequence[ResultRow]) -> str:
    lines = [
        [kind, *(f"{resent(rows, kind=kind, size_kb=0, probes=probes):.2%}" for probes in ("on", "off"))]
        for kind in KINDS
    ]
    title = "### Packets sent again for a straggler, nothing being lost"
    return f"{title}\n\n{markdown(['', 'probes', 'no probes'], lines)}"


def _size(size_kb: float) -> str:
    return f"{size_kb:g} KB" if size_kb < 1024 else f"{size_kb / 1024:g} MB"


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw the goodput left by size of tensor, for the most workers and the loss of the first target."""
    workers, loss = max(values(rows, "workers")), TARGETS[0].loss
    if loss not in values(rows, "loss"):
        loss = max(values(rows, "loss"))
    sizes = values(rows, "size_kb")
    places = {size: float(at) for at, size in enumerate(sizes)}
    lines = {}
    for kind in KINDS:
        for probes, name in (("on", kind), ("off", f"{kind}, no probes")):
            lines[name] = [
                (places[size], 100 * relative(rows, kind, workers, size, loss, probes).mean) for size in sizes
            ]
    path = directory / "loss.svg"
    draw_lines(
        lines,
        path,
        x="tensor",
        y="goodput (% of lossless)",
        title=f"{workers:g} workers, {loss:.1%} loss on every link, each way",
        x_ticks=[(at, _size(size)) for size, at in places.items()],
        dashed=[name for name in lines if name.endswith("no probes")],
    )
    return [path]


EXPERIMENT = Experiment(
    name="loss",
    title="Loss: goodput relative to a network that loses nothing",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
