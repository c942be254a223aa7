"""Jobs whose launcher is gone do not stay: registrations in the rows' metadata, and who watches them."""

import json
import math
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import Admission, NoSuchJob, Part, Region, Registration, SwitchSession, Uplink
from controller.switches.jobs import decode_registration, encode_registration, job_row, supporting_rows
from controller.switches.leases import LeaseWatch, has_ended, this_process
from tests.controller import single
from tests.controller.conftest import Running
from tests.controller.fabric import Fabric
from tests.controller.failing import Recording

LEASE_S = 60.0
HELD = Registration("host pid 7", lease_s=LEASE_S)
NAMES_ITSELF = """
from controller.switches.leases import this_process
print(this_process(), flush=True)
input()
"""


@dataclass
class Clock:
    """A clock of the day and one that does not go back, of one machine."""

    day_s: float = 1_700_000_000.0
    ticks_s: float = 0.0

    def controller(self, running: Running) -> SwitchSession:
        return SwitchSession(running.target(), clock=lambda: self.day_s, ticks_s=lambda: self.ticks_s)

    def pass_(self, seconds: float) -> None:
        self.day_s += seconds
        self.ticks_s += seconds


def job(first_port: int, ranks: int = 2) -> Part:
    return Part(single.members(first_port, ranks), 64)


def admission(number: int, registration: Registration | None) -> Admission:
    return Admission(
        job=number,
        counter_row=number,
        region=Region(0, 0),
        generation=number,
        group=number,
        members=(),
        fan_in=1,
        window=1,
        result_bitmap=1,
        registration=registration,
    )


def renewed(times: int, registration: Registration = HELD) -> Registration:
    return replace(registration, renewals=times)


# ---------------------------------------------------------------------- the watch, without a switch


def test_a_lease_runs_out_under_the_eyes_of_an_observer_only() -> None:
    watch, dead = LeaseWatch(), admission(1, HELD)
    watch.look([dead], 1000.0)
    assert watch.lease_wait_s() == LEASE_S
    for passed_s in range(0, 60, 10):
        watch.look([dead], 1000.0 + passed_s)
        assert not watch.has_expired(dead)
        assert watch.lease_wait_s() == LEASE_S - passed_s
    watch.look([dead], 1060.0)
    assert watch.has_expired(dead)
    assert watch.lease_wait_s() is None


def test_a_renewal_begins_the_lease_anew_whatever_the_holder_counts() -> None:
    """One that was restored from a snapshot may count backwards."""
    watch = LeaseWatch()
    for look, count in enumerate((7, 7, 7, 8, 8, 8, 3, 3, 3, 9)):
        watch.look([admission(1, renewed(count))], look * LEASE_S / 4)
        assert not watch.has_expired(admission(1, HELD))
    assert watch.was_renewed(admission(1, HELD))
    assert watch.lease_wait_s() is None


def test_the_holders_of_a_machine_that_was_suspended_have_time_to_renew() -> None:
    """By a clock that went on meanwhile the observer, awake first, took the job of a run that lived."""
    watch, job = LeaseWatch(), admission(1, HELD)
    watch.look([job], 0.0)
    watch.look([job], 10.0)
    watch.look([job], 10.0 + 86_400.0)
    assert not watch.has_expired(job)
    assert watch.lease_wait_s() == LEASE_S - 10 - LEASE_S / 4
    watch.look([admission(1, renewed(1))], 10.0 + 86_401.0)
    assert watch.was_renewed(job)


def test_another_admission_of_the_same_job_id_is_watched_from_its_beginning() -> None:
    watch, dead = LeaseWatch(), admission(1, HELD)
    for look in range(6):
        watch.look([dead], look * 15.0)
    assert watch.has_expired(dead)
    heir = replace(dead, generation=2)
    watch.look([heir], 90.0)
    assert not watch.has_expired(heir)
    assert not watch.has_expired(dead), "it is gone"


def test_each_lease_has_its_own_length_and_jobs_without_one_stay() -> None:
    watch = LeaseWatch()
    short, long = admission(1, replace(HELD, lease_s=4.0)), admission(2, HELD)
    free, foreign = admission(3, replace(HELD, lease_s=None)), admission(4, None)
    older = admission(5, replace(HELD, lease_s=math.inf))
    for look in range(6):
        watch.look([short, long, free, foreign, older], float(look))
    assert [each.job for each in (short, long, free, foreign, older) if watch.has_expired(each)] == [1]
    for look in range(6, 1000):
        watch.look([short, long, free, foreign, older], float(look))
    assert [each.job for each in (short, long, free, foreign, older) if watch.has_expired(each)] == [1, 2]
    assert watch.lease_wait_s() is None


