"""Replies of ``ina sim``: for one run, and for many runs with ``--seeds N --sweep KEY=VALUE,…``."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from ina.cli.command import Aside, Listing, Reply, Result, by_column, count, plural, rate, seconds
from ina.cli.output import Bars

if TYPE_CHECKING:  # other commands need none of it
    from bmv2_topos.harness import ResultRow, Study, Value
    from bmv2_topos.harness.simulation import Simulation
    from bmv2_topos.testbeds.virtual import JobReport, Prediction, Report
    from bmv2_topos.trace import IterationPath


def result(report: Report, verdicts: Sequence[IterationPath], unused_keys: Sequence[str]) -> Result:
    """Return the result of a run that ``--json`` prints.

    Args:
        report: Measurements of the run.
        verdicts: With --explain, the cause of each iteration's time, in order of iterations; else empty.
        unused_keys: See `Result`.
    """
    return Result(
        "sim",
        report.setup,
        {
            "duration_s": report.duration_s,
            "mean_jct_s": report.mean_jct_s,
            "dropped_packets": report.dropped_packets,
            "lost_packets": report.lost_packets,
            "slots": report.slots,
            "occupancy_time_s": [sample.time_s for sample in report.occupancy],
            "packet_hops": report.packet_hops,
            "wall_time_s": report.wall_s,
            **({"flows": [asdict(flow) for flow in report.flows]} if report.flows else {}),
            **_links(report),
        },
        {
            job.name: _numbers(report, job)
            | explained([verdict for verdict in verdicts if verdict.job == job.name])
            for job in report.jobs
        },
        unused_keys=unused_keys,
    )


def explained(verdicts: Sequence[IterationPath]) -> dict[str, object]:
    """Return explanations of iterations for JSON, as a dictionary with the key "explained"; {} for none."""
    if not verdicts:
        return {}
    return {
        "explained": [
            {
                "iteration": verdict.iteration,
                "time_s": (verdict.until_ns - verdict.from_ns) * 1e-9,
                "spent_s": {str(cause): spent * 1e-9 for cause, spent in verdict.spent_ns.items()},
                "causes": [str(cause) for cause in verdict.causes],
                "words": verdict.words(),
            }
            for verdict in verdicts
        ]
    }


def verdict_lines(verdicts: Sequence[IterationPath]) -> list[Listing | str]:
    """Return a title, and lines that explain the time of each iteration.

    Consecutive iterations of a job with the same causes have one line.
    """
    lines: list[Listing | str] = [Listing("what made iterations slow")]
    for _, group in itertools.groupby(verdicts, key=lambda verdict: (verdict.job, verdict.causes)):
        same = list(group)
        first, last = same[0], same[-1]
        numbers = str(first.iteration) if first is last else f"{first.iteration}-{last.iteration}"
        slowest = max(same, key=lambda verdict: verdict.until_ns - verdict.from_ns)
        time = seconds((slowest.until_ns - slowest.from_ns) * 1e-9)
        lines.append(f"{first.job} {numbers}: up to {time}: {slowest.words()}")
    return lines


def _numbers(report: Report, job: JobReport) -> dict[str, object]:
    numbers: dict[str, object] = {
        "workers": job.workers,
        "start_s": job.start_s,
        "jct_s": job.jct_s,
        "iterations": job.iterations,
        "iteration_mean_s": job.mean_iteration_s,
        "iteration_s": job.iteration_s,
        "aggregated_share": job.aggregated_share,
        "sent_packets": job.sent_packets,
        "resent_packets": job.resent_packets,
        "fallback_bytes": job.fallback_bytes,
        "evictions": job.evictions,
        "checked_elements": job.checked_elements,
        "wrong_elements": 0,  # the first one would have ended the run
        "occupied_slots_mean": report.mean_occupancy(job),
        "occupied_slots": [sample.slots.get(job.name, 0) for sample in report.occupancy],
    }
    if report.foreseen is not None:
        numbers["foreseen_rate_bps"] = report.foreseen.rate_bps.get(job.name)
        numbers["foreseen_iteration_s"] = report.foreseen.iteration_s.get(job.name)
    numbers |= {f"switch_{name}_packets": value for name, value in job.outcomes.items()}
    numbers |= {f"fallback_{name}": value for name, value in job.fallback.items()}
    return numbers


def parts(report: Report) -> Iterator[Listing | str]:
    """Yield the reply about a run: a table with a column for each job, other tables, and lines of totals."""
    cells: list[tuple[str, Callable[[JobReport], str]]] = [
        ("completion time", lambda job: "removed" if job.jct_s is None else seconds(job.jct_s)),
        ("iterations", lambda job: count(job.iterations)),
        ("iteration, mean", lambda job: seconds(job.mean_iteration_s)),
        ("iteration, longest", lambda job: seconds(max(job.iteration_s, default=0.0))),
        ("summed in the switch", lambda job: f"{job.aggregated_share:.1%}"),
        ("packets sent", lambda job: count(job.sent_packets)),
        ("of these, retransmitted", lambda job: count(job.resent_packets)),
        ("fallback traffic", lambda job: f"{job.fallback_bytes / 1e6:,.2f} MB"),
        ("collisions", lambda job: count(job.outcomes.get("collided", 0))),
        ("evictions", lambda job: count(job.evictions)),
        ("elements checked, all exact", lambda job: count(job.checked_elements)),
    ]
    if report.occupancy:
        cells.insert(5, ("mean slots in use", lambda job: f"{report.mean_occupancy(job):.1f}"))
    if (foreseen := report.foreseen) is not None:
        cells += [
            ("servers", lambda job: count(job.workers)),
            ("rate, foreseen", lambda job: _shown(rate, foreseen.rate_bps.get(job.name))),
            ("iteration, foreseen", lambda job: _shown(seconds, foreseen.iteration_s.get(job.name))),
        ]
    rows = by_column(cells, report.jobs)
    setup = report.setup
    headings = ["", *(job.name for job in report.jobs)]
    if len(report.jobs) > MOST_COLUMNS:
        headings, rows = _turned(headings, rows)
    title = f"{setup['topology']}, {setup['program']}, {setup['slots']} slots, seed {setup['seed']}"
    yield Listing(title, headings, rows)
    if foreseen is not None:
        yield _links_table(report, foreseen)
    if report.flows:
        passed = sum(flow.arrived_packets for flow in report.flows)
        of_all = count(sum(flow.sent_packets for flow in report.flows))
        flows = plural(len(report.flows), "flow")
        yield f"{flows} of ordinary traffic: {count(passed)} of {of_all} packets arrived"
    sent = sum(job.sent_packets for job in report.jobs)
    yield (
        f"{seconds(report.duration_s)} of virtual time in {seconds(report.wall_s)}; workers sent"
        f" {count(sent)} packets; of all packets, links lost {count(report.lost_packets)} and full queues"
        f" {count(report.dropped_packets)}; mean completion time {seconds(report.mean_jct_s)}"
    )


def _shown(form: Callable[[float], str], value: float | None) -> str:
    return form(value) if value else "-"


MOST_COLUMNS = 8
"""Maximum number of jobs for a table with a column for each job; for more jobs, each job has a row."""

_TURNED = ("completion time", "iteration, mean", "summed in the switch", "of these, retransmitted")


def _turned(headings: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Turn a table with a column for each job into one with a row for each job, of the main results only."""
    main = [row for row in rows if row[0] in _TURNED]
    names = ["", "completion time", "iteration, mean", "summed in the switch", "retransmitted"]
    return names, [list(row) for row in zip(headings[1:], *(row[1:] for row in main), strict=True)]


