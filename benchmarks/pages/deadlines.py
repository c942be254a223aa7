"""Deadlines: who meets them when jobs fight over switch memory, and who pays, by policy for memory.

As flows over memory, slack and load; packet by packet for the smallest setting; and one job whose region
grows and shrinks while it runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.pages.deadlines_runs import (
    CHANGES,
    FLOWS,
    PACKETS,
    PARTS,
    POLICIES,
    SERVERS,
    SHARED,
    Setting,
    scenarios,
)
from bmv2_topos.harness import Experiment, ResultRow, column, columns, markdown, selected
from bmv2_topos.plots import draw_lines, ticks

Label = Callable[[Setting], str]

LABELS: Final[Mapping[str, Label]] = {
    "memory": lambda setting: f"{setting.memory:g} x, slack {setting.slack:g}",
    "load": lambda setting: f"{setting.load:g} jobs at a time",
    "waiting": lambda setting: f"{setting.scheduler}, {setting.memory:g} x, {SERVERS * setting.gpus} GPUs",
    "reading": lambda setting: f"{setting.memory:g} x, slack {setting.slack:g}",
    "period": lambda setting: f"{setting.period_s:g} s" if setting.period_s else "starts and ends only",
}
"""First columns of the tables of runs as flows, in the order of the page."""
TITLES: Final[Mapping[str, str]] = {
    "memory": "Missed deadlines over memory and slack",
    "load": "Missed deadlines over load, memory 2 x, slack 1.2",
    "waiting": "Missed deadlines with GPUs that jobs wait for, slack 2",
    "reading": "Missed deadlines with the article's formula",
    "period": "Missed deadlines by how often memory is divided, memory 2 x, slack 1.2",
}
TIMED: Final = ("memory", "load")
"""Parts whose completion times have a table, too."""


def of(rows: Sequence[ResultRow], part: str, setting: Setting, policy: str) -> list[ResultRow]:
    """Return the rows of all seeds."""
    return selected(selected(rows, part=part), **asdict(setting), policy=policy)


def settings_of(rows: Sequence[ResultRow], part: str) -> list[Setting]:
    """Return the settings of a part that have rows."""
    here = selected(rows, part=part)
    return [setting for setting in PARTS[part] if selected(here, **asdict(setting))]


def policies_of(rows: Sequence[ResultRow], part: str) -> list[str]:
    """Return the policies of a part, in order."""
    found = {row["policy"] for row in selected(rows, part=part)}
    return [policy for policy in POLICIES if policy in found]


def ratio(rows: Sequence[ResultRow], base: Sequence[ResultRow], name: str) -> float | None:
    """Return the mean ratio of a time to that of `base`, over the seeds that have both; None: none has."""
    pairs = [(a[name], b[name]) for a, b in zip(rows, base, strict=True)]
    found = [a / b for a, b in pairs if isinstance(a, float) and isinstance(b, float)]
    return statistics.fmean(found) if found else None


def tables(rows: Sequence[ResultRow]) -> str:
    """Return all tables of what was run."""
    parts = []
    for part, label in LABELS.items():
        if not settings_of(rows, part):
            continue
        parts.append(f"### {TITLES[part]}\n\n{_misses(rows, part, label)}")
        if part in TIMED:
            parts.append(
                f"### Completion times over {part}, against `{SHARED}`\n\n{_times(rows, part, label)}"
            )
    return "\n\n".join([*parts, *_small(rows), *_changes(rows)])


def _misses(rows: Sequence[ResultRow], part: str, label: Label) -> str:
    names = policies_of(rows, part)
    cells = []
    for setting in settings_of(rows, part):
        here = [of(rows, part, setting, name) for name in names]
        deadlines = sum(column(here[0], "deadlines"))
        cells.append([label(setting), *map(_missed, here), f"{deadlines:.0f}"])
    return markdown(["setting", *names, "deadlines"], cells)


def _missed(rows: Sequence[ResultRow]) -> str:
    ended, broken = sum(column(rows, "ended")), sum(column(rows, "broken"))
    shown = _counts(column(rows, "missed"))
    shown += f", {ended:.0f} ended" if ended else ""
    return shown + (f", {broken:.0f} broken" if broken else "")


def _counts(counts: Sequence[float]) -> str:
    return f"{sum(counts):.0f} ({min(counts):.0f}..{max(counts):.0f})"


def _times(rows: Sequence[ResultRow], part: str, label: Label) -> str:
    names = policies_of(rows, part)
    cells = []
    for setting in settings_of(rows, part):
        shared = of(rows, part, setting, SHARED)
        here = [of(rows, part, setting, name) for name in names]
        times = [[_form(ratio(each, shared, name)) for name in ("due_s", "others_s")] for each in here]
        cells.append([label(setting), *map(" / ".join, times)])
    return markdown(["setting", *names], cells)


def _form(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _small(rows: Sequence[ResultRow]) -> list[str]:
    cells = []
    for slots in dict.fromkeys(row["slots"] for row in selected(rows, part=PACKETS)):
        for policy in policies_of(rows, PACKETS):
            here = selected(selected(rows, part=PACKETS), slots=slots, policy=policy)
            missed = [_counts(column(here, f"{way}_missed")) for way in (PACKETS, FLOWS)]
            times = [f"{statistics.fmean(column(here, f'{way}_s')) * 1e3:.2f}" for way in (PACKETS, FLOWS)]
            deadlines = f"{sum(column(here, 'deadlines')):.0f}"
            cells.append([f"{slots} slots, {policy}", *missed, deadlines, *times])
    columns = ["memory, policy", "missed, packets", "missed, flows", "deadlines", "packets, ms", "flows, ms"]
    return [f"### Six jobs, packet by packet and as flows\n\n{markdown(columns, cells)}"] if cells else []


def _changes(rows: Sequence[ResultRow]) -> list[str]:
    cells = []
    for sizes in dict.fromkeys(row["sizes"] for row in selected(rows, part=CHANGES)):
        here = selected(selected(rows, part=CHANGES), sizes=sizes)
        steady, across = (
            [f"{statistics.fmean(column(here, f'{kind}_{place}_s')) * 1e6:.0f}" for place in range(3)]
            for kind in ("steady", "across")
        )
        after = [f"{steady[place]} (first two {across[place]})" for place in (1, 2)]
        cells.append([str(sizes), steady[0], *after, f"{again(here):.1%}"])
    columns = ["slots", "before, µs", "after the first change", "after the second", "sent again"]
    return [f"### Iterations of a job whose region changes\n\n{markdown(columns, cells)}"] if cells else []


def again(rows: Sequence[ResultRow]) -> float:
    """Return the share of packets that were sent again."""
    return sum(column(rows, "resent")) / sum(column(rows, "sent"))


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw the share of missed deadlines over memory by policy, all slacks together."""
    settings = settings_of(rows, "memory")
    memory = list(dict.fromkeys(setting.memory for setting in settings))
    here = selected(rows, part="memory")
    lines = {
        policy: [
            (float(at), _share(selected(here, memory=each, policy=policy))) for at, each in enumerate(memory)
        ]
        for policy in policies_of(rows, "memory")
    }
    path = directory / "deadlines.svg"
    labels = ticks(f"{each:g} x" for each in memory)
    draw_lines(lines, path, x="memory", y="deadlines missed (%)", x_ticks=labels)
    return [path]


def _share(rows: Sequence[ResultRow]) -> float:
    return 100 * sum(column(rows, "missed")) / sum(column(rows, "deadlines"))


EXPERIMENT = Experiment(
    name="deadlines",
    title="Deadlines and switch memory",
    scenarios=scenarios,
    measure=columns,
    tables=tables,
    plots=plots,
)
