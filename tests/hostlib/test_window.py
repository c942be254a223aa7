"""The window core against the reference switch, in virtual time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hostlib import wire
from hostlib._native import NativeKernel
from hostlib.core.state import STEPS, Chain, CoreSettings, CoreState, Counter, RtoLimits
from hostlib.core.window import Exchange, Window
from hostlib.errors import RanksDisagree
from hostlib.wire import encodings
from tests import effort
from tests.hostlib.cases import LANES, Case, MakeKernel, cases, network_of, random_arrays, run_case
from tests.hostlib.test_fallback_window import shared_network
from tests.hostlib.virtual_network import Impairments
from tests.twins.kernel import NumpyKernel


@settings(max_examples=effort.cases(1000), deadline=None)
@given(cases)
@example(Case(2, 1, (100, 100), "float32", "sum", True, Impairments(0.2, 0.2, 0.2, 0.2), 1))
@example(Case(3, 3, (640,), "float32", "sum", False, Impairments(0.1), 2, first_psn=2**32 - 8))
@example(Case(6, 1, (100,), "int32", "sum", True, Impairments(0.2, 0.2, 0.2, 0.2), 2, first_psn=2**32 - 2))
@example(Case(3, 5, (700,), "float32", "sum", False, Impairments(0.1), 3, first_psn=2**32 - 20))
# time-outs that followed the pace of all results let ranks get different sums
@example(Case(3, 1, (637,), "float32", "sum", False, Impairments(0.1875, 0.0, 0.0, 0.125), 428, skew_us=100))
def test_every_sum_is_exact_under_loss_duplication_reordering_and_corruption(case: Case) -> None:
    run_case(case, NativeKernel)


@functools.cache
def steps_between(call: str, before: int, after: int) -> list[str]:
    """Return the fewest steps of a call from one status to another; none: nothing leads there."""
    ways: dict[int, list[str]] = {before: []}
    for status in (waiting := [before]):
        for step in STEPS:
            then = status & ~step.clears | step.sets
            if step.call == call and not step.needs & ~status | status & step.lacks and then not in ways:
                ways[then] = [*ways[status], step.what]
                waiting.append(then)
    return ways.get(after, [])


class Stepped(NativeKernel):
    """A kernel that notes by which steps each call changes the chains."""

    taken: ClassVar[set[tuple[str, str]]] = set()

    def note(self, call: str, state: CoreState, run: Callable[[], Any]) -> Any:
        before = state.status.tolist()
        result = run()
        for old, new in zip(before, state.status.tolist(), strict=True):
            if old != new:
                steps = steps_between(call, old, new)
                assert steps, f"{call} has changed {Chain(old)!r} to {Chain(new)!r}"
                self.taken.update((call, step) for step in steps)
        return result

    def begin(self, state: CoreState, now: int) -> None:
        self.note("begin", state, lambda: super(Stepped, self).begin(state, now))

    def emit(self, state: CoreState, out: NDArray[Any], now: int) -> int:
        return int(self.note("emit", state, lambda: super(Stepped, self).emit(state, out, now)))

    def absorb(self, state: CoreState, data: NDArray[Any], segment: int, now: int) -> None:
        self.note("absorb", state, lambda: super(Stepped, self).absorb(state, data, segment, now))

    def time_out(self, state: CoreState, now: int) -> None:
        self.note("time_out", state, lambda: super(Stepped, self).time_out(state, now))


def test_chains_change_by_the_steps_of_the_table_alone_and_by_all_of_them() -> None:
    bad = Impairments(0.2, 0.1, 0.2)
    for seed in range(3):
        run_case(Case(3, 6, (900, 300), "int32", "sum", False, bad, seed, skew_us=10_000), Stepped)
        for slots, loss in ((4, bad), (64, Impairments(0.02))):
            network = shared_network(Stepped, 2, window=32, slots=slots, impairments=loss, seed=seed)
            for value in (1, 2**30):
                network.run([np.full(4000, value, np.int32)] * 2, starts_us=[0, 40_000 * (seed % 2)])
    assert {(step.call, step.what) for step in STEPS} - Stepped.taken == set()


def test_a_sum_that_the_fields_have_no_room_for_is_not_begun(make_kernel: MakeKernel) -> None:
    settings_ = CoreSettings(7, 0, 8, 4, LANES, None)
    window, ones = Window(settings_, make_kernel()), np.ones(9, np.float32)
    with pytest.raises(ValueError, match="block4 has room for the sum of at most 7 ranks, and there are 8"):
        window.begin(Exchange(ones, ones, tag=1, numbers="block4"), 0)
    window.begin(Exchange(ones.view(np.int32), ones.view(np.int32), tag=1, numbers="block4"), 0)
    assert window.state.struct.base == 0


@pytest.mark.parametrize("dtype", ["float32", "int32", *encodings.BLOCKS])
@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 32 * 8, 32 * 8 + 1, 32 * 16, 32 * 17 + 5, 5000])
def test_lengths_around_packet_and_window(make_kernel: MakeKernel, dtype: str, length: int) -> None:
    run_case(Case(3, 8, (length, length), dtype, "sum", False, Impairments(), 1), make_kernel)


def test_nothing_is_sent_twice_on_a_clean_network(make_kernel: MakeKernel) -> None:
    network = run_case(Case(4, 16, (3000, 1, 3000), "float32", "sum", True, Impairments(), 1), make_kernel)
    for worker in network.workers:
        assert worker.window.count(Counter.RESENT) == 0
        assert worker.window.count(Counter.SENT) == 2 * (94 + 16) + 2 == worker.window.count(Counter.RESULTS)


def test_psns_wrap_in_the_middle_of_a_collective(make_kernel: MakeKernel) -> None:
    for window in (4, 5):  # 2**32 is a multiple of 8 slots but not of 10
        case = Case(2, window, (2000,), "float32", "sum", False, Impairments(loss=0.05), 3, 2**32 - 10)
        network = run_case(case, make_kernel)
        last = network.workers[0].window.psns().last
        assert last < 200


def test_the_window_is_never_exceeded_and_a_slot_never_reused_too_early(make_kernel: MakeKernel) -> None:
    """A worker's PSN i+W leaves only after the result of PSN i has arrived there."""
    case = Case(3, 6, (1500, 70, 1500), "float32", "sum", False, Impairments(0.1, 0.1, 0.2), 5)
    network = network_of(case, make_kernel)
    received: list[set[int]] = [set() for _ in range(3)]
    dtype = wire.packet_dtype(LANES, framed=True)

    def watch(rank: int, packet: bytes, upwards: bool) -> bool:
        if upwards:
            psn = int(np.frombuffer(packet, dtype)["psn"][0])
            assert psn < case.window or psn - case.window in received[rank]
        return True

    network.on_packet = watch
    for rank, worker in enumerate(network.workers):
        original = worker.window.absorb

        def absorb(
            data: Any,
            segment: int,
            now: int,
            rank: int = rank,
            original: Any = original,
            worker: Any = worker,
        ) -> None:
            before = worker.window.count(Counter.RESULTS)
            original(data, segment, now)
            if worker.window.count(Counter.RESULTS) > before:
                received[rank].add(int(np.frombuffer(data, dtype)["psn"][0]))

        worker.window.absorb = absorb  # type: ignore[method-assign]
    rng = np.random.default_rng(0)
    for length in case.lengths:
        network.run(random_arrays(rng, case, length))


