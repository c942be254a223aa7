"""``ina trace`` and ``ina dissector``: analyse captures, and print a dissector for Wireshark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from controller.switches.model import INA_UDP_PORT
from hostlib.wire.lua_dissector import dissector as dissector_source
from ina.cli import sim_report
from ina.cli.command import USAGE, Declared, Failure, Listing, Reply, Result, count, plural, refuse

if TYPE_CHECKING:  # loaded where it is used, for other commands need none of it
    from bmv2_topos.trace import Event, JobOverview, Tenure, Timeline


def trace(
    captures: Annotated[
        list[Path],
        Declared(
            argument=True,
            metavar="CAPTURES…",
            help="Read these capture files (pcapng, pcap), or directories of them: from --pcap of "
            "'ina run', 'ina switch' or 'ina sim', or from tcpdump on hosts.",
        ),
    ],
    job: Annotated[
        int | None,
        Declared(min=0, max=0xFFFF, help="Show this job. Required if the captures hold several."),
    ] = None,
    psn: Annotated[
        int | None,
        Declared(min=0, max=0xFFFFFFFF, help="Show the path of this packet across all captures."),
    ] = None,
    slots: Annotated[
        bool,
        Declared(
            "--slots",
            help="Show which sums held which slots, for how long, and how many packets found a slot taken.",
        ),
    ] = False,
    top: Annotated[int, Declared(min=1, help="With --slots: show the N most contended slots.")] = 20,
    explain: Annotated[
        Path | None,
        Declared(
            metavar="LOG",
            help="Explain what made each collective of a run slow. "
            "LOG is the file that 'ina run --log' or 'ina topo run --log' wrote.",
        ),
    ] = None,
) -> Reply:
    """Analyse captures: a packet's path, slot usage, or the cause of slow iterations.

    Without an option, lists the jobs, and PSNs that were lost, sent again, or without a slot. Says what the
    captures do not show: without captures of hosts, for example, when a packet was sent.

    Examples:
        ina trace captures

        ina trace captures --job 1 --psn 17

        ina trace s1-port1.pcapng s1-port2.pcapng host.pcap --psn 17 --json

        ina trace captures --slots --top 10

        ina trace captures --explain run.log
    """
    from bmv2_topos import trace as library

    refuse(slots and psn is not None, "--slots and --psn are mutually exclusive: --slots shows all packets")
    refuse(
        explain is not None and (slots or psn is not None),
        "--explain is mutually exclusive with --slots and --psn: it explains the whole run",
    )
    events = library.events_of(library.read_files(captures))
    jobs = library.overview(events)
    if not jobs:
        raise Failure(f"{', '.join(map(str, captures))}: no INA packets (UDP port {INA_UDP_PORT}) found")
    refuse(job is not None and job not in jobs, f"--job {job}: want one of {', '.join(map(str, jobs))}")
    if psn is not None:
        return _life(library.timeline(events, _only(jobs, job), psn), jobs)
    if explain is not None:
        return _explained(events, explain)
    if slots:
        return _slots([tenure for tenure in library.tenures(events) if job in (None, tenure.job)], top)
    return _jobs(jobs)


def _explained(events: Sequence[Event], log: Path) -> Reply:
    from bmv2_topos import trace as library

    facts, sums = library.read_run(log)
    captured = {(event.job, (event.place, event.port)) for event in events}
    missing = library.missing_captures(facts, captured)
    if missing:
        raise Failure(
            f"no captures of {', '.join(missing)}, where the workers are; the captures may be of another run"
        )
    verdicts = library.explain(events, sums, facts)
    by_job = {job.name: [each for each in verdicts if each.job == job.name] for job in facts}
    explanations = {name: sim_report.explained(of) for name, of in by_job.items()}
    result = Result("trace", {"log": str(log)}, {"collectives": len(verdicts)}, explanations)
    return Reply(result, sim_report.verdict_lines(verdicts))


def _only(jobs: dict[int, JobOverview], job: int | None) -> int:
    if job is None and len(jobs) > 1:
        raise Failure(
            f"several jobs were captured: {', '.join(map(str, jobs))}; give one as --job", exit_code=USAGE
        )
    return next(iter(jobs)) if job is None else job


# ------------------------------------------------------------------ one packet


def _life(life: Timeline, jobs: dict[int, JobOverview]) -> Reply:
    if not life.steps:
        psns = jobs[life.job].psns
        raise Failure(f"--psn {life.psn}: not in captures of job {life.job}; want {min(psns)} to {max(psns)}")
    steps = [
        asdict(step.event) | {"kind": step.event.kind_name, "flags": step.event.flag_names, "what": step.what}
        for step in life.steps
    ]
    first = life.steps[0].event.time_ns
    lines = [f"{'µs':>12}  where"]
    for step in life.steps:
        time = f"{(step.event.time_ns - first) / 1000:,.3f}"
        lines.append(f"{time:>12}  {_place(step.event):<10}  {step.what}")
    lines += [f"not captured: {sentence}" for sentence in life.missing]
    title = f"job {life.job}, PSN {life.psn}: {plural(len(life.steps), 'event')}"
    return Reply(
        Result("trace", {"job": life.job, "psn": life.psn}, {"steps": steps, "missing": life.missing}),
        [Listing(title), *lines],
    )


def _place(event: Event) -> str:
    arrow = {True: "→", False: "←", None: " "}[event.inbound]
    return event.place if event.port is None else f"{event.place} {arrow} {event.port}"


# ------------------------------------------------------------------ slots


def _slots(found: Sequence[Tenure], top: int) -> Reply:
    if not found:
        raise Failure("the captures show no slots: want captures of 'ina switch', with --pcap-notes")
    worst = sorted(found, key=lambda tenure: (-len(tenure.attempts), -_held_ns(tenure)))[:top]
    title = f"{plural(len(found), 'sum')} held slots; most contended first, then longest held"
    columns = ["slot", "job", "PSN", "held (µs)", "added", "packets refused", "by jobs", "given up"]
    metrics = {"tenures": len(found), "slots": [asdict(tenure) for tenure in worst]}
    return Reply(
        Result("trace", {"top": top}, metrics), [Listing(title, columns, [_row(tenure) for tenure in worst])]
    )


def _row(tenure: Tenure) -> list[str]:
    time = "to the end" if tenure.until_ns is None else f"{_held_ns(tenure) / 1000:,.1f}"
    ended = tenure.ended
    if tenure.evicted_by is not None:
        ended += f", of job {tenure.evicted_by.job}"
    by = ", ".join(map(str, sorted({attempt.job for attempt in tenure.attempts}))) or "-"
    numbers = [
        str(tenure.job),
        str(tenure.psn),
        time,
        str(tenure.contributions),
        str(len(tenure.attempts)),
        by,
    ]
    return [f"{tenure.switch} {tenure.slot}", *numbers, ended]


def _held_ns(tenure: Tenure) -> int:
    return 0 if tenure.until_ns is None else tenure.until_ns - tenure.from_ns


# ------------------------------------------------------------------ all


def _jobs(jobs: dict[int, JobOverview]) -> Reply:
    numbers = {str(job): _numbers(found) for job, found in jobs.items()}
    rows = [
        ["packets, at all places", *(count(found.packets) for found in jobs.values())],
        ["PSNs", *(f"{min(found.psns)} to {max(found.psns)}" for found in jobs.values())],
        ["PSNs lost on a link or in a queue", *(_some(found.lost) for found in jobs.values())],
        ["PSNs sent again", *(_some(found.resent) for found in jobs.values())],
        ["PSNs without a slot", *(_some(found.went_round) for found in jobs.values())],
    ]
    columns = ["", *(f"job {job}" for job in jobs)]
    table = Listing("PSNs to look at (ina trace … --psn N)", columns, rows)
    return Reply(Result("trace", {}, {"jobs": len(jobs)}, numbers), [table])


def _numbers(found: JobOverview) -> dict[str, object]:
    psns = {"lost_psns": found.lost, "resent_psns": found.resent, "round_psns": found.went_round}
    return {
        "packets": found.packets,
        "first_psn": min(found.psns),
        "last_psn": max(found.psns),
        **{name: sorted(numbers) for name, numbers in psns.items()},
    }


def _some(psns: Iterable[int], most: int = 3) -> str:
    numbers = sorted(psns)
    shown = ", ".join(map(str, numbers[:most])) + (", …" if len(numbers) > most else "")
    return f"{len(numbers):,}: {shown}" if numbers else "0"


def dissector() -> None:
    """Print a Wireshark dissector for INA packets.

    Prints a Lua script, which tshark can load, too. It is generated from the packets' definition.

    Examples:
        ina dissector > ~/.local/lib/wireshark/plugins/ina.lua

        ina dissector > ina.lua && tshark -X lua_script:ina.lua -r s1-port1.pcapng -Y ina.flags.collision
    """
    print(dissector_source(), end="")
