"""How far off virtual time is: the same allreduce in virtual time and in network namespaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final

from benchmarks.pages import real
from bmv2_topos.harness import Experiment, ResultRow, Run, column, grouped, markdown, number, selected, spread
from bmv2_topos.testbeds.virtual import Report, VirtualSettings

SEEDS: Final = (1, 2, 3, 4, 5)
NETNS, VIRTUAL, OTHER = "netns", "virtual", "virtual, its own time-outs"
FIRST: Final = "100 Mb/s"
CASES: Final[Mapping[str, Mapping[str, float]]] = {
    FIRST: {"rate_bps": 1e8},
    "20 Mb/s": {"rate_bps": 2e7},
    "100 Mb/s, 5 ms": {"rate_bps": 1e8, "delay_s": 5e-3},
    "100 Mb/s, 0.1 % lost": {"rate_bps": 1e8, "loss": 1e-3},
    "100 Mb/s, 1 % lost": {"rate_bps": 1e8, "loss": 1e-2},
}


def scenarios(quick: bool) -> Iterator[Run]:
    """Return each case on each runner; `quick`: the first."""
    for name, case in list(CASES.items())[: 1 if quick else None]:
        run = real.RealAllreduce(
            labels={"case": name, "runner": NETNS, "seed": 1},
            workers=4,
            size_bytes=2 << 20,
            iterations=1 if quick else 5,
            beside=(),
            window=128,
            rate_bps=case["rate_bps"],
            delay_s=case.get("delay_s", real.DELAY_S),
            loss=case.get("loss", 0.0),
        )
        yield run
        runners = {VIRTUAL: real.RTO} | ({OTHER: VirtualSettings().rto} if name == FIRST else {})
        for runner, rto in runners.items():
            for seed in SEEDS[:1] if quick or not run.loss else SEEDS:
                labels: ResultRow = {"case": name, "runner": runner, "seed": seed}
                yield real.in_virtual_time(run, labels, rto=rto, seed=seed, iterations=2)


def measure(report: Report | real.Times) -> ResultRow:
    """Return the columns of real runs; their times are means here."""
    mean = {"time_s": fmean(report.found["ina"].times_s)} if isinstance(report, real.Times) else {}
    return {**real.measured(report), **mean}


def tables(rows: Sequence[ResultRow]) -> str:
    """Return one table."""
    lines = []
    for (case,), group in grouped(rows, "case").items():
        real_s, times, load = None, "not run", "not run"
        for row in selected(group, runner=NETNS):
            real_s, *ends = (number(row, name) for name in ("time_s", "best_s", "worst_s"))
            times = f"{1e3 * real_s:.0f} ({1e3 * ends[0]:.0f}..{1e3 * ends[1]:.0f})"
            load = f"{number(row, 'load'):.1f}"
        modelled = [column(group, "time_s", runner=runner) for runner in (VIRTUAL, OTHER)]
        off = [f"{fmean(each) / real_s - 1:+.0%}" if each and real_s else "not run" for each in modelled]
        lines.append([case, times, spread([1e3 * time_s for time_s in modelled[0]], ".0f"), *off, load])
    return markdown(["links", f"{NETNS}, ms", f"{VIRTUAL}, ms", "off by", OTHER, "load"], lines)


EXPERIMENT = Experiment(
    name="model",
    title="How far off virtual time is",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
)
