"""``ina bench pipeline`` and ``ina bench switch``: measure aggregation and forwarding in the switch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Annotated, Literal

import softswitch
from controller.switches.programs import source_of
from ina.bench.pipeline import PipelineBench, bench_pipeline
from ina.bench.switch import SwitchBench, bench_switch
from ina.bench.veth import VethBench, bench_veth
from ina.cli import options
from ina.cli.command import Declared, Listing, Reply, Result, count, rate, seconds

PIPELINE_ROUNDS = 9
SWITCH_ROUNDS = 5
VETH_ROUNDS = 3


def pipeline(
    program: options.Program = "exclusive",
    lanes: options.Lanes = 256,
    workers: Annotated[
        int,
        Declared(
            *options.WORKERS, min=1, max=32, help="Set the number of workers that contribute to each sum."
        ),
    ] = 4,
    duration: Annotated[
        float, Declared(min=0.01, metavar="SECONDS", help="Measure for this long, in seconds.")
    ] = 3.0,
) -> Reply:
    """Measure aggregation by the compiled program: packets in memory, on one core.

    Examples:
        ina bench pipeline --lanes 256

        ina bench pipeline --program shared --lanes 256 --json
    """
    path, defines = source_of(program, lanes)
    compiled = softswitch.compile_file(path, defines=defines)
    measured = bench_pipeline(
        compiled,
        contributors=workers,
        round_s=duration / PIPELINE_ROUNDS,
        rounds=PIPELINE_ROUNDS,
    )
    setup = {
        "program": program,
        "lanes": measured.lanes,
        "jobs": measured.jobs,
        "workers": workers,
        "slots": measured.region_slots,
        "compiler": measured.compiler,
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
    return Reply(Result("bench pipeline", setup, numbers), _pipeline_parts(measured, setup))


def _pipeline_parts(measured: PipelineBench, setup: Mapping[str, object]) -> Iterator[Listing | str]:
    by_hand_ns = measured.by_hand_ns_per_packet
    rates = [
        ("additions and copies alone, best round", 1e9 / measured.bare_ns_per_packet),
        *([("handwritten program in C, best round", 1e9 / by_hand_ns)] if by_hand_ns else []),
        ("compiled, best round", measured.packets_per_s),
        ("compiled, median", measured.median_packets_per_s),
        ("interpreter", measured.interpreter_packets_per_s),
    ]
    contributors = f"{measured.jobs} x {setup['workers']} contributors"
    yield Listing(
        f"{setup['program']}, {measured.lanes} lanes, {contributors}, in memory",
        ["", "packets/s", "per packet"],
        [(name, count(value), seconds(1 / value)) for name, value in rates],
    )
    if measured.collided_share:
        yield (
            f"completed in a slot: {measured.completed_share:.1%} of the sums; collided: "
            f"{measured.collided_share:.1%}, evicted: {measured.evicted_share:.1%} of the packets"
        )
    yield (f"compiler: {setup['compiler']}")


def _beside_by_hand(measured: PipelineBench) -> dict[str, float]:
    if measured.by_hand_ns_per_packet is None:
        return {}
    return {
        "by_hand_packet_time_s": measured.by_hand_ns_per_packet * 1e-9,
        "share_of_by_hand": measured.by_hand_ns_per_packet / measured.ns_per_packet,
    }


def switch(
    exact: Annotated[int, Declared(min=1, help="Fill the exact table with this many entries.")] = 100_000,
    lpm: Annotated[
        int, Declared(min=1, help="Fill the longest-prefix table with this many prefixes.")
    ] = 100_000,
    ternary: Annotated[int, Declared(min=1, help="Fill the ternary table with this many entries.")] = 10_000,
    duration: Annotated[
        float, Declared(min=0.01, metavar="SECONDS", help="Measure each case for this long, in seconds.")
    ] = 0.5,
    veth: Annotated[
        bool,
        Declared("--veth", help="Measure the switch process between veth interfaces, too. Needs root."),
    ] = False,
    baseline: Annotated[
        Literal["bmv2"] | None,
        Declared(help="With --veth: compare with this switch on the same program and frames, alternating."),
    ] = None,
) -> Reply:
    """Measure forwarding by tables of every kind, and table writes over P4Runtime.

    Forwards packets in memory on one core; --veth also forwards between network interfaces.

    Examples:
        ina bench switch

        ina bench switch --exact 1000000 --json

        ina bench switch --veth --baseline bmv2
    """
    through: VethBench | None = None
    if veth or baseline:  # first, because a requirement may be missing
        through = bench_veth(baseline=baseline is not None, round_s=duration, rounds=VETH_ROUNDS)
    measured = bench_switch(
        exact=exact, lpm=lpm, ternary=ternary, round_s=duration / SWITCH_ROUNDS, rounds=SWITCH_ROUNDS
    )
    parts = [*_switch_parts(measured), *([] if through is None else _veth_parts(through))]
    setup = {"exact": exact, "lpm": lpm, "ternary": ternary}
    return Reply(Result("bench switch", setup, _switch_numbers(measured) | _veth_numbers(through)), parts)


def _switch_numbers(measured: SwitchBench) -> dict[str, object]:
    return {
        "cases": [
            {
                "name": case.name,
                "entries": case.entries,
                "packet_time_s": case.ns_per_packet * 1e-9,
                "one_by_one_packet_time_s": case.one_by_one_ns_per_packet * 1e-9,
            }
            for case in measured.cases
        ],
        "writes_per_s": measured.writes_per_s,
    }


def _veth_numbers(found: VethBench | None) -> dict[str, object]:
    if found is None:
        return {}
    cases = [
        {
            "switch": case.switch,
            "name": case.name,
            "packets_per_s": case.frames_per_s,
            "rate_bps": case.bits_per_s,
            "lost_packets": case.lost,
            "switch_cpu_time_s": case.ns_per_frame * 1e-9,
        }
        for case in found.cases
    ]
    return {
        "veth": cases,
        "times_bmv2": found.times_baseline(lambda case: case.frames_per_s),
        "times_bmv2_by_cpu_time": found.times_baseline(lambda case: 1 / (case.ns_per_frame or inf)),
    }


def _switch_parts(measured: SwitchBench) -> Iterator[Listing | str]:
    yield Listing(
        "forwarding in memory on one core, parser to deparser",
        ["", "entries", "packets/s", "per packet", "without fetching ahead"],
        [
            (
                case.name,
                f"{case.entries:,}",
                count(1e9 / case.ns_per_packet),
                seconds(case.ns_per_packet * 1e-9),
                f"{case.one_by_one_ns_per_packet / case.ns_per_packet:.2f} times",
            )
            for case in measured.cases
        ],
    )
    yield (
        f"table writes over P4Runtime: {count(measured.writes_per_s)}/s of processor time, client included"
    )


def _veth_parts(found: VethBench) -> Iterator[Listing | str]:
    yield Listing(
        f"between veth interfaces, median of {VETH_ROUNDS} rounds",
        ["", "switch", "packets/s", "rate", "processor time of the switch", "lost"],
        [
            (
                case.name,
                case.switch,
                count(case.frames_per_s),
                rate(case.bits_per_s),
                seconds(case.ns_per_frame * 1e-9),
                count(case.lost),
            )
            for case in found.cases
        ],
    )
    by_time = found.times_baseline(lambda case: 1 / (case.ns_per_frame or inf))
    for name, times in found.times_baseline(lambda case: case.frames_per_s).items():
        text = f"{name}: {times:.1f} times BMv2's packets/s, 1/{by_time[name]:.1f} of BMv2's processor time"
        yield text