@pytest.mark.parametrize(
    ("lengths", "dtypes", "names"),
    [
        ((100, 200), ("float32", "float32"), (None, None)),
        ((100, 0), ("float32", "float32"), (None, None)),
        ((100, 100), ("float32", "int32"), (None, None)),
        ((100, 100), ("float32", "float32"), ("a", "b")),
    ],
)
def test_ranks_that_differ_all_get_an_error(
    make_kernel: MakeKernel, lengths: tuple[int, int], dtypes: tuple[str, str], names: tuple[str, str]
) -> None:
    case = Case(2, 4, (), "float32", "sum", False, Impairments(loss=0.1), 1)
    network = network_of(case, make_kernel)
    network.run([np.ones(n, d) for n, d in zip(lengths, dtypes, strict=True)], names=names, limit_s=5)
    for worker in network.workers:
        assert isinstance(worker.error, RanksDisagree)


def test_a_lost_result_is_fetched_without_the_other_ranks(make_kernel: MakeKernel) -> None:
    """They may have gone on, or away: the switch replays what it has."""
    network = network_of(Case(2, 4, (), "int32", "sum", False, Impairments(), 1), make_kernel)
    lost: list[int] = []

    def lose_first_result_of_rank_0(rank: int, packet: bytes, upwards: bool) -> bool:
        if rank == 0 and not upwards and not lost:
            lost.append(rank)
            return False
        return True

    network.on_packet = lose_first_result_of_rank_0
    results = network.run([np.ones(10, np.int32), np.ones(10, np.int32)])
    assert np.array_equal(results[0], np.full(10, 2, np.int32))
    assert network.workers[1].window.count(Counter.RESENT) == 0


