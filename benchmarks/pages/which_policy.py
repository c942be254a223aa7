"""Which policies to use on which kind of cluster: whole stacks on families of workloads.

Each family's jobs are run by the simplest policies, by the strongest simple ones, by `on-time`, and by
`on-time` without each of its parts.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from benchmarks.pages.families import JOBS, NAMES, SEEDS, workload
from bmv2_topos.harness import Call, Experiment, ResultRow, columns, markdown, selected
from controller.simulator.network.run import NetworkOutcome, NetworkTask, run_network
from controller.simulator.network.settings import NetworkSettings

Names = tuple[str, str, str]
"""A scheduler, a placement and a policy for memory."""

FAST: Final = "locality-fast-links"
SIMPLEST: Final[Names] = ("fifo-backfill", "locality", "shared")
SIMPLE: Final[Sequence[Names]] = (
    SIMPLEST,
    ("srsf", FAST, "shared"),
    ("edf", FAST, "shared"),
    ("edf", FAST, "preemptive-ending"),
    ("edf", FAST, "earliest"),
)
"""The strongest of the simple ones; the first is the simplest."""
OURS: Final[Names] = ("on-time", FAST, "shared")
UNLEARNED: Final = "benchmarks.pages.which_policy_parts:Unlearned"
UNKNOWING: Final = "without learning how jobs slow each other down"
NETPACK: Final = "with NetPack's placement"
GRANTED: Final = "with slots granted to jobs that would be late"
ABLATIONS: Final[Mapping[str, Names]] = {
    UNKNOWING: (UNLEARNED, FAST, "shared"),
    NETPACK: ("on-time", "netpack", "shared"),
    GRANTED: ("on-time", FAST, "deadline-lazy"),
}
STACKS: Final = (*SIMPLE, OURS, *ABLATIONS.values())
SLOWER: Final = 1.05
"""A job is slowed down if it takes more than this factor of its time under the simplest policies."""
CLOSE: Final = 0.03
"""Part by which times may differ and count as the same: then the simpler policies are to be used."""
FEWER: Final = 0.7
SOONER: Final = 0.1
"""The aim: at most so many times the missed deadlines of the best simple policies, or as many, and jobs
without deadlines so much sooner; and in no family more missed."""

Rows = Sequence[ResultRow]

QUESTION = """
Which scheduler, placement and division of switch memory suit which kind of cluster, what do they gain over
the simplest ones, and who pays?
"""

ABOUT = f"""
As flows (`ina cluster simulate --model average`): {JOBS} jobs on two spines and four racks, in
{len(NAMES)} families (`benchmarks/pages/families.py`) that each change one thing; half of the jobs have
deadlines of 1.2 to 3 times what they take alone. {len(SEEDS)} seeds, every other of which was drawn after all
policies were fixed. `simplest` is `{" + ".join(SIMPLEST)}`. `on-time` ([how](../schedulers/reference.md))
runs the shortest jobs first, and those with deadlines before them as late as these allow. *Others* are mean
completion times of jobs without deadlines against the simplest; *slower* is the part of all jobs that take
over 5 % longer than with it, or are ended. The policies to use miss fewest deadlines; among those
that miss at most one in a hundred more, they delay the others least; within 3 %, they are the simplest.
"""

LIMITS = """
One shape of cluster, generated jobs; times are computed, not measured ([how far
off](cluster-validation.md)). Restarts cost nothing here, and `on-time` is told durations exactly.
"""


def scenarios(quick: bool) -> list[Call]:
    """Return a call for each family and seed, of a few seconds each."""
    return list(_scenarios(quick))


def _scenarios(quick: bool) -> Iterator[Call]:
    for family in NAMES[:1] if quick else NAMES:
        for seed in SEEDS[:1] if quick else SEEDS:
            yield Call(labels={"family": family, "seed": seed}, call=partial(compared, family, seed))


def compared(family: str, seed: int) -> ResultRow:
    """Return misses and times of a family's jobs under all stacks."""
    jobs, topology = workload(family, seed)
    due = {job.name for job in jobs if job.deadline_s is not None}
    row: dict[str, float] = {"deadlines": len(due)}
    simplest: dict[str, float] = {}
    for names in STACKS:
        scheduler, placement, memory = names
        settings = NetworkSettings(placement=placement, memory=memory, seed=seed)
        outcome = run_network(
            NetworkTask(jobs=jobs, topology=topology, scheduler=scheduler, settings=settings)
        )
        times = _times(outcome)
        simplest = simplest or times
        slower = sum(times.get(name, float("inf")) > SLOWER * time_s for name, time_s in simplest.items())
        key = label(names)
        row[f"{key}.missed"] = outcome.metrics.missed
        row[f"{key}.others_s"] = statistics.fmean(times[name] for name in times if name not in due)
        row[f"{key}.slower"] = slower / len(jobs)
    return row


def _times(outcome: NetworkOutcome) -> dict[str, float]:
    """Return the completion times of completed jobs, by name."""
    return {each.spec.name: each.jct_s for each in outcome.simulated.result.jobs if each.completed}


