"""Tables and a page made of the rows of `benchmarks.reproduce`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bmv2_topos.harness import markdown
from bmv2_topos.wrap import wrap

ResultRow = dict[str, Any]
Column = tuple[str, str, str]
"""Heading, key of the row, and format of its value; a value that is None or missing leaves the cell empty."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A part of the page."""

    title: str
    about: str
    table: Callable[[Sequence[ResultRow]], str]


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
RULES: Sequence[Column] = (
    ("policy", "policy", "`{}`"),
    ("rules", "step", "{}"),
    ("average", "avg_jct_s", "{:,.0f}"),
    ("by this step", "change", "{:+.1%}"),
    ("p99", "p99_jct_s", "{:,.0f}"),
    ("makespan", "makespan_s", "{:,.0f}"),
    ("restarts", "restarts", "{:,}"),
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
TREE: Sequence[Column] = (
    ("price of a leaf", "price of a leaf", "{}"),
    ("leaves", "leaves", "{}"),
    ("seen", "seen", "{:.3f}"),
    ("unseen configurations", "unseen configurations", "{:.3f}"),
    ("unseen models", "unseen models", "{:.3f}"),
    ("allowed and fast", "allowed and fast", "{:.3f}"),
    ("fast and allowed", "fast and allowed", "{:.3f}"),
)
MODELS: Sequence[Column] = (
    ("predicted", "predicted", "{}"),
    ("by", "by", "{}"),
    ("mean absolute error", "mean absolute error", "{:.2f}"),
    ("R2", "R2", "{:.2f}"),
    ("training s", "training s", "{:.1f}"),
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


def by(rows: Sequence[ResultRow], key: str) -> dict[str, list[ResultRow]]:
    """Return the rows by the value of `key`, in the order in which the values turn up."""
    found: dict[str, list[ResultRow]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


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
    """Return a row for each combination of `over`; before its other keys stands the value of `by_value_of`.

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
            PUBLIC_SYNERGY,
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


PUBLIC_SYNERGY = """\
*static* and *dynamic* are its deployment traces, 100 jobs on 32 GPUs; c1000 runs on 64, *philly-derived* on
128 GPUs. Its times are without its statistics and plots, except for *philly-derived*. Where averages are off:
jobs that arrive in the same second come out of its heap in no fixed order (with a stable one all of c1000 is
equal to the digit), and OPT's program has many optima, of which solvers find different ones."""

SHOW: Mapping[str, Shown] = {
    "replicas": Shown(
        "As muri-replica: Muri's public simulator",
        "Eight nodes of eight GPUs, rule set `muri-replica:`; *theirs* is what the public simulator (commit\n"
        "4e69a78) printed here or its authors print, *off* the relative difference of the averages: what is\n"
        "known to whole seconds only is off by rounding. `-keep` is `--autopack False` there. Themis is off\n"
        "by what its solver makes of a program with many optima. For Muri-L on job_type_1 the authors print\n"
        "342,922, where their code prints 502,170 (here). `sample` is the trace that the tests ship, on two\n"
        "nodes.",
        lambda rows: grid(rows, REPLICA),
    ),
    "paper": Shown(
        "As paper: all policies in one speed model",
        "The same traces by the rules of the papers; restart costs as the traces have them. "
        "Policies that do not\n"
        "group run jobs alone, at the same speeds. Ablations of Muri (`muri-s-…`) on the first trace only.",
        _paper,
    ),
    "rules": Shown(
        "From the public code's rules to the paper's",
        "One difference at a time, on the first trace; [differences](../schedulers/differences.md) explains\n"
        "them.",
        lambda rows: grid(rows, RULES),
    ),
    "synergy": Shown(
        "Synergy",
        "`python -m benchmarks.synergy allocate`, `end-to-end` and `published`. `tune` is the published "
        "procedure:\n"
        "a job has its ideal share or its fair one; what those that fell back leave over goes to jobs placed "
        "later\nor stays unused. "
        "`tune+top-up`, of our own, hands it out. OPT is two programs, rounding, and the same top-up; the "
        "*bound* is\n"
        "its first program, all servers in one. Averages and the worst of ten draws.",
        _synergy,
    ),
    "lucid": Shown(
        "Lucid",
        "`python -m benchmarks.lucid schedule`, with `--replica`, and `tree`. *Tiresias takes* is its "
        "average as a\n"
        "multiple of the policy's. A tree's figures are its accuracy on what it was trained on, on\n"
        "configurations and on models that it has not seen, and how good the packing is that follows.",
        _kinds(
            {
                "paper": ("As paper:", LUCID),
                "replicas": (
                    "The replica beside the public simulator on the same trace:",
                    LUCID_CODED,
                ),
                "tree": ("The packing tree:", TREE),
                "models": (
                    "What the models predict of what they have not seen, beside simpler guesses: what is\n"
                    "asked for in the next ten minutes, and the logarithm of durations:",
                    MODELS,
                ),
            }
        ),
    ),
    "grouping": Shown(
        "Grouping",
        "Jobs with four resources in groups of up to four (`python -m benchmarks.speed grouping`). The public code "
        "takes 124 s\n"
        "for 512 jobs and 454 s for 1,000 on the same machine.",
        lambda rows: grid(rows, GROUPING),
    ),
}


def page(tables: Mapping[str, Sequence[ResultRow]]) -> str:
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
        "Figures of different speed models (`muri-replica:`, plain, `synergy:`, `lucid:`) are not "
        "comparable with each\n"
        "other. The public simulators' times were taken with other work on the machine. Lucid's "
        "Venus trace is\n"
        "not in its repository's snapshot: c1000, a week of Philly on 64 GPUs, stands in for it.",
        "## Reproduce",
        "```\npython -m benchmarks.reproduce --traces DIR --output docs/results\n```",
        "makes this page; the rows are in [schedulers.json](schedulers.json). Without `--traces` "
        "shipped and\n"
        "made-up traces stand in; `--slow` adds what takes minutes, such as grouping on trace1.\n"
        "`tests/benchmarks/replicas/test_muri_figures.py` holds ten policies on the shipped trace, "
        "and the first figures\n"
        "above if `INA_TRACES` names the folder with the public traces.",
    ]
    return wrap("\n\n".join(parts)) + "\n"
