"""Slot addressing: a job's packets take slots one after the other from a hashed start, or by one hash each.

Jobs share one region whose size is swept, sizes that are no powers of two included. The experiment measures
the cost of each way, and whether more memory is ever slower: policies that hand out slots rely on that.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.pages.preemption_mixes import FAVOURABLE, IN_FLIGHT, MIXES, WORKERS, communicating
from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    column,
    markdown,
    number,
    selected,
    spread,
)
from bmv2_topos.plots import draw_lines, ticks
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, Link

SEEDS: Final = (1, 2, 3, 4, 5)
SLOTS: Final = (64, 100, 128, 256, 400, 512)
FEWER: Final = (16, 32, 48)
"""More sizes for one job: less than a window."""
ITERATIONS: Final = 5
FCFS, PREEMPT = "first come", "preemption"
CONSECUTIVE, HASHED, EXCLUSIVE = "consecutive", "hashed", "own slots"
FAR_S: Final = 6e-6
"""Delay of longer links: 16 µs more for a round trip, which then takes about twice as long."""
RISE: Final = 1.03
"""Greatest ratio by which more memory may be slower."""
FULL: Final = 1.01
"""Greatest time, relative to the best, that counts as full speed."""

JOB: Final = communicating("job", ITERATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs that share a region, and the network that they are in."""

    jobs: tuple[Job, ...]
    slots: Sequence[int] = SLOTS
    policies: Sequence[str] = (FCFS, PREEMPT)
    delay_s: float = 2e-6
    loss: float = 0.0

    @property
    def in_flight(self) -> int:
        """Packets in flight of one worker of each job, all jobs together."""
        return sum(job.window or 0 for job in self.jobs)


def _equal(count: int) -> tuple[Job, ...]:
    return tuple(replace(JOB, name=f"job {number}") for number in range(1, count + 1))


ONE, FAR, LOSSY = "1 job", "1 job, longer links", "1 job, 0.1 % of packets lost"
WORKLOADS: Final[Mapping[str, Workload]] = {
    ONE: Workload(jobs=(JOB,), slots=(*FEWER, *SLOTS), policies=(FCFS,)),
    FAR: Workload(jobs=(replace(JOB, window=2 * IN_FLIGHT),), policies=(FCFS,), delay_s=FAR_S),
    LOSSY: Workload(jobs=(JOB,), slots=(*SLOTS, 1024), policies=(FCFS,), loss=1e-3),
    "2 jobs": Workload(jobs=_equal(2)),
    "4 jobs": Workload(jobs=_equal(4)),
    FAVOURABLE: Workload(jobs=MIXES[FAVOURABLE]),
}

QUESTION = """
A job's packets need slots in a region that it has for itself or shares. ATP hashes each packet's position,
and so did this project: `crc32(job, PSN)`. Then packets of one job collide with each other, however large
its region is, and in a region of unlucky size more often than in a smaller one. Now consecutive PSNs use
consecutive slots of the region, starting at a hash of the job's id. Is more memory ever slower by more than
3 %? Does a job whose window fits its region still collide? And are *rate times round trip* slots enough for
full speed?
"""

ABOUT = f"""
One switch, {WORKERS} workers per job, packets of 64 values, windows of {IN_FLIGHT} packets that stay as they
are, a bit more than a link of 10 Gb/s carries in a round trip of 17 µs. Equal jobs: {ITERATIONS} iterations
of 100 µs of computing, ± 5 %, and tensors of 32768 and 32768 values. *{FAVOURABLE}* is that mix of
[preemption](preemption.md). *Longer links* have a delay of {FAR_S * 1e6:g} µs each instead of 2 and the job
twice as many packets in flight. All jobs share one region, of as many slots as the table says.

*{CONSECUTIVE.capitalize()}* is the project's addressing, *{HASHED}* what it was before
(`-DADDRESSING=HASHED`); *{EXCLUSIVE}* is the program `exclusive` with a region of that many slots, of which
half are for packets in flight. *Time* is the mean job completion time relative to the best in the table;
the mean of {len(SEEDS)} seeds (least..most). *Collided* are the contributions that found their slot taken.
"""

TRIED = """
Two more ways were tried and rejected. Mean completion times of four jobs, first come first served, of two
seeds, in ms:

| addressing | 64 | 100 | 128 | 200 | 256 | 400 | 512 |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| consecutive | 6.22 | 5.70 | 5.13 | 4.23 | 3.77 | 3.57 | 3.51 |
| a stride per job, coprime to the region | 8.15 | 6.44 | 5.88 | 4.93 | 4.62 | 4.37 | 4.07 |
| runs of 16 PSNs at hashed places | 7.29 | 7.13 | 5.93 | 5.18 | 4.42 | 4.18 | 3.56 |
| hashed | 8.09 | 7.29 | 6.03 | 5.10 | 4.70 | 4.52 | 3.70 |
"""

LIMITS = """
**What differs from the papers.** ATP hashes positions of the window, not PSNs, and gives one that collides
another slot: [atp](atp.md) runs that. SwitchML's regions are consecutive, but nobody else's.

Windows are fixed: adaptive ones would shrink if packets collide. Jobs start together and have small ids;
with other ids, and so other hashes, they would collide in other places. When PSNs pass 2³², a job may
collide with itself for one round of its region, if its number of slots is not a power of two.
"""


