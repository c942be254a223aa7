"""A job in the tables of the programs for Tofino: what they can serve, and regions that they need."""

from dataclasses import replace

import pytest

from controller.errors import BadJob, OutOfMemory
from controller.policies.memory import regions
from controller.switches.model import Admission, Member, Uplink
from controller.switches.tofino_rows import EXITS, MEMBER, NEIGHBOUR, RECEIVER, rows
from controller.vocabulary import Region

MEMBERS = tuple(Member(rank, rank + 1, f"02:00:00:00:00:0{rank}", f"10.0.0.{rank}", 1) for rank in range(3))
JOB = Admission(
    job=7,
    counter_row=1,
    region=Region(32, 16),
    generation=0x105,
    group=1,
    members=MEMBERS,
    fan_in=3,
    window=8,
    uplink=Uplink(9, "02:00:00:00:00:fe", "10.0.0.254"),
    result_bitmap=0b111,
)


def test_each_child_is_admitted_by_all_that_its_packets_say() -> None:
    found = [row for row in rows(JOB, shared=False) if row.table == MEMBER]
    said = [(row.match["intrinsic.ingress_port"], row.match["hdr.ina.bitmap"]) for row in found]
    assert said == [(1, 1), (2, 2), (3, 4)]
    assert {row.match["hdr.ina.epoch"] for row in found} == {5}
    assert {(row.params["mask"], row.params["place"], row.params["root"]) for row in found} == {(15, 32, 1)}


def test_no_two_rows_have_the_same_match() -> None:
    below = replace(JOB, node=2, uplink=replace(JOB.uplink, node=0, bitmap=4, fan_in=3))
    for job in (JOB, below):
        for shared in (False, True):
            found = rows(job, shared=shared)
            keys = [(row.table, tuple(sorted(row.match.items())), row.priority) for row in found]
            assert len(set(keys)) == len(keys)
            tables = {MEMBER, EXITS, RECEIVER}
            assert tables < {row.table for row in found} if shared else tables == {row.table for row in found}
            assert any(row.table == NEIGHBOUR for row in found) == shared


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (replace(JOB, region=Region(8, 16)), "slots 8 to 23; want a power of two of slots"),
        (replace(JOB, region=Region(0, 12)), "slots 0 to 11; want a power of two of slots"),
        (replace(JOB, region=Region(0, 0)), "no slots of its own"),
        (replace(JOB, transit=True), "no slots of its own"),
        (replace(JOB, members=(*MEMBERS[:2], replace(MEMBERS[2], port=1))), "several members at one port"),
    ],
)
def test_a_job_that_these_programs_cannot_serve_is_refused(job: Admission, message: str) -> None:
    for shared in (False, True):
        with pytest.raises(BadJob, match=message):
            rows(job, shared=shared)


def test_regions_start_at_a_multiple_of_their_size_if_they_must() -> None:
    assert regions.allocate(64, [Region(0, 4)], 16) == Region(4, 16)
    assert regions.allocate(64, [Region(0, 4)], 16, aligned=True) == Region(16, 16)
    with pytest.raises(OutOfMemory):
        regions.allocate(32, [Region(0, 4), Region(20, 4)], 16, aligned=True)
