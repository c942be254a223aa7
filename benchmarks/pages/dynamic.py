"""ATP's slots for all against a static share for each job, and what its congestion control is worth."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    Value,
    column,
    markdown,
    mean_iteration_s,
    selected,
    spread,
)
from bmv2_topos.plots import draw_lines, ticks
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import CONGESTION, Job, Link, float32_bytes

JOBS, WORKERS, WINDOW = 4, 4, 128
TENSORS = (16384, 16384)
ITERATIONS = 3
PAUSES_S: Final = {"pauses": 300e-6, "no pauses": 0.0}
SLOTS = (64, 256)
SEEDS = (1, 2, 3, 4, 5)

STATIC, ATP, OURS, NARROW = "static", "ATP", "shared", "shared, narrow"
PROGRAMS: Final[Mapping[str, str]] = {STATIC: "exclusive", ATP: "atp", OURS: "shared", NARROW: "shared"}
CONTROLS = CONGESTION
SHORT_QUEUE, ECN_DEPTH = 256, 64


def scenarios(quick: bool) -> list[Scenario]:
    """Return all of sharing, then all of congestion control."""
    return list(_scenarios(quick))


def _scenarios(quick: bool) -> Iterator[Scenario]:
    seeds = SEEDS[:1] if quick else SEEDS
    slots = SLOTS[:1] if quick else SLOTS
    for pauses, size, sharing, seed in itertools.product(PAUSES_S, slots, PROGRAMS, seeds):
        control = "aimd" if sharing in (ATP, OURS) else "fixed"
        labels: ResultRow = {"pauses": pauses, "slots": size, "sharing": sharing, "control": control}
        yield _scenario({**labels, "queue": 2048, "seed": seed})
    for size, sharing, control, seed in itertools.product(slots[:1], (ATP, OURS), CONTROLS, seeds):
        labels = {"pauses": "pauses", "slots": size, "sharing": sharing, "control": control}
        yield _scenario({**labels, "queue": SHORT_QUEUE, "seed": seed})


def _scenario(labels: ResultRow) -> Scenario:
    short = labels["queue"] == SHORT_QUEUE
    queue_packets = SHORT_QUEUE if short else 2048
    slots = int(str(labels["slots"]))
    window = slots // JOBS // 2 if labels["sharing"] == NARROW else WINDOW
    jobs = tuple(
        Job(
            name=f"job{number}",
            workers=WORKERS,
            window=window,
            congestion=next(each for each in CONTROLS if each == labels["control"]),
            numbers="fixed",
            iterations=ITERATIONS,
            layers_bytes=float32_bytes(TENSORS),
            compute_s=PAUSES_S[str(labels["pauses"])],
            jitter=0.2,
        )
        for number in range(1, JOBS + 1)
    )
    settings = VirtualSettings(
        program=PROGRAMS[str(labels["sharing"])],
        slots=slots,
        seed=int(str(labels["seed"])),
        ecn_depth=ECN_DEPTH if short else None,
        samples=0,
    )
    return Scenario(
        labels=labels, jobs=jobs, settings=settings, link=Link("a", "b", queue_packets=queue_packets)
    )


def measure(report: Report) -> ResultRow:
    """Return the mean iteration, and what was lost and sent again."""
    return {
        "iteration_s": mean_iteration_s(report),
        "aggregated_share": fmean(job.aggregated_share for job in report.jobs),
        "dropped_packets": report.dropped_packets,
        "resent_packets": sum(job.resent_packets for job in report.jobs),
    }


def speeds(rows: Sequence[ResultRow], before: ResultRow, after: ResultRow) -> list[float]:
    """Return how much faster the rows with the labels `after` are than those with `before`, by seed."""
    pairs = (column(rows, "iteration_s", **labels) for labels in (before, after))
    return [one / other for one, other in zip(*pairs, strict=True)]


def sharing(rows: Sequence[ResultRow], pauses: Value, slots: Value, of: str) -> list[float]:
    """Return the speeds of a way to share relative to static parts."""
    at: ResultRow = {"pauses": pauses, "slots": slots, "queue": 2048}
    return speeds(rows, {**at, "sharing": STATIC}, {**at, "sharing": of})


def control(rows: Sequence[ResultRow], slots: Value, of: str, by: str) -> list[float]:
    """Return the speeds with a congestion control relative to fixed windows."""
    at: ResultRow = {"slots": slots, "sharing": of, "queue": SHORT_QUEUE}
    return speeds(rows, {**at, "control": "fixed"}, {**at, "control": by})


def _of(rows: Sequence[ResultRow], name: str) -> list[Value]:
    return list(dict.fromkeys(row[name] for row in rows))


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table of sharing and one of congestion control."""
    shared = [
        [f"{pauses}, {slots} slots", *(spread(sharing(rows, pauses, slots, of)) for of in PROGRAMS)]
        for pauses, slots in itertools.product(_of(rows, "pauses"), _of(rows, "slots"))
    ]
    controls = []
    short = selected(rows, queue=SHORT_QUEUE)
    for slots, of, by in itertools.product(_of(short, "slots"), (ATP, OURS), CONTROLS):
        found = selected(rows, slots=slots, sharing=of, control=by, queue=SHORT_QUEUE)
        counts = (spread(column(found, name), ".0f") for name in ("dropped_packets", "resent_packets"))
        controls.append([f"{of}, {slots} slots", by, spread(control(rows, slots, of, by)), *counts])
    return "\n\n".join(
        [
            "### Sharing: speed",
            markdown(["jobs", *PROGRAMS], shared),
            "### Congestion control: speed",
            markdown(["memory", "control", "speed", "dropped", "sent again"], controls),
        ]
    )


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw the speeds of sharing."""
    slots = _of(rows, "slots")
    lines = {
        f"{of}, {pauses}": [
            (float(place), fmean(sharing(rows, pauses, size, of))) for place, size in enumerate(slots)
        ]
        for of in (ATP, OURS)
        for pauses in PAUSES_S
    }
    path = directory / "dynamic.svg"
    dashed = [name for name in lines if name.endswith("no pauses")]
    draw_lines(
        lines, path, x="slots of the switch", y="speed, static = 1", x_ticks=ticks(slots), dashed=dashed
    )
    return [path]


EXPERIMENT = Experiment(
    name="dynamic",
    title="Slots for all against static parts, and congestion control",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
