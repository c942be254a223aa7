"""``ina soak``: simulates random schedules of faults until the time is over or an invariant is broken."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ina.cli.command import (
    USAGE,
    Declared,
    Failure,
    Json,
    Listing,
    Reply,
    Result,
    count,
    plural,
    refuse,
    seconds,
)
from ina.cli.declared import print_reply
from ina.cli.errors import Interrupted
from ina.cli.output import Bars, out

if TYPE_CHECKING:
    from bmv2_topos.soak import Tally


_LARGEST_SEED = 2**48


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakSettings:
    """Options of 'ina soak': which schedules of faults are run, and for how long."""

    minutes: Annotated[
        float | None, Declared(min=0.0, show_default="1", help="Run schedules for this many minutes.")
    ] = None
    schedules: Annotated[
        int | None, Declared(min=1, help="Run this many schedules, or fewer if --minutes end first.")
    ] = None
    seed: Annotated[
        int | None,
        Declared(
            min=0,
            max=_LARGEST_SEED,
            show_default="random",
            help="Use this seed for the first schedule, and the following numbers for the next ones.",
        ),
    ] = None
    processes: Annotated[
        int | None, Declared(min=1, show_default="one per processor", help="Run this many processes.")
    ] = None
    replay: Annotated[
        int | None,
        Declared(
            min=0,
            max=2 * _LARGEST_SEED,
            metavar="SEED",
            help="Run only the schedule with this seed, and print the schedule.",
        ),
    ] = None
    program: Annotated[
        str | None,
        Declared(
            metavar="FILE",
            help="Run this .p4 file on all switches. Default: each schedule draws one of the programs "
            "exclusive and shared.",
        ),
    ] = None
    packets: Annotated[
        int,
        Declared(min=0, metavar="COUNT", help="With --replay: show the last COUNT packets."),
    ] = 40
    json: Json = False


def soak(asked: SoakSettings) -> Reply:
    """Check the invariants under random faults, in virtual time.

    Each schedule combines loss, duplication, reordering, corruption, collisions, preemption, ageing, restarts
    of jobs and fallback servers, region changes and forged packets, on trees of one to three levels, with the
    program exclusive or shared, or with your own. At its end the faults stop, and the collectives must end
    within a bounded number of round trips. The seed determines the schedule; the next schedule has the next
    seed. The first schedule that breaks an invariant is printed with the command that runs it again, and ends
    the command with status 1. If interrupted (Ctrl-C), the command prints the results so far.

    Examples:
        ina soak --minutes 5

        ina soak --schedules 2000 --seed 0 --json

        ina soak --replay 123456

        ina soak --program mine.p4 --schedules 500
    """
    minutes = asked.minutes
    if asked.replay is not None:
        refuse(
            minutes is not None or asked.schedules is not None or asked.seed is not None,
            "--replay is mutually exclusive with --minutes, --schedules and --seed",
        )
        return _replay(asked, asked.replay)
    # imported here: slow, and not needed for --help
    from bmv2_topos.soak import Tally, missing
    from bmv2_topos.soak import soak as run_soak
    from bmv2_topos.testbeds.virtual import TestbedError

    if minutes is None and asked.schedules is None:
        minutes = 1.0
    first = secrets.randbelow(_LARGEST_SEED) if asked.seed is None else asked.seed
    began = time.monotonic()
    tally = Tally()
    interrupt: Interrupted | None = None
    with Bars() as bar:
        try:
            for tally in run_soak(
                first,
                schedules=asked.schedules,
                minutes=minutes,
                processes=asked.processes,
                own=asked.program,
            ):
                bar.show(*_progress(tally.schedules, time.monotonic() - began, asked.schedules, minutes))
        except TestbedError as error:
            raise Failure(f"--program: {error}", exit_code=USAGE) from error
        except Interrupted as error:
            if not tally.schedules:
                raise
            interrupt = error
    if not tally.schedules:  # no invariant was tested
        raise Failure(f"--minutes {minutes:g}: too short for a single schedule", exit_code=USAGE)
    setup = {"seed": first, "schedules": asked.schedules, "minutes": minutes, "program": asked.program}
    unseen = missing(tally.counts) if asked.program is None else []
    wall_s = time.monotonic() - began
    parts = [*_tables(tally, wall_s, unseen), *(each.schedule for each in tally.failures)]
    reply = Reply(_result(tally, setup, wall_s, unseen), parts, _broken(tally))
    if interrupt is not None:
        print_reply(reply, json=asked.json)
        raise interrupt
    return reply


def _replay(settings: SoakSettings, seed: int) -> Reply:
    """Run the schedule with this seed alone, and return the reply."""
    from bmv2_topos.soak import describe, replay

    if not settings.json:
        out.print(describe(seed, settings.program), soft_wrap=True)
    began = time.monotonic()
    tally, lines = replay(seed, packets=settings.packets, own=settings.program)
    wall_s = time.monotonic() - began
    parts = ["last packets:", *lines] if lines else []
    return Reply(
        _result(tally, {"replay": seed, "program": settings.program}, wall_s, []),
        [*parts, *_tables(tally, wall_s, [])],
        _broken(tally),
    )


def _result(tally: Tally, setup: Mapping[str, object], wall_s: float, unseen: Sequence[str]) -> Result:
    slowest = tally.slowest
    metrics: dict[str, object] = {
        "schedules": tally.schedules,
        "wall_time_s": wall_s,
        "schedules_per_s": tally.schedules / wall_s if wall_s else 0.0,
        "failures": [
            {"seed": each.seed, "reason": each.reason, "schedule": each.schedule, "replay": each.command}
            for each in tally.failures
        ],
        "recoveries": len(tally.recoveries),
        "recovery_round_trips_per_packet_median": tally.median_round_trips,
        "recovery_round_trips_per_packet_worst": slowest.round_trips_per_packet if slowest else 0.0,
        "recovery_worst_seed": slowest.seed if slowest else None,
        "recovery_largest_share_of_allowed": tally.largest_share,
        "never_happened": list(unseen),
        "happened": dict(sorted(tally.counts.items())),
    }
    return Result("soak", setup, metrics)


def _tables(tally: Tally, wall_s: float, unseen: Sequence[str]) -> Iterator[Listing | str]:
    rows = [[name, count(number)] for name, number in sorted(tally.counts.items())]
    yield Listing("what happened", ["", "count"], rows)
    if unseen:
        yield f"never happened: {', '.join(unseen)}"
    yield f"{plural(tally.schedules, 'schedule')} in {seconds(wall_s)}{_rate(tally.schedules, wall_s)}"
    if (slowest := tally.slowest) is not None:
        yield (
            f"recovery after the last fault: {tally.median_round_trips:.1f} round trips per "
            f"packet in the median, {slowest.round_trips_per_packet:.1f} at most (seed "
            f"{slowest.seed}); at most {tally.largest_share:.0%} of the allowed time"
        )
    if not tally.failures:
        yield "all invariants held"


def _broken(tally: Tally) -> str:
    """Return a message that names the schedules that broke an invariant, and how to rerun them, or ""."""
    return "\n".join(
        f"seed {each.seed} breaks an invariant: {each.reason}\nto run it again: {each.command}"
        for each in tally.failures
    )


def _progress(done: int, passed_s: float, schedules: int | None, minutes: float | None) -> tuple[float, str]:
    """Return the share of the run that is finished, 0 to 1, and a text about the finished schedules.

    The share is the larger of two fractions: of the limit of `minutes`, the time `passed_s`; of the limit of
    `schedules`, the number `done`. A limit that is None is left out.
    """
    shares = [passed_s / (60 * minutes)] if minutes else []
    shares += [done / schedules] if schedules else []
    return max(shares, default=0.0), f"{plural(done, 'schedule')}{_rate(done, passed_s)}"


def _rate(schedules: int, passed_s: float) -> str:
    """Return ", N per second" for the number of schedules in `passed_s`; "" for a single schedule."""
    return f", {schedules / passed_s:.3g} per second" if schedules > 1 and passed_s else ""
