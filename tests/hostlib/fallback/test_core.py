"""What the server answers to single packets; both cores."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostlib import wire
from hostlib.errors import ConfigError
from hostlib.fallback import Count, FallbackCore, FallbackJob, FallbackSettings
from hostlib.wire.tree import Tree
from tests import effort
from tests.hostlib.fallback.packets import (
    ENDPOINTS,
    LANES,
    TREES,
    absorb,
    emitted,
    header_of,
    lanes_of,
    packet,
    partial,
)
from tests.twins.fallback_core import NumpyCore

MS = 1_000_000
Make = Callable[[FallbackSettings], FallbackCore]
STAR = TREES["star of 3"]
RACKS = TREES["two racks"]


def core_of(
    make_core: Make, tree: Tree = STAR, *, window: int | None = None, capacity: int = 100
) -> FallbackCore:
    core = make_core(FallbackSettings(LANES, ENDPOINTS, capacity, remind_s=0.001, remind_max_s=0.016))
    core.add_job(FallbackJob(7, 1, tree, window))
    return core


@pytest.fixture
def core(make_core: Make) -> FallbackCore:
    """The core of a job of three ranks at one switch."""
    return core_of(make_core)


@pytest.fixture
def racks(make_core: Make) -> FallbackCore:
    """The core of a job of two ranks in each of two racks."""
    return core_of(make_core, RACKS)


def answers(core: FallbackCore, packets: list[bytes], now: int = 0) -> list[bytes]:
    """Return what the core sends at once for these packets."""
    absorb(core, packets, now)
    return emitted(core, now)


def counters(core: FallbackCore) -> dict[str, int]:
    return {name: value for name, value in core.statistics()[7].items() if value}


def test_contributions_in_any_pieces_make_one_result(core: FallbackCore) -> None:
    parts = [
        partial(STAR, bitmap=0b101, lanes=[1, 2, 3, -4], exponent=9, flags=wire.FLAG_ECN, priority=3),
        partial(STAR, bitmap=0b010, lanes=[10, 20, 30, 40], exponent=5, flags=wire.FLAG_COLLISION, valid=3),
    ]
    (result,) = answers(core, parts)
    header = header_of(result)
    assert lanes_of(result).tolist() == [11, 22, 33, 36]
    assert header["kind"] == wire.KIND_RESULT
    assert header["flags"] == wire.FLAG_ECN | wire.FLAG_COLLISION
    assert (header["bitmap"], header["fan_in"], header["node"], header["target"]) == (
        0b111,
        3,
        0,
        wire.TARGET_ALL,
    )
    assert (header["exponent"], header["priority"], header["valid"], header["lanes"]) == (9, 3, 3, LANES)
    assert (header["job"], header["epoch"], header["tag"], header["psn"]) == (7, 1, 99, 0)
    assert result[: wire.FRAME_PREFIX_BYTES] == wire.frame_prefix(ENDPOINTS, wire.INA_BYTES + 4 * LANES)


def test_an_overlap_is_dropped_unless_it_contains_what_is_there(core: FallbackCore) -> None:
    absorb(core, [partial(STAR, bitmap=0b011, lanes=[1] * 4), partial(STAR, bitmap=0b110, lanes=[50] * 4)], 0)
    assert counters(core)["overlaps"] == 1
    (result,) = answers(core, [partial(STAR, bitmap=0b111, lanes=[7] * 4)])
    assert lanes_of(result).tolist() == [7] * 4


def test_a_full_sum_counts_as_one_contribution_above_and_displaces_what_is_below(racks: FallbackCore) -> None:
    absorb(racks, [partial(RACKS, node=1, bitmap=1, lanes=[1] * 4)], 0)
    absorb(racks, [partial(RACKS, node=2, bitmap=1, lanes=[2] * 4)], 0)
    absorb(racks, [partial(RACKS, node=0, bitmap=0b01, lanes=[30] * 4)], 0)  # rack 1 was complete elsewhere
    assert counters(racks)["pieces"] == 2
    absorb(racks, [partial(RACKS, node=1, bitmap=2, lanes=[400] * 4)], 0)
    assert counters(racks)["overlaps"] == 1
    (result,) = answers(racks, [partial(RACKS, node=2, bitmap=2, lanes=[5000] * 4)])
    assert lanes_of(result).tolist() == [5032] * 4


def test_a_late_contribution_gets_the_result_again_but_not_more_than_once_per_round_trip(
    core: FallbackCore,
) -> None:
    assert len(answers(core, [partial(STAR, bitmap=0b111)])) == 1
    again = partial(STAR, bitmap=1, flags=wire.FLAG_RESEND | wire.FLAG_QUERY)
    assert answers(core, [again, again], MS // 2) == []
    assert [header_of(data)["kind"] for data in answers(core, [again, again], 2 * MS)] == [wire.KIND_RESULT]
    assert counters(core)["replays"] == 1


def test_a_query_is_answered_with_what_is_there(racks: FallbackCore) -> None:
    query = wire.FLAG_RESEND | wire.FLAG_QUERY
    (status,) = map(header_of, answers(racks, [partial(RACKS, node=2, bitmap=2, flags=query)] * 2))
    assert (status["kind"], status["node"], status["bitmap"]) == (wire.KIND_STATUS, 2, 2)
    assert (status["fan_in"], status["lanes"], status["tag"]) == (2, 0, 99)


def test_reminders_name_what_is_missing_at_each_node_and_come_at_doubling_distances(
    racks: FallbackCore,
) -> None:
    """They are for the rank that lacks, for all if several do, or for a rank below the switch asked."""
    absorb(racks, [partial(RACKS, node=2, bitmap=2)], 0)
    now, waits = 0, []
    for _ in range(7):
        due = racks.next_timeout()
        assert emitted(racks, due - 1) == []
        reminders = [header_of(data) for data in emitted(racks, due)]
        assert {header["kind"] for header in reminders} == {wire.KIND_REMINDER}
        asked = [(header["node"], header["bitmap"], header["target"]) for header in reminders]
        assert asked == [(0, 3, 0), (1, 3, wire.TARGET_ALL), (2, 1, 2)]
        waits.append((due - now) / MS)
        now = due
    assert waits == [1, 2, 4, 8, 16, 16, 16]
    absorb(racks, [partial(RACKS, node=1, bitmap=3)], now)  # something came: from the beginning
    assert racks.next_timeout() == now + MS
    again = [(header_of(data)["node"], header_of(data)["bitmap"]) for data in emitted(racks, now + MS)]
    assert again == [(0, 2), (2, 1)]


def test_reminders_end_with_an_answer_from_below(core: FallbackCore) -> None:
    """A finished entry was forgotten, and a late contribution began another."""
    absorb(core, [partial(STAR, bitmap=1, flags=wire.FLAG_RESEND)], 0)
    answer = packet(wire.KIND_RESULT, STAR, bitmap=2, lanes=[5] * 4, exponent=4, flags=wire.FLAG_RESEND)
    (result,) = answers(core, [answer])
    header = header_of(result)
    assert (header["bitmap"], header["flags"], header["exponent"]) == (7, 0, 4)
    assert lanes_of(result).tolist() == [5] * 4
    assert emitted(core, 10**12) == []
    absorb(core, [answer], 0)
    assert counters(core)["unasked"] == counters(core)["answers"] == 1


def test_an_answer_says_of_marks_and_priority_what_its_sender_has_seen(core: FallbackCore) -> None:
    """All ranks have to see the same, whatever those who ask again have met with meanwhile."""
    met = wire.FLAG_ECN | wire.FLAG_BYPASS
    absorb(core, [partial(STAR, bitmap=1, flags=met, priority=9)], 0)
    seen = wire.FLAG_RESEND | wire.FLAG_COLLISION
    answer = packet(wire.KIND_RESULT, STAR, bitmap=2, flags=seen, priority=4)
    (result,) = map(header_of, answers(core, [answer]))
    assert result["flags"] == wire.FLAG_COLLISION | wire.FLAG_BYPASS
    assert result["priority"] == 4


def test_a_contribution_of_a_worker_that_has_the_result_begins_nothing(core: FallbackCore) -> None:
    """It answers a reminder, and may come when the sum is finished and forgotten: it would begin anew."""
    answer = partial(STAR, bitmap=0b010, lanes=[5] * 4, flags=wire.FLAGS_OF_ANSWER)
    absorb(core, [answer], 0)
    assert counters(core) == {"packets": 1, "gradient_bytes": 4 * LANES, "unasked": 1}
    assert emitted(core, 10**12) == []
    missing = partial(STAR, bitmap=0b101, lanes=[1] * 4, flags=wire.FLAG_RESEND)
    (result,) = answers(core, [missing, answer])
    assert lanes_of(result).tolist() == [6] * 4
    assert header_of(result)["flags"] == 0, "no contribution was sent with BYPASS"


def test_what_was_dropped_with_an_overlap_is_asked_for_again_soon(core: FallbackCore) -> None:
    """A reminder pulled it out of a slot: its senders take it for counted, and nobody has it any more."""
    absorb(core, [partial(STAR, bitmap=0b011)], 0)
    now = 0
    for _ in range(4):
        now = core.next_timeout()
        assert len(emitted(core, now)) == 1
    assert core.next_timeout() == now + 16 * MS
    now += MS // 2
    absorb(core, [partial(STAR, bitmap=0b110)], now)
    assert core.next_timeout() == now + MS
    absorb(core, [partial(STAR, bitmap=0b110)], now + MS // 2)
    assert core.next_timeout() == now + MS, "a second one does not put it off"
    (reminder,) = map(header_of, emitted(core, now + MS))
    assert (reminder["kind"], reminder["bitmap"]) == (wire.KIND_REMINDER, 0b100)


def test_an_overlap_that_holds_nothing_new_hastens_nothing(racks: FallbackCore) -> None:
    absorb(racks, [partial(RACKS, node=0, bitmap=0b01), partial(RACKS, node=2, bitmap=0b01)], 0)
    for _ in range(4):
        now = racks.next_timeout()
        emitted(racks, now)
    due = racks.next_timeout()
    absorb(racks, [partial(RACKS, node=2, bitmap=0b01), partial(RACKS, node=1, bitmap=0b11)], now + 1)
    assert counters(racks)["overlaps"] == 2
    assert racks.next_timeout() == due


def test_the_wait_for_reminders_follows_the_lateness_of_last_contributions(core: FallbackCore) -> None:
    for psn in range(40):
        absorb(core, [partial(STAR, bitmap=0b011, psn=psn)], psn * 100 * MS)
        absorb(core, [partial(STAR, bitmap=0b100, psn=psn)], psn * 100 * MS + 3 * MS // 2)
        emitted(core, psn * 100 * MS + 3 * MS // 2)
    absorb(core, [partial(STAR, bitmap=1, psn=100)], 0)
    assert core.next_timeout() == pytest.approx(3 * MS, rel=0.01)


def test_different_tags_end_the_packet_for_everybody(core: FallbackCore) -> None:
    contributions = [partial(STAR, bitmap=1, tag=1), partial(STAR, bitmap=2, tag=2)]
    (result,) = map(header_of, answers(core, contributions))
    assert (result["kind"], result["flags"], result["tag"]) == (wire.KIND_RESULT, wire.FLAG_DISAGREE, 1)


def test_an_int32_overflow_is_flagged_and_repaired_in_64_bits(core: FallbackCore) -> None:
    parts = [partial(STAR, bitmap=0b011, lanes=[2**31 - 1] * 4), partial(STAR, bitmap=4, lanes=[1] * 4)]
    (result,) = answers(core, parts)
    assert header_of(result)["flags"] == wire.FLAG_OVERFLOW
    raw = {"flags": wire.FLAG_RAW | wire.FLAG_RESEND, "valid": wire.VALID_INT32 | LANES}
    values = [2**31 - 1, -(2**31) + 5, 1]
    parts = [partial(STAR, bitmap=1 << rank, lanes=[values[rank]] * 4, **raw) for rank in range(3)]
    (result,) = answers(core, parts, MS)
    assert header_of(result)["flags"] == wire.FLAG_RAW
    assert header_of(result)["valid"] == raw["valid"]
    assert lanes_of(result).tolist() == [5] * 4


def test_an_int32_sum_out_of_range_stays_an_overflow(core: FallbackCore) -> None:
    fields = {"flags": wire.FLAG_RAW, "valid": wire.VALID_INT32 | LANES, "lanes": [2**30] * 4}
    parts = [partial(STAR, bitmap=1 << rank, **fields) for rank in range(3)]
    (result,) = map(header_of, answers(core, parts))
    assert result["flags"] == wire.FLAG_RAW | wire.FLAG_OVERFLOW


def test_raw_floats_are_added_in_the_order_of_ranks_and_rounded_once(make_core: Make) -> None:
    rows = np.array([[1e30, 1, np.inf, 3e38], [1, 2**-25, 1, 3e38], [-1e30, 2**-25, -np.inf, 0]], np.float32)
    for order in ((0, 1, 2), (2, 1, 0)):
        core = core_of(make_core)
        absorb(core, [partial(STAR, bitmap=1, flags=wire.FLAG_OVERFLOW)], 0)  # gives way to the repair
        raw = [partial(STAR, bitmap=1 << rank, flags=wire.FLAG_RAW, lanes=rows[rank]) for rank in order]
        (result,) = answers(core, raw)
        sums = lanes_of(result).view(np.float32)
        assert sums[:2].tolist() == [0.0, float(np.float32(1 + 2**-24))]
        assert np.isnan(sums[2])
        assert np.isposinf(sums[3])


def test_whoever_sends_sums_to_a_repair_is_told_of_the_overflow(racks: FallbackCore) -> None:
    absorb(racks, [partial(RACKS, node=1, bitmap=2, flags=wire.FLAG_RAW)], 0)
    (notice,) = map(header_of, answers(racks, [partial(RACKS, node=2, bitmap=1, flags=wire.FLAG_QUERY)]))
    assert (notice["kind"], notice["flags"], notice["lanes"]) == (wire.KIND_RESULT, wire.FLAG_OVERFLOW, LANES)
    reminders = [header_of(data) for data in emitted(racks, MS)]
    assert {header["flags"] for header in reminders} == {wire.FLAG_RAW}
    assert [(header["node"], header["bitmap"]) for header in reminders] == [(0, 3), (1, 1), (2, 3)]


@pytest.mark.parametrize(
    ("reason", "fields"),
    [
        ("wrong_epoch", {"epoch": 2}),
        ("wrong_node", {"node": 5}),
        ("foreign_bits", {"bitmap": 0b1001}),
        ("foreign_bits", {"bitmap": 0}),
        ("foreign_bits", {"bitmap": 0b11, "flags": wire.FLAG_RAW}),
        ("wrong_fan_in", {"fan_in": 4}),
        ("bad_lanes", {"lanes_": 32}),
        ("bad_lanes", {"valid": LANES + 1}),
        ("bad_lanes", {"valid": wire.VALID_INT32}),
    ],
)
def test_what_does_not_belong_is_dropped_and_counted(
    core: FallbackCore, reason: str, fields: dict[str, int]
) -> None:
    data = bytearray(partial(STAR, **{name: value for name, value in fields.items() if name != "lanes_"}))
    if "lanes_" in fields:
        data[wire.FRAME_PREFIX_BYTES + 19] = fields["lanes_"]
    absorb(core, [bytes(data)], 0)
    assert counters(core) == {"packets": 1, reason: 1}


def test_what_belongs_to_no_job_is_dropped_and_counted(core: FallbackCore) -> None:
    good = partial(STAR)
    other_type, other_version = bytearray(good), bytearray(good)
    other_type[12] ^= 1
    other_version[wire.FRAME_PREFIX_BYTES] = 0x14
    packets = [partial(STAR, job=8), good[:60], bytes(other_type), bytes(other_version)]
    absorb(core, [*packets, packet(wire.KIND_GRADIENT, STAR), good[:-1]], 0)
    strangers = {name: value for name, value in core.statistics()[None].items() if value}
    assert strangers == {"unknown_job": 1, "bad_length": 1, "foreign": 1, "bad_version": 1, "bad_kind": 1}
    assert counters(core) == {"packets": 1, "bad_length": 1}


def test_a_job_that_is_removed_leaves_nothing_and_may_come_back(make_core: Make) -> None:
    core = core_of(make_core, capacity=6)
    absorb(core, [partial(STAR, psn=psn, bitmap=7 if psn % 2 else 1) for psn in range(6)], 0)
    with pytest.raises(ConfigError, match="job 7 is served already"):
        core.add_job(FallbackJob(7, 2, STAR))
    core.remove_job(7)
    assert emitted(core, 10**12) == []
    core.add_job(FallbackJob(7, 2, STAR))
    assert counters(core) == {}
    assert len(answers(core, [partial(STAR, psn=psn, bitmap=7, epoch=2) for psn in range(6)])) == 6
    with pytest.raises(KeyError):
        core.remove_job(8)


def test_jobs_that_would_have_too_little_memory_are_refused(make_core: Make) -> None:
    core = core_of(make_core, capacity=7)
    with pytest.raises(ConfigError, match="must be at least 4 for each"):
        core.add_job(FallbackJob(8, 1, RACKS))
    core.add_job(FallbackJob(8, 1, STAR))


def test_finished_packets_are_forgotten_first_then_those_furthest_ahead(make_core: Make) -> None:
    core = core_of(make_core, capacity=4)
    absorb(core, [partial(STAR, psn=psn, bitmap=7 if psn == 2 else 1) for psn in (0, 2, 1, 9, 3)], 0)
    emitted(core, 0)
    absorb(
        core, [partial(STAR, psn=2, bitmap=1), partial(STAR, psn=12, bitmap=1)], 0
    )  # 2 takes the place of 9
    assert counters(core)["forgotten"] == 2
    assert counters(core)["no_room"] == 1
    psns = sorted(header_of(data)["psn"] for data in emitted(core, 20 * MS))
    assert psns == [0, 1, 2, 3]


def test_a_job_within_its_share_loses_nothing_to_a_greedy_one(make_core: Make) -> None:
    core = core_of(make_core, capacity=10)
    core.add_job(FallbackJob(8, 1, STAR))
    absorb(core, [partial(STAR, job=8, psn=psn) for psn in range(5)], 0)
    absorb(core, [partial(STAR, job=7, psn=psn) for psn in range(100)], 0)
    assert core.statistics()[8]["pieces"] == 5
    assert core.statistics()[7]["no_room"] == 95
    core.remove_job(8)
    absorb(core, [partial(STAR, job=7, psn=psn) for psn in range(100)], 0)
    core.add_job(FallbackJob(8, 1, STAR))
    absorb(core, [partial(STAR, job=8, psn=psn) for psn in range(8)], 0)
    assert (core.statistics()[8]["pieces"], core.statistics()[7]["pieces"]) == (5, 5)


def test_with_a_window_what_nobody_can_ask_for_is_gone(make_core: Make) -> None:
    core = core_of(make_core, window=4)
    absorb(core, [partial(STAR, psn=2**32 - 2 + psn & 0xFFFFFFFF, bitmap=7) for psn in range(12)], 0)
    assert counters(core)["entries"] <= 5
    assert counters(core)["expired"] >= 7
    absorb(core, [partial(STAR, psn=0)], 0)
    assert counters(core)["stale"] == 1


def complete(psn: int) -> bytes:
    """What a worker says that knows of a result, and has not its lanes."""
    whole = packet(
        wire.KIND_RESULT, STAR, psn=psn, bitmap=STAR.result_bitmap, flags=wire.FLAG_RESEND, valid=0
    )
    frame = np.frombuffer(whole, wire.packet_dtype(LANES, framed=True)).copy()
    frame["lanes"] = 0
    return frame.tobytes()[: wire.FRAME_PREFIX_BYTES + wire.INA_BYTES]


def test_that_there_is_a_result_finishes_nothing(make_core: Make) -> None:
    """Some rank lacks it, and would get zeros."""
    core = core_of(make_core, window=4)
    assert answers(core, [partial(STAR, psn=6), complete(6)]) == []
    assert counters(core)["unfinished"] == 1


def test_what_nobody_lacks_any_more_makes_room_for_what_is_ahead(make_core: Make) -> None:
    """Late copies filled the memory, and packets ahead of them found none, again and again."""
    core = core_of(make_core, window=4, capacity=3)
    absorb(core, [partial(STAR, psn=psn) for psn in (1, 2, 3, 5)], 0)
    assert counters(core)["no_room"] == 1
    absorb(core, [complete(6)], 0)
    results = answers(core, [partial(STAR, psn=5, bitmap=bitmap) for bitmap in (1, 6)])
    assert [header_of(data)["psn"] for data in results] == [5]
    assert (counters(core)["expired"], counters(core)["no_room"]) == (1, 1)


def test_an_entry_that_nobody_speaks_of_any_more_is_forgotten(make_core: Make) -> None:
    core = make_core(FallbackSettings(LANES, ENDPOINTS, remind_s=0.001, remind_max_s=0.02, forget_s=1))
    core.add_job(FallbackJob(7, 1, STAR))
    absorb(core, [partial(STAR)], 0)
    now = 0
    while (due := core.next_timeout()) < 10**12:
        assert due > now
        now = due
        emitted(core, now)
    assert 10**9 <= now < 1.05e9
    assert counters(core)["forgotten"] == 1
    assert counters(core)["reminders"] < 60


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
