"""What lost packets cost: goodput under loss relative to none, exclusive and shared.

One job does nothing but sum; every link loses packets at random, in both directions.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bmv2_topos.experiments.harness import (
    Experiment,
    Row,
    Scenario,
    averaged,
    main,
    markdown,
    mean_iteration_s,
    number,
)
from bmv2_topos.experiments.plots import draw_lines
from bmv2_topos.jobfile import JobEntry
from bmv2_topos.spec import Link
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from bmv2_topos.testbeds.virtual.settings import Program

LOSSES = (0.0, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2)
WORKERS = (4, 8)
SLOTS = 8192
ELEMENTS = 1 << 20
ITERATIONS = 2
SEEDS = (1,)
TARGET_LOSS, TARGET = 1e-2, 0.8


KINDS: Mapping[str, tuple[Program, int]] = {
    "exclusive": ("exclusive", 256),
    "shared": ("shared", 80),
    "shared, 256 in flight": ("shared", 256),
}
"""Program, and packets in flight at most."""

QUESTION = f"""
How much of the goodput is left when links lose packets? At {TARGET_LOSS:.0%} it should be at least
{TARGET:.0%}, with slots of a job's own and with shared ones.
"""

ABOUT = f"""
One job of {" or ".join(map(str, WORKERS))} workers on one switch, links of 10 Gb/s and 2 µs, each of which
loses packets independently, in both directions: a sum of 8 workers takes 16 packets. The workers sum tensors
of {ELEMENTS * 4 >> 20} MB, as ATP's benchmark does, one after the other and without computing,
{ITERATIONS} times; packets of 64 values; {SLOTS} slots; no congestion control. Exclusive: up to
{KINDS["exclusive"][1]} packets in flight. Shared: up to {KINDS["shared"][1]}, a bit more than a round trip's
worth, and for comparison {KINDS["shared, 256 in flight"][1]}.

*Goodput* is bits of float32 values summed per second, as one worker sees it, *relative* to that without loss;
*again* are the packets that workers sent again, relative to those that they sent once.
"""

LIMITS = """
The packets in flight are set by hand: more of them bridge the time that repairs take, but what is more than a
round trip's worth waits in the sender's own queue, and every repair behind it. Losses are independent; losses
in bursts, as of a full queue, hit fewer sums each time and cost less. At the end of a tensor nothing bridges
a repair: small tensors lose more.
"""


def scenarios(quick: bool) -> list[Scenario]:
    """Return the sweep."""
    found = []
    for kind, (program, in_flight) in KINDS.items():
        for workers in WORKERS[:1] if quick else WORKERS:
            job = JobEntry(
                name="job",
                workers=workers,
                window=in_flight,
                numbers="fixed",
                iterations=2 if quick else ITERATIONS,
                tensors=(ELEMENTS // 16 if quick else ELEMENTS,),
                compute_s=0.0,
            )
            for loss in (0.0, TARGET_LOSS) if quick else LOSSES:
                for seed in SEEDS[:1] if quick else SEEDS:
                    found.append(
                        Scenario(
                            labels={"kind": kind, "workers": workers, "loss": loss, "seed": seed},
                            jobs=(job,),
                            settings=VirtualSettings(program=program, slots=SLOTS, seed=seed, samples=0),
                            link=Link("a", "b", loss=loss),
                        )
                    )
    return found


def measure(report: Report) -> Row:
    """Return the columns that a run adds to its labels."""
    (job,) = report.jobs
    elements = job.checked_elements / job.workers / job.iterations
    return {
        "goodput_bps": 32 * elements / mean_iteration_s(report),
        "resent_share": job.resent_packets / (job.sent_packets - job.resent_packets),
        "lost_packets": report.lost_packets,
        "aggregated_share": job.aggregated_share,
    }


def relative(rows: Sequence[Row], kind: str, workers: int) -> dict[float, float]:
    """Return the goodput by loss, relative to that without."""
    of = {
        number(row, "loss"): number(row, "goodput_bps")
        for row in averaged(rows, ("kind", "workers", "loss"))
        if (row["kind"], row["workers"]) == (kind, workers)
    }
    return {loss: goodput / of[0.0] for loss, goodput in of.items()}


def worker_counts(rows: Sequence[Row]) -> list[int]:
    """Return the numbers of workers that were run."""
    return list(dict.fromkeys(int(number(row, "workers")) for row in rows))


def tables(rows: Sequence[Row]) -> str:
    """Return a table per number of workers."""
    parts = []
    means = averaged(rows, ("kind", "workers", "loss"))
    for workers in worker_counts(rows):
        by = {kind: relative(rows, kind, workers) for kind in KINDS}
        cells = {
            (row["kind"], number(row, "loss")): (number(row, "goodput_bps"), number(row, "resent_share"))
            for row in means
            if row["workers"] == workers
        }
        lines = []
        for loss in next(iter(by.values())):
            line = [f"{loss:.2%}"]
            for kind in KINDS:
                goodput, resent = cells[kind, loss]
                line += [f"{goodput / 1e9:.2f} Gb/s", f"{by[kind][loss]:.1%}", f"{resent:.1%}"]
            lines.append(line)
        columns = ["loss"]
        for kind in KINDS:
            columns += [kind, "relative", "again"]
        parts.append(f"### {workers} workers\n\n{markdown(columns, lines)}")
    return "\n\n".join(parts)


def findings(rows: Sequence[Row]) -> str:
    """Say whether the target is met."""
    lines = []
    for workers in worker_counts(rows):
        for kind in KINDS:
            left = relative(rows, kind, workers)[TARGET_LOSS]
            met = "meets" if left >= TARGET else "misses"
            lines.append(
                f"- {kind}, {workers} workers: {left:.1%} of the goodput is left at"
                f" {TARGET_LOSS:.0%} loss, which {met} the {TARGET:.0%} asked for."
            )
    return "\n".join(lines)


def plots(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw relative goodput over loss."""
    losses = list(dict.fromkeys(number(row, "loss") for row in rows))
    places = {loss: float(at) for at, loss in enumerate(losses)}
    lines = {}
    for workers in worker_counts(rows):
        for kind in KINDS:
            points = relative(rows, kind, workers).items()
            lines[f"{kind}, {workers} workers"] = [(places[loss], 100 * left) for loss, left in points]
    path = directory / "loss.svg"
    ticks = [(at, f"{100 * loss:g} %") for loss, at in places.items()]
    draw_lines(lines, path, x="loss on every link, each way", y="goodput (% of lossless)", x_ticks=ticks)
    return [path]


EXPERIMENT = Experiment(
    name="loss",
    title="Loss: goodput relative to a network that loses nothing",
    question=QUESTION,
    about=ABOUT,
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    findings=findings,
    limits=LIMITS,
    plots=plots,
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
