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
from benchmarks.pages.families import JOBS, LATER, NAMES, SEEDS, workload
from benchmarks.pages.least_missed import least_missed
from benchmarks.pages.which_policy_parts import PROMISED
from bmv2_topos.harness import Call, Experiment, ResultRow, columns, markdown, selected
from controller.policies.by_kind import SCHEDULER
from controller.simulator.network.run import NetworkOutcome, NetworkTask, run_network
from controller.simulator.network.settings import NetworkSettings

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
FEWER: Final = 0.7
SOONER: Final = 0.1
"""The aim: at most so many times the missed deadlines of the best simple policies, or as many, and jobs
without deadlines so much sooner; and in no family more than `CLOSE` of the deadlines missed in addition, or
others slower by so much."""
ALL: Final = "all"
DOUBT: Final = "doubt"

Rows = Sequence[ResultRow]

QUESTION = """
Which scheduler, placement, trees and division of switch memory suit which kind of cluster, what do they gain
over the simplest ones, who pays, and does it pay to decide on all of them at once?
"""

ABOUT = f"""
As flows (`ina cluster simulate --model average`): {JOBS} jobs on 16 servers, in {len(NAMES)} families
(`benchmarks/pages/families.py`) that each change one thing; half of the jobs have deadlines of 1.2 to 3 times
what they take alone. {len(SEEDS)} seeds, every other of which was drawn after all policies were fixed. The
families fat-tree, slow links between switches and overloaded were added after `joint` was made, but before
its last change (it counts all jobs that go on beside a place, not only those before it). `simplest` is
`{" + ".join(SIMPLEST[:3])}`, on shortest paths as all where nothing else is said.

[`joint`](../schedulers/reference.md#policies) decides on GPUs, servers and trees at once: in the order of
`on-time`, each job takes the place where most GPUs compute beside the others, by the links and slots that are
left. It holds nothing for anybody and grants no slots, so nothing is taken back either; a running
job moves if that pays. `on-time` runs the shortest jobs first, and those with deadlines before them as late
as these allow; the other policies are told on [a page of their own](../allocation.md#policies).

*Nobody* is a lower bound of the deadlines that any policy misses (`benchmarks/pages/least_missed.py`): with
the future known, splits and stops for nothing, and no contention. *Others* are mean completion times of jobs
without deadlines against the simplest; *slower* is the part of all jobs that take over 5 % longer than with
it, or are ended; *broken* are misses of jobs that had been granted slots on arrival and lost them, or, *with
admission*, that had been promised their deadline: there a deadline counts only once all promised jobs due by
then need at most half of the GPUs' time, slowed down as running jobs show. The policies to use miss fewest
deadlines; among those that miss at most one in a hundred more, they delay the others least; within 3 %, they
are the simplest.

Then durations are told with an error, one factor for each job, whose logarithm has a standard deviation of
0.25, 0.5 or 1, or every start costs 10 or 30 s, or both ({len(DOUBTED)} of the seeds). `on-time` and `joint`
see how far off ended jobs were: the more, the earlier deadlines go first, and the later they are given up
(`controller/scheduling/urgency.py`). There *others* and *slower* are beside `{" + ".join(PLAIN)}`.
{len(LATER)} more kinds were drawn after that was made: {", ".join(LATER)}.

{packets.ABOUT.strip()}
"""

LIMITS = """
16 servers, generated jobs of minutes; times are computed, not measured ([how far
off](cluster-validation.md)). Where nothing else is said starts cost nothing, and durations are told exactly.
`joint` places all jobs anew at each decision: it is for tens of servers, not for thousands, and the default
of `ina controller` up to 32 servers; beyond, that is `edf + netpack + shared + ecmp-everywhere`. Flows do not
foresee what jobs on slow links do to others: their packets hold slots for long, those of others meet them and
go to fallback servers, some behind slow links. The worst errors with mixed link rates are of such jobs: they
take many times as long in packets.
"""


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