def label(names: Names) -> str:
    """Return the names as they are shown."""
    scheduler, placement, memory = names
    return " + ".join((scheduler.rpartition(":")[2].lower(), placement, memory))


def _families(rows: Rows) -> list[str]:
    return list(dict.fromkeys(str(row["family"]) for row in rows))


def _missed(rows: Rows, names: Names) -> int:
    return sum(int(row[f"{label(names)}.missed"] or 0) for row in rows)


def _mean(rows: Rows, names: Names, what: str) -> float:
    return statistics.fmean(float(row[f"{label(names)}.{what}"] or 0.0) for row in rows)


def _others(rows: Rows, names: Names) -> float:
    """Return the mean times of jobs without deadlines against the simplest policies."""
    return _mean(rows, names, "others_s") / _mean(rows, SIMPLEST, "others_s") - 1


def best_simple(rows: Rows) -> Names:
    """Return the simple policies that miss fewest deadlines, and among those delay the others least."""
    return min(SIMPLE, key=lambda names: (_missed(rows, names), _mean(rows, names, "others_s")))


def to_use(rows: Rows) -> Names:
    """Return the policies to use: see the page's setting."""
    stacks = (*SIMPLE, OURS)
    deadlines = sum(int(row["deadlines"] or 0) for row in rows)
    least = min(_missed(rows, names) for names in stacks)
    good = [names for names in stacks if _missed(rows, names) <= least + deadlines / 100]
    soonest = min(_mean(rows, names, "others_s") for names in good)
    return next(names for names in good if _mean(rows, names, "others_s") <= (1 + CLOSE) * soonest)


def tables(rows: Rows) -> str:
    """Return the table by family, and that of the parts."""
    cells = []
    for family in _families(rows):
        here = selected(rows, family=family)
        use, simple = to_use(here), best_simple(here)
        cells.append(
            [
                family,
                f"`{label(use)}`",
                sum(int(row["deadlines"] or 0) for row in here),
                _missed(here, SIMPLEST),
                f"{_missed(here, simple)} (`{label(simple)}`)",
                _missed(here, OURS),
                f"{_others(here, use):+.0%}",
                f"{_mean(here, use, 'slower'):.0%}",
            ]
        )
    by_family = markdown(
        ["kind", "use", "deadlines", "missed: simplest", "best simple", "`on-time`", "others", "slower"],
        [[str(cell) for cell in line] for line in cells],
    )
    parts = {label(names): names for names in SIMPLE} | {f"**{label(OURS)}**": OURS} | dict(ABLATIONS)
    ablation = markdown(
        ["all kinds", "missed", "others", "slower"],
        [
            [
                name,
                str(_missed(rows, names)),
                f"{_others(rows, names):+.0%}",
                f"{_mean(rows, names, 'slower'):.0%}",
            ]
            for name, names in parts.items()
        ],
    )
    return f"{by_family}\n\n### All kinds together, and `on-time` without each of its parts\n\n{ablation}"


def findings(rows: Rows) -> str:
    """Return the text on the tables: sums over all kinds, kinds to use `on-time` for, and its parts."""
    simple = best_simple(rows)
    ours, theirs = _missed(rows, OURS), _missed(rows, simple)
    others = _mean(rows, OURS, "others_s") / _mean(rows, simple, "others_s") - 1
    by_kind = {family: selected(rows, family=family) for family in _families(rows)}
    used = [family for family, here in by_kind.items() if to_use(here) == OURS]
    worse = [
        f"{family} ({_missed(here, OURS)} of {_missed(here, best_simple(here))})"
        for family, here in by_kind.items()
        if _missed(here, OURS) > _missed(here, best_simple(here))
    ]
    met = ours <= FEWER * theirs or (ours <= theirs and others <= -SOONER)
    granted = [*SIMPLE[3:], ABLATIONS[GRANTED]]
    return f"""
- Over all kinds `on-time` misses {ours} deadlines, `{label(simple)}`, the best of the simple ones, {theirs};
  jobs without deadlines take {others:+.0%} beside it. The aim, {1 - FEWER:.0%} fewer missed or as many with
  the others {SOONER:.0%} sooner, is {"met" if met and not worse else "not met"}.
- `on-time` is the policy to use for: {", ".join(used) or "none"}. It misses more than the best simple
  policies of the kind (missed by each) for: {", ".join(worse) or "none"}. Without knowing which kind it is,
  `{label(simple)}` is the safe choice; `ina advise` compares both on a file of jobs.
- Where slots are granted by deadline there miss: {", ".join(_stated(rows, each) for each in granted)}.
  With NetPack's placement instead of filling the fastest servers first `on-time` misses
  {_missed(rows, ABLATIONS[NETPACK])}; without learning how jobs slow each other
  down {_missed(rows, ABLATIONS[UNKNOWING])}.
"""


def _stated(rows: Rows, names: Names) -> str:
    return f"`{label(names)}` {_missed(rows, names)}"


EXPERIMENT = Experiment(
    name="which-policy",
    title="Which policies to use",
    question=QUESTION,
    about=ABOUT,
    scenarios=scenarios,
    measure=columns,
    tables=tables,
    findings=findings,
    limits=LIMITS,
)
