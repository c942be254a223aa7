"""Reconciling: from whatever is on the switches to what should be there, safely, and then nothing more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller import Admission, BadJob, ProgramBundle, Region, SwitchSession
from controller.switches import names
from controller.switches.jobs import TABLES, Row, job_row, parse
from controller.switches.model import COLUMNS, RegionChange, SwitchInfo, Uplink
from controller.switches.reconcile import Action, Reconciliation, SwitchState, Write, in_few_writes, reconcile
from controller.switches.target import CounterCell, MulticastGroup, TableEntry
from controller.vocabulary import Mode
from tests import effort
from tests.controller.conftest import InMemory, Running, start
from tests.controller.reconciling import (
    LASTS,
    RUNS_OUT,
    SLOTS,
    Case,
    all_rows,
    cases,
    may_remove,
    member,
    shared_slots,
    slots_of,
)

ROUNDS = 30
"""A job that changes places with another one takes four."""


class Switch:
    """One in-memory switch with a compiled program, of which 32 slots are to be given away."""

    def __init__(self, running: Running, mode: Mode) -> None:
        assert isinstance(running, InMemory)
        self.running = running
        self.mode = mode
        self.target = running.target()
        self.controller = SwitchSession(self.target)

    def fill(self, rows: Sequence[Row]) -> None:
        self.running.wipe()
        for write in rows:
            self.target.write("INSERT", [write])

    def observe(self) -> SwitchState:
        observed = self.controller.observe()
        return replace(observed, info=replace(observed.info, slots=SLOTS))

    def decide(self, desired: Sequence[Admission]) -> Reconciliation:
        return reconcile({"s": desired}, {"s": self.observe()}, may_remove=may_remove)

    def apply(self, action: Action) -> None:
        with self.controller.turn():
            for write in action.writes:
                self.controller.apply(write)
            self.controller.record_applied(action)

    def let_moves_end(self) -> None:
        """Count as the program does when the packets of a moving job are past the old region."""
        for job in self.controller.jobs().values():
            if job.change is not None:
                (count,) = self.target.read_counter(names.SETTLED, [job.counter_row])
                cell = CounterCell(names.SETTLED, job.counter_row, (job.change.number + 1) & 0xFFFFFFFF)
                if count != cell.packets:
                    self.target.write("MODIFY", [cell])

    def has_moved(self, job: int) -> bool:
        """Say whether a job's old region is not needed any more."""
        here = self.controller.jobs()[job]
        assert here.change is not None
        return here.change.region == here.region or self.controller.has_moved(here)

    def contents(self) -> Counter[str]:
        moves = [names.CHANGE] if self.mode == "shared" else []
        return Counter(map(text, self.target.read([*TABLES, *moves])))


@pytest.fixture(scope="module", params=["shared", "exclusive"])
def switch(
    request: pytest.FixtureRequest, shared_bundle: ProgramBundle, bundle: ProgramBundle
) -> Iterator[Switch]:
    mode: Mode = request.param
    with closing(start(shared_bundle if mode == "shared" else bundle, "memory")) as running:
        yield Switch(running, mode)


def text(row: Row) -> str:
    if isinstance(row, MulticastGroup):
        return f"group {row.id}: {sorted(row.replicas)}"
    metadata = b"registered" if row.metadata else b""  # a registration that there is stays as it is
    return f"{row.table} {sorted(row.match.items())} {row.action} {sorted(row.params.items())} {metadata!r}"


def key(row: Row) -> object:
    return row.id if isinstance(row, MulticastGroup) else (row.table, tuple(sorted(row.match.items())))


class Watch:
    """Looks at a switch after each write: no slot comes to be held by two jobs that are not to share it."""

    def __init__(self, switch: Switch, case: Case) -> None:
        self.switch = switch
        self.before = shared_slots(switch.controller.jobs())
        self.desired = {job.job: job for job in case.desired}
        self.foreign = {job.job for job in case.foreign}

    def look(self) -> None:
        for pair, slots in shared_slots(self.switch.controller.jobs()).items():
            if self.switch.mode == "shared" and self.foreign & {*pair}:
                continue
            a, b = (self.desired.get(number) for number in pair)
            if a is None or b is None or not slots_of(a) & slots_of(b):
                assert slots <= self.before.get(pair, set()), f"jobs {pair} came to share {slots}"


