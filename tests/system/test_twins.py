"""Whole schedules with the compiled cores and with their twins: the same packets at the same times."""

from __future__ import annotations

from contextlib import closing
from itertools import count, islice

import pytest

from bmv2_topos.soak.draw import draw_schedule, draw_testbed
from bmv2_topos.soak.run import run_schedule
from bmv2_topos.soak.schedule import TESTBED_SEEDS, SoakSchedule
from bmv2_topos.soak.testbed import RunningTestbed, SwitchPool
from bmv2_topos.testbeds.virtual.settings import COMPILED, Cores
from controller.vocabulary import Mode
from tests.twins import TWINS

BEDS = 8
SCHEDULES = 4
"""On each testbed."""

Packet = tuple[int, str, str, bytes, str]


def packets(schedule: SoakSchedule, built: RunningTestbed, cores: Cores) -> list[Packet]:
    """Return all packets of a schedule: when, from, to, bytes, what became of it."""
    seen: list[Packet] = []

    def note(now: int, source: str, to: str, frame: bytes, fate: str) -> None:
        seen.append((now, source, to, frame, fate))

    run_schedule(schedule, built, note, cores=cores)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("program", ["shared", "exclusive"])
def test_the_cores_and_their_twins_send_the_same_packets_at_the_same_times(program: Mode) -> None:
    testbeds = (testbed for testbed in map(draw_testbed, count(2000)) if testbed.program == program)
    with closing(SwitchPool.for_program(program)) as rack:
        for testbed in islice(testbeds, BEDS):
            with RunningTestbed(testbed, rack) as built:
                for seed in range(testbed.number * TESTBED_SEEDS, testbed.number * TESTBED_SEEDS + SCHEDULES):
                    schedule = draw_schedule(seed, testbed)
                    sent = packets(schedule, built, COMPILED)
                    assert sent
                    assert packets(schedule, built, TWINS) == sent, f"seed {seed}"
