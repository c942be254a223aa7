"""Jobs that share one switch's slots: where their packets go, who may take whose slot, and read-back."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller import (
    BadJob,
    Part,
    ProgramBundle,
    ProgramMismatch,
    Region,
    SwitchInfo,
    SwitchSession,
    Uplink,
)
from controller.errors import IdentityTaken, OutOfRows
from controller.switches import names
from controller.switches.planning import Identity
from tests.controller import single
from tests.controller.conftest import LANES, default_row, over_p4runtime
from tests.controller.fabric import Fabric
from tests.controller.frames import gradient, reminder
from tests.p4.bed import BYPASS, COLLISION, ECN, PARTIAL, RESULT

FRESH = itertools.count(6000)
"""Slots that no test has left anything in."""

ONES, TWOS = [1] * LANES, [2] * LANES


def job(ranks: int = 2, *, first_port: int = 0, server: int = 39, **settings: object) -> Part:
    fallback = Uplink(server, f"02:00:00:00:fb:{server:02x}", f"10.0.1.{server}", 4000)
    return replace(Part(single.members(first_port, ranks), 64, mode="shared", fallback=fallback), **settings)


@pytest.fixture
def admit(shared: SwitchSession) -> Iterator[object]:
    """Admit jobs, and take them off in the end."""
    admitted = []

    def admit_and_note(job: Part, **options: object):
        admission = single.admit(shared, job, **options)
        admitted.append(admission)
        return admission

    yield admit_and_note
    for job in admitted:
        single.remove(shared, job)


def outcomes(controller: SwitchSession, job: int) -> dict[str, int]:
    return {name: count for name, count in controller.counters(job).items() if count}


def test_the_program_is_told_from_the_other(shared: SwitchSession) -> None:
    assert shared.info() == SwitchInfo(LANES, 8192, 255, 32, "shared")


def test_a_shared_job_gets_its_sums(shared: SwitchSession, shared_fabric: Fabric, admit) -> None:
    admission = admit(job())
    assert (admission.region, admission.window) == (Region(0, 8192), 32)
    assert shared.jobs() == {admission.job: admission}
    assert shared_fabric.send("root", 0, gradient(admission, 7, 0, ONES)) == {}
    arrived = shared_fabric.send("root", 1, gradient(admission, 7, 1, TWOS))
    assert {end: [(p.kind, p.values) for p in packets] for end, packets in arrived.items()} == {
        ("root", port): [(RESULT, (3,) * LANES)] for port in (0, 1)
    }
    assert outcomes(shared, admission.job) == {"aggregated": 1, "completed": 1}


def test_every_setting_is_read_back(shared: SwitchSession, shared_fabric: Fabric, admit) -> None:
    admission = admit(job(region=Region(100, 3), preempt=True, window=1000, max_age_us=2**32 - 1))
    assert (admission.preempt, admission.window, admission.max_age_us) == (True, 1000, 2**32 - 1)
    with shared_fabric.connect()["root"] as other:
        assert other.jobs() == {admission.job: admission}


def test_a_job_of_the_other_mode_is_refused(shared: SwitchSession, controller: SwitchSession) -> None:
    with pytest.raises(
        ProgramMismatch, match=r"the job is exclusive, and the program of the switch at .* is for shared jobs"
    ):
        single.admit(shared, Part(job().members, 8))
    with pytest.raises(
        ProgramMismatch, match=r"the job is shared, and the program of the switch at .* is for exclusive jobs"
    ):
        single.admit(controller, job())


def test_regions_may_overlap_and_must_lie_in_the_memory(
    shared: SwitchSession, shared_fabric: Fabric, admit
) -> None:
    one = admit(job(1, region=Region(0, 100)))
    other = admit(job(2, first_port=1, region=Region(50, 100)))
    everything = admit(job(2, first_port=3))
    assert [a.region for a in shared.jobs().values()] == [a.region for a in (one, other, everything)]
    for admission, port in ((other, 1), (everything, 3)):
        for psn in range(50):
            shared_fabric.send("root", port, gradient(admission, psn, 0, ONES))
            arrived = shared_fabric.send("root", port + 1, gradient(admission, psn, 1, ONES))
            if arrived.keys() != {("root", 39)}:  # a collision is right too
                assert arrived["root", port][0].values == (2,) * LANES
    with pytest.raises(BadJob, match="the region of 8192 slots from 1 exceeds the memory"):
        single.admit(shared, job(region=Region(1, 8192)))


def test_an_evicted_sum_goes_to_its_own_jobs_fallback_server(
    shared: SwitchSession, shared_fabric: Fabric, admit
) -> None:
    slot = Region(next(FRESH), 1)
    humble = admit(job(3, server=38, region=slot))
    urgent = admit(job(2, first_port=3, server=39, region=slot, preempt=True))
    shared_fabric.send("root", 0, gradient(humble, 7, 0, ONES, priority=3))
    shared_fabric.send("root", 2, gradient(humble, 7, 2, ONES, priority=3))
    arrived = shared_fabric.send("root", 3, gradient(urgent, 9, 0, TWOS, priority=4))
    ((end, (partial,)),) = arrived.items()
    assert end == ("root", 38)
    assert (partial.kind, partial.job, partial.psn, partial.epoch) == (
        PARTIAL,
        humble.job,
        7,
        humble.epoch,
    )
    assert (partial.bitmap, partial.fan_in, partial.values) == (0b101, 3, (2,) * LANES)
    assert outcomes(shared, humble.job) == {"aggregated": 2, "evicted": 1}
    assert outcomes(shared, urgent.job) == {"preempted": 1}

    # the humble job may not preempt, whatever its priority
    (packet,) = shared_fabric.send("root", 1, gradient(humble, 7, 1, ONES, priority=255))["root", 38]
    assert (packet.kind, packet.bitmap, packet.flags) == (PARTIAL, 0b010, COLLISION)


def test_a_slot_that_nobody_adds_to_is_taken(shared: SwitchSession, shared_fabric: Fabric, admit) -> None:
    slot = Region(next(FRESH), 1)
    idle = admit(job(2, server=38, region=slot))
    next_one = admit(job(2, first_port=2, region=slot, max_age_us=1))
    shared_fabric.send("root", 0, gradient(idle, 7, 0, ONES))
    ((end, _),) = shared_fabric.send("root", 2, gradient(next_one, 0, 0, TWOS)).items()
    assert end == ("root", 38)
    assert outcomes(shared, next_one.job) == {"reclaimed": 1}


def test_a_packet_a_window_ahead_finds_its_own_old_slot_free(
    shared: SwitchSession, shared_fabric: Fabric, admit
) -> None:
    admission = admit(job(2, region=Region(next(FRESH), 1), window=10, max_age_us=2**32 - 1))
    for psn in (0, 9, 10):
        shared_fabric.send("root", 0, gradient(admission, psn, 0, ONES))
    assert outcomes(shared, admission.job) == {"aggregated": 2, "collided": 1}


def test_packets_of_an_earlier_admission_are_refused(
    shared: SwitchSession, shared_fabric: Fabric, admit
) -> None:
    admission = admit(job())
    late = gradient(replace(admission, generation=admission.generation - 1), 0, 0, ONES)
    assert shared_fabric.send("root", 0, late) == {}
    assert outcomes(shared, admission.job) == {"wrong_epoch": 1}


def test_members_and_fallback_servers_without_a_port_get_free_ones(shared: SwitchSession, admit) -> None:
    wanted = job(1)
    assert wanted.fallback is not None
    anywhere = replace(
        wanted,
        members=(replace(wanted.members[0], port=None),),
        fallback=replace(wanted.fallback, port=None),
    )
    first = admit(anywhere, ports=range(4, 8))
    second = admit(anywhere, ports=range(4, 8))
    assert [(a.members[0].port, a.uplink.port) for a in (first, second)] == [(4, 5), (6, 7)]
    said = (
        "^switch 's': 1 worker and the fallback server need 2 ports of the switch,"
        " and none of the allowed ports is free$"
    )
    with pytest.raises(OutOfRows, match=said):
        single.admit(shared, anywhere, ports=range(4, 8))


def test_an_identity_in_use_is_refused(shared: SwitchSession, admit) -> None:
    admission = admit(job())
    with pytest.raises(IdentityTaken, match=f"has job {admission.job} of generation"):
        single.admit(shared, job(first_port=2), identity=Identity(admission.job, 5))
    with pytest.raises(IdentityTaken):
        single.admit(shared, job(first_port=2), identity=Identity(admission.job ^ 1, admission.generation))


# ---------------------------------------------------------------------- resizing


def test_a_job_moves_to_another_region_without_a_packet_sent_again(
    shared: SwitchSession, shared_fabric: Fabric, admit
) -> None:
    admission = admit(job(2, region=Region(7000, 8), window=4))

    def contribute(psn: int, rank: int) -> set[tuple[int, ...]]:
        arrived = shared_fabric.send("root", rank, gradient(admission, psn, rank, (ONES, TWOS)[rank]))
        return {p.values for packets in arrived.values() for p in packets}

    contribute(6, 0)
    elsewhere = Region(7100, 8)
    moving = single.move(shared, admission, elsewhere)
    assert moving.region == admission.region
    assert moving.change is not None
    assert moving.change.region == elsewhere
    assert shared.jobs() == {admission.job: moving}
    assert single.move(shared, admission, Region(0, 0)) == moving, "one move at a time"
    # all sums of before, across and after the change are complete at once
    for psn in range(7, 14):
        assert contribute(psn, 0) == set()
        assert contribute(psn - 1, 1) == {(3,) * LANES}
    assert single.move(shared, admission, elsewhere) == moving, "rank 1 still needs the old slots"
    for psn in range(14, 18):
        contribute(psn, 0)
        assert contribute(psn - 1, 1) == {(3,) * LANES}
    assert single.move(shared, admission, elsewhere) == replace(admission, region=elsewhere)
    assert set(outcomes(shared, admission.job)) == {"aggregated", "completed"}


def test_a_reminder_pulls_what_lies_in_a_slot(shared: SwitchSession, shared_fabric: Fabric, admit) -> None:
    admission = admit(job())
    shared_fabric.send("root", 1, gradient(admission, 7, 1, TWOS))
    (partial,) = shared_fabric.send("root", 39, reminder(admission, 7))["root", 39]
    assert (partial.kind, partial.bitmap, partial.values) == (PARTIAL, 0b10, (2,) * LANES)
    asked = shared_fabric.send("root", 39, reminder(admission, 7))
    assert asked.keys() == {("root", 0), ("root", 1)}
    assert outcomes(shared, admission.job) == {"aggregated": 1, "pulled": 1, "passed_down": 1}


# ---------------------------------------------------------------------- congestion


@over_p4runtime
def test_queues_mark_packets_from_a_depth_on(
    shared: SwitchSession, shared_fabric: Fabric, shared_bundle: ProgramBundle, admit
) -> None:
    before = default_row(shared.address, shared_bundle, names.ECN)
    admission = admit(job(2))
    marks = []
    for depth in (0, 1):
        shared.set_ecn_threshold(depth)
        (packet,) = shared_fabric.send("root", 0, gradient(admission, 7, 0, ONES, flags=BYPASS))["root", 39]
        marks.append(packet.flags & ECN)
    assert marks == [ECN, 0]
    shared.set_ecn_threshold(before.params["depth"])
    for depth in (-1, 1 << 19):
        with pytest.raises(ValueError, match=f"a queue of {depth} packets; want 0 to 524287"):
            shared.set_ecn_threshold(depth)
