"""Switches at rest are looked at by a few rows, and jobs' counters are read in one request to a switch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from controller import Deployment, Fleet, Region, SwitchSession, TreeAdmission, Uplink
from controller.errors import NoSuchJob, Unreachable
from controller.switches import forwarding
from controller.switches.jobs import job_row
from controller.switches.target import Entry, Kind, Revision
from tests.controller.fabric import Fabric
from tests.controller.failing import Recording
from tests.controller.trees import TREES

FALLBACK = Uplink(39, "02:00:00:00:fb:01", "10.0.255.2", 4000)


@pytest.fixture
def targets(shared_fabric: Fabric) -> dict[str, Recording]:
    """What the fleet asks of the switches."""
    return {name: Recording(each.target()) for name, each in shared_fabric.running.items()}


@pytest.fixture
def fleet(targets: Mapping[str, Recording]) -> Fleet:
    return Fleet({name: SwitchSession(target) for name, target in targets.items()})


@pytest.fixture
def admission(fleet: Fleet, targets: Mapping[str, Recording]) -> Iterator[TreeAdmission]:
    """The only job of the fleet, which has found nothing to do."""
    admission = fleet.admit(Deployment(TREES["three levels"], 8, mode="shared", fallback=FALLBACK))
    assert not fleet.seems_reconciled([admission]), "nobody has compared them"
    assert not fleet.reconcile([admission]).actions
    for target in targets.values():
        target.reads = target.entries = 0
    yield admission
    fleet.remove(admission)


def counter_requests(targets: Mapping[str, Recording]) -> list[str]:
    """Return a list that grows by a switch's name with each request for its counters."""
    asked: list[str] = []
    for name, target in targets.items():
        inner = target.target.read_counter

        def counted(counter: str, cells: Sequence[int], name: str = name, inner: Any = inner) -> list[int]:
            asked.append(name)
            found: list[int] = inner(counter, cells)
            return found

        target.read_counter = counted
    return asked


def test_one_row_of_each_switch_shows_that_all_is_at_rest(
    fleet: Fleet, admission: TreeAdmission, targets: Mapping[str, Recording]
) -> None:
    assert fleet.seems_reconciled([admission])
    asked = {name: (target.reads, target.entries) for name, target in targets.items()}
    assert asked == {name: (1, 1) if name in admission.switches else (0, 0) for name in targets}


def test_a_comparison_that_finds_nothing_to_do_takes_no_turn(
    fleet: Fleet, admission: TreeAdmission, targets: Mapping[str, Recording]
) -> None:
    before = {name: target.turns for name, target in targets.items()}
    assert not fleet.reconcile([admission]).actions
    assert {name: target.turns for name, target in targets.items()} == before


def test_what_a_fleet_admits_and_removes_itself_leaves_switches_at_rest(
    fleet: Fleet, admission: TreeAdmission, targets: Mapping[str, Recording]
) -> None:
    second = fleet.admit(Deployment(TREES["two racks"], 8, mode="shared", fallback=FALLBACK))
    for target in targets.values():
        target.reads = target.entries = 0
    assert fleet.seems_reconciled([admission, second])
    assert max(target.entries for target in targets.values()) == 1
    assert not fleet.seems_reconciled([admission])
    fleet.remove(second)
    assert fleet.seems_reconciled([admission])
    assert not fleet.seems_reconciled([admission, second])
    elsewhere = admission.at(dict.fromkeys(admission.switches, Region(8, 8)))
    assert not fleet.seems_reconciled([elsewhere])
    fleet.reconcile([elsewhere])
    assert not fleet.seems_reconciled([elsewhere]), "it moves"


def test_no_job_is_admitted_in_place_of_one_that_switches_have_lost(
    fleet: Fleet, admission: TreeAdmission
) -> None:
    """Found by a soak: both had one counter row, and nothing was compared any more until one had ended."""
    Fleet(fleet.controllers).remove(admission)  # as another program does
    second = fleet.admit(Deployment(TREES["two racks"], 8, mode="shared", fallback=FALLBACK))
    assert fleet.reconcile([admission, second]).actions
    assert not fleet.reconcile([admission, second]).actions
    fleet.remove(second)


def test_a_removal_that_fails_or_finds_nothing_leaves_switches_to_be_compared(
    fleet: Fleet, admission: TreeAdmission, targets: Mapping[str, Recording]
) -> None:
    """Nothing was written: what is there is not known."""
    second = fleet.admit(Deployment(TREES["two racks"], 8, mode="shared", fallback=FALLBACK))
    for name in second.switches:
        targets[name].before_turn = Mock(side_effect=[Unreachable("not now")] + [None] * 99)
    with pytest.raises(Unreachable):
        fleet.remove(second)
    assert not fleet.seems_reconciled([admission])
    assert {action.verb for action in fleet.reconcile([admission]).actions} == {"remove"}
    assert not fleet.reconcile([admission]).actions
    with pytest.raises(NoSuchJob):
        fleet.remove(second)
    assert not fleet.seems_reconciled([admission])


def test_another_desired_job_and_one_that_a_switch_has_lost_are_noticed(
    fleet: Fleet, admission: TreeAdmission, targets: Mapping[str, Recording]
) -> None:
    assert not fleet.seems_reconciled([])
    lost = list(admission.switches)[-1]
    with targets[lost].turn(timeout_s=10):
        targets[lost].write("DELETE", [job_row(admission.switches[lost])])
    assert not fleet.seems_reconciled([admission])
    assert {action.switch for action in fleet.reconcile([admission]).actions} == {lost}


