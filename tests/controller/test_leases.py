"""Jobs whose launcher is gone do not stay: leases in the rows' metadata."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import Controller, Lease, Member, NoSuchJob, Part, Region, Uplink
from controller.switches.jobs import job_row, supporting_rows
from controller.switches.leases import decode, encode
from tests.controller.conftest import Running
from tests.controller.fabric import Fabric
from tests.controller.recording import Recording


def at(running: Running, now_ms: int) -> Controller:
    """Connect a controller that believes that it is this late."""
    return Controller(running.target(), clock=lambda: now_ms / 1000)


def job(first_port: int, ranks: int = 2) -> Part:
    return Part(
        tuple(
            Member(r, first_port + r, f"02:00:00:00:00:{r:02x}", f"10.0.0.{r + 1}", 9000 + r)
            for r in range(ranks)
        ),
        64,
    )


def test_a_job_whose_lease_ran_out_is_removed_by_the_next_admission(running: Running) -> None:
    with at(running, 1000) as dead, at(running, 5000) as early, at(running, 5001) as late:
        lost = dead.admit(job(0), lease=Lease(5000, "host pid 7"))
        kept = early.admit(job(4))
        assert early.jobs() == {lost.job: lost, kept.job: kept}  # to the last millisecond
        assert lost.lease == Lease(5000, "host pid 7")
        heir = late.admit(job(0))
        assert late.jobs() == {kept.job: kept, heir.job: heir}
        assert (heir.region, heir.counter_row) == (lost.region, lost.counter_row)
        for admission in (kept, heir):
            late.remove(admission.job)


def test_a_renewed_lease_keeps_a_job(running: Running) -> None:
    with at(running, 1000) as owner, at(running, 9000) as other:
        first = owner.admit(job(0), lease=Lease(5000))
        owner.renew(first, Lease(10_000))
        second = other.admit(job(4))
        assert other.jobs() == {first.job: replace(first, lease=Lease(10_000)), second.job: second}
        for admission in (first, second):
            other.remove(admission.job)
        with pytest.raises(NoSuchJob, match=f"has no job {first.job}"):
            owner.renew(first, Lease(20_000))


def test_a_job_of_the_same_number_is_not_renewed_for_another(running: Running) -> None:
    with at(running, 1000) as owner:
        here = owner.admit(job(0), lease=Lease(5000))
        with pytest.raises(NoSuchJob, match="is another one now"):
            owner.renew(replace(here, generation=here.generation + 1), Lease(9000))
        assert owner.jobs() == {here.job: here}
        owner.remove(here.job)


def test_a_job_that_moves_keeps_its_lease(shared_fabric: Fabric) -> None:
    controller = shared_fabric.controllers["root"]
    fallback = Uplink(30, "02:00:00:00:fb:01", "10.0.255.2", 4000)
    lease = Lease(2**50, "host pid 7")
    moving = controller.admit(replace(job(0), mode="shared", fallback=fallback), lease=lease)
    resized = controller.resize(moving.job, Region(8, 8))
    assert controller.jobs() == {moving.job: resized}
    later = Lease(2**51)
    controller.renew(moving, later)
    assert controller.jobs() == {moving.job: replace(resized, lease=later)}
    controller.remove(moving.job)


def test_a_renewal_reads_one_row_however_many_jobs_there_are(running: Running) -> None:
    """Four times per lease and job: it read all tables, 1200 entries with 200 jobs."""
    recording = Recording(running.target())
    with Controller(recording, clock=lambda: 1.0) as controller:
        first = controller.admit(job(0), lease=Lease(5000))
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
        controller.renew(first, Lease(9000))
        assert (recording.reads, recording.entries) == (1, 1)
        jobs = controller.jobs()
        assert len(jobs) == 1 + len(others)
        assert jobs[first.job] == replace(first, lease=Lease(9000))
        assert recording.entries == 1 + 6 * len(jobs)
        controller.counters(first.job)
        assert recording.reads == 3
        with recording.turn(timeout_s=10):
            recording.write(
                "DELETE", [row for a in jobs.values() for row in (job_row(a), *supporting_rows(a))]
            )


@given(st.builds(Lease, st.integers(0, 2**60), st.text()))
def test_a_lease_is_read_as_it_was_written(lease: Lease) -> None:
    assert decode(encode(lease)) == lease


@given(
    st.binary()
    | st.sampled_from([b"[" * 60_000, b"7", b'{"ina_lease": 7}', b'{"ina_lease": {"until_ms": 1}}'])
)
def test_metadata_of_others_are_no_lease(metadata: bytes) -> None:
    assert decode(metadata) is None


@pytest.mark.parametrize("until_ms", [-1, 1 << 63, 10**400])
def test_a_forged_time_is_no_lease(until_ms: int) -> None:
    """10**400 ms made `ina jobs` fail: no float holds so many seconds."""
    assert decode(encode(Lease(until_ms, "host pid 7"))) is None