def needed(action: Action, rows: Sequence[Row]) -> bool:
    """Say whether every write of an action changes something that was read."""
    there = {key(row): row for row in rows}
    for write in action.writes:
        for entry in write.entries:
            if isinstance(entry, CounterCell):
                continue
            present = there.get(key(entry))
            same = present is not None and text(present) == text(entry)
            if (present is None) != (write.kind == "INSERT") or (write.kind == "MODIFY" and same):
                return False
            if write.kind == "DELETE":
                del there[key(entry)]
            else:
                there[key(entry)] = entry
    return True


def keys_of_right_rows(rows: Sequence[Row], case: Case) -> set[object]:
    """Return which rows are there as desired; the job table's change while a job moves."""
    desired = {text(row) for job in case.desired for row in all_rows(job)}
    jobs = {key(row) for row in rows if isinstance(row, TableEntry) and row.table == names.JOB}
    return {key(row) for row in rows if text(row) in desired} - jobs


def bring_about(switch: Switch, case: Case, stop_after: int) -> Reconciliation:
    """Reconcile until nothing is left to do; once, stop in the middle of the writes and begin again."""
    switch.fill(case.rows)
    watch = Watch(switch, case)
    untouched = {number: [text(row) for row in all_rows(job)] for number, job in enumerate(case.foreign)}
    left = stop_after
    for _ in range(ROUNDS):
        decision = switch.decide(case.desired)
        right = keys_of_right_rows(switch.observe().rows, case)
        stopped = False
        for action in decision.actions:
            assert action.why
            written = {key(e) for w in action.writes for e in w.entries if not isinstance(e, CounterCell)}
            assert not written & right, f"{action} writes what is right"
            assert needed(action, switch.observe().rows), f"{action} writes what is there"
            assert action.verb != "settle" or switch.has_moved(action.job), (
                "packets still need the old region"
            )
            for write in action.writes:
                if left == 0:
                    stopped = True
                    break
                switch.apply(replace(action, writes=(write,)))
                watch.look()
                left -= 1
            if stopped:
                break
        left = -1 if stopped else left
        contents = switch.contents()
        for rows in untouched.values():
            assert all(contents[row] for row in rows), "a job of somebody else was touched"
        if stopped:
            continue
        assert switch.decide(case.desired).actions == (), "once carried out there is nothing more to do"
        if not decision.actions and not any(j.change for j in switch.controller.jobs().values()):
            return decision
        switch.let_moves_end()
    raise AssertionError(f"no end: {decision}")


def expected(case: Case) -> Counter[str]:
    return Counter(text(row) for job in (*case.desired, *case.foreign) for row in all_rows(job))


@settings(max_examples=effort.cases(150), deadline=None)
@given(data=st.data(), stop_after=st.integers(-1, 12))
def test_any_contents_of_a_switch_come_to_be_what_is_desired(
    switch: Switch, data: st.DataObject, stop_after: int
) -> None:
    case = data.draw(cases(switch.mode))
    decision = bring_about(switch, case, stop_after)
    assert decision.waiting == ()
    assert switch.contents() == expected(case)


@settings(max_examples=effort.cases(80), deadline=None)
@given(data=st.data(), stop_after=st.integers(-1, 8))
def test_jobs_of_others_stay_and_what_they_are_in_the_way_of_waits(
    switch: Switch, data: st.DataObject, stop_after: int
) -> None:
    case = data.draw(cases(switch.mode, foreign=True))
    decision = bring_about(switch, case, stop_after)
    kept_out = {waiting.job for waiting in decision.waiting}
    others = {other.job for other in case.foreign}
    for waiting in decision.waiting:
        assert (
            any(f"job {number} " in waiting.why for number in others) or "another controller" in waiting.why
        )
    there = switch.controller.jobs()
    assert {*there} == {*others, *(job.job for job in case.desired if job.job not in kept_out)}


