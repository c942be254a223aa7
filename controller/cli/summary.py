"""The numbers of jobs that ran, and their table: one column per job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from controller.cli.output import count, rate, seconds, table
from controller.cli.spec import JobResult

Numbers = Mapping[str, float]

WHERE: Final = {"switch": "in the switch", "fallback": "fallback", "refused": "of no job"}
MOMENTARY: Final = {"fallback_entries", "fallback_unfinished", "fallback_pieces"}
"""What is in use at the end says nothing to most people."""


def metrics(result: JobResult) -> dict[str, float]:
    """Return the numbers of a job, flat, SI units in the keys."""
    reports = list(result.reports.values())

    def total(name: str) -> float:
        return sum(report.get(name, 0.0) for report in reports)

    summed = max((report.get("elements", 0.0) for report in reports), default=0.0) * 4
    busy = max((report.get("time_s", 0.0) for report in reports), default=0.0)
    numbers = {
        "time_s": result.time_s,
        "allreduces": max((report.get("collectives", 0.0) for report in reports), default=0.0),
        "summed_bytes": summed,
        "allreduce_time_s": busy,
        "goodput_bps": summed * 8 / busy if busy else 0.0,
        "sent_packets": total("packets_sent"),
        "resent_packets": total("packets_resent"),
    }
    numbers |= {f"switch_{name}_packets": value for name, value in result.counters.items()}
    numbers |= {f"fallback_{name}": value for name, value in result.fallback.items()}
    return numbers


def total(jobs: Iterable[Numbers]) -> dict[str, float]:
    """Return the sums over jobs of what can be summed: counts, not rates and times."""
    sums: dict[str, float] = {}
    for numbers in jobs:
        for key, value in numbers.items():
            if not key.endswith(("_s", "_bps")):
                sums[key] = sums.get(key, 0.0) + value
    return sums


def by_switch(jobs: Iterable[JobResult]) -> dict[str, Numbers]:
    """Return what all jobs' packets met, by switch."""
    counts: dict[str, dict[str, float]] = {}
    for job in jobs:
        for switch, outcomes in job.switches.items():
            of = counts.setdefault(switch, {})
            for name, number in outcomes.items():
                key = f"{name}_packets"
                of[key] = of.get(key, 0) + number
    return dict(sorted(counts.items()))


def refusals(refused: Mapping[str, int]) -> dict[str, float]:
    """Return the packets of no job in the same manner."""
    return {f"refused_{name}_packets": float(value) for name, value in refused.items()}


def show(jobs: Mapping[str, Numbers]) -> None:
    """Print the summary table; the column of a job is headed by its name."""
    columns = list(jobs.values())
    rows: list[Sequence[str]] = []

    def row(title: str, cell: Callable[[Numbers], str]) -> None:
        rows.append([title, *map(cell, columns)])

    row("time", lambda of: seconds(of["time_s"]))
    row("allreduces", lambda of: count(of["allreduces"]))
    row(
        "summed per worker",
        lambda of: f"{of['summed_bytes'] / 1e6:,.1f} MB in {seconds(of['allreduce_time_s'])}",
    )
    row("goodput per worker", lambda of: rate(of["goodput_bps"]))
    row(
        "packets sent, sent again",
        lambda of: f"{count(of['sent_packets'])}, {count(of['resent_packets'])}",
    )
    # In the order in which they first turn up.
    keys = dict.fromkeys(key for of in columns for key, value in of.items() if value and key not in MOMENTARY)
    for where, words in WHERE.items():
        for key in keys:
            if key.startswith(f"{where}_"):
                name = _words(key.removeprefix(f"{where}_"))
                rows.append([f"{words}: {name}", *(count(of.get(key, 0.0)) for of in columns)])
    headings = [name or "value" for name in jobs] if len(jobs) > 1 else ["value"]
    table("summary", ["", *headings], rows)


def show_switches(switches: Mapping[str, Numbers]) -> None:
    """Print what packets met at each switch: one column per switch."""
    keys = dict.fromkeys(key for of in switches.values() for key, value in of.items() if value)
    rows = [[_words(key), *(count(of.get(key, 0.0)) for of in switches.values())] for key in keys]
    table("by switch", ["packets", *switches], rows)


def _words(key: str) -> str:
    return key.removesuffix("_packets").replace("_", " ")
