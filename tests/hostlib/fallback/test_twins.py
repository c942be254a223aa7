"""The C core against the numpy one: the same bytes at the same times, whatever comes in."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hostlib import wire
from hostlib.fallback import Count, FallbackCore, FallbackJob, FallbackSettings
from hostlib.wire.tree import Tree
from tests import effort
from tests.hostlib.fallback.packets import ENDPOINTS, LANES, TREES, emitted, packet
from tests.twins.fallback_core import NumpyCore

EXTREMES = np.array([2**31 - 1, -(2**31), 0, 1, -1], np.int32)
RAW_BITS = np.array([0x7F800000, 0x7FC00001, 0x3F800000, 0x00000001, 0x7F7FFFFF, 0], np.uint32).view(np.int32)
KINDS = [wire.KIND_PARTIAL] * 12 + [wire.KIND_RESULT] * 2 + [wire.KIND_GRADIENT, wire.KIND_STATUS, 0]


def any_packet(random: Random, jobs: dict[int, Tree], psns: list[int]) -> bytes:
    """Mostly what a network may send; some of it spoiled."""
    job = random.choice([*jobs, 500]) if random.random() < 0.02 else random.choice(list(jobs))
    tree = jobs.get(job, Tree.star(2))
    node = random.choice(list(tree.nodes))
    full = tree.full_bitmap(node)
    bitmap = random.choice([1 << random.randrange(tree.fan_in(node)), random.getrandbits(32) & full, full])
    flags = 0
    for flag, chance in (
        (wire.FLAG_RESEND, 0.4),
        (wire.FLAG_QUERY, 0.3),
        (wire.FLAG_OVERFLOW, 0.05),
        (wire.FLAG_DISAGREE, 0.005),
        (wire.FLAG_COLLISION, 0.2),
        (wire.FLAG_ECN, 0.2),
        (wire.FLAG_BYPASS, 0.2),
    ):
        flags |= flag * (random.random() < chance)
    psn = random.choice(psns)
    valid = random.randrange(LANES + 1)
    lanes = np.array([random.randrange(-1000, 1000) for _ in range(LANES)], np.int32)
    if psn % 3 == 0 and random.random() < 0.5:
        flags |= wire.FLAG_RAW
        lanes = np.array(random.choices(RAW_BITS.tolist(), k=LANES), np.int32)
        leaves = [
            (each, 1 << bit)
            for each, kids in tree.nodes.items()
            for bit, kid in enumerate(kids)
            if kid >= 0 or random.random() < 0.01
        ]
        node, bitmap = random.choice(leaves)
        valid |= wire.VALID_INT32 * (psn % 2 == 0 or random.random() < 0.01)
    elif random.random() < 0.1:
        lanes = np.array(random.choices(EXTREMES.tolist(), k=LANES), np.int32)
    spoiled = random.random() < 0.05
    data = packet(
        random.choice(KINDS),
        tree,
        node=random.choice([node, 77]) if spoiled else node,
        bitmap=random.getrandbits(32) if spoiled and random.random() < 0.5 else bitmap,
        psn=psn,
        job=job,
        flags=flags,
        epoch=random.choice([1, 2]) if spoiled else 1,
        fan_in=random.choice([1, tree.fan_in(node)]) if spoiled else tree.fan_in(node),
        lanes=lanes,
        valid=random.choice([valid, LANES + 1]) if spoiled else valid,
        tag=random.choice([99, 98]) if random.random() < 0.01 else 99,
        exponent=random.randrange(256),
        priority=random.randrange(256),
        target=random.choice([wire.TARGET_ALL, 1]),
    )
    if random.random() < 0.02:
        flipped = bytearray(data)
        place = random.choice([random.randrange(len(data)), wire.FRAME_PREFIX_BYTES + random.randrange(4)])
        flipped[place] ^= 1 << random.randrange(8)
        data = bytes(flipped)
    return data[: random.randrange(len(data))] if random.random() < 0.02 else data


def run_both(
    seed: int,
    framed: bool,
    spare: int,
    trees: list[str],
    window: int | None,
    *,
    steps: int,
    removals: float = 0.01,
) -> FallbackCore:
    """Feed both cores with the same, and compare all that can be seen of them."""
    random = Random(seed)
    most = max(max(len(TREES[name].nodes), TREES[name].size) for name in trees)
    capacity = len(trees) * most + spare
    fallback = FallbackSettings(
        LANES, ENDPOINTS if framed else None, capacity, remind_s=0.001, remind_max_s=0.02, forget_s=0.1
    )
    native = FallbackCore(fallback)
    cores: list[FallbackCore] = [native, NumpyCore(fallback)]
    jobs = {7 + number: TREES[name] for number, name in enumerate(trees)}
    slots = random.choice([None, 0, 10])
    for core in cores:
        for job, tree in jobs.items():
            core.add_job(FallbackJob(job, 257, tree, window, slots))
    now = random.choice([0, 2**40])
    base = random.choice([0, 2**32 - 30, 2**31 - 5])
    room = random.choice([1 << 16, 200, 100])
    for _ in range(steps):
        psns = [(base + random.randrange(6)) % 2**32 for _ in range(2)]
        batch = [any_packet(random, jobs, psns) for _ in range(random.randrange(12))]
        if not framed:
            batch = [data[wire.FRAME_PREFIX_BYTES :] for data in batch]
        for core in cores:
            for data in batch:
                core.absorb(np.frombuffer(data, np.uint8), max(1, len(data)), now)
        assert emitted(cores[0], now, room) == emitted(cores[1], now, room)
        assert cores[0].next_timeout() == cores[1].next_timeout()
        assert cores[0].statistics() == cores[1].statistics()
        if random.random() < removals:
            job = random.choice(list(jobs))
            for core in cores:
                core.remove_job(job)
                core.add_job(FallbackJob(job, 1, jobs[job], window, slots))
        now += random.choice([0, 1000, 1000, 500_000, 3_000_000, 50_000_000])
        base = (base + random.choice([0, 0, 0, 0, 1, 3])) % 2**32
    return native


@settings(max_examples=effort.cases(150), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    framed=st.booleans(),
    spare=st.sampled_from([0, 1, 10, 1000]),
    trees=st.lists(st.sampled_from([name for name in TREES if name != "star of 32"]), min_size=1, max_size=4),
    window=st.sampled_from([None, 1, 4, 100]),
)
def test_both_cores_send_the_same_packets_at_the_same_times(
    seed: int, framed: bool, spare: int, trees: list[str], window: int | None
) -> None:
    run_both(seed, framed, spare, trees, window, steps=80)


def test_these_schedules_reach_everything_that_is_counted() -> None:
    totals = dict.fromkeys(Count, 0)
    for seed, spare in enumerate((0, 1000, 0, 1000)):
        core = run_both(
            seed, True, spare, ["two racks", "star of 3"], (4, None)[seed // 2], steps=300, removals=0
        )
        for counters in core.statistics().values():
            for count in Count:
                totals[count] += counters[count.name.lower()]
    assert [count for count, total in totals.items() if not total] == []


def test_both_cores_are_equal_with_32_ranks() -> None:
    run_both(5, True, 0, ["star of 32"], None, steps=200)
    run_both(6, True, 1000, ["star of 32"], 4, steps=200)