def scenarios(quick: bool) -> list[Scenario]:
    """Return the sweep."""
    return list(_scenarios(quick))


def _scenarios(quick: bool) -> Iterator[Scenario]:
    for name, workload in WORKLOADS.items():
        if quick and name in (FAR, FAVOURABLE):
            continue
        sizes = workload.slots[-7::5] if quick else workload.slots
        for policy, slots in itertools.product(workload.policies, sizes):
            for seed in SEEDS[:1] if quick else SEEDS:
                for addressing in (CONSECUTIVE, HASHED, EXCLUSIVE):
                    if addressing == EXCLUSIVE and (name != ONE or slots & (slots - 1)):
                        continue
                    labels: ResultRow = {
                        "setup": name,
                        "policy": policy,
                        "slots": slots,
                        "addressing": addressing,
                    }
                    jobs = tuple(replace(job, preempt=policy == PREEMPT) for job in workload.jobs)
                    yield Scenario(
                        labels={**labels, "seed": seed},
                        jobs=tuple(replace(job, iterations=2) for job in jobs) if quick else jobs,
                        settings=_settings(addressing, slots, seed),
                        link=Link("a", "b", delay_s=workload.delay_s, loss=workload.loss),
                    )


def _settings(addressing: str, slots: int, seed: int) -> VirtualSettings:
    settings = VirtualSettings(slots=slots, seed=seed, samples=0)
    match addressing:
        case "hashed":
            return replace(settings, defines=(("ADDRESSING", "HASHED"),))
        case "own slots":
            return replace(settings, program="exclusive")
        case _:
            return settings


def measure(report: Report) -> ResultRow:
    """Return the columns that a run adds to its labels."""
    outcomes = [job.outcomes for job in report.jobs]
    return {
        "mean_jct_s": report.mean_jct_s,
        "collided": sum(of.get("collided", 0) for of in outcomes),
        "evicted": sum(of.get("evicted", 0) for of in outcomes),
        "sent": sum(job.sent_packets for job in report.jobs),
        "fallback_bytes": sum(job.fallback_bytes for job in report.jobs),
        **{f"jct_{place}_s": job.jct_s for place, job in enumerate(report.jobs, start=1)},
    }


def times(rows: Sequence[ResultRow], setup: str, policy: str, addressing: str) -> dict[int, float]:
    """Return the mean completion time over the seeds, by slots."""
    of = selected(rows, setup=setup, policy=policy, addressing=addressing)
    return {
        slots: statistics.fmean(column(of, "mean_jct_s", slots=slots))
        for slots in dict.fromkeys(int(number(row, "slots")) for row in of)
    }


def greatest_rise(by_slots: Mapping[int, float]) -> tuple[float, int, int]:
    """Return the greatest ratio of the time with more slots to that with fewer, and both numbers of slots."""
    pairs = itertools.combinations(sorted(by_slots), 2)
    return max((by_slots[more] / by_slots[fewer], more, fewer) for fewer, more in pairs)


def cases(rows: Sequence[ResultRow]) -> list[tuple[str, str]]:
    """Return the names of workloads and the policies that were run."""
    return list(dict.fromkeys((str(row["setup"]), str(row["policy"])) for row in rows))


