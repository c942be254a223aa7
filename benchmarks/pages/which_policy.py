"""Which policies to use on which kind of cluster: whole stacks on families of workloads.

Each family's jobs are run by the simplest policies, by the strongest simple ones, by `joint`, which decides
all at once, and by `joint` without each of its parts. A bound says how many deadlines nobody can meet.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from benchmarks.pages import which_policy_packets as packets
from benchmarks.pages.families import LATER, NAMES, SEEDS, least_missed, workload
from benchmarks.pages.which_policy_parts import PROMISED
from bmv2_topos.harness import Call, Experiment, ResultRow, columns, markdown, selected
from controller.policies.registry import SCHEDULER
from controller.simulator.network.run import NetworkOutcome, NetworkTask, run_network
from controller.simulator.network.speed import NetworkSettings

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
    ("edf", FAST, "preemptive-ending", STRAIGHT),
    ("edf", FAST, "earliest", STRAIGHT),
    ("on-time", "netpack", "shared", STRAIGHT),
    ("on-time", "netpack", "shared", "ecmp-everywhere"),
)
"""Each decision by a policy of its own, the strongest combinations; the first is the simplest."""
OURS: Final[Names] = ("joint", SCHEDULER, "shared", STRAIGHT)
PARTS: Final = "benchmarks.pages.which_policy_parts"


def _part(name: str) -> Names:
    return (f"{PARTS}:{name}", SCHEDULER, "shared", STRAIGHT)


ADMITTING: Final = _part("admitting")
ABLATIONS: Final[Mapping[str, Names]] = {
    "its order alone": ("on-time", FAST, "shared", STRAIGHT),
    "its places and trees alone: jobs in the order of arrival": _part("equal"),
    "the opposite order": _part("inverted"),
    "deadlines first at once": _part("eager"),
    "without other trees than shortest paths": _part("one_tree"),
    "without moves of running jobs": _part("staying"),
    "without knowing how fast jobs are alone here": _part("fastest"),
    "without learning how jobs slow each other down": _part("unlearned"),
    "with slots granted to jobs that would be late": ("joint", SCHEDULER, "deadline-lazy", STRAIGHT),
    "with equal parts of the slots": ("joint", SCHEDULER, "static", STRAIGHT),
    "with admission": ADMITTING,
}
STACKS: Final = (*SIMPLE, OURS, *ABLATIONS.values())
PLAIN: Final = SIMPLE[4]
"""The simple policies that miss fewest deadlines of all kinds together."""
LATE: Final = SIMPLE[-1]
DOUBTING: Final = (PLAIN, LATE, OURS)
"""Compared where what is told is wrong, or starts cost time; the first is what others are compared with."""
CONDITIONS: Final = ((0.0, 0.0), (0.25, 0.0), (0.5, 0.0), (1.0, 0.0), (0.0, 10.0), (0.0, 30.0), (0.5, 30.0))
"""Errors of told durations (standard deviation of the logarithm), and seconds that each start costs."""
DOUBTED: Final = SEEDS[:5]
"""Seeds with which they are tried."""
SLOWER: Final = 1.05
"""A job is slowed down if it takes more than this factor of its time under the simplest policies."""
CLOSE: Final = 0.03
"""Part by which times may differ and count as the same: then the simpler policies are to be used."""
ALL: Final = "all"
DOUBT: Final = "doubt"

Rows = Sequence[ResultRow]


def scenarios(quick: bool) -> list[Call]:
    """Return a call for each family and seed, of a few seconds each, and those packet by packet."""
    return [*_scenarios(quick), *_doubts(quick), *packets.scenarios(quick)]


def _scenarios(quick: bool) -> Iterator[Call]:
    for family in NAMES[:1] if quick else NAMES:
        for seed in SEEDS[:1] if quick else SEEDS:
            yield Call(
                labels={"part": ALL, "family": family, "seed": seed}, call=partial(compared, family, seed)
            )


def _doubts(quick: bool) -> Iterator[Call]:
    for seed in DOUBTED[:1] if quick else DOUBTED:
        for error, start_s in CONDITIONS[-1:] if quick else CONDITIONS:
            for family in NAMES[:1] if quick else (*NAMES, *LATER):
                yield Call(
                    labels={
                        "part": DOUBT,
                        "family": family,
                        "error": error,
                        "start_s": start_s,
                        "seed": seed,
                    },
                    call=partial(compared, family, seed, DOUBTING, error=error, start_s=start_s),
                )


def compared(
    family: str, seed: int, stacks: Sequence[Names] = STACKS, *, error: float = 0.0, start_s: float = 0.0
) -> ResultRow:
    """Return misses and times of a family's jobs under stacks of policies, the simplest first.

    Args:
        family: The family's name.
        seed: Of its jobs.
        stacks: The policies.
        error: Of told durations, for policies that are told any.
        start_s: What each start of a job costs, in seconds.
    """
    jobs, topology = workload(family, seed)
    due = {job.name for job in jobs if job.deadline_s is not None}
    row: dict[str, float] = {"deadlines": len(due)}
    if stacks is STACKS:
        row["least"] = least_missed(jobs, topology)
    jobs = [replace(job, restart_s=start_s) for job in jobs]
    told = (("estimate_error", error), ("seed", float(seed))) if error else ()
    simplest: dict[str, float] = {}
    for names in stacks:
        scheduler, placement, memory, routing = names
        settings = NetworkSettings(placement=placement, memory=memory, routing=routing, seed=seed)
        outcome = run_network(
            NetworkTask(
                jobs=jobs, topology=topology, scheduler=scheduler, settings=settings, of_scheduler=told
            )
        )
        times = _times(outcome)
        simplest = simplest or times
        slower = sum(times.get(name, float("inf")) > SLOWER * time_s for name, time_s in simplest.items())
        key = label(names)
        row[f"{key}.missed"] = outcome.metrics.missed
        row[f"{key}.broken"] = outcome.metrics.broken
        row[f"{key}.others_s"] = statistics.fmean(times[name] for name in times if name not in due)
        row[f"{key}.slower"] = slower / len(jobs)
        if names == ADMITTING:
            missed = {each.spec.name for each in outcome.simulated.missed}
            row["promised"] = len(PROMISED)
            row[f"{key}.broken"] = len(PROMISED & missed)
    return row


def _times(outcome: NetworkOutcome) -> dict[str, float]:
    """Return the completion times of completed jobs, by name."""
    return {each.spec.name: each.jct_s for each in outcome.simulated.result.jobs if each.completed}


def label(names: Names) -> str:
    """Return the names as they are shown."""
    scheduler, placement, memory, routing = names
    shown = [scheduler.rpartition(":")[2], *([placement] if placement != SCHEDULER else []), memory]
    return " + ".join([*shown, *([routing] if routing != STRAIGHT else [])])


def _families(rows: Rows) -> list[str]:
    return list(dict.fromkeys(str(row["family"]) for row in rows))


def _missed(rows: Rows, names: Names) -> int:
    return _sum(rows, f"{label(names)}.missed")


def _sum(rows: Rows, key: str) -> int:
    return sum(int(row[key] or 0) for row in rows)


def _mean(rows: Rows, names: Names, what: str) -> float:
    return statistics.fmean(float(row[f"{label(names)}.{what}"] or 0.0) for row in rows)


def _others(rows: Rows, names: Names, beside: Names = SIMPLEST) -> float:
    """Return the mean times of jobs without deadlines against those under other policies."""
    return _mean(rows, names, "others_s") / _mean(rows, beside, "others_s") - 1


def best_simple(rows: Rows) -> Names:
    """Return the simple policies that miss fewest deadlines, and among those delay the others least."""
    return min(SIMPLE, key=lambda names: (_missed(rows, names), _mean(rows, names, "others_s")))


def to_use(rows: Rows) -> Names:
    """Return the policies to use: see the page's setting."""
    stacks = (*SIMPLE, OURS)
    deadlines = _sum(rows, "deadlines")
    least = min(_missed(rows, names) for names in stacks)
    good = [names for names in stacks if _missed(rows, names) <= least + deadlines / 100]
    soonest = min(_mean(rows, names, "others_s") for names in good)
    return next(names for names in good if _mean(rows, names, "others_s") <= (1 + CLOSE) * soonest)