def test_counters_of_many_jobs_take_one_request_to_a_switch(
    fleet: Fleet, admission: TreeAdmission, targets: Mapping[str, Recording]
) -> None:
    requests = counter_requests(targets)
    found = fleet.counters_of({"first": admission, "again": admission})
    assert sorted(requests) == sorted(admission.switches)
    assert all(target.reads == 0 for target in targets.values()), "no rows"
    assert found["first"] == found["again"] == fleet.counters(admission)


def told(fabric: Fabric, writes: int = 0, booted_ns: int = 1) -> dict[str, Revision]:
    """Return what switches tell that have been written to so often."""
    return dict.fromkeys(fabric.running, Revision(booted_ns, writes))


def test_switches_that_tell_that_they_have_not_changed_are_not_read(
    fleet: Fleet, admission: TreeAdmission, targets: Mapping[str, Recording], shared_fabric: Fabric
) -> None:
    assert not fleet.seems_reconciled([admission], told(shared_fabric)), "they had told nothing before"
    assert not fleet.reconcile([admission], revisions=told(shared_fabric)).actions
    for target in targets.values():
        target.reads = 0
    assert fleet.seems_reconciled([admission], told(shared_fabric))
    assert not fleet.seems_reconciled([admission], told(shared_fabric, writes=1)), "somebody has written"
    assert not fleet.seems_reconciled([admission], told(shared_fabric, booted_ns=2))
    assert fleet.reconcile([admission], revisions=told(shared_fabric)).done
    assert {name: target.reads for name, target in targets.items()} == dict.fromkeys(targets, 0)
    written = next(iter(admission.switches))
    some = told(shared_fabric) | {written: Revision(1, 1)}
    assert fleet.reconcile([admission], revisions=some).done
    assert {name for name, target in targets.items() if target.reads} == {written}


def test_what_somebody_else_writes_is_put_right_at_the_next_comparison(
    fleet: Fleet, admission: TreeAdmission, targets: Mapping[str, Recording], shared_fabric: Fabric
) -> None:
    fleet.reconcile([admission], revisions=told(shared_fabric))
    lost = list(admission.switches)[-1]
    with targets[lost].turn(timeout_s=10):
        targets[lost].write("DELETE", [job_row(admission.switches[lost])])
    report = fleet.reconcile([admission], revisions=told(shared_fabric) | {lost: Revision(1, 1)})
    assert {action.switch for action in report.actions} == {lost}
    again = fleet.reconcile([admission], revisions=told(shared_fabric) | {lost: Revision(1, 3)})
    assert not again.actions


def test_a_move_ends_although_no_entry_tells_when_it_is_over(
    fleet: Fleet, admission: TreeAdmission, targets: Mapping[str, Recording], shared_fabric: Fabric
) -> None:
    fleet.reconcile([admission.at(dict.fromkeys(admission.switches, Region(8, 8)))])
    moving = fleet.read()[admission.job]
    fleet.reconcile([moving], revisions=told(shared_fabric, writes=5))
    for target in targets.values():
        target.reads = 0
    fleet.reconcile([moving], revisions=told(shared_fabric, writes=5))
    read = {name for name, target in targets.items() if target.reads}
    assert read >= {name for name, on in moving.switches.items() if on.change is not None}


def test_counters_of_switches_that_have_received_nothing_are_not_read_again(
    fleet: Fleet, admission: TreeAdmission, targets: Mapping[str, Recording]
) -> None:
    asked = counter_requests(targets)
    received = dict.fromkeys(targets, (1, 100))
    first = fleet.counters_of({"job": admission}, received=received)
    assert sorted(asked) == sorted(admission.switches)
    asked.clear()
    assert fleet.counters_of({"job": admission}, received=received) == first
    assert asked == []
    one = next(iter(admission.switches))
    fleet.counters_of({"job": admission}, received=received | {one: (1, 101)})
    assert asked == [one]
    fleet.counters_of({"job": admission}, received={})
    assert sorted(asked) == sorted([one, *admission.switches]), "those that tell nothing are read"


def test_rows_of_ordinary_traffic_are_written_together_whoever_else_writes(shared_fabric: Fabric) -> None:
    name = next(iter(shared_fabric.running))
    target = Recording(shared_fabric.running[name].target())
    controller = SwitchSession(target)
    rows = [forwarding.bridge(f"02:00:00:00:77:{number:02x}", 1) for number in range(4)]
    requests: list[int] = []
    write = target.target.write

    def counted(kind: Kind, entries: Sequence[Entry]) -> None:
        requests.append(len(entries))
        write(kind, entries)

    target.target.write = counted  # type: ignore[method-assign]
    assert controller.update_entries(rows) == 4
    assert requests == [4]
    assert controller.update_entries(rows) == 0
    moved = [forwarding.bridge(f"02:00:00:00:77:{number:02x}", 2) for number in range(6)]

    def somebody_writes() -> None:
        target.before_turn = lambda: None
        with SwitchSession(shared_fabric.running[name].target()) as other:
            other.install([moved[5]])

    target.before_turn = somebody_writes
    assert controller.update_entries(moved) == 6, "one of them was there by then"
    assert controller.update_entries(moved) == 0
    controller.uninstall(moved)