@given(st.data())
def test_no_observer_takes_the_job_of_a_holder_that_renews_in_time(data: st.DataObject) -> None:
    """Holder and observer have clocks of their own: a day apart, or suspended together."""
    lease_s = data.draw(st.floats(1.0, 1000.0))
    watch, count, since_renewal_s, paused = LeaseWatch(), 0, 0.0, False
    observer_s = data.draw(st.floats(0, 1e6))
    for _ in range(data.draw(st.integers(1, 60))):
        if since_renewal_s >= lease_s / 4:
            count, since_renewal_s, paused = count + 1, 0.0, False
        running_s = data.draw(st.floats(0.0, lease_s / 4))
        since_renewal_s += running_s
        observer_s += running_s
        if not paused and data.draw(st.booleans()):  # both; the observer looks first
            paused = True
            observer_s += data.draw(st.sampled_from([lease_s / 8, 3600.0, 86_400.0]))
        seen = admission(1, Registration("host pid 7", lease_s=lease_s, renewals=count))
        watch.look([seen], observer_s)
        assert not watch.has_expired(seen)


# ---------------------------------------------------------------------- processes of this machine


def test_a_holder_of_this_machine_that_ended_is_known_at_once() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", NAMES_ITSELF],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    assert name == f"{this_process().rpartition(' ')[0]} {child.pid}"
    assert not has_ended(name)
    child.communicate("")
    assert has_ended(name)
    watch = LeaseWatch(has_ended)
    dead, living = (admission(n, replace(HELD, process=p)) for n, p in ((1, name), (2, this_process())))
    watch.look([dead, living], 0.0)
    assert (watch.has_expired(dead), watch.has_expired(living)) == (True, False)


@pytest.mark.parametrize(
    "process",
    [
        "",
        "7",
        "another-start pid:[1] 4194305",
        "{here}",
        "{here} -1",
        "{here} 9" + 40 * "9",
        "{here} 1",
        "{self}",
    ],
)
def test_processes_that_run_or_are_of_elsewhere_have_not_ended(process: str) -> None:
    assert not has_ended(process.format(here=this_process().rpartition(" ")[0], self=this_process()))


# ---------------------------------------------------------------------- on a switch


def test_a_controller_whose_clock_is_ahead_leaves_the_jobs_of_others(running: Running) -> None:
    """One that was 90 s ahead removed them."""
    right, ahead, behind = Clock(), Clock(), Clock()
    ahead.day_s += 86_400
    behind.day_s -= 86_400
    with (
        right.controller(running) as owner,
        ahead.controller(running) as one,
        behind.controller(running) as two,
    ):
        held = single.admit(owner, job(0), registration=HELD)
        for other in (one, two):
            single.remove(other, single.admit(other, job(4)))
            single.sweep(other)
        ahead.day_s += 3600  # a step of NTP's
        single.remove(one, single.admit(one, job(4)))
        assert owner.jobs() == {held.job: held}
        single.remove(owner, held)


def test_a_job_that_nobody_renews_is_removed_by_an_admission_once_it_was_watched(running: Running) -> None:
    clock = Clock()
    with clock.controller(running) as one, clock.controller(running) as other:
        lost = single.admit(one, job(0), registration=HELD)
        kept = single.admit(one, job(4), registration=replace(HELD, lease_s=1e6))
        for _ in range(4):
            assert single.sweep(other) == []
            clock.pass_(15.0)
        heir = single.admit(other, job(0))
        assert other.jobs() == {kept.job: kept, heir.job: heir}
        assert (heir.region, heir.counter_row) == (lost.region, lost.counter_row)
        for each in (kept, heir):
            single.remove(other, each)


def test_a_sweep_removes_what_it_has_seen_run_out_and_nothing_else(running: Running) -> None:
    clock = Clock()
    with clock.controller(running) as one, clock.controller(running) as other:
        lost = single.admit(one, job(0), registration=HELD)
        kept = single.admit(one, job(4), registration=HELD)
        for look in range(4):
            assert single.sweep(other) == []
            one.renew(kept, renewed(look + 1))
            clock.pass_(15.0)
        assert single.sweep(other) == [lost]
        assert list(other.jobs()) == [kept.job]
        with pytest.raises(NoSuchJob, match=f"has no job {lost.job}"):
            one.renew(lost, renewed(1))
        single.remove(one, kept)


def test_a_job_that_is_renewed_while_a_sweep_waits_for_its_turn_stays(running: Running) -> None:
    clock = Clock()
    recording = Recording(running.target())
    with (
        clock.controller(running) as owner,
        SwitchSession(recording, ticks_s=lambda: clock.ticks_s) as other,
    ):
        held = single.admit(owner, job(0), registration=HELD)
        for _ in range(4):
            assert single.sweep(other) == []
            clock.pass_(15.0)
        recording.before_turn = lambda: owner.renew(held, renewed(1))
        assert single.sweep(other) == []
        assert recording.turns == 1, "it wanted to remove the job"
        assert list(owner.jobs()) == [held.job]
        single.remove(owner, held)


