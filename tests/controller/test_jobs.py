"""Jobs to rows and back, without a switch."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import names
from controller.errors import BadJob
from controller.jobs import job_row, parse, supporting_rows
from controller.model import Admission, Job, Member, Region
from controller.p4runtime_shim.rows import Group, Row

GROUPS = range(1, 256)


def member(rank: int, port: int | None = None) -> Member:
    return Member(
        rank, rank if port is None else port, f"02:00:00:00:00:{rank:02x}", f"10.0.0.{rank + 1}", 9000 + rank
    )


def admission(job: int = 7, *, row: int = 3, ranks: int = 2, first_port: int = 0) -> Admission:
    members = tuple(member(r, first_port + r) for r in range(ranks))
    return Admission(job, row, Region(64, 32), 0xABCD, row, members)


def all_rows(admission: Admission) -> list[Row | Group]:
    return [*supporting_rows(admission), job_row(admission)]


def test_the_rows_of_a_job_of_two() -> None:
    assert job_row(admission()) == Row(
        names.JOB,
        {"hdr.ina.job": 7},
        names.SET_JOB,
        {
            "counter_row": 3,
            "offset": 64,
            "size": 32,
            "generation": 0xABCD,
            "fan_in": 2,
            "full_bitmap": 0b11,
            "group": 3,
        },
    )
    assert supporting_rows(admission()) == (
        Row(
            names.MEMBER,
            {"hdr.ina.job": 7, "standard_metadata.ingress_port": 0},
            names.SET_MEMBER,
            {"bitmap": 1},
        ),
        Row(
            names.RECEIVER,
            {"hdr.ina.job": 7, "standard_metadata.egress_rid": 0},
            names.DELIVER,
            {"mac": 0x020000000000, "ip": 0x0A000001, "udp_port": 9000},
        ),
        Row(
            names.MEMBER,
            {"hdr.ina.job": 7, "standard_metadata.ingress_port": 1},
            names.SET_MEMBER,
            {"bitmap": 2},
        ),
        Row(
            names.RECEIVER,
            {"hdr.ina.job": 7, "standard_metadata.egress_rid": 1},
            names.DELIVER,
            {"mac": 0x020000000001, "ip": 0x0A000002, "udp_port": 9001},
        ),
        Group(3, ((0, 0), (1, 1))),
    )


@given(st.lists(st.integers(1, 32), max_size=6), st.randoms(use_true_random=False))
def test_any_jobs_in_any_order_read_back_as_they_were(sizes: list[int], order: random.Random) -> None:
    jobs = {i: admission(i, row=i + 1, ranks=n, first_port=40 * i) for i, n in enumerate(sizes)}
    rows = [row for job in jobs.values() for row in all_rows(job)]
    order.shuffle(rows)
    contents = parse(rows, job_groups=GROUPS)
    assert contents.jobs == jobs
    assert contents.orphans == ()


def test_the_window_is_half_the_region() -> None:
    assert admission().window == 16


def test_rows_without_their_job_are_orphans_and_others_groups_are_not() -> None:
    whole, half, flood = admission(), admission(8, row=4), Group(300, ((0, 0),))
    contents = parse([*all_rows(whole), *supporting_rows(half), flood], job_groups=GROUPS)
    assert contents.jobs == {7: whole}
    assert list(contents.orphans) == list(supporting_rows(half))


def test_a_job_that_lost_members_is_still_a_job() -> None:
    contents = parse([job_row(admission())], job_groups=GROUPS)
    assert contents.jobs[7].region == Region(64, 32)
    assert contents.jobs[7].members == ()


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Job((), 8), "no members"),
        (Job(tuple(member(r) for r in range(33)), 8), "33 members; one switch sums up to 32"),
        (Job((member(0), member(2)), 8), r"ranks are \[0, 2\]; they must be 0 to 1"),
        (Job((member(0), replace(member(0), port=1)), 8), r"ranks are \[0, 0\]"),
        (Job((member(0, 5), member(1, 5)), 8), "port 5 has two members"),
        (Job((member(0),), 1), "asks for 1 slots; it takes 2 at least"),
        (Job((replace(member(0), mac="02:00"),), 8), "'02:00' is not a MAC address"),
        (Job((replace(member(0), ip="10.0.0"),), 8), "'10.0.0' is not an IPv4 address"),
        (Job((replace(member(0), udp_port=0),), 8), "rank 0 has UDP port 0"),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_the_reason(job: Job, message: str) -> None:
    with pytest.raises(BadJob, match=message):
        job.check(max_members=32)
