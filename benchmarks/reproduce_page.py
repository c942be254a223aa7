"""How the rows of `benchmarks.reproduce` become tables and a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bmv2_topos.experiments.harness import markdown

Row = dict[str, Any]
Column = tuple[str, str, str]
"""Heading, key of the row, and how its value is formatted; a value that is None or missing leaves a gap."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A part of the page."""

    title: str
    about: str
    table: Callable[[Sequence[Row]], str]


def grid(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Return a table."""
    cells = [
        ["" if row.get(key) is None else form.format(row[key]) for _, key, form in columns] for row in rows
    ]
    return markdown([head for head, _, _ in columns], cells)


CODED: Sequence[Column] = (
    ("trace", "trace", "{}"),
    ("policy", "policy", "`{}`"),
    ("average", "avg_jct_s", "{:,.2f}"),
    ("theirs", "public_avg_jct_s", "{:,.2f}"),
    ("off", "off", "{:.5%}"),
    ("makespan", "makespan_s", "{:,.0f}"),
    ("theirs", "public_makespan_s", "{:,.0f}"),
    ("p99", "p99_jct_s", "{:,.0f}"),
    ("theirs", "public_p99_jct_s", "{:,.0f}"),
    ("seconds", "took_s", "{:.2f}"),
    ("theirs", "public_took_s", "{:.0f}"),
    ("times faster", "times_faster", "{:,.0f}"),
)
PAPER: Sequence[Column] = (
    ("policy", "policy", "`{}`"),
    ("average", "avg_jct_s", "{:,.0f}"),
    ("median", "median_jct_s", "{:,.0f}"),
    ("p99", "p99_jct_s", "{:,.0f}"),
    ("makespan", "makespan_s", "{:,.0f}"),
    ("wait", "avg_wait_s", "{:,.0f}"),
    ("queue", "avg_queue", "{:.1f}"),
    ("GPUs given", "gpu_busy", "{:.1%}"),
    ("fairness", "fairness", "{:.2f}"),
    ("seconds", "took_s", "{:.2f}"),
)
RULES: Sequence[Column] = (
    ("policy", "policy", "`{}`"),
    ("rules", "step", "{}"),
    ("average", "avg_jct_s", "{:,.0f}"),
    ("by this step", "change", "{:+.1%}"),
    ("p99", "p99_jct_s", "{:,.0f}"),
    ("makespan", "makespan_s", "{:,.0f}"),
    ("restarts", "restarts", "{:,}"),
)
ALLOCATE: Sequence[Column] = (
    ("allocator", "allocator", "`{}`"),
    ("throughput", "throughput", "{:.1f}"),
    ("of OPT", "of_opt", "{:.3f}"),
    ("worst", "worst_of_opt", "{:.3f}"),
    ("time ms", "time_ms", "{:.2f}"),
    ("OPT takes times", "opt_takes_times", "{:,.0f}"),
)
PUBLISHED: Sequence[Column] = (
    ("policy, as coded", "policy", "`{}`"),
    ("average h", "average_h", "{:.3f}"),
    ("theirs", "public_average_h", "{:.3f}"),
    ("p99 h", "p99_h", "{:.3f}"),
    ("theirs", "public_p99_h", "{:.3f}"),
    ("seconds", "wall_s", "{:.1f}"),
    ("theirs", "public_took_s", "{:.0f}"),
)
LUCID: Sequence[Column] = (
    ("policy", "policy", "{}"),
    ("average", "average_s", "{:,.0f}"),
    ("p99", "p99_s", "{:,.0f}"),
    ("last end", "last_end_s", "{:,.0f}"),
    ("Tiresias takes", "tiresias takes", "{:.2f}"),
    ("seconds", "wall_s", "{:.2f}"),
)
LUCID_CODED: Sequence[Column] = (
    *LUCID,
    ("average, theirs", "public_average_s", "{:,.0f}"),
    ("p99, theirs", "public_p99_s", "{:,.0f}"),
    ("seconds, theirs", "public_took_s", "{:.0f}"),
)
TREE: Sequence[Column] = (
    ("price of a leaf", "price of a leaf", "{}"),
    ("leaves", "leaves", "{}"),
    ("seen", "seen", "{:.3f}"),
    ("unseen configurations", "unseen configurations", "{:.3f}"),
    ("unseen models", "unseen models", "{:.3f}"),
    ("allowed and fast", "allowed and fast", "{:.3f}"),
    ("fast and allowed", "fast and allowed", "{:.3f}"),
)
GROUPING: Sequence[Column] = (
    ("jobs", "jobs", "{:,}"),
    ("profiles (0: all differ)", "kinds", "{}"),
    ("seconds", "time_s", "{:.2f}"),
    ("jobs per second", "jobs_per_s", "{:,.0f}"),
    ("groups", "groups", "{:,}"),
    ("total efficiency", "total_efficiency", "{:,.1f}"),
    ("mean", "mean_efficiency", "{:.3f}"),
)


def by(rows: Sequence[Row], key: str) -> dict[str, list[Row]]:
    """Return the rows by the value of `key`, in the order in which the values turn up."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


def _paper(rows: Sequence[Row]) -> str:
    tables = (
        f"`{name}`, {found[0]['jobs']} jobs:\n\n{grid(found, PAPER)}"
        for name, found in by(rows, "trace").items()
    )
    return "\n\n".join(tables)


def _kinds(columns: Mapping[str, tuple[str, Sequence[Column]]]) -> Callable[[Sequence[Row]], str]:
    def show(rows: Sequence[Row]) -> str:
        found = by(rows, "table")
        return "\n\n".join(
            f"{title}\n\n{grid(found[name], spec)}"
            for name, (title, spec) in columns.items()
            if name in found
        )

    return show


SHOW: Mapping[str, Shown] = {
    "coded": Shown(
        "As coded: Muri's public simulator",
        "Eight nodes of eight GPUs, rule set `coded:`; *theirs* is what the public simulator prints (commit\n"
        "4e69a78), *off* the relative difference of the averages: what is known to whole seconds "
        "only is off by\n"
        "rounding. `-keep` is `--autopack False` there. `sample` is the trace that the tests ship, "
        "on two nodes.",
        lambda rows: grid(rows, CODED),
    ),
    "paper": Shown(
        "As paper: all policies in one speed model",
        "The same traces by the rules of the papers; restart costs as the traces have them. "
        "Policies that do not\n"
        "group run jobs alone, at the same speeds. Ablations of Muri (`muri-s-…`) on the first trace only.",
        _paper,
    ),
    "rules": Shown(
        "From the coded rules to the paper's",
        "One difference at a time, on the first trace; [schedulers.md](../schedulers.md) explains them.",
        lambda rows: grid(rows, RULES),
    ),
    "synergy": Shown(
        "Synergy",
        "`python -m benchmarks.synergy allocate --seeds 3` and `published`.",
        _kinds(
            {
                "allocate": ("One full cluster of 128 GPUs, made-up tasks:", ALLOCATE),
                "published": ("The public simulator's rules, its Philly-derived workload:", PUBLISHED),
            }
        ),
    ),
    "lucid": Shown(
        "Lucid",
        "`python -m benchmarks.lucid schedule`, with `--coded`, and `tree`. *Tiresias takes* is its "
        "average as a\n"
        "multiple of the policy's. A tree's figures are its accuracy on what it was trained on, on\n"
        "configurations and on models that it has not seen, and how good the packing is that follows.",
        _kinds(
            {
                "paper": ("As paper:", LUCID),
                "coded": ("As coded, beside the public simulator on the same trace:", LUCID_CODED),
                "tree": ("The packing tree:", TREE),
            }
        ),
    ),
    "grouping": Shown(
        "Grouping",
        "Jobs with four resources in groups of up to four (`ina bench grouping`). The public code "
        "takes 124 s\n"
        "for 512 jobs and 454 s for 1,000 on the same machine.",
        lambda rows: grid(rows, GROUPING),
    ),
}


def page(tables: Mapping[str, Sequence[Row]]) -> str:
    """Return the page."""
    parts = [
        "# Schedulers against the originals",
        "What do schedulers of training jobs achieve on the same traces, and how fast is the "
        "simulator? Times are\n"
        "seconds unless a column says otherwise; *seconds* is the processor time of a simulation on a "
        "shared\n"
        "machine with two cores, without reading the trace, and of the public simulators their run time.",
    ]
    for name, shown in SHOW.items():
        if name in tables:
            parts += [f"## {shown.title}", shown.about, shown.table(tables[name])]
    parts += [
        "## Limits",
        "Figures of different speed models (`coded:`, plain, `synergy:`, `lucid:`) are not "
        "comparable with each\n"
        "other. The public simulators' times were taken with other work on the machine. Lucid's "
        "Venus trace is\n"
        "not in its repository's snapshot: c1000, a week of Philly on 64 GPUs, stands in for it.",
        "## Again",
        "```\npython -m benchmarks.reproduce --traces DIR --output docs/results\n```",
        "makes this page; the rows are in [schedulers.json](schedulers.json). Without `--traces` "
        "shipped and\n"
        "made-up traces stand in; `--slow` adds what takes minutes, such as grouping on trace1.\n"
        "`tests/controller/simulator/test_coded.py` holds ten policies on the shipped trace, and "
        "the first figures\n"
        "above if `INA_TRACES` names the folder with the public traces.",
    ]
    return "\n\n".join(parts) + "\n"
