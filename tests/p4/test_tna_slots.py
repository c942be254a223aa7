"""What the programs for Tofino decide: beside ``exclusive.p4`` of v1model, and against plain sums.

They run compiled and interpreted at once, and do the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from softswitch.compiler import ir
from softswitch.engine.cache import compile_once, preprocess_once
from softswitch.engine.pipeline import Pipeline
from tests.p4.bed import (
    BYPASS,
    COLLISION,
    ECN,
    GRADIENT,
    LANES,
    NONE,
    OUTCOMES,
    PARTIAL,
    QUERY,
    RAW,
    REMINDER,
    RESEND,
    RESULT,
    SLOTS,
    STATUS,
    Bed,
    Job,
    Left,
    Packet,
    changed,
    parse_loosely,
)
from tests.p4.test_tna import TNA
from tests.softswitch.differential.compare import Pair
from tests.softswitch.differential.script import parse_entry

GROUP_WAY, UPLINK_WAY = 2, 3
RELEASE = 15
UPLINK = 9
SELF = 68
"""Port that leads back into the pipeline."""
GROUP_OF_SELF = 65535
PROGRAMS: dict[str, ir.Program] = {}


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    """Compile the programs."""
    for name in ("exclusive", "shared"):
        text = preprocess_once(TNA / f"{name}.p4", defines={"LANES": str(LANES), "SLOTS": str(SLOTS)})
        PROGRAMS[name] = compile_once(text, name=name)


@dataclass
class Chip:
    """A program for Tofino with jobs; `recirculates`: copies come back that release slots."""

    name: str
    jobs: tuple[Job, ...]
    recirculates: bool = False
    pair: Pair = field(init=False)

    def __post_init__(self) -> None:
        groups = {job.job: [(port, port) for port in job.ports] for job in self.jobs}
        if self.recirculates:
            groups[GROUP_OF_SELF] = [(SELF, 0)]
        self.pair = Pair(PROGRAMS[self.name], groups=groups)
        entries = exclusive_entries if self.name == "exclusive" else shared_entries
        for job in self.jobs:
            for text in (*entries(job), *exits(job), *receivers(job)):
                for pipeline in self.pair.pipelines:
                    pipeline.insert(*parse_entry(PROGRAMS[self.name], text))

    @property
    def pipeline(self) -> Pipeline:
        """One of both, to look at."""
        return self.pair.pipelines[0]

    def counts(self) -> dict[str, int]:
        """Return the outcomes counted for job 1 that are not zero."""
        cells = (self.pipeline.read_counter("Ingress.leaving.outcomes", 32 + i)[0] for i in range(32))
        return {name: count for name, count in zip(OUTCOMES, cells, strict=True) if count}

    def send(self, packet: Packet, port: int) -> list[Left]:
        """Put a packet in at a port and return what leaves."""
        return [parse_loosely(sent.port, sent.frame) for sent in self.pair.send(packet.frame(port), port)]


def exits(job: Job) -> Iterable[str]:
    """Yield where a job's packets go."""
    yield f"exits {GROUP_WAY} {job.job} => to_group({job.job})"
    yield f"exits {UPLINK_WAY} {job.job} => to_port({UPLINK})"


def receivers(job: Job) -> Iterable[str]:
    """Yield the addresses of a job's packets, which are all the same."""
    addresses = "1, 2, 3, 4, 5"
    for port in (*job.ports, UPLINK):
        for kind in (GRADIENT, RESULT, STATUS, PARTIAL, REMINDER):
            yield f"receiver {job.job} {port} {kind} => to_child({addresses})"
    for kind in (GRADIENT, RESULT, PARTIAL, REMINDER):
        yield f"receiver {job.job} {SELF} {kind} => to_self()"


def exclusive_entries(job: Job) -> Iterable[str]:
    """Yield a job's children, and the results from above."""
    region = f"{job.job}, {job.slots - 1}, {job.offset}"
    epoch = job.epochs & 0xFF
    for port, bitmap in job.ports.items():
        yield (
            f"member {port} {GRADIENT} {job.job} {epoch} {job.node} {bitmap} {job.size} "
            f"=> contributes({region}, {job.full}, {int(job.node == 0)})"
        )
    yield (
        f"member {UPLINK} {RESULT} {job.job} {epoch} 0 {job.result} {job.result.bit_count()} "
        f"=> comes_down({region}, {job.full})"
    )


