"""Preemption (ESA) against first come first served: mixed jobs on one switch that has too few slots for them.

Each mix runs with all else equal: nobody may preempt; all may, with the priorities that
`hostlib.core.priority` measures; with the same priority for all; with the priorities inverted. The favourable
mix runs with each factor of the priority alone and without each, and with other ageing. One more set of runs
has a job of the lowest priority among others of the highest. Its time without any slot bounds what it can
lose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.pages.preemption_mixes import (
    ABLATION,
    ABLATION_SLOTS,
    EQUAL,
    FAVOURABLE,
    FCFS,
    FINER_SLOTS,
    INVERTED,
    LOWEST,
    MIXES,
    MORE_SEEDS,
    POLICIES,
    PREEMPT,
    SEEDS,
    SLOTS,
    STARVATION,
    STARVATION_SLOTS,
    WITHOUT,
)
from bmv2_topos.harness import Experiment, ResultRow, Scenario, Value, averaged, markdown, number
from bmv2_topos.plots import draw_lines
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job


def gain(rows: Sequence[ResultRow], mix: str, slots: int, policy: str = PREEMPT) -> float:
    """Return the mean JCT first come first served over that by a policy, over the seeds that both have."""
    seeds = _seeds(rows, mix, slots, policy)
    of = [row for row in rows if row["seed"] in seeds]
    fcfs, other = (_mean(of, mix, slots, name) for name in (FCFS, policy))
    return number(fcfs, "mean_jct_s") / number(other, "mean_jct_s")


def spread(rows: Sequence[ResultRow], mix: str, slots: int, policy: str = PREEMPT) -> tuple[float, float]:
    """Return the least and the greatest gain of a single seed."""
    by_seed = ([row for row in rows if row["seed"] == seed] for seed in _seeds(rows, mix, slots, policy))
    gains = [gain(of, mix, slots, policy) for of in by_seed]
    return min(gains), max(gains)


def _seeds(rows: Sequence[ResultRow], mix: str, slots: int, policy: str) -> list[Value]:
    of = [row for row in rows if (row["mix"], row["slots"], row["policy"]) == (mix, slots, policy)]
    return list(dict.fromkeys(row["seed"] for row in of))


def worth(rows: Sequence[ResultRow], mix: str, slots: int) -> float:
    """Return the mean JCT with equal priorities over that by policy."""
    return gain(rows, mix, slots) / gain(rows, mix, slots, EQUAL)


def worst_job(rows: Sequence[ResultRow], mix: str, slots: int) -> float:
    """Return the greatest ratio of a job's JCT with preemption to its JCT first come first served."""
    fcfs, preempt = (_mean(rows, mix, slots, policy) for policy in (FCFS, PREEMPT))
    return max(number(preempt, f"jct_{place}_s") / number(fcfs, f"jct_{place}_s") for place in _places(fcfs))


def _mean(rows: Sequence[ResultRow], mix: str, slots: int, policy: str) -> ResultRow:
    (row,) = averaged(
        [row for row in rows if (row["mix"], row["slots"], row["policy"]) == (mix, slots, policy)],
        ("mix", "slots", "policy"),
    )
    return row


def _places(row: ResultRow) -> range:
    """Return the places of a mix's jobs: columns of other mixes' jobs are empty."""
    return range(1, 1 + sum(row.get(f"jct_{place}_s") is not None for place in range(1, len(row))))


def _settings(rows: Sequence[ResultRow]) -> list[tuple[str, int]]:
    """Return the mixes and slots that were run under the priorities of the policy."""
    found = [(str(row["mix"]), int(number(row, "slots"))) for row in rows if row["mix"] != STARVATION]
    return list(dict.fromkeys(found))


def tables(rows: Sequence[ResultRow]) -> str:
    """Return the gain of each mix, the ablation, the favourable mix by job, and the lowest priority."""
    parts = [
        "### Every mix",
        _every_mix(rows),
        f"### {FAVOURABLE}: what the gain is made of",
        _ablation(rows),
    ]
    for slots in [slots for mix, slots in _settings(rows) if mix == FAVOURABLE]:
        parts += [f"### {FAVOURABLE}, {slots} slots, by job", _by_job(rows, slots)]
    return "\n\n".join([*parts, f"### {STARVATION}", _starvation(rows)])


def _gain(rows: Sequence[ResultRow], mix: str, slots: int, policy: str) -> str:
    least, most = spread(rows, mix, slots, policy)
    return f"{gain(rows, mix, slots, policy):.2f} ({least:.2f}..{most:.2f})"


def _every_mix(rows: Sequence[ResultRow]) -> str:
    lines = []
    for mix, slots in _settings(rows):
        fcfs, preempt = (_mean(rows, mix, slots, policy) for policy in (FCFS, PREEMPT))
        lines.append(
            [
                mix,
                f"{slots}",
                _ms(fcfs, "mean_jct_s"),
                *(_gain(rows, mix, slots, policy) for policy in (PREEMPT, EQUAL, INVERTED)),
                f"**{worth(rows, mix, slots):.2f}**",
                f"{worst_job(rows, mix, slots):.2f}",
                _both(fcfs, preempt, "aggregated_share", 1e2, " %"),
            ]
        )
    columns = ["mix", "slots", "mean JCT, FCFS", "gain by policy", "all equal", "inverted", "priority"]
    return markdown([*columns, "worst job", "in the switch"], lines)


