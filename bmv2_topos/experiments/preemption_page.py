"""The page of the experiment `preemption`: what its rows say, as text, tables and plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bmv2_topos.experiments.harness import Row, averaged, markdown, number
from bmv2_topos.experiments.plots import draw_lines
from bmv2_topos.experiments.preemption_mixes import (
    FAVOURABLE,
    FCFS,
    FINER_SLOTS,
    MIXES,
    PREEMPT,
    STARVATION,
    WITHOUT,
    WORKERS,
)

QUESTION: Final = """
Jobs that share one array of slots get them first come first served (ATP), or urgent packets take them
from less urgent ones (ESA, ICNP'23). How much sooner do jobs end with preemption, does any mix of jobs
end later, and does a job of the lowest priority starve? ESA's authors report mean job completion times up
to 1.35 times better than their baselines'.
"""

ABOUT: Final = f"""
{WORKERS} workers per job, each on a host of its own, and a fallback server per job; all on one switch;
links of 10 Gb/s and 2 µs; packets of 64 values; windows of fixed size. The mixes are data, in
`bmv2_topos/experiments/preemption_mixes.py`. Each runs twice with all else equal: no job may preempt, or
all may, with the priorities that `hostlib/priority.py` gives them from what it measures.

*Gain* is the mean job completion time (JCT) first come first served (FCFS) over that with preemption,
each the mean of the seeds; *least* the gain of the single seed that has the least; *worst job* the
greatest JCT with preemption relative to the same job's under FCFS. *In the switch* is the share of
contributions that a slot took in, the mean over the jobs; *fallback* what all fallback servers' links
carried, both ways.

In *{STARVATION}* priorities are fixed: one job of priority 1 beside three of priority 255 that keep the
switch busy until after its end. *Without slots* is the same with no slots for the first job: what it can
always fall back on.
"""

_REASONS: Final = f"""
- What makes FCFS slow: a packet that finds its slot taken goes to the fallback server, mostly together
  with those of the other {WORKERS - 1} workers for the same sum. They share one link there, so that such
  a sum takes {WORKERS} times as long as one in the switch, where each comes in by its worker's own link.
  A job that waits for a straggler holds slots meanwhile and has no use of them; each keeps a job that
  could go on at line rate on the slow path.
- Preemption moves such a slot to the job that can use it, for one packet on the other's fallback link,
  the partial sum. The job that waits loses little, since it waits anyway.
- Starvation: a packet without a slot goes to the fallback server, so at worst a job is about as fast as
  without slots. And each failed attempt halves the priority of the slot's holder (ESA): 255 is 0 after
  eight, so at the ninth any packet takes the slot.
"""

LIMITS: Final = """
Jobs are a thousand times shorter than real ones, so that many mixes can be tried; what decides is the
ratio of memory to packets in flight, and that is realistic. Windows are fixed, so that nothing differs
between two runs but who gets a slot; congestion control would react to the queues of the fallback links
as well. Seeds differ by some per cent: a gain of 0.99 or 1.01 says nothing.
"""


def gain(rows: Sequence[Row], mix: str, slots: int) -> float:
    """Return the mean JCT first come first served over that with preemption, over all `rows` of a mix."""
    fcfs, preempt = (_mean(rows, mix, slots, policy) for policy in (FCFS, PREEMPT))
    return number(fcfs, "mean_jct_s") / number(preempt, "mean_jct_s")


def lowest_seed(rows: Sequence[Row], mix: str, slots: int) -> float:
    """Return the least gain of a single seed."""
    seeds = dict.fromkeys(row["seed"] for row in rows if (row["mix"], row["slots"]) == (mix, slots))
    return min(gain([row for row in rows if row["seed"] == seed], mix, slots) for seed in seeds)


def worst_job(rows: Sequence[Row], mix: str, slots: int) -> float:
    """Return the greatest ratio of a job's JCT with preemption to its JCT first come first served."""
    fcfs, preempt = (_mean(rows, mix, slots, policy) for policy in (FCFS, PREEMPT))
    return max(number(preempt, f"jct_{place}_s") / number(fcfs, f"jct_{place}_s") for place in _places(fcfs))


def _mean(rows: Sequence[Row], mix: str, slots: int, policy: str) -> Row:
    (row,) = averaged(
        [row for row in rows if (row["mix"], row["slots"], row["policy"]) == (mix, slots, policy)],
        ("mix", "slots", "policy"),
    )
    return row


def _places(row: Row) -> range:
    """Return the places of a mix's jobs: columns of other mixes' jobs are empty."""
    return range(1, 1 + sum(row.get(f"jct_{place}_s") is not None for place in range(1, len(row))))


def _settings(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Return the mixes and slots that were run under the priorities of the policy."""
    found = [(str(row["mix"]), int(number(row, "slots"))) for row in rows if row["mix"] != STARVATION]
    return list(dict.fromkeys(found))


def tables(rows: Sequence[Row]) -> str:
    """Return what each mix gains, the favourable mix by job, and the job of the lowest priority."""
    parts = ["### Every mix", _every_mix(rows)]
    for slots in [slots for mix, slots in _settings(rows) if mix == FAVOURABLE]:
        parts += [f"### {FAVOURABLE}, {slots} slots, by job", _by_job(rows, slots)]
    return "\n\n".join([*parts, f"### {STARVATION}", _starvation(rows)])


def _every_mix(rows: Sequence[Row]) -> str:
    lines = []
    for mix, slots in _settings(rows):
        fcfs, preempt = (_mean(rows, mix, slots, policy) for policy in (FCFS, PREEMPT))
        lines.append(
            [
                mix,
                f"{slots}",
                _ms(fcfs, "mean_jct_s"),
                _ms(preempt, "mean_jct_s"),
                f"**{gain(rows, mix, slots):.2f}**",
                f"{lowest_seed(rows, mix, slots):.2f}",
                f"{worst_job(rows, mix, slots):.2f}",
                _both(fcfs, preempt, "aggregated_share", 1e2, " %"),
                _both(fcfs, preempt, "fallback_bytes", 1e-6, " MB"),
                f"{number(preempt, 'evictions'):.0f}",
            ]
        )
    columns = ["mix", "slots", "mean JCT, FCFS", "preemption", "gain", "least", "worst job"]
    table = markdown([*columns, "in the switch", "fallback", "evictions"], lines)
    seeds = dict.fromkeys(f"{row['seed']}" for row in rows)
    return f"{table}\n\nMeans of seed {', '.join(seeds)}."


def findings(rows: Sequence[Row]) -> str:
    """Say where preemption gains most and least, what it costs the lowest priority, and why."""
    gains = {setting: gain(rows, *setting) for setting in _settings(rows)}
    best, worst = max(gains, key=lambda at: gains[at]), min(gains, key=lambda at: gains[at])
    most = max(FINER_SLOTS, key=lambda slots: gains.get((FAVOURABLE, slots), 0.0))
    lost = max(_lowest(rows, slots, WITHOUT) for slots in _starvation_slots(rows))
    return "\n".join(
        [
            f"- Favourable mix ({FAVOURABLE}): gain up to {gains[FAVOURABLE, most]:.2f} ({most} slots)."
            f" Most of all: {gains[best]:.2f} ({best[0]}, {best[1]} slots).",
            f"- Least gain of any mix: {gains[worst]:.3f} ({worst[0]}, {worst[1]} slots).",
            f"- The job of the lowest priority takes at most {lost:.2f} of its time without slots.",
            _REASONS.strip(),
        ]
    )


def _by_job(rows: Sequence[Row], slots: int) -> str:
    fcfs, preempt = (_mean(rows, FAVOURABLE, slots, policy) for policy in (FCFS, PREEMPT))
    lines = []
    for place, job in enumerate(MIXES[FAVOURABLE], start=1):
        line = [job.name]
        for row in (fcfs, preempt):
            rate_bps = 8 * number(row, f"fallback_{place}_bytes") / number(row, f"jct_{place}_s")
            line += [
                _ms(row, f"jct_{place}_s"),
                f"{number(row, f'aggregated_share_{place}'):.1%}",
                f"{rate_bps / 1e9:.1f} Gb/s",
            ]
        lines.append(line)
    columns = ["job", "JCT, FCFS", "in the switch", "fallback link"]
    return markdown([*columns, "JCT, preemption", "in the switch", "fallback link"], lines)


def _starvation_slots(rows: Sequence[Row]) -> list[int]:
    return list(dict.fromkeys(int(number(row, "slots")) for row in rows if row["mix"] == STARVATION))


def _lowest(rows: Sequence[Row], slots: int, policy: str) -> float:
    """Return the JCT of the lowest priority with preemption over that under another policy."""
    preempt, other = (_mean(rows, STARVATION, slots, of) for of in (PREEMPT, policy))
    return number(preempt, "jct_1_s") / number(other, "jct_1_s")


def _starvation(rows: Sequence[Row]) -> str:
    lines = []
    for slots in _starvation_slots(rows):
        means = [_mean(rows, STARVATION, slots, policy) for policy in (FCFS, PREEMPT, WITHOUT)]
        ratios = [_lowest(rows, slots, policy) for policy in (FCFS, WITHOUT)]
        preempt = means[1]
        lines.append(
            [
                f"{slots}",
                *(_ms(row, "jct_1_s") for row in means),
                *(f"{ratio:.2f}" for ratio in ratios),
                _ms(preempt, "longest_iteration_1_s"),
                f"{number(preempt, 'aggregated_share_1'):.1%}",
            ]
        )
    columns = ["slots", "its JCT, FCFS", "preemption", "without slots", "preemption / FCFS"]
    return markdown([*columns, "preemption / without", "longest iteration", "in the switch"], lines)


def _ms(row: Row, column: str) -> str:
    return f"{1e3 * number(row, column):.2f} ms"


def _both(one: Row, other: Row, column: str, factor: float, unit: str) -> str:
    return f"{factor * number(one, column):.1f} → {factor * number(other, column):.1f}{unit}"


def plots(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Draw the gain over the slots, for every mix, and the JCTs of the favourable mix's jobs."""
    slots_used = sorted({slots for _, slots in _settings(rows)})
    place = {slots: float(position) for position, slots in enumerate(slots_used)}
    ticks = [(position, f"{slots}") for slots, position in place.items()]
    gains: dict[str, list[tuple[float, float]]] = {}
    for mix, slots in _settings(rows):
        gains.setdefault(mix, []).append((place[slots], gain(rows, mix, slots)))
    paths = [directory / "preemption.svg", directory / "preemption-jobs.svg"]
    y = "mean JCT: FCFS / preemption"
    draw_lines(gains, paths[0], x="slots of the switch", y=y, x_ticks=ticks)
    jobs: dict[str, list[tuple[float, float]]] = {}
    for number_, job in enumerate(MIXES[FAVOURABLE], start=1):
        for policy, name in ((FCFS, "FCFS"), (PREEMPT, "preemption")):
            jobs[f"{job.name}, {name}"] = [
                (place[slots], 1e3 * number(_mean(rows, mix, slots, policy), f"jct_{number_}_s"))
                for mix, slots in _settings(rows)
                if mix == FAVOURABLE
            ]
    draw_lines(jobs, paths[1], x="slots of the switch", y="JCT (ms)", title=FAVOURABLE, x_ticks=ticks)
    return paths
