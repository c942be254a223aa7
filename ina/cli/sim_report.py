"""Output of ``ina sim``: a table for people, one JSON object for programs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from ina.cli.output import out, table
from ina.cli.plain import Result, count, plural, rate, seconds

if TYPE_CHECKING:  # other commands need none of it
    from bmv2_topos.testbeds.virtual import Foreseen, JobReport, Report
    from bmv2_topos.trace import Verdict


def result(report: Report, verdicts: Sequence[Verdict] = ()) -> Result:
    """Return the result that ``--json`` prints; each job's verdicts are of its iterations, in order."""
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
            **_flows(report),
            **_links(report),
        },
        {
            job.name: _numbers(report, job)
            | explained([verdict for verdict in verdicts if verdict.job == job.name])
            for job in report.jobs
        },
    )


def explained(verdicts: Sequence[Verdict]) -> dict[str, object]:
    """Return verdicts as data for JSON, under one key; empty for none."""
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


def show_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Print a line about each iteration, or about consecutive ones with the same verdict."""
    out.print("what made iterations slow", style="bold")
    for _, group in itertools.groupby(verdicts, key=lambda verdict: (verdict.job, verdict.causes)):
        same = list(group)
        first, last = same[0], same[-1]
        numbers = str(first.iteration) if first is last else f"{first.iteration}-{last.iteration}"
        slowest = max(same, key=lambda verdict: verdict.until_ns - verdict.from_ns)
        time = seconds((slowest.until_ns - slowest.from_ns) * 1e-9)
        out.print(f"{first.job} {numbers}: up to {time}: {slowest.words()}", soft_wrap=True)


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


def show(report: Report) -> None:
    """Print a table with a column for each job, and a line about the whole run."""
    rows: list[list[str]] = []

    def row(title: str, cell: Callable[[JobReport], str]) -> None:
        rows.append([title, *map(cell, report.jobs)])

    row("completion time", lambda job: "removed" if job.jct_s is None else seconds(job.jct_s))
    row("iterations", lambda job: count(job.iterations))
    row("iteration, mean", lambda job: seconds(job.mean_iteration_s))
    row("iteration, longest", lambda job: seconds(max(job.iteration_s, default=0.0)))
    row("summed in the switch", lambda job: f"{job.aggregated_share:.1%}")
    if report.occupancy:
        row("mean slots in use", lambda job: f"{report.mean_occupancy(job):.1f}")
    row("packets sent", lambda job: count(job.sent_packets))
    row("of these, retransmitted", lambda job: count(job.resent_packets))
    row("fallback traffic", lambda job: f"{job.fallback_bytes / 1e6:,.2f} MB")
    row("collisions", lambda job: count(job.outcomes.get("collided", 0)))
    row("evictions", lambda job: count(job.evictions))
    row("elements checked, all exact", lambda job: count(job.checked_elements))
    if report.foreseen is not None:
        foreseen = report.foreseen
        row("servers", lambda job: count(job.workers))
        row("rate, foreseen", lambda job: rate(found) if (found := foreseen.rate_bps.get(job.name)) else "-")
        row(
            "iteration, foreseen",
            lambda job: seconds(found) if (found := foreseen.iteration_s.get(job.name)) else "-",
        )
    setup = report.setup
    headings = ["", *(job.name for job in report.jobs)]
    if len(report.jobs) > MOST_COLUMNS:
        headings, rows = _turned(headings, rows)
    title = f"{setup['topology']}, {setup['program']}, {setup['slots']} slots, seed {setup['seed']}"
    table(title, headings, rows)
    if report.foreseen is not None:
        _show_links(report, report.foreseen)
    _show_flows(report)
    sent = sum(job.sent_packets for job in report.jobs)
    out.print(
        f"{seconds(report.duration_s)} of virtual time in {seconds(report.wall_s)}; of {count(sent)} packets"
        f" from workers and what came of them, links lost {count(report.lost_packets)} and full queues"
        f" {count(report.dropped_packets)}; mean completion time {seconds(report.mean_jct_s)}",
        highlight=False,
        soft_wrap=True,
    )


MOST_COLUMNS = 8
"""Jobs in columns; more are in rows, with what is asked for most."""

_TURNED = ("completion time", "iteration, mean", "summed in the switch", "of these, retransmitted")


def _turned(headings: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Return the table with a row for each job, and the main columns."""
    main = [row for row in rows if row[0] in _TURNED]
    names = ["", "completion time", "iteration, mean", "summed in the switch", "retransmitted"]
    return names, [list(row) for row in zip(headings[1:], *(row[1:] for row in main), strict=True)]


def _flows(report: Report) -> dict[str, object]:
    """Return the flows as JSON knows them, if there are any."""
    return {"flows": [asdict(flow) for flow in report.flows]} if report.flows else {}


def _show_flows(report: Report) -> None:
    if report.flows:
        sent = sum(flow.sent_packets for flow in report.flows)
        arrived = sum(flow.arrived_packets for flow in report.flows)
        flows = plural(len(report.flows), "flow")
        out.print(f"{flows} of ordinary traffic: {count(arrived)} of {count(sent)} packets arrived")


def _links(report: Report) -> dict[str, object]:
    """Return the bytes of links as JSON knows them, if policies decided; else nothing."""
    if report.foreseen is None:
        return {}
    return {
        "links": [
            {"from": a, "to": b, "bytes": found, "foreseen_bytes": foreseen}
            for (a, b), (foreseen, found) in _loads(report, report.foreseen).items()
        ]
    }


def _loads(report: Report, foreseen: Foreseen) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the bytes that were foreseen and that passed, of each direction of a link with any."""
    used = [ends for ends, found in report.link_bytes.items() if found or ends in foreseen.link_bytes]
    return {ends: (foreseen.link_bytes.get(ends, 0), report.link_bytes[ends]) for ends in used}


MOST_LINKS = 12


def _show_links(report: Report, foreseen: Foreseen) -> None:
    """Print the links between switches that carry most, and all links together."""
    loads = _loads(report, foreseen)
    trunks = {ends: of for ends, of in loads.items() if set(ends) <= set(report.switches)}
    fullest = sorted(trunks, key=lambda ends: trunks[ends][1], reverse=True)[:MOST_LINKS]
    rows = [[f"{a} to {b}", *_megabytes(*trunks[a, b])] for a, b in fullest]
    for text, some in (("all between switches", trunks), ("all", loads)):
        rows.append([text, *_megabytes(*(sum(column) for column in zip(*some.values(), strict=True)))])
    table("links", ["", "foreseen MB", "carried MB", "ratio"], rows)


def _megabytes(foreseen: int = 0, found: int = 0) -> tuple[str, str, str]:
    ratio = f"{found / foreseen:.2f}" if foreseen else "-"
    return f"{foreseen / 1e6:,.2f}", f"{found / 1e6:,.2f}", ratio