def shared_entries(job: Job) -> Iterable[str]:
    """Yield a job's children, and who else sends."""
    region = f"{job.job}, {job.slots - 1}, {job.offset}"
    epoch = job.epochs & 0xFF
    action = "contends" if job.preempt else "contributes"
    for port, bitmap in job.ports.items():
        yield (
            f"member {port} {job.job} {epoch} {job.node} {bitmap} {job.size} "
            f"=> {action}({region}, {job.full & ~bitmap}, {int(job.node == 0)})"
        )
    for port, kind in ((UPLINK, RESULT), (UPLINK, REMINDER), (SELF, RELEASE)):
        yield f"neighbour prio=1 {port} {kind} {job.job} {epoch} 0..65535 _ => locate({region})"
    yield f"part {job.job} => set_node({job.node}, {job.size})"


ROOT = Job(1, offset=16, slots=16, uplink=None)
CHILD = Job(1, offset=16, slots=16, node=3, above=(1, 0b100, 3), result_bitmap=0b111)


def contribution(job: Job, psn: int, child: int, flags: int = 0) -> Packet:
    """Return what a child sends for a PSN: always the same values."""
    draw = random.Random(psn * 1000 + job.job * 100 + child)
    return Packet(
        job=job.job,
        epoch=job.epochs & 0xFF,
        node=job.node,
        psn=psn,
        bitmap=1 << child,
        fan_in=job.size,
        priority=job.ageing,
        exponent=draw.randrange(1, 200),
        flags=flags | (ECN if draw.random() < 0.2 else 0),
        values=tuple(draw.randrange(-1000, 1000) for _ in range(LANES)),
    )


def told(left: list[Left]) -> list[tuple[int, Packet]]:
    """Return what leaves, without what egress writes: whose sum it is."""
    return sorted(
        (
            (
                one.port,
                changed(one.packet, node=0, bitmap=0, fan_in=0)
                if one.packet.kind in (GRADIENT, RESULT)
                else one.packet,
            )
            for one in left
        ),
        key=repr,
    )