def test_a_lease_of_an_earlier_version_is_read_and_nobody_takes_the_job(running: Running) -> None:
    """It ends at a time of its holder's clock, and how long it lasts is not known."""
    clock = Clock()
    with clock.controller(running) as controller:
        old = single.admit(controller, job(0), registration=HELD)
        until = b'{"ina_lease": {"until_ms": 1000, "holder": "host pid 7"}}'
        target = running.target()
        with target.turn(timeout_s=10):
            target.write("MODIFY", [replace(job_row(old), metadata=until)])
        target.close()
        for _ in range(100):
            clock.pass_(15.0)
            assert single.sweep(controller) == []
        (found,) = controller.jobs().values()
        assert found.registration == Registration("host pid 7", lease_s=math.inf)
        assert found.leased
        single.remove(controller, old)


def test_a_job_of_the_same_number_is_not_renewed_for_another(running: Running) -> None:
    with Clock().controller(running) as owner:
        here = single.admit(owner, job(0), registration=HELD)
        with pytest.raises(NoSuchJob, match="has generation"):
            owner.renew(replace(here, generation=here.generation + 1), renewed(1))
        assert owner.jobs() == {here.job: here}
        single.remove(owner, here)


def test_a_job_that_moves_keeps_its_registration(shared_fabric: Fabric) -> None:
    controller = shared_fabric.controllers["root"]
    fallback = Uplink(30, "02:00:00:00:fb:01", "10.0.255.2", 4000)
    moving = single.admit(controller, replace(job(0), mode="shared", fallback=fallback), registration=HELD)
    resized = single.move(controller, moving, Region(8, 8))
    assert controller.jobs() == {moving.job: resized}
    later = renewed(1)
    controller.renew(moving, later)
    assert controller.jobs() == {moving.job: replace(resized, registration=later)}
    single.remove(controller, moving)


def test_a_renewal_reads_one_row_however_many_jobs_there_are(running: Running) -> None:
    """Four times per lease and job: it read all tables, 1200 entries with 200 jobs."""
    recording = Recording(running.target())
    with SwitchSession(recording, clock=lambda: 1.0) as controller:
        first = single.admit(controller, job(0), registration=HELD)
        others = [
            replace(first, job=1 + n, generation=1 + n, counter_row=2 + n, group=2 + n)
            for n in range(199)
            if 1 + n != first.job
        ]
        with recording.turn(timeout_s=10):
            recording.write(
                "INSERT", [row for each in others for row in (*supporting_rows(each), job_row(each))]
            )
        recording.reads = recording.entries = 0
        controller.renew(first, renewed(1))
        assert (recording.reads, recording.entries) == (1, 1)
        jobs = controller.jobs()
        assert len(jobs) == 1 + len(others)
        assert jobs[first.job] == replace(first, registration=renewed(1))
        assert recording.entries == 1 + 6 * len(jobs)
        controller.counters(first.job)
        assert recording.reads == 3
        recording.entries = 0
        single.sweep(controller)
        assert recording.entries == 2 * len(jobs), "rows of the job table, and the groups"
        with recording.turn(timeout_s=10):
            recording.write(
                "DELETE", [row for a in jobs.values() for row in (job_row(a), *supporting_rows(a))]
            )


# ---------------------------------------------------------------------- metadata

registrations = st.builds(
    Registration,
    st.text(),
    process=st.text(),
    lease_s=st.none() | st.floats(1e-3, 1e9),
    renewals=st.integers(0, 2**60),
    age_s=st.none() | st.floats(0, 1e9),
    name=st.text(),
    user=st.text(),
    command=st.text(),
    priority=st.none() | st.integers(0, 255),
    goodput_bps=st.none() | st.floats(0, 1e12),
)


@given(registrations)
def test_a_registration_is_read_as_it_was_written(registration: Registration) -> None:
    assert decode_registration(encode_registration(registration)) == registration


@given(
    st.binary() | st.sampled_from([b"[" * 60_000, b"7", b'{"ina_job": 7}', b'{"ina_job": {"renewals": 1}}'])
)
def test_metadata_of_others_are_no_registration(metadata: bytes) -> None:
    assert decode_registration(metadata) is None


@pytest.mark.parametrize(
    "forged",
    [
        {"lease_s": -1.0},
        {"lease_s": 0.0},
        {"lease_s": 10**400},
        {"lease_s": math.nan},
        {"lease_s": "60"},
        {"lease_s": True},
        {"age_s": 10**400},
        {"age_s": -1.0},
        {"goodput_bps": math.inf},
        {"renewals": -1},
        {"renewals": 0.5},
        {"priority": "high"},
        {"name": 7},
        {"command": ["sh"]},
    ],
)
def test_a_forged_field_is_no_registration(forged: dict[str, object]) -> None:
    """10**400 ms made `ina slots` fail: no float holds so many seconds."""
    assert decode_registration(json.dumps({"ina_job": {"holder": "host pid 7"} | forged}).encode()) is None