def findings(rows: Rows) -> str:
    """Return the text on the tables: sums over all kinds, kinds to use `joint` for, its parts, restarts."""
    whole = selected(rows, part=ALL)
    simple = best_simple(whole)
    ours, theirs, least = _missed(whole, OURS), _missed(whole, simple), _sum(whole, "least")
    others = _others(whole, OURS, simple)
    by_kind = {family: selected(whole, family=family) for family in _families(whole)}
    used = [family for family, here in by_kind.items() if to_use(here) == OURS]
    by_choice = sum(_missed(here, best_simple(here)) for here in by_kind.values())
    worse = [
        f"{family} ({_missed(here, OURS)} of {_missed(here, best_simple(here))})"
        for family, here in by_kind.items()
        if _missed(here, OURS) > _missed(here, best_simple(here))
    ]
    bad = [
        f"{family} ({_others(here, OURS, best_simple(here)):+.0%})"
        for family, here in by_kind.items()
        if _missed(here, OURS) > _missed(here, best_simple(here)) + CLOSE * _sum(here, "deadlines")
        or _others(here, OURS, best_simple(here)) > CLOSE
    ]
    met = ours <= FEWER * theirs or (ours <= theirs and others <= -SOONER)
    admitting = label(ADMITTING)
    return f"""
- Over all kinds `joint` misses {ours} of {_sum(whole, "deadlines"):,} deadlines, `{label(simple)}`, the best
  of the simple ones, {theirs}, and the best simple ones of each kind together {by_choice}. At least {least}
  are missed by anybody. Jobs without deadlines take {others:+.0%} beside `{label(simple)}`. The aim,
  {1 - FEWER:.0%} fewer missed or as many with the others {SOONER:.0%} sooner, is
  {"met" if met else "not met"}. In no kind should it miss {CLOSE:.0%} of the deadlines more, or others take
  {CLOSE:.0%} longer, than with the best simple policies of that kind; where it does (others):
  {", ".join(bad) or "nowhere"}.
- `joint` is the policy to use for: {", ".join(used) or "none"}. It misses more than the best simple policies
  of the kind (missed by each) for: {", ".join(worse) or "none"}.
- Missed without each part: {_each(whole, list(ABLATIONS)[:8])}.
- With slots granted to jobs that would be late there miss {_missed(whole, ABLATIONS[_LAZY])}, with equal
  parts of the slots {_missed(whole, ABLATIONS[_EQUAL_PARTS])}; `joint` itself grants none.
- With admission {_sum(whole, "promised"):,} deadlines are promised, of which
  {_sum(whole, f"{admitting}.broken")} are broken, and {_missed(whole, ADMITTING)} are missed in all; without
  it {ours}. `joint` itself promises nothing, and refuses only deadlines that cannot be met alone. Slots that
  are granted by deadline are taken back: of the misses are broken promises {_broken(whole)}.
{_of_doubts(selected(rows, part=DOUBT))}
{packets.findings(rows).strip()}
"""


_LAZY: Final = "with slots granted to jobs that would be late"
_EQUAL_PARTS: Final = "with equal parts of the slots"


def _each(rows: Rows, names: Sequence[str]) -> str:
    return ", ".join(f"{name} {_missed(rows, ABLATIONS[name])}" for name in names)


def _broken(rows: Rows) -> str:
    granting = [*(names for names in SIMPLE if names[2] != "shared"), ABLATIONS[_LAZY]]
    return ", ".join(
        f"`{label(names)}` {_sum(rows, f'{label(names)}.broken')} of {_missed(rows, names)}"
        for names in granting
    )


def _of_doubts(rows: Rows) -> str:
    """Return for each condition what is missed, and in which kinds more than by the simple policies."""
    said = []
    for condition in _conditions(rows):
        here = _at(rows, condition)
        plain = f"{_called(condition)}: `{label(PLAIN)}` {_missed(here, PLAIN)}"
        said.append("; ".join([plain, *(_of_one(here, names) for names in (LATE, OURS))]))
    lines = "\n".join(f"  - {each}." for each in said)
    return f"- Missed, and times of jobs without deadlines, by what is told and starts cost:\n{lines}"


def _of_one(rows: Rows, names: Names) -> str:
    by_kind = [(family, selected(rows, family=family)) for family in _families(rows)]
    more = [
        f"{family} {_missed(here, names)} of {_missed(here, PLAIN)}"
        for family, here in by_kind
        if _missed(here, names) > _missed(here, PLAIN)
    ]
    where = f", more in {', '.join(more)}" if more else ", in no kind more"
    return f"`{label(names)}` {_missed(rows, names)} ({_others(rows, names, PLAIN):+.0%}{where})"


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