def _best(rows: Sequence[ResultRow], setup: str, policy: str) -> float:
    found = [times(rows, setup, policy, addressing) for addressing in (CONSECUTIVE, HASHED)]
    return min(time for by_slots in found for time in by_slots.values())


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table per workload and policy."""
    parts = []
    for setup, policy in cases(rows):
        best = _best(rows, setup, policy)
        here = selected(rows, setup=setup, policy=policy)
        ways = list(dict.fromkeys(str(row["addressing"]) for row in here))
        lines = []
        for slots in dict.fromkeys(int(number(row, "slots")) for row in here):
            of = {way: selected(here, slots=slots, addressing=way) for way in ways}
            took = [
                spread([time / best for time in column(found, "mean_jct_s")]) if found else ""
                for found in of.values()
            ]
            collided = [
                f"{statistics.fmean(number(row, 'collided') / number(row, 'sent') for row in of[way]):.1%}"
                for way in (CONSECUTIVE, HASHED)
            ]
            lines.append([f"{slots}", *took, *collided])
        title = f"### {setup[0].upper()}{setup[1:]}, {policy}"
        heads = ["slots", *(f"time, {way}" for way in ways)]
        heads += [f"collided, {way}" for way in (CONSECUTIVE, HASHED)]
        parts.append(f"{title} (1.00: {1e3 * best:.2f} ms)\n\n{markdown(heads, lines)}")
    return "\n\n".join(parts)


def findings(rows: Sequence[ResultRow]) -> str:
    """Answer the three questions, and say how the two ways compare and who pays."""
    return "\n".join(
        [_rises(rows), _fits(rows), _full_speed(rows), _compared(rows), _who_pays(rows), "", TRIED.strip()]
    )


def _rises(rows: Sequence[ResultRow]) -> str:
    said = []
    for addressing in (CONSECUTIVE, HASHED):
        rises = {case: greatest_rise(times(rows, *case, addressing)) for case in cases(rows)}
        worst = max(rises, key=lambda case: rises[case])
        ratio, more, fewer = rises[worst]
        missed = sum(rise > RISE for rise, _, _ in rises.values())
        said.append(
            f"{addressing} by more than {RISE - 1:.0%} in {missed} of {len(rises)} tables "
            f" (worst: {ratio:.3f} times the time with {more} slots that it takes with {fewer};"
            f" {', '.join(worst)})"
        )
    return f"- More memory is slower: {'; '.join(said)}."


def _fits(rows: Sequence[ResultRow]) -> str:
    said = []
    for addressing in (CONSECUTIVE, HASHED):
        counts = [
            number(row, "collided")
            for name, workload in WORKLOADS.items()
            if len(workload.jobs) == 1 and not workload.loss
            for row in selected(rows, setup=name, addressing=addressing)
            if number(row, "slots") >= workload.in_flight
        ]
        hit = sum(count > 0 for count in counts)
        said.append(
            f"{addressing} {hit} of {len(counts)} runs had collisions, up to {max(counts):.0f} packets"
        )
    return f"- One job alone whose packets in flight fit its region, nothing lost: {'; '.join(said)}."


def _full_speed(rows: Sequence[ResultRow]) -> str:
    said = []
    for name, workload in WORKLOADS.items():
        if len(workload.jobs) > 1 or not selected(rows, setup=name):
            continue
        by_way = {way: times(rows, name, FCFS, way) for way in (CONSECUTIVE, HASHED)}
        best = _best(rows, name, FCFS)
        enough = {
            way: min((slots for slots, time in of.items() if time <= FULL * best), default=None)
            for way, of in by_way.items()
        }
        figures = ", ".join(f"{way} from {slots or 'none'}" for way, slots in enough.items())
        said.append(f"{name} ({workload.in_flight} in flight): {figures}")
    return (
        f"- Full speed (within {FULL - 1:.0%} of the best) from how many slots on: {'; '.join(said)}."
        f" *Rate times round trip* are {IN_FLIGHT} packets here (326 bytes each, 10 Gb/s, 17 µs), and about"
        " twice that with longer links. As many slots are enough where nothing is lost; so are fewer, for"
        " a slot is taken only from the first contribution until the last. With losses they are not: while"
        " one sum is repaired, the others run ahead by up to eight times what is in flight, and its part in"
        " the switch keeps its slot."
    )


def _compared(rows: Sequence[ResultRow]) -> str:
    ratios = {
        (*case, slots): times(rows, *case, HASHED)[slots] / time
        for case in cases(rows)
        for slots, time in times(rows, *case, CONSECUTIVE).items()
    }
    most, least = (choose(ratios, key=lambda at: ratios[at]) for choose in (max, min))
    return (
        f"- Hashed over consecutive, time: {statistics.fmean(ratios.values()):.2f} on average of all"
        f" settings; most {ratios[most]:.2f} ({', '.join(map(str, most[:2]))}, {most[2]} slots), least"
        f" {ratios[least]:.2f} ({', '.join(map(str, least[:2]))}, {least[2]} slots)."
    )


def _who_pays(rows: Sequence[ResultRow]) -> str:
    """Say which job is slowed down most by consecutive slots."""
    found = []
    for setup, policy in cases(rows):
        for place, job in enumerate(WORKLOADS[setup].jobs, start=1):
            here = selected(rows, setup=setup, policy=policy)
            for slots in dict.fromkeys(row["slots"] for row in here):
                hashed, consecutive = (
                    statistics.fmean(column(here, f"jct_{place}_s", slots=slots, addressing=way))
                    for way in (HASHED, CONSECUTIVE)
                )
                found.append((consecutive / hashed, job.name, f"{setup}, {policy}, {slots} slots"))
    ratio, name, where = max(found)
    return (
        f"- Who pays: the job that fares worst with consecutive slots takes {ratio:.2f} times as long as with"
        f" hashed ones ({name}; {where})."
    )


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw the time over the slots, first come first served, for jobs that are alike."""
    lines = {}
    used = sorted({int(number(row, "slots")) for row in rows})
    for setup in (ONE, "2 jobs", "4 jobs"):
        for way in (CONSECUTIVE, HASHED):
            points = times(rows, setup, FCFS, way).items()
            lines[f"{setup}, {way}"] = [(float(used.index(slots)), 1e3 * time) for slots, time in points]
    path = directory / "addressing.svg"
    draw_lines(
        lines,
        path,
        x="slots of the region that the jobs share",
        y="mean JCT (ms)",
        x_ticks=ticks(used),
        dashed=[name for name in lines if name.endswith(HASHED)],
    )
    return [path]


EXPERIMENT = Experiment(
    name="addressing",
    title="Where packets find their slots: consecutive or hashed",
    question=QUESTION,
    about=ABOUT,
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    findings=findings,
    limits=LIMITS,
    plots=plots,
)