def tables(rows: Rows) -> str:
    """Return the table by family, that of the parts, that of restarts, and that of packets."""
    whole = selected(rows, part=ALL)
    cells = []
    for family in _families(whole):
        here = selected(whole, family=family)
        use, simple = to_use(here), best_simple(here)
        cells.append(
            [
                family,
                f"`{label(use)}`",
                _sum(here, "deadlines"),
                _sum(here, "least"),
                _missed(here, SIMPLEST),
                f"{_missed(here, simple)} (`{label(simple)}`)",
                _missed(here, OURS),
                f"{_others(here, use):+.0%}",
                f"{_mean(here, use, 'slower'):.0%}",
            ]
        )
    by_family = markdown(
        [
            "kind",
            "use",
            "deadlines",
            "nobody",
            "missed: simplest",
            "best simple",
            "`joint`",
            "others",
            "slower",
        ],
        [[str(cell) for cell in line] for line in cells],
    )
    parts = {label(names): names for names in SIMPLE} | {f"**{label(OURS)}**": OURS} | dict(ABLATIONS)
    ablation = markdown(
        ["all kinds", "missed", "broken", "others", "slower"],
        [
            [
                name,
                str(_missed(whole, names)),
                str(_sum(whole, f"{label(names)}.broken")),
                f"{_others(whole, names):+.0%}",
                f"{_mean(whole, names, 'slower'):.0%}",
            ]
            for name, names in parts.items()
        ],
    )
    return f"""{by_family}

### All kinds together, and `joint` without each of its parts

{ablation}

### What is told is wrong, or starts cost time

{_table_of_doubts(selected(rows, part=DOUBT))}

Missed by kind, of all seeds (least..most of a seed): `joint` / `{label(PLAIN)}`

{_table_by_kind(selected(rows, part=DOUBT))}

### Packet by packet

{packets.table(rows)}"""