def test_waiting_for_a_straggler_costs_few_packets(make_kernel: MakeKernel) -> None:
    """Each packet once, to learn that it is counted; then eight in a time-out ask who is missing."""
    network = network_of(Case(2, 64, (), "int32", "sum", False, Impairments(), 1), make_kernel)
    network.run([np.ones(64 * LANES, np.int32)] * 2, starts_us=[0, 20_000_000])
    window = network.workers[0].window
    assert 64 < window.count(Counter.RESENT) < 64 + 8 * (20 / RtoLimits().max_s + 10)


def test_the_timeout_follows_the_network_and_keeps_off_a_constant_round_trip(make_kernel: MakeKernel) -> None:
    slow = Impairments(delay_s=0.02)
    case = Case(2, 4, (), "int32", "sum", False, slow, 1)
    network = network_of(case, make_kernel)
    network.run([np.ones(5000, np.int32)] * 2)
    window = network.workers[0].window
    assert window.srtt_ns == 40_000_000
    assert window.state.struct.rto == 60_000_000
    assert window.count(Counter.RESENT) == 0


def test_a_round_trip_longer_than_the_first_timeout_is_found(make_kernel: MakeKernel) -> None:
    """Each stall doubles the time-out for good, until a packet comes back before it is sent again."""
    network = network_of(Case(2, 4, (), "int32", "sum", False, Impairments(delay_s=0.055), 1), make_kernel)
    network.run([np.ones(50 * LANES, np.int32)] * 2)
    window = network.workers[0].window
    assert window.srtt_ns == 110_000_000
    assert 0 < window.count(Counter.RESENT) <= 2 * 4


def test_losses_before_the_first_sample_are_mended_soon_one_after_the_other(make_kernel: MakeKernel) -> None:
    """Seed 702964 of a soak: both results are lost of packets that are known to be counted."""
    network = network_of(Case(2, 2, (), "int32", "sum", False, Impairments(), 1), make_kernel)
    lost: list[int] = []
    got: list[int] = []

    def lose_first_results_of_rank_0(rank: int, packet: bytes, upwards: bool) -> bool:
        if upwards or rank or packet[wire.FRAME_PREFIX_BYTES] & 15 != wire.KIND_RESULT:
            return True
        (lost if len(lost) < 2 else got).append(network.now)
        return len(lost) == 2 and bool(got)

    network.on_packet = lose_first_results_of_rank_0
    network.run([np.ones(2 * LANES, np.int32)] * 2, starts_us=[0, 1_000_000])
    limits = RtoLimits()
    assert network.workers[0].window.count(Counter.STATUSES) > 2
    assert got[0] - lost[1] > 1e9 * limits.initial_s, "time-outs had doubled"
    assert got[1] - got[0] < 2.5e9 * limits.initial_s < 1e9 * limits.max_s


