"""Reconciling while jobs run: every sum is right, and jobs go on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest

from bmv2_topos.testbeds.virtual import Reallocation, RunningJob, VirtualTestbed, build
from controller import Fleet, Region
from controller.switches import names
from controller.switches.jobs import TABLES
from controller.switches.target import TableEntry
from tests import effort
from tests.bmv2_topos.beds import SMALL, check_exact, job

PERIOD_S = 0.0002
HALVES = Region(0, 128), Region(128, 128)


def two_jobs(allocation: Reallocation | None = None, **changes: object) -> VirtualTestbed:
    """Return a testbed with two jobs on two racks."""
    jobs = [job(name, **changes) for name in "ab"]
    topology, placements = build(jobs, (2, 2), servers=True)
    return VirtualTestbed(topology, jobs, placements, SMALL, allocation=allocation)


def test_running_jobs_change_places_without_a_slot_of_both_and_without_being_taken_off() -> None:
    verbs: Counter[str] = Counter()
    apart = [False]

    def swap(time_s: float, there: Mapping[str, RunningJob]) -> Mapping[str, Region]:
        regions = HALVES if len(moved) % 2 == 0 else HALVES[::-1]
        running = [of.admitted for of in there.values() if of.admitted]
        desired = [
            of.at(dict.fromkeys(of.switches, region)) for of, region in zip(running, regions, strict=False)
        ]
        fleet = Fleet(bed.fleet.controllers)  # the testbed's own moves each job as if it were alone
        verbs.update(action.verb for action in fleet.reconcile(desired).actions)
        current = [bed.fleet.read()[of.job] for of in running]
        for name in bed.fleet.controllers:
            held = [
                {
                    slot
                    for region in (on.region, *([on.change.region] if on.change else ()))
                    for slot in range(region.offset, region.end)
                }
                for on in (tree.switches[name] for tree in current)
            ]
            assert not (apart[0] and len(held) == 2 and held[0] & held[1])
        arrived = [
            all(on.region == region and on.change is None for on in tree.switches.values() if not on.transit)
            for tree, region in zip(current, regions, strict=False)
        ]
        if len(arrived) == 2 and all(arrived):
            apart[0] = True
            moved.append(time_s)
        return {}

    moved: list[float] = []
    bed = two_jobs(Reallocation(swap, PERIOD_S), iterations=45, window=16)
    check_exact(bed.run(), (of.entry for of in bed.jobs.values()))
    assert len(moved) >= 2, "they have come to their halves, and have changed places"
    assert verbs["move"] >= 12
    assert set(verbs) <= {"move", "settle"}


@pytest.mark.parametrize("seed", effort.some(range(4), every=2))
def test_rows_that_running_jobs_lost_are_written_again_and_no_others(seed: int) -> None:
    bed = two_jobs(iterations=30)
    generator = random.Random(seed)
    repaired: Counter[str] = Counter()
    times: list[float] = []

    def damage(time_s: float, done: int, of: int) -> None:
        desired = [running.admitted for running in bed.jobs.values() if running.admitted]
        report = bed.fleet.reconcile(desired)
        repaired.update(action.verb for action in report.actions)
        assert report.done
        assert bed.fleet.reconcile(desired).actions == ()
        times.append(time_s)
        if done < 0.8 * of and len(times) % 2:
            name = generator.choice(list(bed.fleet.targets))
            rows = bed.fleet.targets[name].read(TABLES)
            bed.fleet.targets[name].write("DELETE", generator.sample(rows, len(rows) // 3))

    check_exact(bed.run(damage), (of.entry for of in bed.jobs.values()))
    assert repaired["repair"] + repaired["add"] >= 3
    assert set(repaired) <= {"repair", "add"}


@pytest.mark.parametrize("seed", effort.some(range(4), every=2))
def test_jobs_that_share_slots_go_on_after_switches_forgot_all_of_them(seed: int) -> None:
    """Tables, groups, slots and counters are gone, as if the switch had been restarted, for a while."""
    bed = two_jobs(iterations=30)
    generator = random.Random(seed)
    added: Counter[str] = Counter()
    times: list[float] = []

    def forget(time_s: float, done: int, of: int) -> None:
        times.append(time_s)
        if len(times) % 3 == 0:
            desired = [running.admitted for running in bed.jobs.values() if running.admitted]
            report = bed.fleet.reconcile(desired, may_remove=lambda job: False)
            assert report.done
            added.update(action.verb for action in report.actions)
        elif len(times) % 3 == 1 and done < 0.8 * of:
            lose_all(bed, generator.choice(list(bed.fleet.targets)))

    check_exact(bed.run(forget), (of.entry for of in bed.jobs.values()))
    assert set(added) == {"add"}
    assert added["add"] >= 3


def lose_all(bed: VirtualTestbed, name: str) -> None:
    target, pipeline = bed.fleet.targets[name], bed.fabric.pipelines[name]
    rows = target.read([*TABLES, names.CHANGE])
    target.write("DELETE", [row for row in rows if isinstance(row, TableEntry) or row.id <= len(bed.jobs)])
    for register, of in pipeline.program.registers.items():
        for index in range(min(of.size, SMALL.slots or of.size)):
            pipeline.write_register(register, index, 0)