# --------------------------------------------------------------------------- cases by name

INFO = SwitchInfo(32, 64, 255, 32, mode="shared")


def shared_job(job: int, region: Region, **more: Any) -> Admission:
    made = Admission(
        job=job,
        counter_row=job,
        region=region,
        generation=100 + job,
        group=job,
        members=tuple(member(job, rank, rank) for rank in range(2)),
        fan_in=2,
        window=8,
        uplink=Uplink(20, "02:00:00:00:fb:01", "10.0.255.2"),
        result_bitmap=3,
        max_age_us=1000,
    )
    return replace(made, **more)


GROUPS = range(1, 256)


def seen(*jobs: Admission, info: SwitchInfo = INFO, settled: Mapping[int, int] | None = None) -> SwitchState:
    rows = [row for job in jobs for row in all_rows(job)]
    return SwitchState(info, rows, parse(rows, job_groups=GROUPS), GROUPS, settled or {})


def said(decision: Reconciliation) -> list[str]:
    return [*map(str, decision.actions), *map(str, decision.waiting)]


LOW, HIGH = Region(0, 32), Region(32, 32)


def test_two_jobs_change_places_by_way_of_an_empty_region() -> None:
    a, b = shared_job(1, LOW), shared_job(2, HIGH)
    desired = {"s": [replace(a, region=HIGH), replace(b, region=LOW)]}
    decision = reconcile(desired, {"s": seen(a, b)})
    assert said(decision) == [
        "move job 1 at 's': it exchanges slots with job 2, and first has no slots",
        "job 2 at 's' waits: job 1 still has some of slots 0 to 31",
    ]
    a = replace(a, change=RegionChange(101 << 32, Region(0, 0)))
    assert said(reconcile(desired, {"s": seen(a, b)})) == [
        "job 1 at 's' waits: it is moving to no slots, and to slots 32 to 63 after that",
        "job 2 at 's' waits: job 1 still has some of slots 0 to 31",
    ]
    assert said(reconcile(desired, {"s": seen(a, b, settled={1: 1})})) == [
        "settle job 1 at 's': no packet needs slots 0 to 31 any more",
        "move job 2 at 's': its slots 32 to 63 should be slots 0 to 31",
        "job 1 at 's' waits: job 2 still has some of slots 32 to 63",
    ]


def test_a_job_moves_beside_another_controllers_job_with_the_id_of_a_desired_one() -> None:
    """It waited for slots that the desired job of that id was not to share."""
    foreign = shared_job(2, HIGH, generation=900, registration=LASTS)
    desired = {"s": [shared_job(1, HIGH), shared_job(2, LOW)]}
    assert said(reconcile(desired, {"s": seen(shared_job(1, LOW), foreign)})) == [
        "move job 1 at 's': its slots 0 to 31 should be slots 32 to 63",
        "job 2 at 's' waits: another controller's job has this id (generation 900)",
    ]


def test_a_job_with_a_lease_goes_only_if_asked_for_or_run_out() -> None:
    leased, dead, free = (
        shared_job(1, LOW, registration=LASTS),
        shared_job(2, LOW, registration=RUNS_OUT),
        shared_job(3, LOW),
    )
    observed = {"s": seen(leased, dead, free)}
    there = reconcile({}, observed, may_remove=may_remove)
    assert [(action.verb, action.job) for action in there.actions] == [("remove", 2), ("remove", 3)]
    asked = reconcile({}, observed, may_remove=lambda job: job.job == 1)
    assert [(action.verb, action.job) for action in asked.actions] == [("remove", 1)]


def test_an_exclusive_job_keeps_its_slots_for_life() -> None:
    info = replace(INFO, mode="exclusive")
    job = shared_job(1, Region(0, 16))
    decision = reconcile({"s": [replace(job, region=Region(16, 16))]}, {"s": seen(job, info=info)})
    assert said(decision) == [
        "job 1 at 's' waits: it has slots 0 to 15, which an exclusive job keeps until it ends; slots 16 to 31"
        " need a new job"
    ]