@pytest.mark.parametrize("job", [ROOT, CHILD], ids=["root", "child"])
def test_an_exclusive_slot_decides_as_that_of_the_v1model_program(job: Job) -> None:
    draw = random.Random(1)
    one, other = Bed("exclusive", (job,)), Chip("exclusive", (job,))
    seen: set[int] = set()
    for step in range(200):
        psn = max(0, step // 12 + draw.randrange(-20, 6))
        if job.node and draw.random() < 0.04:
            packet, port = result_of(job, psn), UPLINK
        else:
            child = draw.randrange(job.size)
            asked = draw.choice((0, 0, 0, RESEND, RESEND | QUERY, QUERY))
            packet, port = contribution(job, psn, child, asked), child + 1
        left = other.send(packet, port)
        assert told(left) == told(one.send(packet, port)), (step, packet)
        seen |= {found.packet.kind for found in left}
    assert other.counts() == one.counts()
    assert seen >= ({RESULT} if not job.node else {RESULT, GRADIENT})


def result_of(job: Job, psn: int) -> Packet:
    """Return the result that comes from above for a PSN."""
    whole = contribution(job, psn, 31)
    of_root = {"node": 0, "bitmap": job.result, "fan_in": job.result.bit_count()}
    return changed(whole, kind=RESULT, exponent=200, flags=ECN, **of_root)


FIRST = Job(1, offset=0, slots=16, node=0, ageing=5)
SECOND = Job(2, offset=0, slots=16, size=3, ageing=9, preempt=True)
MEEK = replace(SECOND, preempt=False)
THIRD = Job(3, offset=0, slots=16, size=2, node=4, ageing=7, preempt=True, above=(1, 0b100, 3))


def total(job: Job, psn: int, bitmap: int) -> Packet:
    """Return the sum of the contributions that a bitmap names: lanes, exponent and ECN."""
    parts = [contribution(job, psn, child) for child in range(32) if bitmap >> child & 1]
    return changed(
        parts[0],
        bitmap=bitmap,
        exponent=max(part.exponent for part in parts),
        flags=ECN if any(part.flags & ECN for part in parts) else 0,
        values=tuple(sum(lanes) for lanes in zip(*(part.values for part in parts), strict=True)),
    )


def check(jobs: dict[int, Job], left: Left) -> None:
    """A part of a sum says of whom it is, and is the sum of exactly those."""
    packet = left.packet
    job = jobs[packet.job]
    assert packet.epoch == job.epochs & 0xFF
    assert packet.bitmap
    whole = total(job, packet.psn, packet.bitmap)
    # after a sum has left its slot, a late copy may find the largest exponent of the same sum there
    assert packet.exponent >= whole.exponent
    assert (packet.flags & ECN) >= (whole.flags & ECN)
    assert packet.values == whole.values
    assert (packet.node, packet.fan_in, packet.tag) == (job.node, job.size, whole.tag)
    if packet.kind != PARTIAL:
        assert packet.bitmap == job.full


@pytest.mark.parametrize("seed", range(2))
def test_whatever_leaves_a_shared_slot_is_the_sum_of_those_it_names(seed: int) -> None:
    draw = random.Random(seed)
    jobs = {job.job: job for job in (FIRST, SECOND, THIRD)}
    chip = Chip("shared", tuple(jobs.values()))
    kinds: list[int] = []
    for step in range(220):
        job = jobs[draw.choice(tuple(jobs))]
        psn = step // 25 + draw.randrange(3)
        child = draw.randrange(job.size)
        choice = draw.random()
        if choice < 0.05:
            packet, port = changed(contribution(job, psn, 0), kind=RELEASE, values=NONE, valid=0), SELF
        elif choice < 0.1:
            packet, port = changed(contribution(job, psn, 0), kind=REMINDER, values=NONE, valid=0), UPLINK
        else:
            asked = draw.choice((0, 0, 0, 0, RESEND, RESEND | QUERY, BYPASS))
            packet, port = contribution(job, psn, child, asked), child + 1
        for left in chip.send(packet, port):
            if left.packet.kind in (GRADIENT, PARTIAL, RESULT):
                check(jobs, left)
                kinds.append(left.packet.kind)
    assert {GRADIENT, PARTIAL, RESULT} <= set(kinds)


def test_a_stronger_job_takes_a_slot_and_its_sum_leaves() -> None:
    chip = Chip("shared", (FIRST, SECOND))
    weak, strong = (contribution(job, 3, 0) for job in (FIRST, SECOND))
    assert chip.send(weak, 1) == []
    (evicted,) = chip.send(strong, 1)
    assert evicted.port == UPLINK
    assert evicted.packet == changed(weak, kind=PARTIAL, fan_in=4, valid=LANES, priority=strong.priority)
    (collided,) = chip.send(contribution(FIRST, 3, 1), 2)
    assert collided.packet == changed(
        contribution(FIRST, 3, 1), kind=PARTIAL, flags=contribution(FIRST, 3, 1).flags | COLLISION
    )


def test_a_slot_serves_others_when_its_release_has_passed() -> None:
    chip = Chip("shared", (FIRST, MEEK))
    for child in range(3):
        assert chip.send(contribution(FIRST, 3, child), child + 1) == []
    copies = chip.send(contribution(FIRST, 3, 3), 4)
    assert [left.packet.kind for left in copies] == [RESULT] * 4
    assert [left.packet.kind for left in chip.send(contribution(MEEK, 3, 0), 1)] == [PARTIAL]
    assert chip.send(changed(contribution(FIRST, 3, 0), kind=RELEASE, values=NONE, valid=0), SELF) == []
    assert chip.send(contribution(MEEK, 3, 0), 1) == []


def test_what_leaves_a_slot_comes_back_and_releases_it() -> None:
    chip = Chip("shared", (FIRST, MEEK), recirculates=True)
    for child in range(3):
        assert chip.send(contribution(FIRST, 3, child), child + 1) == []
    assert [left.packet.kind for left in chip.send(contribution(FIRST, 3, 3), 4)] == [RESULT] * 4
    assert chip.send(contribution(MEEK, 3, 0), 1) == []


def test_a_contribution_that_is_not_that_of_its_port_goes_nowhere() -> None:
    for name in ("exclusive", "shared"):
        chip = Chip(name, (FIRST,))
        good = contribution(FIRST, 3, 0)
        for bad in ({"bitmap": 2}, {"epoch": 9}, {"fan_in": 3}, {"node": 1}, {"job": 2}, {"bitmap": 3}):
            assert chip.send(changed(good, **bad), 1) == []
        if name == "exclusive":
            assert chip.send(changed(good, flags=RAW), 1) == []
        assert chip.pipeline.read_register("Ingress.slot.slot_bitmap", 3) == 0


def test_what_is_broken_counts_as_nobodys_though_its_sender_is_known() -> None:
    for name in ("exclusive", "shared"):
        chip = Chip(name, (FIRST,))
        assert chip.send(changed(contribution(FIRST, 3, 0), valid=LANES + 1), 1) == []
        assert chip.counts() == {}
        assert chip.pipeline.read_counter("Ingress.leaving.outcomes", OUTCOMES.index("bad_length"))[0] == 1
        assert chip.pipeline.read_register("Ingress.slot.slot_bitmap", 3) == 0
