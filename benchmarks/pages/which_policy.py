"""Which policies to use on which kind of cluster: whole stacks on families of workloads.

Each family's jobs are run by the simplest policies, by the strongest simple ones, and by `joint`, which
decides all at once.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Final

from benchmarks.pages.families import LATER, NAMES, SEEDS, workload
from bmv2_topos.harness import Call, Experiment, ResultRow, column, columns, grouped, markdown, selected
from controller.policies.registry import SCHEDULER
from controller.simulator.network.run import NetworkSettings, NetworkTask, run_network

Names = tuple[str, str, str, str]
"""A scheduler, a placement, a policy for memory and one for routing."""
FAST: Final = "locality-fast-links"
STRAIGHT: Final = "shortest-path"
SIMPLEST: Final[Names] = ("fifo-backfill", "locality", "shared", STRAIGHT)
SIMPLE: Final[Sequence[Names]] = (
    SIMPLEST,
    ("srsf", FAST, "shared", STRAIGHT),
    ("edf", FAST, "shared", STRAIGHT),
    ("edf", "netpack", "shared", STRAIGHT),
    ("edf", "netpack", "shared", "ecmp-everywhere"),
    ("edf", FAST, "earliest", STRAIGHT),
    ("on-time", "netpack", "shared", STRAIGHT),
    ("on-time", "netpack", "shared", "ecmp-everywhere"),
)
"""Each decision by a policy of its own, the strongest combinations; the first is the simplest."""
OURS: Final[Names] = ("joint", SCHEDULER, "shared", STRAIGHT)
STACKS: Final = (*SIMPLE, OURS)
PLAIN: Final = SIMPLE[4]
"""The simple policies that miss fewest deadlines of all kinds together."""
DOUBTING: Final = (PLAIN, SIMPLE[-1], OURS)
"""Compared with wrong durations, or starts that cost time; the first is the reference."""
CONDITIONS: Final = ((0.0, 0.0), (0.25, 0.0), (0.5, 0.0), (1.0, 0.0), (0.0, 10.0), (0.0, 30.0), (0.5, 30.0))
"""Errors of given durations (standard deviation of the logarithm), and seconds that each start costs."""
DOUBTED: Final = SEEDS[:5]
"""Seeds for these errors and costs."""
SLOWER: Final = 1.05
"""A job is slowed down if it takes more than this factor of its time under the simplest policies."""
CLOSE: Final = 0.03
"""Relative difference of times that count as the same: then the page recommends the simpler policies."""
ALL: Final = "all"
DOUBT: Final = "doubt"

Rows = Sequence[ResultRow]


def scenarios(quick: bool) -> Iterator[Call]:
    """Return a call for each family and seed, of a few seconds each."""
    for family, seed in product(NAMES[:1] if quick else NAMES, SEEDS[:1] if quick else SEEDS):
        yield Call(labels={"part": ALL, "family": family, "seed": seed}, call=partial(compared, family, seed))
    conditions = CONDITIONS[-1:] if quick else CONDITIONS
    families = NAMES[:1] if quick else (*NAMES, *LATER)
    for seed, (error, start_s), family in product(DOUBTED[:1] if quick else DOUBTED, conditions, families):
        yield Call(
            labels={"part": DOUBT, "family": family, "error": error, "start_s": start_s, "seed": seed},
            call=partial(compared, family, seed, DOUBTING, error=error, start_s=start_s),
        )


def compared(
    family: str, seed: int, stacks: Sequence[Names] = STACKS, *, error: float = 0.0, start_s: float = 0.0
) -> ResultRow:
    """Return misses and times of a family's jobs under stacks of policies, the simplest first.

    Args:
        family: The family's name.
        seed: Seed of its jobs.
        stacks: The policies.
        error: Error of given durations, for policies that use them.
        start_s: Cost of each start of a job, in seconds.
    """
    jobs, topology = workload(family, seed)
    due = {job.name for job in jobs if job.deadline_s is not None}
    row: dict[str, float] = {"deadlines": len(due)}
    jobs = [replace(job, restart_s=start_s) for job in jobs]
    extra = (("estimate_error", error), ("seed", float(seed))) if error else ()
    simplest: dict[str, float] = {}
    for names in stacks:
        scheduler, placement, memory, routing = names
        settings = NetworkSettings(placement=placement, memory=memory, routing=routing, seed=seed)
        outcome = run_network(
            NetworkTask(
                jobs=jobs, topology=topology, scheduler=scheduler, settings=settings, scheduler_settings=extra
            )
        )
        times = {each.spec.name: each.jct_s for each in outcome.simulated.result.jobs if each.completed}
        simplest = simplest or times
        slower = sum(times.get(name, float("inf")) > SLOWER * time_s for name, time_s in simplest.items())
        key = label(names)
        row[f"{key}.missed"] = outcome.metrics.missed
        row[f"{key}.broken"] = outcome.metrics.broken
        row[f"{key}.others_s"] = statistics.fmean(times[name] for name in times if name not in due)
        row[f"{key}.slower"] = slower / len(jobs)
    return row


def label(names: Names) -> str:
    """Return the names for tables."""
    scheduler, placement, memory, routing = names
    shown = [scheduler, *([placement] if placement != SCHEDULER else []), memory]
    return " + ".join([*shown, *([routing] if routing != STRAIGHT else [])])


def _missed(rows: Rows, names: Names) -> int:
    return _sum(rows, f"{label(names)}.missed")


def _sum(rows: Rows, key: str) -> int:
    return int(sum(column(rows, key)))


def _mean(rows: Rows, names: Names, what: str) -> float:
    return statistics.fmean(column(rows, f"{label(names)}.{what}"))


def _others(rows: Rows, names: Names, beside: Names = SIMPLEST) -> float:
    """Return the mean times of jobs without deadlines against those under other policies."""
    return _mean(rows, names, "others_s") / _mean(rows, beside, "others_s") - 1


def best_simple(rows: Rows) -> Names:
    """Return the simple policies with the fewest missed deadlines; of equals, with the least delay."""
    return min(SIMPLE, key=lambda names: (_missed(rows, names), _mean(rows, names, "others_s")))


def to_use(rows: Rows) -> Names:
    """Return the policies to use: see the page's setting."""
    least = min(_missed(rows, names) for names in STACKS) + _sum(rows, "deadlines") / 100
    good = [names for names in STACKS if _missed(rows, names) <= least]
    soonest = min(_mean(rows, names, "others_s") for names in good)
    return next(names for names in good if _mean(rows, names, "others_s") <= (1 + CLOSE) * soonest)


