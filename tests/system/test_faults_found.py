"""The soak finds defects: with one in a program or a core, an invariant breaks before long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from statistics import quantiles
from typing import Any

import numpy as np
import pytest

from bmv2_topos.soak.campaign import SwitchPools, soak_seeds
from bmv2_topos.soak.draw import draw_testbed
from bmv2_topos.soak.recovery import LONGEST_TIMEOUT_S
from bmv2_topos.soak.run import Tally
from bmv2_topos.soak.schedule import TESTBED_SEEDS
from bmv2_topos.soak.testbed import SwitchPool
from bmv2_topos.testbeds.virtual.settings import COMPILED, Cores
from controller import Mode
from hostlib import wire
from hostlib.core.state import NEVER, Chain, CoreState
from hostlib.core.state import Counter as Count
from hostlib.core.window import Window
from tests import effort
from tests.system.faults_mutants import FIRST_TESTBED, PROGRAMS, ProgramMutant
from tests.twins import TWINS, fallback_intake, fallback_packets
from tests.twins import kernel as twin_kernel
from tests.twins.fallback_core import NumpyCore
from tests.twins.fallback_intake import Intake
from tests.twins.fallback_store import Job
from tests.twins.kernel import NumpyKernel

MOST = 2048
"""Schedules within which an invariant has to break."""
SOME = 96
"""Schedules within which every outcome that a defect may hide turns up."""
USUAL_SHARE = 0.2
"""Of what recoveries may take: what nine in ten take at most. Measured: 0.11, and 0.6 with slow repairs."""
LONGEST_TIMEOUT_NS = round(LONGEST_TIMEOUT_S * 1e9)


def usual_share(tally: Tally) -> float:
    """Return the share of its time that nine in ten recoveries took at most, of what was under way before.

    One that needs the whole time has met with bad luck; when many do, all are repaired too slowly.
    """
    return quantiles([each.share for each in tally.recoveries if not each.begun_in_calm], n=10)[-1]


def run(
    program: Mode, racks: SwitchPools, most: int, cores: Cores = COMPILED, first_testbed: int = FIRST_TESTBED
) -> Tally:
    """Run schedules of a program until one fails or there have been so many."""
    tally = Tally()
    number = first_testbed
    while tally.schedules < most and not tally.failures:
        testbed = draw_testbed(number)
        if testbed.program == program:
            first = number * TESTBED_SEEDS
            tally.add(soak_seeds(first, first + TESTBED_SEEDS - 1, racks, testbed=testbed, cores=cores))
        number += 1
    return tally


@pytest.fixture
def racks() -> Iterator[SwitchPools]:
    with closing(SwitchPools()) as racks:
        yield racks


@pytest.mark.slow
@pytest.mark.parametrize("program", ["shared", "exclusive"])
def test_without_a_defect_nothing_is_found(program: Mode, racks: SwitchPools) -> None:
    tally = run(program, racks, SOME)
    assert not tally.failures, tally.failures[0]
    assert 0 < usual_share(tally) <= USUAL_SHARE
    for mutant in PROGRAMS.values():
        if mutant.hides and mutant.program == program:
            assert tally.counts[f"switch: {mutant.hides}"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant", [pytest.param(PROGRAMS[name], id=name) for name in effort.some(PROGRAMS, every=4)]
)
def test_a_defect_of_a_program_is_found(mutant: ProgramMutant, racks: SwitchPools) -> None:
    racks.replace(mutant.program, SwitchPool(mutant.compile()))
    tally = run(mutant.program, racks, SOME if mutant.hides else MOST, first_testbed=mutant.found_on)
    hidden = mutant.hides and tally.counts[f"switch: {mutant.hides}"] == 0
    assert hidden or tally.failures, f"not found in {tally.schedules} schedules"


# ------------------------------------------------------------------ cores


def takes_overflown_results(monkeypatch: pytest.MonkeyPatch) -> None:
    take = twin_kernel._take_packet

    def careless(state: CoreState, header: Any, *rest: Any) -> int:
        return take(state, header._replace(flags=header.flags & ~wire.FLAG_OVERFLOW), *rest)

    monkeypatch.setattr(twin_kernel, "_take_packet", careless)


def takes_late_results(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = twin_kernel._refusal

    def careless(state: CoreState, header: Any, lane_bytes: int, chain: int) -> Count | None:
        reason = refusal(state, header, lane_bytes, chain)
        in_flight = state.status[chain] & Chain.FLIGHT
        return None if reason is Count.STALE and in_flight else reason

    monkeypatch.setattr(twin_kernel, "_refusal", careless)


def never_sends_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumpyKernel, "next_timeout", lambda self, state: NEVER)


def ignores_reminders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin_kernel, "_take_reminder", lambda *_: None)


def answers_with_another_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    take = twin_kernel._take_reminder

    def careless(state: CoreState, header: Any, chain: int, now: int) -> None:
        if state.kept[chain]:
            answer = state.answers[chain, state.struct.prefix :][: wire.INA_BYTES].view(wire.HEADER_DTYPE)
            answer["psn"] = header.psn
        take(state, header, chain, now)

    monkeypatch.setattr(twin_kernel, "_take_reminder", careless)


def scales_by_its_own_exponent(monkeypatch: pytest.MonkeyPatch) -> None:
    take = twin_kernel._take_result

    def careless(state: CoreState, header: Any, *rest: Any) -> int:
        own = max(0, header.exponent - 1)
        return take(state, header._replace(exponent=own), *rest)

    monkeypatch.setattr(twin_kernel, "_take_result", careless)


def adds_what_overlaps(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Intake._take_sum

    def careless(self: Intake, job: Job, entry: Any, header: Any, lanes: Any, now: int) -> None:
        piece = entry.pieces.get(job.node_index[header.node])
        if piece is not None and piece.bitmap & header.bitmap:
            fallback_packets.add(entry, piece, fallback_packets.swapped(lanes))
        take(self, job, entry, header, lanes, now)

    monkeypatch.setattr(Intake, "_take_sum", careless)


def reminds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NumpyCore, "next_timeout", lambda self: NEVER)
    monkeypatch.setattr(NumpyCore, "_remind", lambda self, out, size, room, now: 0)


def sends_no_result_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Intake, "_reply", lambda self, job, entry, now: None)


def keeps_sums_below_a_whole_subtree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Job, "covered", lambda self, entry, index: False)
    monkeypatch.setattr(Intake, "_drop_below", lambda self, job, entry, index, bitmap: None)


def repairs_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = fallback_packets.raw_sum

    def rough(ordered: list[Any], *, is_int: bool) -> Any:
        if is_int:
            return exact(ordered, is_int=True)
        with np.errstate(all="ignore"):
            return np.sum([lanes.view(np.float32) for lanes in ordered], axis=0, dtype=np.float32).view(
                np.int32
            )

    monkeypatch.setattr(fallback_intake, "raw_sum", rough)


def wraps_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(entry: Any, piece: Any, lanes: Any) -> None:
        piece.lanes += lanes

    monkeypatch.setattr(fallback_intake, "add", add)


CORES = [
    takes_overflown_results,
    takes_late_results,
    never_sends_again,
    answers_with_another_packet,
    scales_by_its_own_exponent,
    adds_what_overlaps,
    reminds_nobody,
    sends_no_result_twice,
    keeps_sums_below_a_whole_subtree,
    repairs_in_single_precision,
    wraps_silently,
    ignores_reminders,
]

FOUND_ON = {keeps_sums_below_a_whole_subtree: 1014}
"""The first testbed on which it is found, if it is not one of the very first."""

# ------------------------------------------------------------------ slow repairs


def reminds_as_rarely_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Job, "delay", lambda self, level: LONGEST_TIMEOUT_NS)


def sends_again_as_late_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    on_timeout = Window.on_timeout

    def late(self: Window, now: int) -> None:
        self.state.struct.rto = LONGEST_TIMEOUT_NS
        on_timeout(self, now)

    monkeypatch.setattr(Window, "on_timeout", late)


SLOW = [reminds_as_rarely_as_it_may, sends_again_as_late_as_it_may]


@pytest.mark.slow
@pytest.mark.parametrize("change", effort.some(CORES, every=4))
def test_a_defect_of_a_core_is_found(
    change: Callable[[pytest.MonkeyPatch], None], racks: SwitchPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(monkeypatch)
    tally = run("shared", racks, MOST, TWINS, FOUND_ON.get(change, FIRST_TESTBED))
    assert tally.failures, f"not found in {tally.schedules} schedules"


@pytest.mark.slow
@pytest.mark.parametrize("change", effort.some(SLOW, every=2))
def test_slow_repairs_are_found(
    change: Callable[[pytest.MonkeyPatch], None], racks: SwitchPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(monkeypatch)
    tally = run("shared", racks, SOME, TWINS)
    too_slow = any(failure.reason.startswith("TooSlow") for failure in tally.failures)
    assert too_slow or usual_share(tally) > USUAL_SHARE
