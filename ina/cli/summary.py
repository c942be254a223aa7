"""The table of a run: one column per job, or per switch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ina.cli.output import table
from ina.cli.plain import count, rate, seconds
from ina.runtime.metrics import Metrics

WHERE: Final = {"switch": "in the switch", "fallback": "fallback", "refused": "of no job"}
MOMENTARY: Final = {"fallback_entries", "fallback_unfinished", "fallback_pieces"}
"""Gauges of the end, which say nothing to most people."""


def show(jobs: Mapping[str, Metrics]) -> None:
    """Print the summary table; the column of a job is headed by its name."""
    columns = list(jobs.values())
    rows: list[Sequence[str]] = []

    def row(title: str, cell: Callable[[Metrics], str]) -> None:
        rows.append([title, *map(cell, columns)])

    row("time", lambda of: seconds(of["time_s"]))
    row("allreduces", lambda of: count(of["allreduces"]))
    if any(of["summed_bytes"] for of in columns):
        row("summed per worker", _summed)
        row("goodput per worker", lambda of: rate(of["goodput_bps"]) if of["summed_bytes"] else "-")
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


def show_switches(switches: Mapping[str, Metrics]) -> None:
    """Print the packets at each switch by outcome: one column per switch."""
    keys = dict.fromkeys(key for of in switches.values() for key, value in of.items() if value)
    rows = [[_words(key), *(count(of.get(key, 0.0)) for of in switches.values())] for key in keys]
    table("by switch", ["packets", *switches], rows)


def _summed(of: Metrics) -> str:
    if not of["summed_bytes"]:
        return "-"
    return f"{of['summed_bytes'] / 1e6:,.1f} MB in {seconds(of['allreduce_time_s'])}"


def _words(key: str) -> str:
    return key.removesuffix("_packets").replace("_", " ")