def test_a_job_is_put_on_everywhere_or_nowhere_parents_first() -> None:
    leaf = shared_job(1, LOW, node=1)
    passing = shared_job(1, Region(0, 0), transit=True)
    desired = {"a": [leaf], "b": [passing], "root": [shared_job(1, LOW)]}
    free = dict.fromkeys(desired, seen())
    added = reconcile(desired, free)
    assert [(action.verb, action.switch) for action in added.actions] == [
        ("add", "root"),
        ("add", "b"),
        ("add", "a"),
    ]
    assert [write.kind for write in added.actions[0].writes] == ["INSERT", "MODIFY", "INSERT"]
    assert added.actions[0].writes[-1].entries == (job_row(shared_job(1, LOW)),)
    taken = seen(shared_job(7, LOW, counter_row=1, registration=LASTS))
    assert said(reconcile(desired, {**free, "b": taken})) == [
        "job 1 at 'a' waits: it cannot be admitted to 'b' yet",
        "job 1 at 'b' waits: job 7 has its counter row, 1",
        "job 1 at 'root' waits: it cannot be admitted to 'b' yet",
    ]


def test_jobs_are_put_on_in_few_requests_parents_first() -> None:
    more: dict[str, Any] = {"generation": 1_000_000, "counter_row": 2, "group": 2}
    desired = {
        "leaf": [shared_job(1, LOW, node=1), shared_job(2, LOW, node=1, **more)],
        "root": [shared_job(1, LOW), shared_job(2, LOW, **more)],
    }
    actions = reconcile(desired, dict.fromkeys(desired, seen())).actions
    supporting, roots, leaves = in_few_writes(actions)
    writes = [*supporting, *roots, *leaves]
    assert [(switch, write.kind, len(write.entries)) for switch, write in writes if supports(write)] == [
        ("root", "INSERT", sum(len(a.writes[0].entries) for a in actions if a.switch == "root")),
        ("root", "MODIFY", 2 * COLUMNS),
        ("leaf", "INSERT", sum(len(a.writes[0].entries) for a in actions if a.switch == "leaf")),
        ("leaf", "MODIFY", 2 * COLUMNS),
    ]
    assert writes[4:] == [
        (switch, Write("INSERT", tuple(map(job_row, desired[switch])))) for switch in ("root", "leaf")
    ], "the jobs' rows come last"
    together = Counter((switch, write.kind, entry) for switch, write in writes for entry in hashable(write))
    each = Counter((a.switch, w.kind, entry) for a in actions for w in a.writes for entry in hashable(w))
    assert together == each


def supports(write: Write) -> bool:
    return not any(isinstance(entry, TableEntry) and entry.table == names.JOB for entry in write.entries)


def hashable(write: Write) -> list[str]:
    return list(map(repr, write.entries))


def test_an_obsolete_job_goes_children_first() -> None:
    observed = {"a": seen(shared_job(1, LOW, node=1)), "b": seen(shared_job(1, LOW))}
    assert [action.switch for action in reconcile({}, observed).actions] == ["a", "b"]
    observed = {"a": observed["b"], "b": observed["a"]}
    assert [action.switch for action in reconcile({}, observed).actions] == ["b", "a"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"job": 1}, "two desired jobs have the job id 1"),
        ({"generation": 101}, "two desired jobs have the generation 101"),
        ({"counter_row": 1}, "two desired jobs have the counter row 1"),
        ({"group": 1}, "two desired jobs have the group 1"),
        ({"group": 256}, "job 2 has counter row 2 and group 256; want 1 to 255"),
        ({"region": Region(60, 8)}, "the slots 60 to 67 of job 2 exceed the memory; want slots below 64"),
        ({"region": LOW}, "exclusive jobs 1 and 2 have common slots"),
    ],
)
def test_jobs_that_a_switch_cannot_hold_together_are_named(other: dict[str, Any], message: str) -> None:
    info = replace(INFO, mode="exclusive" if "exclusive" in message else "shared")
    desired = [shared_job(1, LOW), replace(shared_job(2, HIGH), **other)]
    with pytest.raises(BadJob, match=f"^switch 's': {message}$"):
        reconcile({"s": desired}, {"s": seen(info=info)})