def _conditions(rows: Rows) -> list[tuple[float, float]]:
    there = {(float(row["error"] or 0.0), float(row["start_s"] or 0.0)) for row in rows}
    return [each for each in CONDITIONS if each in there]


def _at(rows: Rows, condition: tuple[float, float]) -> Rows:
    return selected(rows, error=condition[0], start_s=condition[1])


def _called(condition: tuple[float, float]) -> str:
    error, start_s = condition
    said = [*([f"error {error:g}"] if error else []), *([f"starts {start_s:g} s"] if start_s else [])]
    return ", ".join(said) or "exact, free"


def _table_of_doubts(rows: Rows) -> str:
    """Return missed deadlines, and who pays: the others' times, and the part of jobs that take longer."""
    return markdown(
        ["all kinds", "deadlines", *(f"`{label(names)}`" for names in DOUBTING)],
        [
            [
                _called(each),
                f"{_sum(here, 'deadlines'):,}",
                *(
                    f"{_missed(here, names)}, others {_others(here, names, PLAIN):+.0%},"
                    f" slower {_mean(here, names, 'slower'):.0%}"
                    for names in DOUBTING
                ),
            ]
            for each in _conditions(rows)
            for here in [_at(rows, each)]
        ],
    )


def _table_by_kind(rows: Rows) -> str:
    conditions = _conditions(rows)
    return markdown(
        ["kind", "deadlines", *map(_called, conditions)],
        [
            [
                family,
                str(_sum(_at(here, conditions[0]), "deadlines")),
                *(
                    f"{_spread(_at(here, each), OURS)} / {_spread(_at(here, each), PLAIN)}"
                    for each in conditions
                ),
            ]
            for family in _families(rows)
            for here in [selected(rows, family=family)]
        ],
    )


def _spread(rows: Rows, names: Names) -> str:
    missed = [_missed([row], names) for row in rows]
    return f"{sum(missed)} ({min(missed)}..{max(missed)})" if any(missed) else "0"


EXPERIMENT = Experiment(
    name="which-policy",
    title="Which policies to use",
    scenarios=scenarios,
    measure=columns,
    tables=tables,
)