def _links(report: Report) -> dict[str, object]:
    """Return the predicted and carried bytes of links for JSON; {} if no policies placed the jobs."""
    if report.foreseen is None:
        return {}
    return {
        "links": [
            {"from": a, "to": b, "bytes": found, "foreseen_bytes": foreseen}
            for (a, b), (foreseen, found) in _loads(report, report.foreseen).items()
        ]
    }


def _loads(report: Report, foreseen: Prediction) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the predicted and the carried bytes of each direction (from, to) of a link.

    Directions for which both numbers are 0 are left out.
    """
    used = [ends for ends, found in report.link_bytes.items() if found or ends in foreseen.link_bytes]
    return {ends: (foreseen.link_bytes.get(ends, 0), report.link_bytes[ends]) for ends in used}


MOST_LINKS = 12


def _links_table(report: Report, foreseen: Prediction) -> Listing:
    """Return a table of the bytes of links, predicted and carried, with two rows of totals.

    Of the directions of links between switches, only the `MOST_LINKS` that carried most have a row.
    """
    loads = _loads(report, foreseen)
    trunks = {ends: of for ends, of in loads.items() if set(ends) <= set(report.switches)}
    fullest = sorted(trunks, key=lambda ends: trunks[ends][1], reverse=True)[:MOST_LINKS]
    rows = [[f"{a} to {b}", *_megabytes(*trunks[a, b])] for a, b in fullest]
    for text, some in (("all between switches", trunks), ("all", loads)):
        rows.append([text, *_megabytes(*(sum(column) for column in zip(*some.values(), strict=True)))])
    return Listing("links", ["", "foreseen MB", "carried MB", "ratio"], rows)


def _megabytes(foreseen: int = 0, found: int = 0) -> tuple[str, str, str]:
    ratio = f"{found / foreseen:.2f}" if foreseen else "-"
    return f"{foreseen / 1e6:,.2f}", f"{found / 1e6:,.2f}", ratio


# --------------------------------------------------------------------------- many runs


def swept(
    simulation: Simulation, texts: Sequence[str], seeds: int, processes: int, unused_keys: Sequence[str]
) -> Reply:
    """Run all combinations of the swept settings with all seeds; return a reply with means over the seeds.

    Args:
        simulation: The simulation, with the options of `ina sim`.
        texts: The settings to sweep, each ``KEY=V,…``.
        seeds: Number of seeds.
        processes: Number of processes; 0: one per core.
        unused_keys: See `Result`.

    Raises Failure.
    """
    from bmv2_topos.harness import sweep
    from bmv2_topos.harness.simulation import read_sweep, study

    began = time.monotonic()
    asked = study(simulation, read_sweep(texts), seeds)
    one = asked.experiment("sim", "")
    with Bars() as bar:
        rows = sweep(
            one,
            one.scenarios(False),
            processes=processes or len(os.sched_getaffinity(0)),
            progress=lambda done, total: bar.show(done / total, f"{done} of {total} runs"),
        )
    took = Aside(f"{plural(len(rows), 'run')} in {seconds(time.monotonic() - began)}")
    result = replace(_swept_result(simulation, asked, rows), unused_keys=unused_keys)
    return Reply(result, [_swept_table(simulation, asked, rows), took])


HEADINGS = {
    "mean_jct_s": "mean completion",
    "aggregated_share": "summed in switches",
    "sent_packets": "packets sent",
    "resent_packets": "retransmitted",
    "dropped_packets": "dropped",
    "lost_packets": "lost",
}


def _swept_table(simulation: Simulation, asked: Study, rows: Sequence[ResultRow]) -> Listing:
    of_jobs = {f"{job.name}_jct_s": job.name for job in simulation.jobs} if len(simulation.jobs) > 1 else {}
    shown = {name: text for name in asked.measure if (text := (HEADINGS | of_jobs).get(name))}
    if asked.sweep:
        columns = [*asked.sweep, *shown.values()]
        lines = [
            [*map(_text, setting.values()), *(_cell(rows, setting, name) for name in shown)]
            for setting in asked.settings(rows)
        ]
    else:
        columns = ["", "value"]
        lines = [[text, _cell(rows, {}, name)] for name, text in shown.items()]
    last = asked.first_seed + asked.seeds - 1
    of_seeds = (
        f"seed {last}" if asked.seeds == 1 else f"seeds {asked.first_seed} to {last}: mean (least..greatest)"
    )
    return Listing(f"{plural(len(rows), 'run')}, {of_seeds}", columns, lines)


def _cell(rows: Sequence[ResultRow], setting: Mapping[str, Value], name: str) -> str:
    from bmv2_topos.harness.study import numbers

    values = numbers(rows, name, setting)
    if not values:
        return "-"
    mean, least, most = (_figure(name, of(values)) for of in (statistics.fmean, min, max))
    return mean if least == most else f"{mean} ({least}..{most})"


def _figure(name: str, value: float) -> str:
    if name.endswith("_s"):
        return seconds(value)
    return f"{value:.1%}" if name.endswith("share") else count(value)


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _swept_result(simulation: Simulation, asked: Study, rows: Sequence[ResultRow]) -> Result:
    from bmv2_topos.harness.study import numbers

    setup = {
        "jobs": [job.name for job in simulation.jobs],
        "sweep": {name: list(values) for name, values in asked.sweep.items()},
        "seeds": list(range(asked.first_seed, asked.first_seed + asked.seeds)),
    }
    spreads = [
        {
            **setting,
            **{name: _spread(numbers(rows, name, setting)) for name in asked.measure},
        }
        for setting in asked.settings(rows)
    ]
    return Result("sim", setup, {"settings": spreads, "runs": [dict(row) for row in rows]})


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "mean": statistics.fmean(values),
        "least": min(values),
        "greatest": max(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
    }