def _ablation(rows: Sequence[ResultRow]) -> str:
    of = [row for row in rows if row["mix"] == FAVOURABLE]
    slots_used = list(dict.fromkeys(int(number(row, "slots")) for row in of if row["policy"] in ABLATION))
    names = list(dict.fromkeys(str(row["policy"]) for row in of if row["policy"] != FCFS))
    lines = []
    for name in names:
        gains = [_gain(rows, FAVOURABLE, slots, name) for slots in slots_used if _has(of, slots, name)]
        if len(gains) == len(slots_used):
            lines.append([{PREEMPT: "by policy", EQUAL: "all equal"}.get(name, name), *gains])
    return markdown(["priorities", *(f"gain, {slots} slots" for slots in slots_used)], lines)


def _has(rows: Sequence[ResultRow], slots: int, policy: str) -> bool:
    return any((row["slots"], row["policy"]) == (slots, policy) for row in rows)


def _by_job(rows: Sequence[ResultRow], slots: int) -> str:
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


def _starvation_slots(rows: Sequence[ResultRow]) -> list[int]:
    return list(dict.fromkeys(int(number(row, "slots")) for row in rows if row["mix"] == STARVATION))


def _lowest(rows: Sequence[ResultRow], slots: int, policy: str) -> float:
    """Return the JCT of the lowest priority with preemption over that under another policy."""
    preempt, other = (_mean(rows, STARVATION, slots, of) for of in (PREEMPT, policy))
    return number(preempt, "jct_1_s") / number(other, "jct_1_s")


def _starvation(rows: Sequence[ResultRow]) -> str:
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


def _ms(row: ResultRow, column: str) -> str:
    return f"{1e3 * number(row, column):.2f} ms"


def _both(one: ResultRow, other: ResultRow, column: str, factor: float, unit: str) -> str:
    return f"{factor * number(one, column):.1f} → {factor * number(other, column):.1f}{unit}"


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
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


def scenarios(quick: bool) -> list[Scenario]:
    """Return the sweep: every mix, the ablation, and the runs about starvation."""
    return list(_quick() if quick else _scenarios())


def _quick() -> Iterator[Scenario]:
    for name in (*POLICIES, "ageing off"):
        yield _scenario(FAVOURABLE, MIXES[FAVOURABLE], name, SLOTS[0], 1)
    for name in (FCFS, PREEMPT, WITHOUT):
        yield _scenario(STARVATION, LOWEST, name, STARVATION_SLOTS[0], 1)


def _scenarios() -> Iterator[Scenario]:
    for mix, jobs in MIXES.items():
        favourable = mix == FAVOURABLE
        for slots in FINER_SLOTS if favourable else SLOTS:
            for seed in MORE_SEEDS if favourable else SEEDS:
                yield from (_scenario(mix, jobs, name, slots, seed) for name in POLICIES)
    for slots in ABLATION_SLOTS:
        for seed in SEEDS:
            yield from (_scenario(FAVOURABLE, MIXES[FAVOURABLE], name, slots, seed) for name in ABLATION)
    for slots in STARVATION_SLOTS:
        for seed in SEEDS:
            for name in (FCFS, PREEMPT, WITHOUT):
                yield _scenario(STARVATION, LOWEST, name, slots, seed)


def _scenario(mix: str, jobs: Sequence[Job], name: str, slots: int, seed: int) -> Scenario:
    policy = {**POLICIES, **ABLATION, WITHOUT: POLICIES[PREEMPT]}[name]
    of = [replace(job, preempt=policy.preempts) for job in jobs]
    if name == WITHOUT:
        of[0] = replace(of[0], slots=0)
    settings = VirtualSettings(
        slots=slots, seed=seed, samples=0, prioritize=policy.prioritize, ageing=policy.ageing
    )
    labels: ResultRow = {"mix": mix, "slots": slots, "policy": name, "seed": seed}
    return Scenario(labels=labels, jobs=tuple(of), settings=settings)


def measure(report: Report) -> ResultRow:
    """Return the columns that a run adds to its labels; those of a job are numbered in the mix's order."""
    row: dict[str, Value] = {
        "mean_jct_s": report.mean_jct_s,
        "aggregated_share": sum(job.aggregated_share for job in report.jobs) / len(report.jobs),
        "fallback_bytes": sum(job.fallback_bytes for job in report.jobs),
        "evictions": sum(job.evictions for job in report.jobs),
        "dropped_packets": report.dropped_packets,
    }
    for place, job in enumerate(report.jobs, start=1):
        row[f"jct_{place}_s"] = job.jct_s
        row[f"aggregated_share_{place}"] = job.aggregated_share
        row[f"fallback_{place}_bytes"] = job.fallback_bytes
        row[f"longest_iteration_{place}_s"] = max(job.iteration_s)
    return row


EXPERIMENT = Experiment(
    name="preemption",
    title="Preemption against first come first served",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
