"""Rows of a switch are not read again by a controller that has had all turns since it knew them."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pytest

from controller import ControllerError, Part, Region, SwitchSession, Uplink
from controller.switches import names
from controller.switches.jobs import TABLES, Row, RowCache, key_of
from controller.switches.target import TableEntry
from tests.controller import single
from tests.controller.conftest import over_p4runtime
from tests.controller.fabric import Fabric
from tests.controller.failing import Failing, Fault, Recording


def job(first_port: int) -> Part:
    fallback = Uplink(first_port + 20, "02:00:00:00:fb:01", "10.0.1.1", 4000)
    return Part(single.members(first_port), 8, mode="shared", fallback=fallback)


def row(job: int, value: int = 0) -> TableEntry:
    return TableEntry(names.JOB, {names.JOB_KEY: job}, names.SET_JOB, {"offset": value})


def test_rows_are_known_within_turns_that_follow_each_other() -> None:
    held = RowCache(TABLES)
    held.begin(undisturbed=False)
    assert held.rows() is None, "nobody has read them"
    held.store([row(1)])
    held.apply("INSERT", [row(2)])
    held.apply("MODIFY", [row(1, value=7), replace(row(3), table="another")])
    assert held.rows() == [row(1, value=7), row(2)]
    held.end()
    assert held.rows() is None, "others may be writing"
    held.begin(undisturbed=True)
    held.apply("DELETE", [row(1)])
    assert held.rows() == [row(2)]
    held.end()
    held.begin(undisturbed=False)
    assert held.rows() is None, "others have had a turn"


def test_after_a_write_that_failed_only_a_later_turn_knows_what_there_is() -> None:
    held = RowCache(TABLES)
    held.begin(undisturbed=False)
    held.store([row(1)])
    held.invalidate()
    held.store([row(1)])
    assert held.rows() is None, "the write may still be carried out"
    held.end()
    held.begin(undisturbed=True)
    assert held.rows() is None
    held.store([row(1)])
    assert held.rows() == [row(1)]


@over_p4runtime
def test_a_controller_that_is_alone_reads_the_rows_once(shared_fabric: Fabric) -> None:
    target = Recording(shared_fabric.running["root"].target())
    with SwitchSession(target) as controller:
        first = single.admit(controller, job(0))
        target.reads = 0
        second = single.admit(controller, job(2))
        assert target.reads == 0
        with SwitchSession(shared_fabric.running["root"].target()) as other:
            third = single.admit(other, job(4))
        assert third.counter_row not in (first.counter_row, second.counter_row)
        fourth = single.admit(controller, job(6))
        assert target.reads == 1, "another one has had a turn"
        assert fourth.counter_row not in {each.counter_row for each in (first, second, third)}
        for each in (first, second, third, fourth):
            single.remove(controller, each)
        assert target.reads == 1


@over_p4runtime
@pytest.mark.parametrize("seed", range(3))
def test_what_a_controller_knows_is_what_there_is(shared_fabric: Fabric, seed: int) -> None:
    """Two controllers admit, move and remove jobs; some of their writes fail, with and without effect."""
    rng = random.Random(seed)
    running = shared_fabric.running["root"]
    fault = Fault("refused", left=1 << 30)
    known = turns = done = 0
    with (
        SwitchSession(Failing(running.target(), fault)) as one,
        SwitchSession(Failing(running.target(), fault)) as other,
        contextlib.closing(running.target()) as reader,
    ):
        for _ in range(60):
            controller = one if rng.random() < 0.8 else other
            fault.left = rng.randrange(40) if rng.random() < 0.2 else 1 << 30
            fault.how = rng.choice(("refused", "not written", "not answered"))
            present = [*controller.jobs().values()]
            with contextlib.suppress(ControllerError):
                if not present or (len(present) < 6 and rng.random() < 0.5):
                    single.admit(controller, job(2 * rng.randrange(10)))
                elif rng.random() < 0.5:
                    single.move(controller, rng.choice(present), Region(8 * rng.randrange(4), 8))
                else:
                    single.remove(controller, rng.choice(present))
                done += 1
            fault.left = 1 << 30
            with one.turn():
                turns += 1
                rows = one._row_cache.rows()
                if rows is not None:
                    known += 1
                    there = reader.read([*TABLES, names.CHANGE])
                    assert by_key(rows) == by_key(there)
                    assert len(rows) == len(there)
        for left in one.jobs().values():
            single.remove(one, left)
    assert done > 30
    assert 10 < known < turns, "they are known often, and not always"


def by_key(rows: list[Row]) -> dict[object, Row]:
    return {key_of(each): each for each in rows}
