"""Jobs to rows and back, without a switch."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.errors import BadJob
from controller.switches import names
from controller.switches.jobs import change_row, job_row, parse, supporting_rows
from controller.switches.model import ALL_RANKS, Admission, Member, Part, Place, RegionChange, Uplink
from controller.switches.planning import check_part
from controller.switches.target import MulticastGroup, TableEntry
from controller.vocabulary import Region

GROUPS = range(1, 256)
FALLBACK = Uplink(40, "02:00:00:00:fb:01", "10.0.255.2", 42592)
PARENT = Uplink(40, "02:00:00:00:00:fe", "10.0.0.254", 42592, node=3, bitmap=0b100, fan_in=5)


def member(rank: int, port: int | None = None) -> Member:
    return Member(
        rank, rank if port is None else port, f"02:00:00:00:00:{rank:02x}", f"10.0.0.{rank + 1}", 9000 + rank
    )


def child_switch(port: int, bitmap: int, below: range = range(0), ranks: range = ALL_RANKS) -> Member:
    return Member(None, port, "02:00:00:00:00:fe", "10.0.0.254", 42592, bitmap, below, ranks)


def admission(job: int = 7, *, row: int = 3, ranks: int = 2, first_port: int = 0) -> Admission:
    return Admission(
        job=job,
        counter_row=row,
        region=Region(64, 32),
        generation=0xABCD,
        group=row,
        members=tuple(member(r, first_port + r) for r in range(ranks)),
        fan_in=ranks,
        window=16,
        result_bitmap=(1 << ranks) - 1,
    )


NOTHING_BELOW = {"first_node": 0, "node_count": 0}
INNER = Admission(
    job=9,
    counter_row=4,
    region=Region(0, 0),
    generation=2**32 - 1,
    group=4,
    members=(
        replace(member(6, 1), bitmap=1),
        child_switch(2, 0b10, range(7, 9), range(3, 8)),
        child_switch(3, 0b11100),
    ),
    fan_in=5,
    window=2**31 - 1,
    uplink=PARENT,
    node=65534,
    result_bitmap=0b11,
    preempt=True,
    ageing=255,
    max_age_us=2**32 - 1,
)
TRANSIT = replace(
    INNER,
    job=10,
    counter_row=5,
    group=5,
    members=(child_switch(2, 0b1000),),
    transit=True,
    node=0,
    preempt=False,
)


MOVING = replace(admission(11, row=6, first_port=20), change=RegionChange(7 << 32 | 5, Region(8, 100)))


def all_rows(admission: Admission) -> list[TableEntry | MulticastGroup]:
    moves = [] if admission.change is None else [change_row(admission)]
    return [*supporting_rows(admission), *moves, job_row(admission)]


def member_row(job: int, port: int, action: str, **params: int) -> TableEntry:
    return TableEntry(
        names.MEMBER, {"hdr.ina.job": job, "standard_metadata.ingress_port": port}, action, params
    )


def receiver_row(job: int, replica: int, **params: int) -> TableEntry:
    match = {"hdr.ina.job": job, "standard_metadata.egress_rid": replica}
    action = names.DELIVER if "rank" in params else names.PASS_ON
    return TableEntry(names.RECEIVER, match, action, params)


def test_the_rows_of_a_job_of_two() -> None:
    assert job_row(admission()) == TableEntry(
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
            "node": 0,
            "result_bitmap": 0b11,
            "root": 1,
            "transit": 0,
            "preempt": 0,
            "ageing": 0,
            "window": 16,
            "max_age_us": 0,
        },
    )
    assert supporting_rows(admission()) == (
        member_row(7, 0, names.SET_MEMBER, bitmap=1, **NOTHING_BELOW),
        receiver_row(7, 1, mac=0x020000000000, ip=0x0A000001, udp_port=9000, rank=0),
        member_row(7, 1, names.SET_MEMBER, bitmap=2, **NOTHING_BELOW),
        receiver_row(7, 2, mac=0x020000000001, ip=0x0A000002, udp_port=9001, rank=1),
        MulticastGroup(3, ((0, 1), (1, 2))),
    )


def test_the_rows_of_a_node_between_others() -> None:
    params = job_row(INNER).params
    assert {name: params[name] for name in ("node", "fan_in", "full_bitmap", "result_bitmap", "root")} == {
        "node": 65534,
        "fan_in": 5,
        "full_bitmap": 0b11111,
        "result_bitmap": 0b11,
        "root": 0,
    }
    switch = {"mac": 0x0200000000FE, "ip": 0x0A0000FE, "udp_port": 42592}
    of_any = {"first_rank": 0, "rank_count": 0x8000}
    assert supporting_rows(INNER) == (
        TableEntry(
            names.UPLINK,
            {"hdr.ina.job": 9},
            names.SET_UPLINK,
            {
                "port": 40,
                "node": 3,
                "bitmap": 0b100,
                "fan_in": 5,
                "counter_row": 4,
                "own_node": 65534,
                "own_fan_in": 5,
            },
        ),
        member_row(9, 40, names.SET_PARENT),
        receiver_row(9, 0, **switch, **of_any),
        member_row(9, 1, names.SET_MEMBER, bitmap=1, **NOTHING_BELOW),
        receiver_row(9, 1, mac=0x020000000006, ip=0x0A000007, udp_port=9006, rank=6),
        member_row(9, 2, names.SET_MEMBER, bitmap=0b10, first_node=7, node_count=2),
        receiver_row(9, 2, **switch, first_rank=3, rank_count=5),
        member_row(9, 3, names.SET_MEMBER, bitmap=0b11100, **NOTHING_BELOW),
        receiver_row(9, 3, **switch, **of_any),
        MulticastGroup(4, ((1, 1), (2, 2), (3, 3))),
    )


def test_a_switch_that_packets_only_pass_has_the_node_above() -> None:
    assert not TRANSIT.root
    params = job_row(TRANSIT).params
    assert (params["node"], params["root"], params["transit"], params["fan_in"]) == (0, 0, 1, 5)


def test_the_epoch_is_the_generations_low_byte() -> None:
    assert admission().epoch == 0xCD


@given(st.lists(st.integers(1, 32), max_size=6), st.randoms(use_true_random=False))
def test_any_jobs_in_any_order_read_back_as_they_were(sizes: list[int], order: random.Random) -> None:
    jobs = {i: admission(i, row=i + 10, ranks=n, first_port=40 * i) for i, n in enumerate(sizes)}
    jobs |= {job.job: job for job in (INNER, TRANSIT, MOVING)}
    rows = [row for job in jobs.values() for row in all_rows(job)]
    order.shuffle(rows)
    contents = parse(rows, job_groups=GROUPS)
    assert contents.jobs == jobs
    assert contents.orphans == ()


def test_rows_without_their_job_are_orphans_and_others_groups_are_not() -> None:
    whole, half, flood = admission(), INNER, MulticastGroup(300, ((0, 0),))
    contents = parse([*all_rows(whole), *supporting_rows(half), flood], job_groups=GROUPS)
    assert contents.jobs == {7: whole}
    assert list(contents.orphans) == list(supporting_rows(half))


def test_a_job_that_lost_members_is_still_a_job() -> None:
    contents = parse([job_row(admission())], job_groups=GROUPS)
    assert contents.jobs[7].region == Region(64, 32)
    assert contents.jobs[7].members == ()


def shared_job(*members: Member, **changes: object) -> Part:
    return replace(Part(members, 8, mode="shared", fallback=FALLBACK), **changes)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Part((), 8), "no members"),
        (Part(tuple(member(r) for r in range(33)), 8), "33 members; one switch sums up to 32"),
        (Part((member(0), member(2)), 8), r"ranks are \[0, 2\]; they must be 0 to 1"),
        (Part((member(0), replace(member(0), port=1)), 8), r"ranks are \[0, 0\]"),
        (Part((member(0, 5), member(1, 5)), 8), "port 5 has two members"),
        (Part((member(0),), 1), "asks for 1 slot; want at least 2, twice the window"),
        (Part((replace(member(0), mac="02:00"),), 8), "'02:00' is not a MAC address"),
        (Part((replace(member(0), ip="10.0.0"),), 8), "'10.0.0' is not an IPv4 address"),
        (Part((replace(member(0), udp_port=0),), 8), "rank 0 has UDP port 0"),
        (Part((member(0), replace(member(1), bitmap=1)), 8), "rank 1 has a contribution bit of another"),
        (
            Part((member(0), replace(member(1), bitmap=4)), 8),
            "rank 1 has the contribution bits 0b100; .* 0b11",
        ),
        (Part((member(0), child_switch(1, 0)), 8), "the switch at port 1 has the contribution bits 0b0"),
        (Part((replace(member(0), bitmap=3),), 8), "rank 0 has 2 contribution bits; a worker has one"),
        (Part((replace(child_switch(0, 1), udp_port=9),), 8), "UDP port 9; switches take packets at 42592"),
        (Part((member(0),), 8, fallback=FALLBACK), "exclusive job .* must not have a fallback server"),
        (Part((member(0),), 8, preempt=True), "are for shared jobs only"),
        (shared_job(member(0), fallback=None), "a shared job needs a fallback server"),
        (shared_job(member(0), fallback=replace(FALLBACK, port=0)), "port 0 has a member and is the uplink"),
        (shared_job(member(0), fallback=replace(FALLBACK, udp_port=0)), "the fallback server has UDP port 0"),
        (shared_job(member(0), window=0), "window is 0 packets"),
        (shared_job(member(0), slots=1), "window is 0 packets"),
        (shared_job(member(0), max_age_us=1 << 32), "highest age is 4294967296 us"),
        (shared_job(member(0), place=Place(transit=True)), "the root of a job must aggregate"),
        (
            Part((member(1 << 15),), 8, place=Place(1, PARENT)),
            "rank 32768 is too high; want at most 32767",
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_the_reason(job: Part, message: str) -> None:
    with pytest.raises(BadJob, match=message):
        check_part(job, max_members=32)


def test_jobs_that_can_be() -> None:
    check_part(Part((member(0), member(1)), 2), max_members=2)
    check_part(shared_job(member(0), region=Region(5, 0), slots=0, window=1), max_members=2)
    check_part(
        Part((replace(member(7), bitmap=16),), 8, place=Place(0, PARENT, 1, transit=True)), max_members=32
    )