def tables(rows: Rows) -> str:
    """Return the tables by family, of all policies, and of errors and costs of starts."""
    whole, doubts = selected(rows, part=ALL), selected(rows, part=DOUBT)
    families = []
    for (family,), here in grouped(whole, "family").items():
        use, simple = to_use(here), best_simple(here)
        counts = [_sum(here, "deadlines"), _missed(here, SIMPLEST)]
        best = f"{_missed(here, simple)} (`{label(simple)}`)"
        pays = [f"{_others(here, use):+.0%}", f"{_mean(here, use, 'slower'):.0%}"]
        families.append([family, f"`{label(use)}`", *map(str, counts), best, str(_missed(here, OURS)), *pays])
    heads = ["kind", "use", "deadlines", "missed: simplest", "best simple", "`joint`", "others"]
    together = [
        [
            f"`{label(names)}`",
            str(_missed(whole, names)),
            str(_sum(whole, f"{label(names)}.broken")),
            f"{_others(whole, names):+.0%}",
            f"{_mean(whole, names, 'slower'):.0%}",
        ]
        for names in STACKS
    ]
    conditions = grouped(doubts, "error", "start_s")
    parts = {
        "By kind": markdown([*heads, "slower"], families),
        "All kinds together": markdown(["all kinds", "missed", "broken", "others", "slower"], together),
        "What is told is wrong, or starts cost time": _table_of_doubts(conditions),
        f"Missed by kind (least..most of a seed): `joint` / `{label(PLAIN)}`": _table_by_kind(doubts),
    }
    return "\n\n".join(f"### {title}\n\n{table}" for title, table in parts.items())


def _called(error: float, start_s: float) -> str:
    parts = [*([f"error {error:g}"] if error else []), *([f"starts {start_s:g} s"] if start_s else [])]
    return ", ".join(parts) or "exact, free"


def _table_of_doubts(conditions: Mapping[tuple[float, float], Rows]) -> str:
    """Return missed deadlines, and the cost: the others' times, and the part of jobs that take longer."""
    lines = [
        [
            _called(*condition),
            f"{_sum(here, 'deadlines'):,}",
            *(
                f"{_missed(here, names)}, others {_others(here, names, PLAIN):+.0%},"
                f" slower {_mean(here, names, 'slower'):.0%}"
                for names in DOUBTING
            ),
        ]
        for condition, here in conditions.items()
    ]
    return markdown(["all kinds", "deadlines", *(f"`{label(names)}`" for names in DOUBTING)], lines)


def _table_by_kind(rows: Rows) -> str:
    lines = []
    for (family,), here in grouped(rows, "family").items():
        by_condition = grouped(here, "error", "start_s")
        cells = (
            " / ".join(_range(group, names) for names in (OURS, PLAIN)) for group in by_condition.values()
        )
        lines.append([family, str(_sum(next(iter(by_condition.values())), "deadlines")), *cells])
    return markdown(
        ["kind", "deadlines", *(_called(*each) for each in grouped(rows, "error", "start_s"))], lines
    )


def _range(rows: Rows, names: Names) -> str:
    missed = [_missed([row], names) for row in rows]
    return f"{sum(missed)} ({min(missed)}..{max(missed)})" if any(missed) else "0"


EXPERIMENT = Experiment(
    name="which-policy",
    title="Which policies to use",
    scenarios=scenarios,
    measure=columns,
    tables=tables,
)
