"""What the rows of the experiment `deadlines` show, in words; figures come from the rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from benchmarks.pages.deadlines_packets import CHANGES, FLOWS, PACKETS
from benchmarks.pages.deadlines_page import again, of, policies_of, ratio, settings_of
from benchmarks.pages.deadlines_runs import (
    DEADLINE,
    EARLIEST,
    EDF,
    ENDING,
    LAZY,
    PREEMPTIVE,
    SEEDS,
    SHARED,
    STATIC,
    Setting,
)
from bmv2_topos.harness import ResultRow, column, selected

COMPARED: Final = (STATIC, SHARED, PREEMPTIVE, ENDING, EARLIEST)
PUBLISHED_MISSES: Final = 0.75
PUBLISHED_TIMES: Final = 0.27

Rows = Sequence[ResultRow]


def findings(rows: Rows) -> str:
    """Return the findings of whole sweeps; none for some of the seeds, or short runs."""
    if {row["seed"] for row in rows} != set(SEEDS):
        return ""
    found = [line for finding in FINDINGS for line in finding(rows)]
    return "\n".join(f"- {line}" for line in found)


def _total(rows: Rows, part: str, settings: Sequence[Setting], policy: str, name: str = "missed") -> int:
    return round(sum(sum(column(of(rows, part, each, policy), name)) for each in settings))


def _ratios(rows: Rows, policy: str, base: str, name: str) -> dict[Setting, float]:
    settings = settings_of(rows, "memory")
    found = {
        each: ratio(of(rows, "memory", each, policy), of(rows, "memory", each, base), name)
        for each in settings
    }
    return {each: value for each, value in found.items() if value is not None}


def _where(setting: Setting) -> str:
    return f"{setting.memory:g} x, slack {setting.slack:g}"


def listed(names: Sequence[str]) -> str:
    """Return "a", "a and b", "a, b and c"; "none" if there are none."""
    *first, last = names or ["none"]
    return f"{', '.join(first)} and {last}" if first else last


def _misses(rows: Rows) -> Iterator[str]:
    enough = [each for each in settings_of(rows, "memory") if each.memory >= 1]
    missed = {policy: _total(rows, "memory", enough, policy) for policy in policies_of(rows, "memory")}
    less = {policy: 1 - missed[DEADLINE] / missed[policy] for policy in COMPARED}
    said = ", ".join(f"`{policy}` {missed[policy]} ({-share:.0%})" for policy, share in less.items())
    reached = [f"`{policy}`" for policy, share in less.items() if share >= PUBLISHED_MISSES]
    others = [f"`{policy}`" for policy, share in less.items() if share < PUBLISHED_MISSES]
    yield (
        "If jobs compete for memory only, and it suffices for at least one of them (1 x and more),"
        f" `{DEADLINE}` misses {missed[DEADLINE]} deadlines; the others miss: {said}. The published"
        f" {PUBLISHED_MISSES:.0%} are reached against {listed(reached)}, but not against"
        f" {listed(others)}."
    )


def _times(rows: Rows) -> Iterator[str]:
    others, due = (_ratios(rows, DEADLINE, SHARED, name) for name in ("others_s", "due_s"))
    dearest, least, longest = max(others, key=others.__getitem__), min(others.values()), max(due.values())
    ample = max(setting.memory for setting in others)
    with_ample = max(value for setting, value in others.items() if setting.memory == ample)
    reached = "" if least <= 1 - PUBLISHED_TIMES else " not"
    yield (
        f"The published {PUBLISHED_TIMES:.0%} shorter completion times are{reached} reached by best-effort"
        f" jobs, which are slowed down: with `{DEADLINE}` they take up to {others[dearest] - 1:.0%} longer"
        " than with"
        f" `{SHARED}` ({_where(dearest)}), and at most {with_ample - 1:.0%} with memory {ample:g} x; at best"
        f" they gain {1 - least:.0%}. Jobs with deadlines are granted only the slots that the deadline needs,"
        f" so with ample memory and slack `{DEADLINE}` makes them up to {longest - 1:.0%} longer. The times"
        " of jobs that are ended are not in the means, which look better for that reason."
    )


def _lazy(rows: Rows) -> Iterator[str]:
    settings = settings_of(rows, "memory")
    apart = [
        each
        for each in settings
        if _total(rows, "memory", [each], LAZY) != _total(rows, "memory", [each], DEADLINE)
    ]
    due, others = (_ratios(rows, LAZY, DEADLINE, name) for name in ("due_s", "others_s"))
    as_many = (
        "as many deadlines as"
        f" `{DEADLINE}` in {'every setting' if not apart else f'{len(settings) - len(apart)} settings'}"
    )
    yield (
        f"`{LAZY}` avoids that: it misses {as_many} over memory and slack; its jobs with deadlines take"
        f" {min(due.values()) - 1:+.0%} to {max(due.values()) - 1:+.0%} against `{DEADLINE}`, and the others"
        f" {min(others.values()) - 1:+.1%} to {max(others.values()) - 1:+.1%}."
    )


def _ended(rows: Rows) -> Iterator[str]:
    ended = {each: _total(rows, "memory", [each], DEADLINE, "ended") for each in settings_of(rows, "memory")}
    most = max(ended, key=ended.__getitem__)
    deadlines = _total(rows, "memory", [most], DEADLINE, "deadlines")
    missed = {policy: _total(rows, "memory", [most], policy) for policy in (DEADLINE, PREEMPTIVE)}
    yield (
        f"`{DEADLINE}` ends jobs that it cannot save: with {_where(most)} it ends {ended[most]} of"
        f" {deadlines} and misses {missed[DEADLINE]}; `{PREEMPTIVE}`, which ends none, misses"
        f" {missed[PREEMPTIVE]}."
    )


def _broken(rows: Rows) -> Iterator[str]:
    settings = settings_of(rows, "memory")
    missed, broken = (
        {policy: _total(rows, "memory", settings, policy, name) for policy in policies_of(rows, "memory")}
        for name in ("missed", "broken")
    )
    said = [f"`{policy}` {count} of {missed[policy]}" for policy, count in broken.items() if count]
    yield (
        "Promises are broken where a job was granted slots on arrival, lost them to others later, and missed:"
        f" over memory and slack, of all misses, {', '.join(said) or 'none'}."
    )


def _waiting(rows: Rows) -> Iterator[str]:
    missed = {
        setting.scheduler: {
            policy: _total(rows, "waiting", [setting], policy) for policy in (DEADLINE, EARLIEST, SHARED)
        }
        for setting in settings_of(rows, "waiting")
    }
    wait_s = statistics.fmean(column(rows, "wait_s", part="waiting"))
    said = "; ".join(
        f"`{scheduler}` with " + ", ".join(f"`{policy}` {count}" for policy, count in by.items())
        for scheduler, by in missed.items()
    )
    worse = missed[EDF][DEADLINE] - missed[EDF][SHARED]
    yield (
        f"Where jobs also wait for GPUs ({wait_s:.1f} s on average here), the missed deadlines are:"
        f" {said}. Slack is used up"
        " before a job first runs, and no division of memory can restore it: a scheduler that knows the"
        f" deadlines gains more than any memory policy. With it, grants of `{DEADLINE}`"
        + (
            " do harm: a job that could end early keeps its GPUs until its deadline, and others wait."
            if worse > 0
            else f" change misses by {worse:+d}."
        )
    )


def _simple(rows: Rows) -> Iterator[str]:
    enough = [each for each in settings_of(rows, "memory") if each.memory >= 1]
    tight = [each for each in settings_of(rows, "memory") if each.memory < 1]
    counts = {
        policy: [_total(rows, "memory", settings, policy) for settings in (enough, tight)]
        for policy in (DEADLINE, LAZY, EARLIEST, ENDING)
    }
    said = ", ".join(f"`{policy}` {most} and {least}" for policy, (most, least) in counts.items())
    others = _ratios(rows, EARLIEST, LAZY, "others_s")
    yield (
        "Policies that end hopeless jobs miss this many deadlines with 1 x and more, and with less memory:"
        f" {said}."
        f" `{EARLIEST}` slows down the jobs without deadlines, which take"
        f" {min(others.values()) - 1:+.0%} to {max(others.values()) - 1:+.0%} against `{LAZY}`."
    )


def _reading(rows: Rows) -> Iterator[str]:
    (setting,) = [each for each in settings_of(rows, "reading") if each.slack == 1.5]
    (measured,) = [each for each in settings_of(rows, "memory") if _where(each) == _where(setting)]
    by_article, by_hold = (
        _total(rows, part, [each], DEADLINE) for part, each in (("reading", setting), ("memory", measured))
    )
    yield (
        "The article's formula, which assumes that a slot is held for a round trip, grants half of the"
        " slots needed"
        f" here: it misses {by_article} deadlines where the measured time misses {by_hold}"
        f" ({_where(setting)})."
    )
    often = {each.period_s: _total(rows, "period", [each], DEADLINE) for each in settings_of(rows, "period")}
    (usual,) = [each for each in settings_of(rows, "memory") if _where(each) == "2 x, slack 1.2"]
    often[usual.period_s] = _total(rows, "memory", [usual], DEADLINE)
    said = ", ".join(f"{missed} each {each:g} s" for each, missed in sorted(often.items()) if each)
    yield (
        f"How often memory is divided makes little difference, for needs change when jobs come and go:"
        f" {often[0.0]} missed at starts and ends only, {said}."
    )


def _small(rows: Rows) -> Iterator[str]:
    here = selected(rows, part=PACKETS)
    for slots in dict.fromkeys(row["slots"] for row in here):
        told = []
        for policy in policies_of(rows, PACKETS):
            missed = [
                sum(column(here, f"{way}_missed", slots=slots, policy=policy)) for way in (PACKETS, FLOWS)
            ]
            told.append(f"`{policy}` {missed[0]:.0f} ({missed[1]:.0f})")
        yield f"Packet by packet (as flows) with {slots} slots there miss: {', '.join(told)}."


def _changes(rows: Rows) -> Iterator[str]:
    here = selected(rows, part=CHANGES)
    shares = {sizes: again(selected(here, sizes=sizes)) for sizes in dict.fromkeys(r["sizes"] for r in here)}
    said = ", ".join(f"{share:.1%} ({sizes})" for sizes, share in shares.items())
    yield (
        "A job that is given other slots goes on without a pause: the first two iterations across a change"
        f" lie between the times before and after it. Of its packets are sent again: {said}; with fewer slots"
        " than its window some meet, with none at all there is nothing to meet."
    )


FINDINGS: Final[Sequence[Callable[[Rows], Iterator[str]]]] = (
    *(_misses, _simple, _times, _lazy, _ended, _broken, _waiting, _reading),
    *(_small, _changes),
)
