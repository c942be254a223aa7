"""A write that fails, whichever it is: what was written is taken back, or swept up by the next admission."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller import (
    ControllerError,
    Deployment,
    Fleet,
    Member,
    Part,
    Region,
    Registration,
    SwitchSession,
    Uplink,
)
from controller.switches import names
from controller.switches.jobs import TABLES, change_row, job_row, supporting_rows
from controller.switches.planning import Identity
from controller.switches.target import MulticastGroup, TableEntry
from tests.controller import single
from tests.controller.fabric import Fabric
from tests.controller.failing import HOWS, Failing, Fault, How
from tests.controller.trees import TREES


def attempts(fabric: Fabric, target: str, fault: Fault) -> Iterator[dict[str, SwitchSession]]:
    """Yield controllers the first entry of which fails, then the second, and so on until none does.

    Over P4Runtime, which takes longer, only every seventh.
    """
    targets = {name: each.target() for name, each in fabric.running.items()}
    for at in range(0, 1000, 7 if target == "p4runtime" else 1):
        fault.left = at
        yield {name: SwitchSession(Failing(each, fault)) for name, each in targets.items()}
        if fault.left >= 0:
            break
    else:
        pytest.fail("there is always one more write")
    for each in targets.values():
        each.close()


def contents(fabric: Fabric) -> dict[str, list[TableEntry | MulticastGroup]]:
    """Read all that jobs have on the switches that serve any."""
    found = {}
    for name, running in fabric.running.items():
        target = running.target()
        if rows := target.read([*TABLES, names.CHANGE]):
            found[name] = rows
        target.close()
    return found


def job(first_port: int = 0) -> Part:
    fallback = Uplink(first_port + 2, "02:00:00:00:fb:01", "10.0.1.1", 4000)
    return Part(single.members(first_port), 64, mode="shared", fallback=fallback)


def deployment() -> Deployment:
    return Deployment(
        TREES["two racks"], 8, mode="shared", fallback=Uplink(39, "02:00:00:00:fb:01", "10.0.1.1")
    )


@pytest.mark.parametrize("how", HOWS)
def test_whichever_write_of_a_tree_fails_it_is_on_no_switch(
    shared: SwitchSession, shared_fabric: Fabric, target: str, how: How
) -> None:
    other = single.admit(shared, job(10))
    before = contents(shared_fabric)
    failures = 0
    for controllers in attempts(shared_fabric, target, Fault(how)):
        try:
            admission = Fleet(controllers).admit(deployment(), identity=Identity(7, 7))
        except ControllerError:
            failures += 1
        else:  # without a fault, or of counters, which a controller makes do without
            assert shared.jobs() == {other.job: other, admission.job: admission.switches["root"]}
            Fleet(shared_fabric.controllers).remove(admission)
        assert contents(shared_fabric) == before
    writes = sum(len(supporting_rows(on)) + 1 for on in admission.switches.values())
    assert target == "p4runtime" or failures >= writes
    single.remove(shared, other)


def test_what_a_switch_keeps_that_dies_at_any_write_is_swept_up_when_it_is_back(
    shared: SwitchSession, shared_fabric: Fabric, target: str
) -> None:
    """Nobody can take anything back then. No packet is let in, but by a job that is there as a whole."""
    for controllers in attempts(shared_fabric, target, Fault("not answered", for_good=True)):
        with contextlib.suppress(ControllerError):
            single.admit(controllers["root"], job())
        for whole in shared.jobs().values():
            assert len(whole.members) == 2
            single.remove(shared, whole)
        heir = single.admit(shared, job())
        assert heir.counter_row == 1
        assert shared.jobs() == {heir.job: heir}
        single.remove(shared, heir)
        assert contents(shared_fabric) == {}


@pytest.mark.parametrize("how", HOWS)
def test_whichever_write_of_a_move_or_a_removal_fails_the_next_removal_or_admission_leaves_nothing(
    shared: SwitchSession, shared_fabric: Fabric, target: str, how: How
) -> None:
    for controllers in attempts(shared_fabric, target, Fault(how)):
        admission = single.admit(shared, job())
        try:
            moving = single.move(controllers["root"], admission, Region(8, 8))
        except ControllerError:
            moving = shared.jobs()[admission.job]
            assert (moving.change is None) == (how != "not answered")
        try:
            single.remove(controllers["root"], admission)
        except ControllerError:
            if admission.job in shared.jobs():
                assert shared.jobs() == {admission.job: moving}
                single.remove(shared, admission)
            heir = single.admit(shared, job())
            single.remove(shared, heir)
        assert contents(shared_fabric) == {}


def test_rows_of_any_part_of_a_job_go_with_the_next_admission(
    shared: SwitchSession, shared_fabric: Fabric
) -> None:
    admission = single.admit(shared, job())
    moving = single.move(shared, admission, Region(8, 8))
    single.remove(shared, admission)
    assert shared.jobs() == {}
    rows = [*supporting_rows(moving), change_row(moving)]
    target = shared_fabric.running["root"].target()
    for count in range(1, len(rows) + 1):
        for part in (rows[:count], rows[-count:]):
            with target.turn(timeout_s=10):
                target.write("INSERT", part)
            assert shared.jobs() == {}
            heir = single.admit(shared, job())
            there = contents(shared_fabric)["root"]
            assert sorted(map(str, there)) == sorted(map(str, (job_row(heir), *supporting_rows(heir))))
            single.remove(shared, heir)
    target.close()


def test_a_job_of_a_dead_launcher_goes_from_every_switch_of_its_tree(shared_fabric: Fabric) -> None:
    targets = {name: each.target() for name, each in shared_fabric.running.items()}
    now_s = 0.0
    late = {name: SwitchSession(target, ticks_s=lambda: now_s) for name, target in targets.items()}
    fleet, held = Fleet(late), Registration("host pid 7", lease_s=60.0)
    fleet.admit(deployment(), identity=Identity(7, 7), registration=held)
    assert fleet.lease_wait_s() is None, "nobody has looked since"
    for left_s in (60.0, 45.0, 30.0, 15.0):
        assert not any(fleet.sweep().values())
        assert fleet.lease_wait_s() == left_s
        now_s += 15.0
    kept = Fleet(late).admit(replace(deployment(), root=TREES["three levels"]), identity=Identity(8, 8))
    assert [list(controller.jobs()) for controller in late.values()] == [[8]] * 4
    Fleet(late).remove(kept)
    for target in targets.values():
        target.close()


def test_workers_share_a_port_if_the_job_allows_it(shared: SwitchSession) -> None:
    crowd = tuple(replace(m, port=5) for m in job().members)
    apart = Member(2, 6, "02:00:00:00:00:02", "10.0.0.3", 9000)
    admission = single.admit(shared, replace(job(), members=(*crowd, apart), shared_ports=True))
    assert [m.port for m in admission.members] == [5, 5, 6]
    assert shared.jobs() == {admission.job: admission}
    single.remove(shared, admission)
