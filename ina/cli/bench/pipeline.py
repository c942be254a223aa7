"""``ina bench pipeline``: the compiled program alone, in memory."""

from __future__ import annotations

from typing import Annotated

import typer

import softswitch
from controller.switches.programs import source_of
from ina.bench.pipeline import PipelineBench, bench_pipeline
from ina.cli import options
from ina.cli.output import out, table
from ina.cli.plain import Result, count, seconds

ROUNDS = 9

EPILOG = """Examples:

  ina bench pipeline --lanes 256

  ina bench pipeline --program shared --lanes 256 --json

  ina bench pipeline --threads 2
"""


def pipeline(
    program: options.Program = "exclusive",
    lanes: options.Lanes = 256,
    workers: Annotated[
        int,
        typer.Option(
            *options.WORKERS, min=1, max=32, help="Set the number of workers that contribute to each sum."
        ),
    ] = 4,
    duration: Annotated[
        float, typer.Option(min=0.01, metavar="SECONDS", help="Measure for this long, in seconds.")
    ] = 3.0,
    threads: Annotated[
        int,
        typer.Option(
            min=1,
            max=16,
            help="Measure this many threads, too, which divide packets by their slots. Needs idle cores.",
        ),
    ] = 1,
    json: options.Json = False,
) -> None:
    """Measure aggregation by the compiled program: packets in memory, on one core or several."""
    path, defines = source_of(program, lanes)
    compiled = softswitch.compile_file(path, defines=defines)
    measured = bench_pipeline(
        compiled, contributors=workers, round_s=duration / ROUNDS, rounds=ROUNDS, threads=threads
    )
    setup = {
        "program": program,
        "lanes": measured.lanes,
        "jobs": measured.jobs,
        "workers": workers,
        "slots": measured.region_slots,
        "compiler": f"{measured.compiler} {measured.flags}",
    }
    numbers = {
        "packets_per_s": measured.packets_per_s,
        "packets_per_s_median": measured.median_packets_per_s,
        "packet_time_s": measured.ns_per_packet * 1e-9,
        "bare_packet_time_s": measured.bare_ns_per_packet * 1e-9,
        "share_of_bare": measured.bare_ns_per_packet / measured.ns_per_packet,
        **_beside_by_hand(measured),
        "copies_per_packet": measured.copies_per_packet,
        "interpreter_packets_per_s": measured.interpreter_packets_per_s,
        "ratio_vs_interpreter": measured.packets_per_s / measured.interpreter_packets_per_s,
        "completed_share": measured.completed_share,
        "collided_share": measured.collided_share,
        "evicted_share": measured.evicted_share,
    }
    if (several := measured.threads) is not None:
        setup["threads"] = several.threads
        numbers |= {
            "one_thread_packets_per_s": several.one_packets_per_s,
            "threads_packets_per_s": several.packets_per_s,
            "ratio_vs_one_thread": several.packets_per_s / several.one_packets_per_s,
            "ratio_vs_plain": several.packets_per_s / measured.packets_per_s,
            "threads_completed_share": several.completed_share,
        }
    if json:
        Result("bench pipeline", setup, numbers).print_json()
        return
    by_hand_ns = measured.by_hand_ns_per_packet
    rates = [
        ("additions and copies alone, best round", 1e9 / measured.bare_ns_per_packet),
        *([("the program by hand in C, best round", 1e9 / by_hand_ns)] if by_hand_ns else []),
        ("compiled, best round", measured.packets_per_s),
        ("compiled, median", measured.median_packets_per_s),
        ("interpreter", measured.interpreter_packets_per_s),
    ]
    if several is not None:
        rates += [
            ("one thread, frames from rings", several.one_packets_per_s),
            (f"{several.threads} threads, frames from rings", several.packets_per_s),
        ]
    table(
        f"{program}, {measured.lanes} lanes, {measured.jobs} x {workers} contributors, in memory",
        ["", "packets/s", "per packet"],
        [(name, count(value), seconds(1 / value)) for name, value in rates],
    )
    if several is not None:
        times = several.packets_per_s / several.one_packets_per_s
        plain = several.packets_per_s / measured.packets_per_s
        out.print(
            f"{several.threads} threads: {times:.2f} times one from rings, {plain:.2f} times the best round;"
            f" they completed {several.completed_share:.1%} of the sums in a slot",
            highlight=False,
            soft_wrap=True,
        )
    if measured.collided_share:
        out.print(
            f"completed in a slot: {measured.completed_share:.1%} of the sums; collided: "
            f"{measured.collided_share:.1%}, evicted: {measured.evicted_share:.1%} of the packets",
            highlight=False,
            soft_wrap=True,
        )
    out.print(f"compiler: {setup['compiler']}", highlight=False, soft_wrap=True)


def _beside_by_hand(measured: PipelineBench) -> dict[str, float]:
    if measured.by_hand_ns_per_packet is None:
        return {}
    return {
        "by_hand_packet_time_s": measured.by_hand_ns_per_packet * 1e-9,
        "share_of_by_hand": measured.by_hand_ns_per_packet / measured.ns_per_packet,
    }
