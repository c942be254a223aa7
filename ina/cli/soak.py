"""``ina soak``: random schedules of all kinds of faults, until time is up or an invariant is broken."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ina.cli import options
from ina.cli.errors import FAILED, USAGE, Failure
from ina.cli.output import Bar, out, table
from ina.cli.plain import Result, count, plural, say, seconds

if TYPE_CHECKING:
    from bmv2_topos.soak import Tally

EPILOG = """Examples:

  ina soak --minutes 5

  ina soak --schedules 2000 --seed 0 --json

  ina soak --replay 123456

  ina soak --program mine.p4 --schedules 500
"""

_LARGEST_SEED = 2**48


def soak(
    minutes: Annotated[
        float | None, typer.Option(min=0.0, show_default="1", help="Run schedules for this many minutes.")
    ] = None,
    schedules: Annotated[
        int | None, typer.Option(min=1, help="Run this many schedules; with --minutes, whichever ends first.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=_LARGEST_SEED,
            show_default="random",
            help="Seed the first schedule; the next ones use the following numbers.",
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, show_default="one per processor", help="Run this many processes.")
    ] = None,
    replay: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2 * _LARGEST_SEED,
            metavar="SEED",
            help="Run only the schedule of this seed, and show it.",
        ),
    ] = None,
    program: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Run this .p4 file on all switches. Default: each schedule draws one of the programs "
            "exclusive and shared.",
        ),
    ] = None,
    packets: Annotated[
        int,
        typer.Option(min=0, metavar="COUNT", help="With --replay: show this many packets, the last ones."),
    ] = 40,
    json: options.Json = False,
) -> None:
    """Check the invariants under random faults, in virtual time.

    Each schedule combines loss, duplication, reordering, corruption, collisions, preemption, aging, restarts
    of jobs and fallback servers, region changes and forged packets, on trees of one to three levels and with
    both programs, or with one of your own. At its end the faults stop, and what is in flight has to recover
    within a bounded number of round trips. A schedule follows from its seed; the next one has the next seed.
    The first schedule that breaks an invariant is printed with the command that runs it again, and ends the
    command with status 1.
    """
    if replay is not None:
        if minutes is not None or schedules is not None or seed is not None:
            raise Failure(
                "--replay is mutually exclusive with --minutes, --schedules and --seed", exit_code=USAGE
            )
        _replay(replay, packets, program, json=json)
        return
    # Loaded here, for other commands need none of it.
    from bmv2_topos.soak import Tally
    from bmv2_topos.soak import soak as run_soak
    from bmv2_topos.testbeds.virtual import TestbedError

    if minutes is None and schedules is None:
        minutes = 1.0
    first = secrets.randbelow(_LARGEST_SEED) if seed is None else seed
    began = time.monotonic()
    tally = Tally()
    with Bar() as bar:
        try:
            for tally in run_soak(
                first, schedules=schedules, minutes=minutes, processes=processes, own=program
            ):
                passed_s = time.monotonic() - began
                bar.show(*_progress(tally.schedules, passed_s, schedules, minutes))
        except TestbedError as error:
            raise Failure(f"--program: {error}", exit_code=USAGE) from error
    if not tally.schedules:  # nothing was broken, but nothing held either
        raise Failure(f"--minutes {minutes:g}: too short for a single schedule", exit_code=USAGE)
    _show(
        tally,
        {"seed": first, "schedules": schedules, "minutes": minutes, "program": program},
        time.monotonic() - began,
        json=json,
    )


def _replay(seed: int, packets: int, program: str | None, *, json: bool) -> None:
    from bmv2_topos.soak import describe
    from bmv2_topos.soak import replay as replay_one

    if not json:
        out.print(describe(seed, program), markup=False, highlight=False, soft_wrap=True)
    began = time.monotonic()
    tally, lines = replay_one(seed, packets=packets, own=program)
    if not json and lines:
        out.print("last packets:\n" + "\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    _show(tally, {"replay": seed, "program": program}, time.monotonic() - began, json=json, whole=False)


def _show(tally: Tally, setup: dict[str, object], wall_s: float, *, json: bool, whole: bool = True) -> None:
    """Print the tally; exit with 1 if an invariant was broken."""
    from bmv2_topos.soak import missing

    rate = tally.schedules / wall_s if wall_s else 0.0
    slowest = tally.slowest
    unseen = missing(tally.counts) if whole and setup["program"] is None else []
    if json:
        metrics: dict[str, object] = {
            "schedules": tally.schedules,
            "wall_time_s": wall_s,
            "schedules_per_s": rate,
            "failures": [
                {"seed": each.seed, "reason": each.reason, "schedule": each.schedule, "replay": each.command}
                for each in tally.failures
            ],
            "recoveries": len(tally.recoveries),
            "recovery_round_trips_per_packet_median": tally.median_round_trips,
            "recovery_round_trips_per_packet_worst": slowest.round_trips_per_packet if slowest else 0.0,
            "recovery_worst_seed": slowest.seed if slowest else None,
            "recovery_largest_share_of_allowed": tally.largest_share,
            "never_happened": unseen,
            "happened": dict(sorted(tally.counts.items())),
        }
        Result("soak", setup, metrics).print_json()
    else:
        rows = [[name, count(number)] for name, number in sorted(tally.counts.items())]
        table("what happened", ["", "count"], rows)
        if unseen:
            out.print(f"never happened: {', '.join(unseen)}", highlight=False, soft_wrap=True)
        shown = f"{plural(tally.schedules, 'schedule')} in {seconds(wall_s)}"
        out.print(f"{shown}, {rate:.0f} per second", highlight=False, soft_wrap=True)
        if slowest is not None:
            out.print(
                f"recovery after the last fault: {tally.median_round_trips:.1f} round trips per "
                f"packet in the median, {slowest.round_trips_per_packet:.1f} at most (seed "
                f"{slowest.seed}); at most {tally.largest_share:.0%} of the allowed time",
                highlight=False,
                soft_wrap=True,
            )
        for each in tally.failures:
            if whole:
                out.print(each.schedule, markup=False, highlight=False, soft_wrap=True)
            reason = f"seed {each.seed} breaks an invariant: {each.reason}\nto run it again: {each.command}"
            say(reason)
        if not tally.failures:
            out.print("all invariants held", highlight=False)
    if tally.failures:
        raise typer.Exit(FAILED)


def _progress(done: int, passed_s: float, schedules: int | None, minutes: float | None) -> tuple[float, str]:
    """Return the progress, by time or by number, whichever ends first, and a text for it."""
    shares = [passed_s / (60 * minutes)] if minutes else []
    shares += [done / schedules] if schedules else []
    rate = done / passed_s if passed_s else 0
    return max(shares, default=0.0), f"{plural(done, 'schedule')}, {rate:.0f} per second"
