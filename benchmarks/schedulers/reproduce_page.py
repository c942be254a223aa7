"""The tables of the rows of `benchmarks.schedulers.reproduce`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bmv2_topos.harness import markdown
from controller.vocabulary.lists import by_key

ResultRow = dict[str, Any]
Column = tuple[str, str, str]
"""Heading, key of the row, and format of its value; a value that is None or missing leaves the cell empty."""


def grid(rows: Sequence[ResultRow], columns: Sequence[Column]) -> str:
    """Return a table."""
    cells = [
        ["" if row.get(key) is None else form.format(row[key]) for _, key, form in columns] for row in rows
    ]
    return markdown([head for head, _, _ in columns], cells)


REPLICA: Sequence[Column] = (
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
ALLOCATORS: Sequence[Column] = (
    ("allocator", "allocator", "`{}`"),
    ("made-up: of OPT", "made-up of_opt", "{:.3f}"),
    ("worst", "made-up worst_of_opt", "{:.3f}"),
    ("of the bound", "made-up of_bound", "{:.3f}"),
    ("OPT takes times", "made-up opt_takes_times", "{:,.0f}"),
    ("measured: of OPT", "measured of_opt", "{:.3f}"),
    ("worst", "measured worst_of_opt", "{:.3f}"),
    ("of the bound", "measured of_bound", "{:.3f}"),
    ("OPT takes times", "measured opt_takes_times", "{:,.0f}"),
)
MIXES: Sequence[Column] = (
    ("matrices", "matrices", "{}"),
    ("mix", "mix", "{}"),
    ("GPUs of a job", "sizes", "{}"),
    ("`tune`: of OPT", "tune of_opt", "{:.3f}"),
    ("worst", "tune worst_of_opt", "{:.3f}"),
    ("OPT takes times", "tune opt_takes_times", "{:,.0f}"),
    ("`tune+top-up`: of OPT", "tune+top-up of_opt", "{:.3f}"),
    ("worst", "tune+top-up worst_of_opt", "{:.3f}"),
    ("OPT takes times", "tune+top-up opt_takes_times", "{:,.0f}"),
)
END_TO_END: Sequence[Column] = (
    ("matrices", "matrices", "{}"),
    ("trace", "trace", "{}"),
    ("allocator", "allocator", "`{}`"),
    ("average h", "average_h", "{:.2f}"),
    ("over OPT", "average_over_opt", "{:+.1%}"),
    ("p99 h", "p99_h", "{:.1f}"),
    ("makespan h", "makespan_h", "{:.1f}"),
    ("over OPT", "makespan_over_opt", "{:+.1%}"),
    ("seconds", "wall_s", "{:.1f}"),
)
PUBLISHED: Sequence[Column] = (
    ("workload", "workload", "{}"),
    ("policy, as in the public code", "policy", "`{}`"),
    ("average", "average_s", "{:,.1f}"),
    ("theirs", "public_avg_jct_s", "{:,.1f}"),
    ("off", "off", "{:+.4%}"),
    ("p99", "p99_s", "{:,.0f}"),
    ("theirs", "public_p99_jct_s", "{:,.0f}"),
    ("makespan", "makespan_s", "{:,.0f}"),
    ("theirs", "public_makespan_s", "{:,.0f}"),
    ("seconds", "wall_s", "{:.2f}"),
    ("theirs", "public_took_s", "{:.1f}"),
    ("times faster", "times_faster", "{:,.0f}"),
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


def by(rows: Sequence[ResultRow], key: str) -> dict[str, list[ResultRow]]:
    """Return the rows by the value of `key`, in the order of their first occurrence."""
    return by_key((row[key], row) for row in rows)


UNTIMED = "Without a time: these were run again beside other work."


def _paper(rows: Sequence[ResultRow]) -> str:
    tables = (
        f"`{name}`, {found[0]['jobs']} jobs:\n\n{grid(found, PAPER)}"
        for name, found in by(rows, "trace").items()
    )
    untimed = any(row["took_s"] is None for row in rows)
    return "\n\n".join([*tables, *([UNTIMED] if untimed else [])])


def _kinds(columns: Mapping[str, tuple[str, Sequence[Column]]]) -> Callable[[Sequence[ResultRow]], str]:
    def show(rows: Sequence[ResultRow]) -> str:
        found = by(rows, "table")
        return "\n\n".join(
            f"{title}\n\n{grid(found[name], spec)}"
            for name, (title, spec) in columns.items()
            if name in found
        )

    return show


def pivot(rows: Sequence[ResultRow], over: Sequence[str], by_value_of: str) -> list[ResultRow]:
    """Return a row for each combination of `over`, with the value of `by_value_of` before its other keys.

    >>> pivot([{"a": 1, "b": "x", "c": 5}, {"a": 1, "b": "y", "c": 6}], ["a"], "b")
    [{'a': 1, 'x c': 5, 'y c': 6}]
    """
    found: dict[tuple[Any, ...], ResultRow] = {}
    for row in rows:
        merged = found.setdefault(tuple(row[key] for key in over), {key: row[key] for key in over})
        before = row[by_value_of]
        merged |= {f"{before} {key}": value for key, value in row.items() if key not in (*over, by_value_of)}
    return list(found.values())


def _synergy(rows: Sequence[ResultRow]) -> str:
    found = by(rows, "table")
    rounds = found["allocate"]
    first = [row for row in rounds if (row["mix"], row["sizes"]) == (rounds[0]["mix"], rounds[0]["sizes"])]
    mixes = pivot(rounds, ("matrices", "mix", "sizes"), "allocator")
    wide = pivot(first, ("allocator",), "matrices")
    parts = [
        "One round on a full cluster of 128 GPUs, jobs of one GPU,"
        f" {first[0]['mix']} % of them image, text and sound:",
        grid(wide, [column for column in ALLOCATORS if column[1] in wide[0]]),
        "The same for other mixes and sizes (each of a list equally often):",
        grid(mixes, MIXES),
        " ".join(_within(mixes, name) for name in ("tune", "tune+top-up")),
        "Whole traces by the paper's rules, FIFO on 128 GPUs, one-GPU jobs except in c1000, rounds of five\n"
        "minutes; *seconds* is a whole simulation:",
        grid(found["end-to-end"], END_TO_END),
    ]
    if "published" in found:
        parts += [
            "As in the public code, beside the public simulator:",
            grid(found["published"], PUBLISHED),
        ]
    return "\n\n".join(parts)


def _within(mixes: Sequence[ResultRow], name: str) -> str:
    of_opt = [row[f"{name} of_opt"] for row in mixes]
    times = [row[f"{name} opt_takes_times"] for row in mixes]
    return (
        f"`{name}` is within 10 % of OPT on average in {sum(value >= 0.9 for value in of_opt)} of"
        f" {len(mixes)} (least {min(of_opt):.3f}) and at least 200 times as fast in"
        f" {sum(value >= 200 for value in times)} (least {min(times):,.0f})."
    )


SHOW: Mapping[str, Callable[[Sequence[ResultRow]], str]] = {
    "replicas": lambda rows: grid(rows, REPLICA),
    "paper": _paper,
    "synergy": _synergy,
    "lucid": _kinds(
        {
            "paper": ("As paper:", LUCID),
            "replicas": ("The replica beside the public simulator on the same trace:", LUCID_CODED),
        }
    ),
}
"""The tables of each part of the page, between marks of its name."""
