"""The page of the experiment `loss`: tables, findings and plots made of its rows."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.pages.loss_runs import KINDS
from bmv2_topos.harness import ResultRow, markdown, number
from bmv2_topos.plots import draw_lines


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


def findings(rows: Sequence[ResultRow]) -> str:
    """Compare goodput with the targets, with and without probes, the modes, and the packets sent again."""
    return "\n".join([*_targets(rows), *_compared(rows), *_paid(rows)])


def _targets(rows: Sequence[ResultRow]) -> list[str]:
    lines = []
    for target in TARGETS:
        if not select(rows, size_kb=target.size_kb, loss=target.loss):
            continue
        for workers in values(rows, "workers"):
            for kind in KINDS:
                left = relative(rows, kind, workers, target.size_kb, target.loss)
                bare = relative(rows, kind, workers, target.size_kb, target.loss, "off")
                met = "meets" if left.mean >= target.least else "misses"
                lines.append(
                    f"- {kind}, {workers:g} workers, {_size(target.size_kb)}, {target.loss:.1%} loss: {left}"
                    f" of the goodput is left, which {met} the {target.least:.0%} asked for;"
                    f" without probes {bare}."
                )
    return lines


def _compared(rows: Sequence[ResultRow]) -> list[str]:
    """Compare shared with exclusive slots under every loss that all sizes were run with."""
    lines = []
    sizes = values(rows, "size_kb")
    losses = [
        loss
        for loss in values(rows, "loss")
        if loss and all(select(rows, size_kb=size, loss=loss) for size in sizes)
    ]
    for loss, kind in itertools.product(losses, KINDS):
        if kind == "exclusive":
            continue
        ratios = [
            relative(rows, kind, workers, size, loss).mean
            / relative(rows, "exclusive", workers, size, loss).mean
            for workers in values(rows, "workers")
            for size in sizes
        ]
        lines.append(
            f"- {kind}, {loss:.2%} loss: of its goodput the job keeps {statistics.fmean(ratios):.2f} times"
            f" what an exclusive one keeps ({min(ratios):.2f} to {max(ratios):.2f}, by size and workers)."
        )
    return lines


def _paid(rows: Sequence[ResultRow]) -> list[str]:
    more = [
        (resent(rows, **of, probes="on") - resent(rows, **of, probes="off"), of)
        for of in (
            {name: row[name] for name in ("kind", "workers", "size_kb", "loss")}
            for row in rows
            if row["size_kb"] and row["loss"] and row["probes"] == "on" and row["seed"] == 1
        )
    ]
    mean = statistics.fmean(share for share, _ in more)
    worst, of = max(more, key=lambda found: found[0])
    changes = [
        lossless(rows, kind, workers, size) / lossless(rows, kind, workers, size, "off") - 1
        for kind in KINDS
        for workers in values(rows, "workers")
        for size in values(rows, "size_kb")
    ]
    waits = [
        resent(rows, kind=kind, size_kb=0, probes="on") - resent(rows, kind=kind, size_kb=0, probes="off")
        for kind in KINDS
    ]
    return [
        f"- Who pays: of 100 packets, probes make workers send again {100 * mean:+.2f} on average under loss,"
        f" {100 * worst:+.2f} at most ({of['kind']}, {of['workers']} workers, {_size(number(of, 'size_kb'))},"
        f" {of['loss']:.2%} loss), and {100 * max(waits):+.2f} at most for a straggler. The goodput without"
        f" loss changes by {min(changes):+.1%} to {max(changes):+.1%}."
    ]


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