def test_what_else_arrives_is_counted_and_ignored(make_kernel: MakeKernel) -> None:
    network = network_of(Case(1, 4, (), "int32", "sum", False, Impairments(), 1), make_kernel)
    window = network.workers[0].window
    good: list[bytes] = []
    network.on_packet = lambda rank, packet, upwards: upwards or bool(good.append(packet) or True)
    network.run([np.ones(200, np.int32)])
    results = window.count(Counter.RESULTS)

    def changed(**fields: int) -> bytes:
        packet = np.frombuffer(good[0], wire.packet_dtype(LANES, framed=True)).copy()
        for name, value in fields.items():
            packet[name] = value
        return packet.tobytes()

    source = np.arange(10, dtype=np.int32)
    target = np.zeros(10, np.int32)
    window.begin(Exchange(source, target, tag=5), 0)
    psn = window.psns().first
    window.emit(np.zeros(10_000, np.uint8), 0)
    fresh: dict[str, int] = {"psn": psn, "tag": 5}
    bad = {
        Counter.BAD_LENGTH: [b"", good[0][:20], good[0][:60], changed(**fresh)[:-1]],
        Counter.FOREIGN: [
            changed(**fresh, ether_type=0x86DD),
            changed(**fresh, udp_src=53),
            changed(**fresh, ip_protocol=6),
        ],
        Counter.BAD_VERSION: [changed(**fresh, version_kind=0x12)],
        Counter.BAD_KIND: [changed(**fresh, version_kind=0x20 | kind) for kind in (0, 1, 4, 5, 6)],
        Counter.BAD_LANES: [changed(**fresh, lanes=64), changed(**fresh, version_kind=0x23)],
        Counter.WRONG_JOB: [changed(**fresh, job=8)],
        Counter.WRONG_EPOCH: [changed(**fresh, epoch=1)],
        Counter.STALE: [good[0], changed(tag=5, psn=psn + 1), changed(tag=5, psn=2**32 - 1)],
        Counter.WRONG_TAG: [changed(psn=psn, tag=6)],
        Counter.BAD_BITMAP: [
            changed(**fresh, bitmap=3),
            changed(**fresh, bitmap=0),
            changed(**fresh, node=1),
        ],
    }
    for counter, packets in bad.items():
        before = window.count(counter)
        for packet in packets:
            if packet:
                window.absorb(np.frombuffer(packet, np.uint8), len(packet), 1)
        assert window.count(counter) - before == sum(map(bool, packets)), counter
    assert window.count(Counter.RESULTS) == results
    assert not window.complete

    last = changed(**fresh)
    window.absorb(np.frombuffer(last, np.uint8), len(last), 1)
    assert window.complete
    assert (target == 1).all()


@settings(max_examples=effort.cases(300), deadline=None)
@given(
    st.binary(max_size=600),
    st.integers(1, 250),
    st.lists(
        st.tuples(st.integers(0, 193), st.integers(0, 255)),
        max_size=6,
    ),
)
def test_any_bytes_leave_both_kernels_in_the_same_state(
    junk: bytes, segment: int, edits: list[tuple[int, int]]
) -> None:
    """Junk, and a good result with some bytes changed."""
    states = []
    for kernel in (NativeKernel(), NumpyKernel()):
        network = network_of(Case(1, 2, (), "int32", "sum", False, Impairments(), 1), lambda k=kernel: k)
        good: list[bytes] = []
        network.on_packet = lambda rank, packet, upwards, good=good: upwards or bool(good.append(packet) or 1)
        network.run([np.ones(10, np.int32)])
        window = network.workers[0].window
        target = np.zeros(40, np.int32)
        window.begin(Exchange(np.arange(40, dtype=np.int32), target, tag=1), 0)
        window.emit(np.zeros(1000, np.uint8), 0)
        packet = np.frombuffer(good[0], wire.packet_dtype(LANES, framed=True)).copy()
        packet["psn"], packet["tag"] = window.psns().first, 1
        data = bytearray(packet.tobytes())
        for at, value in edits:
            data[at] = value
        for chunk, size in ((junk, segment), (bytes(data) + junk, len(data))):
            if chunk:
                window.absorb(np.frombuffer(chunk, np.uint8), size, 1000)
        window.on_timeout(10**9)
        out = np.zeros(1000, np.uint8)
        count = window.emit(out, 10**9)
        state = window.state
        states.append(
            (
                list(state.struct.counters),
                state.status.tolist(),
                state.index.tolist(),
                target.tolist(),
                count,
                out.tobytes(),
                state.struct.completed,
                state.struct.disagree_index,
                state.struct.overflow_index,
            )
        )
    assert states[0] == states[1]
