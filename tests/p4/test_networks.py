"""Packets in sequence: jobs that meet in a slot, switches on top of each other, queues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from softswitch.engine.build import load
from softswitch.engine.ports import Impairments, MemoryPort, PortImpairments
from softswitch.engine.switch import Switch
from tests.p4.bed import (
    ALL,
    BUT,
    ECN,
    LANES,
    NONE,
    PARTIAL,
    QUERY,
    REMINDER,
    RESEND,
    RESULT,
    SWITCH,
    Bed,
    Job,
    Left,
    Packet,
    changed,
    parse,
    program,
    worker,
)
from tests.softswitch.differential.script import parse_entry

PROGRAMS = pytest.mark.parametrize("name", ["exclusive", "shared"])


def values(rank: int) -> tuple[int, ...]:
    return tuple((rank + 1) * 10**6 + lane for lane in range(LANES))


def total(*ranks: int) -> tuple[int, ...]:
    return tuple(map(sum, zip(*(values(rank) for rank in ranks), strict=True)))


def contribution(rank: int, **changes: object) -> Packet:
    return changed(Packet(bitmap=1 << rank, values=values(rank)), **changes)


# --------------------------------------------------------------------------- one switch


def test_the_clock_may_wrap() -> None:
    bed = Bed("shared", (Job(1), Job(2, members={5: 1, 6: 2, 7: 4, 8: 8})))
    bed.now_us = 5 * 2**32 - 50
    bed.send(contribution(0), 1)
    bed.send(contribution(0, job=2, epoch=2), 5, after_us=99)
    bed.send(contribution(0, job=2, epoch=2), 5, after_us=2)
    assert bed.counts(2) == {"collided": 1, "reclaimed": 1}


def test_jobs_with_overlapping_regions_meet_where_these_overlap() -> None:
    one, two = Job(1, offset=0, slots=8), Job(2, offset=4, slots=8, members={5: 1, 6: 2, 7: 4, 8: 8})
    bed = Bed("shared", (one, two))
    for psn in range(8):
        bed.send(contribution(0, psn=psn), 1)
        bed.send(contribution(0, psn=psn, job=2, epoch=2), 5)
    owners = [bed.slot(index)["job"] for index in range(16)]
    assert set(owners[:4]) == {1}
    assert set(owners[4:8]) <= {1, 2}
    assert set(owners[8:12]) == {2}
    assert set(owners[12:]) == {0}
    taken = bed.counts(1)["aggregated"], bed.counts(2)["aggregated"]
    assert sum(owner > 0 for owner in owners) == sum(taken)


# --------------------------------------------------------------------------- reduce


@PROGRAMS
@pytest.mark.parametrize(
    ("target", "with_lanes"),
    [
        (ALL, (1, 2, 3, 4)),
        (0, (1,)),
        (2, (2,)),
        (4, (2, 3)),
        (5, (3,)),
        (6, ()),
        (BUT | 2, (1, 2, 3, 4)),
        (BUT | 6, (1, 2, 3, 4)),
        (BUT | 7, (1, 2, 3)),
    ],
)
def test_a_switch_below_gets_the_lanes_that_a_rank_there_takes(
    name: str, target: int, with_lanes: tuple[int, ...]
) -> None:
    """The ranks behind ports 2 and 3 are not in a row: either may have rank 4."""
    behind = {2: range(1, 5), 3: range(4, 6), 4: range(7, 8)}
    bed = Bed(name, (Job(1, ranks_below=behind),))
    left: list[Left] = []
    for rank in range(4):
        left = bed.send(contribution(rank, target=target), rank + 1)
    assert [packet.packet.kind for packet in left] == [RESULT] * 4
    assert [packet.destination for packet in left] == [worker(rank + 1) for rank in range(4)]
    assert all(packet.source == (*SWITCH, 42592) for packet in left)
    lanes = {packet.port: packet.packet.values for packet in left}
    assert lanes == {port: total(0, 1, 2, 3) if port in with_lanes else NONE for port in range(1, 5)}
    assert {packet.packet.valid for packet in left if not packet.packet.values} <= {0}


@PROGRAMS
@pytest.mark.parametrize("target", [0, 3, BUT | 0, ALL])
def test_a_result_on_its_way_up_keeps_its_lanes(name: str, target: int) -> None:
    bed = Bed(name, (Job(1),))
    (left,) = bed.send(Packet(RESULT, bitmap=0b1111, target=target), 1)
    assert (left.port, left.packet.kind, left.packet.values) == (9, RESULT, Packet().values)


# --------------------------------------------------------------------------- trees


class Tree:
    """Two racks of two workers below one root, wired by hand.

    Rack n (0 or 1) is child n of the root; its workers 2n and 2n+1 sit at its ports 1 and 2, its uplink
    (port 9) is at port n+1 of the root. What leaves to a worker or the fallback server is returned.
    """

    def __init__(self, name: str) -> None:
        nodes, ranks = {1: range(1, 2), 2: range(2, 3)}, {1: range(2), 2: range(2, 4)}
        self.root = Bed(name, (Job(1, size=2, slots=16, below=nodes, ranks_below=ranks),))
        rack = Job(1, size=2, slots=16, result_bitmap=0b11)
        self.racks = [
            Bed(name, (replace(rack, node=n + 1, above=(0, 1 << n, 2), first_rank=2 * n),)) for n in range(2)
        ]
        self.down: dict[int, Packet] = {}
        """The last packet from the root to each rack."""
        self.lost: set[tuple[str, int]] = set()
        """Links that lose the next packet: ("up" or "down", rack)."""

    def send(self, rank: int, **changes: object) -> dict[str, Packet]:
        rack, bit = divmod(rank, 2)
        packet = contribution(rank, node=rack + 1, bitmap=1 << bit, fan_in=2)
        return self.at_rack(rack, changed(packet, **changes), bit + 1)

    def at_rack(self, rack: int, packet: Packet, port: int) -> dict[str, Packet]:
        out: dict[str, Packet] = {}
        for left in self.racks[rack].send(packet, port):
            if left.port != 9:
                out[f"worker {2 * rack + left.port - 1}"] = left.packet
            elif ("up", rack) in self.lost:
                self.lost.remove(("up", rack))
            else:
                out |= self.at_root(left.packet, rack + 1)
        return out

    def at_root(self, packet: Packet, port: int) -> dict[str, Packet]:
        out: dict[str, Packet] = {}
        for left in self.root.send(packet, port):
            if left.port == 9:
                out["server"] = left.packet
                continue
            self.down[left.port - 1] = left.packet
            if ("down", left.port - 1) in self.lost:
                self.lost.remove(("down", left.port - 1))
            else:
                out |= self.at_rack(left.port - 1, left.packet, 9)
        return out


@pytest.fixture
def tree(name: str) -> Tree:
    """A tree of switches that run the program of this name."""
    return Tree(name)


WORKERS = {f"worker {rank}" for rank in range(4)}


def check_result(out: dict[str, Packet], receivers: set[str]) -> None:
    assert set(out) == receivers
    for packet in out.values():
        assert (packet.kind, packet.node, packet.bitmap) == (RESULT, 0, 0b11)
        assert packet.values == total(0, 1, 2, 3)


@PROGRAMS
def test_a_sum_goes_up_and_comes_down(tree: Tree) -> None:
    for rank in range(3):
        assert tree.send(rank) == {}
    check_result(tree.send(3), WORKERS)
    assert tree.root.counts() == {"aggregated": 1, "completed": 1}
    for rack in tree.racks:
        assert rack.counts() == {"aggregated": 1, "completed": 1, "stored": 1}


def reduce_to_the_first_rack(tree: Tree) -> dict[str, Packet]:
    """Reduce to rank 1, in rack 0: who gets which result."""
    out: dict[str, Packet] = {}
    for rank in range(4):
        out |= tree.send(rank, target=1)
    return out


@PROGRAMS
def test_a_sum_goes_down_only_to_the_rack_of_the_rank_that_takes_it(tree: Tree) -> None:
    out = reduce_to_the_first_rack(tree)
    assert set(out) == WORKERS
    assert {packet.kind for packet in out.values()} == {RESULT}
    assert {who: packet.values for who, packet in out.items() if packet.values} == {
        "worker 1": total(0, 1, 2, 3)
    }
    assert [tree.down[rack].values for rack in range(2)] == [total(0, 1, 2, 3), NONE]
    assert tree.racks[0].counts() == {"aggregated": 1, "completed": 1, "stored": 1}
    assert tree.racks[1].counts() == {"aggregated": 1, "completed": 1, "stored": 1}


@PROGRAMS
def test_a_rack_without_takers_answers_a_rank_that_lost_the_result(tree: Tree) -> None:
    reduce_to_the_first_rack(tree)
    (again,) = tree.send(3, target=1, flags=RESEND).items()
    assert (again[0], again[1].kind, again[1].values) == ("worker 3", RESULT, NONE)
    assert tree.racks[1].counts()["replayed"] == 1


def test_what_a_rack_without_takers_keeps_is_no_sum_for_the_fallback_server() -> None:
    tree = Tree("shared")
    reduce_to_the_first_rack(tree)
    reminder = Packet(REMINDER, node=2, valid=0, values=NONE)
    assert set(tree.at_root(reminder, 9)) == WORKERS
    # else the rack would answer what its workers send up then, and the server never have it
    assert {who: packet.kind for who, packet in tree.send(3, target=1, flags=RESEND).items()} == {
        "server": PARTIAL
    }
    (pulled,) = tree.root.send(replace(reminder, node=0), 9)
    assert (pulled.packet.kind, pulled.packet.values) == (RESULT, total(0, 1, 2, 3))


@PROGRAMS
def test_a_lost_result_for_a_rack_without_takers_is_sent_again(tree: Tree) -> None:
    tree.lost = {("down", 1)}
    assert set(reduce_to_the_first_rack(tree)) == {"worker 0", "worker 1"}
    again = tree.send(2, target=1, flags=RESEND)
    assert {who: packet.values for who, packet in again.items()} == {"worker 2": NONE, "worker 3": NONE}
    assert tree.racks[1].counts()["relayed"] == 1


@PROGRAMS
def test_a_result_lost_on_the_way_down_comes_again(tree: Tree) -> None:
    tree.lost = {("down", 0)}
    for rank in range(3):
        tree.send(rank)
    check_result(tree.send(3), {"worker 2", "worker 3"})
    check_result(tree.send(0, flags=RESEND), {"worker 0", "worker 1"})
    assert tree.root.counts()["replayed"] == 1
    check_result(tree.send(1, flags=RESEND), {"worker 1"})
    assert tree.root.counts()["replayed"] == 1


@PROGRAMS
def test_a_query_finds_out_at_which_node_something_is_missing(tree: Tree) -> None:
    tree.send(0)
    out = tree.send(0, flags=RESEND | QUERY)
    assert (out["worker 0"].node, out["worker 0"].bitmap) == (1, 0b01)
    tree.send(1)
    out = tree.send(0, flags=RESEND | QUERY)  # the question goes on to the root; its answer comes down
    assert set(out) == {"worker 0", "worker 1"}
    assert (out["worker 0"].node, out["worker 0"].bitmap) == (0, 0b01)


def test_reminders_find_parts_anywhere_in_the_tree() -> None:
    tree = Tree("shared")
    for rank in range(3):
        tree.send(rank)
    ask = Packet(kind=REMINDER, values=NONE, valid=0, fan_in=2)
    out = tree.at_root(changed(ask, node=0, bitmap=0b10), 9)
    assert (out["server"].kind, out["server"].node, out["server"].bitmap) == (PARTIAL, 0, 0b01)
    assert out["server"].values == total(0, 1)
    out = tree.at_root(changed(ask, node=2, bitmap=0b10), 9)
    assert (out["server"].kind, out["server"].node, out["server"].bitmap) == (PARTIAL, 2, 0b01)
    assert out["server"].values == values(2)
    again = tree.at_root(changed(ask, node=2, bitmap=0b10), 9)  # nothing is left: the workers are asked
    assert {packet.kind for packet in again.values()} == {REMINDER}
    assert {"worker 2", "worker 3"} <= set(again)
    out = tree.send(3, flags=RESEND)
    assert (out["server"].kind, out["server"].node, out["server"].bitmap) == (PARTIAL, 2, 0b10)


# --------------------------------------------------------------------------- transit


@PROGRAMS
def test_a_switch_without_memory_passes_everything(name: str) -> None:
    """Workers 0 and 1 are children of the switch above, both behind one of its ports."""
    way = Bed(name, (Job(1, slots=0, transit=True, node=5, members={1: 1, 2: 2}),))
    root = Bed(name, (Job(1, node=5, above=(0, 2, 2), members={1: 0b0011, 3: 0b0100, 4: 0b1000}),))
    for rank in (0, 1):
        packet = contribution(rank, node=5, flags=RESEND | ECN)
        (up,) = way.send(packet, rank + 1)
        assert (up.port, up.packet) == (9, packet)
        root.send(changed(up.packet, flags=0), 1)
    assert way.counts() == {"passed_up": 2}
    assert root.slot(4 + 100 % 1)["bitmap"] == 0b0011
    assert root.counts() == {"aggregated": 2}
    for kind, changes in (
        (RESULT, {}),
        (3, {"values": NONE, "valid": 0}),
        (REMINDER, {"values": NONE, "valid": 0}),
    ):
        packet = changed(Packet(kind=kind, node=0, bitmap=0b11), **changes)
        assert [(left.port, left.packet) for left in way.send(packet, 9)] == [(1, packet), (2, packet)]
    assert way.counts() == {"passed_up": 2, "passed_down": 3}
    assert way.slot(0) == dict.fromkeys(way.registers, 0)


@PROGRAMS
def test_a_switch_without_memory_still_refuses(name: str) -> None:
    way = Bed(name, (Job(1, slots=0, transit=True, node=5, members={1: 1, 2: 2}),))
    assert way.send(contribution(0, node=5), 2) == []
    assert way.send(contribution(0, node=5, epoch=7), 1) == []
    assert way.counts() == {"wrong_rank": 1, "wrong_epoch": 1}


# --------------------------------------------------------------------------- queues


@PROGRAMS
def test_long_queues_of_results_are_told_in_ip_alone(name: str) -> None:
    bed = Bed(name, (Job(1),))
    bed.set_ecn_threshold(7)  # every packet of the bench leaves a queue of six behind
    for rank in range(4):
        left = bed.send(contribution(rank), rank + 1)
    assert [(packet.packet.flags, packet.ecn) for packet in left] == [(0, 0)] * 4
    bed.set_ecn_threshold(6)
    left = bed.send(contribution(0), 1)
    assert [(packet.packet.kind, packet.packet.flags, packet.ecn) for packet in left] == [(RESULT, 0, 3)]


@PROGRAMS
def test_a_long_queue_upwards_marks_the_sum(name: str) -> None:
    bed = Bed(name, (Job(1, node=3, above=(0, 1, 2), result_bitmap=0b11),))
    bed.set_ecn_threshold(6)
    for rank in range(4):
        left = bed.send(contribution(rank, node=3), rank + 1)
    assert [(packet.port, packet.packet.flags, packet.ecn) for packet in left] == [(9, ECN, 0)]


@PROGRAMS
def test_a_slow_port_marks_what_has_waited(name: str) -> None:
    """Twenty sums leave at once; the port of worker 0 takes them one after the other."""
    job = Job(1, slots=32)
    slow = PortImpairments(tx=Impairments(rate_bps=10_000_000, queue_packets=100))
    with Switch({port: MemoryPort() for port in range(10)}, impairments={1: slow}) as switch:
        pipeline = load(program(name), backend="compiled")
        for text in (*job.entries(), "threshold => set_threshold(8)"):
            table, entry = parse_entry(pipeline.program, text)
            if table.endswith("threshold"):
                pipeline.set_default(table, entry.invocation)
            else:
                pipeline.insert(table, entry)
        switch.load(pipeline)
        switch.set_multicast_group(1, [(port, port) for port in job.ports])
        for rank in range(4):
            switch.inject(
                rank + 1, [contribution(rank, psn=psn).frame(rank + 1) for psn in range(20)], now_us=0
            )
        switch.advance(10**6)
        marks = {port: [parse(port, frame).ecn == 3 for frame in switch.drain(port)] for port in (1, 2)}
    assert len(marks[1]) == len(marks[2]) >= 12
    assert not any(marks[2])
    assert any(marks[1])
    assert not marks[1][-1]
