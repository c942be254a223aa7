from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hostlib import wire
from hostlib._native import NativeKernel
from hostlib.core.congestion import (
    CONGESTION,
    CONGESTION_NAMES,
    A2tp,
    Aimd,
    Congestion,
    CongestionName,
    FixedWindow,
    Limits,
    Round,
    Tcp,
)
from hostlib.core.state import CoreSettings, Counter
from hostlib.core.window import Kernel, Window
from tests import effort
from tests.hostlib.cases import JOB, LANES, MakeKernel
from tests.hostlib.compiled_switch import exclusive_switch
from tests.hostlib.one_window import begin, hear, sent
from tests.hostlib.test_fallback_window import Recorder, bypasses, header, shared_network
from tests.hostlib.virtual_network import Impairments, VirtualNetwork, endpoints
from tests.twins.kernel import NumpyKernel


def a_round(results: int, *, marked: int = 0, collided: int = 0, waiting: float = 0.0) -> Round:
    return Round(results, marked, collided, waiting)


def shares() -> st.SearchStrategy[tuple[float, float, float]]:
    """What each round brings, as shares of its results."""
    share = st.one_of(st.just(0.0), st.just(1.0), st.floats(0, 1))
    return st.tuples(share, share, share)


def replay(control: Congestion, window: int, events: list[tuple[float, float, float]]) -> list[Limits]:
    limits = [control.start(window)]
    for *of_results, waiting in events:
        results = limits[-1].in_flight
        marked, collided = (round(results * share) for share in of_results)
        limits.append(control.on_round(a_round(results, marked=marked, collided=collided, waiting=waiting)))
    return limits


@given(
    st.sampled_from(CONGESTION_NAMES),
    st.integers(1, 1000),
    st.lists(shares(), max_size=60),
)
def test_limits_stay_between_one_and_the_window(
    name: CongestionName, window: int, events: list[tuple[float, float, float]]
) -> None:
    for limits in replay(CONGESTION[name](), window, events):
        assert 1 <= limits.in_flight <= window
        assert 1 <= limits.claims <= window


@given(
    st.sampled_from(CONGESTION_NAMES),
    st.integers(1, 500),
    st.lists(shares(), max_size=30),
    st.integers(1, 99),
)
def test_a_better_round_never_brings_a_smaller_window(
    name: CongestionName, window: int, events: list[tuple[float, float, float]], share: int
) -> None:
    good, bad = CONGESTION[name](), CONGESTION[name]()
    results = replay(good, window, events)[-1].in_flight
    replay(bad, window, events)
    hit = max(1, results * share // 100)
    assert good.on_round(a_round(results)).in_flight >= bad.on_round(a_round(results, marked=hit)).in_flight


@given(st.sampled_from(CONGESTION_NAMES), st.integers(1, 500), st.lists(shares(), max_size=30))
def test_without_congestion_everything_is_allowed_in_the_end(
    name: CongestionName, window: int, events: list[tuple[float, float, float]]
) -> None:
    control = CONGESTION[name]()
    replay(control, window, events)
    limits = [control.on_round(a_round(100)) for _ in range(window + 40)]
    assert limits[-1] == Limits(window, window)


def test_every_name_has_a_constructor() -> None:
    assert set(CONGESTION) == set(CONGESTION_NAMES)
    assert not CONGESTION["fixed"]().wants_rounds
    assert CONGESTION["aimd"]().wants_rounds
    assert CONGESTION["a2tp"]().wants_rounds


def test_the_fixed_window_never_moves() -> None:
    assert replay(FixedWindow(), 512, [(1.0, 1.0, 1.0), (0.0, 0.0, 0.0)]) == [Limits(512, 512)] * 3


class TestAimd:
    def test_slow_start_takes_an_mtu_for_each_result_up_to_the_threshold(self) -> None:
        control = Aimd(initial_packets=2, step_packets=5, threshold=100)
        assert control.start(1000) == Limits(2, 1000)
        in_flight = [control.on_round(a_round(results)).in_flight for results in (2, 12, 72, 100, 105)]
        assert in_flight == [12, 72, 100, 105, 110]

    def test_a_mark_halves_and_ends_slow_start(self) -> None:
        control = Aimd()
        assert control.start(1000).in_flight == 200
        assert control.on_round(a_round(200, marked=1)).in_flight == 100
        assert control.threshold == 100
        assert control.on_round(a_round(200, marked=1)).in_flight == 100, "sent before the cut"
        assert control.on_round(a_round(100)).in_flight == 105

    def test_two_flows_that_see_the_same_marks_become_fair(self) -> None:
        """Chiu and Jain: the difference halves with each mark, the sum oscillates at the capacity."""
        one, other = Aimd(initial_packets=190, threshold=1), Aimd(initial_packets=10, threshold=1)
        first, second = one.start(1000).in_flight, other.start(1000).in_flight
        for _ in range(200):
            marked = int(first + second > 200)
            first = one.on_round(a_round(first, marked=marked)).in_flight
            second = other.on_round(a_round(second, marked=marked)).in_flight
        assert abs(first - second) <= 2
        assert 95 <= first + second <= 210


def a2tp(window: int, **fields: float) -> A2tp:
    """Return a control with these fields that has started with this window."""
    control = A2tp(**fields)  # type: ignore[arg-type]
    control.start(window)
    return control


class TestA2tp:
    def test_it_starts_with_everything_and_believes_in_no_straggler(self) -> None:
        control = A2tp()
        assert control.start(50) == Limits(50, 50)
        assert (control.alpha, control.beta, control.gamma) == (0, 0, 1)

    def test_the_averages_follow_the_published_gains(self) -> None:
        control = a2tp(64)
        control.on_round(a_round(64, marked=32, collided=16, waiting=0.25))
        assert control.alpha == pytest.approx(1 / 8 * 0.5)
        assert control.beta == pytest.approx(1 / 8 * 0.25)
        assert control.gamma == pytest.approx(63 / 64 + 1 / 64 * 0.75)

    def test_marks_cut_the_window_by_half_of_their_average_share(self) -> None:
        control = a2tp(100, alpha=0.5)
        control.on_round(a_round(100, marked=50))
        assert control.on_round(a_round(100, marked=100)).in_flight == 75, "sent before the cut"
        assert control.on_round(a_round(75)).in_flight == 76

    def test_marks_on_everything_halve_in_the_long_run(self) -> None:
        control = a2tp(64, alpha=1.0)
        rounds = [control.on_round(a_round(1, marked=1)).in_flight for _ in range(14)]
        assert rounds == [32, 32, 16, 16, 8, 8, 4, 4, 2, 2, 1, 1, 1, 1]

    def test_a_few_collisions_are_tolerated(self) -> None:
        control = a2tp(100, initial_packets=50)
        for _ in range(100):
            control.on_round(a_round(100, collided=9))
        assert control._aggregator == 100
        assert control.beta == pytest.approx(0.09, abs=1e-5)

    def test_a_job_without_straggler_gives_slots_up_in_proportion(self) -> None:
        """1 - (beta - 0.1)^1 / 1.9 with beta = 0.55."""
        control = a2tp(1000, beta=0.55)
        control.on_round(a_round(1000, collided=550))
        assert control._aggregator == int(1000 * (1 - 0.45 / 1.9))

    def test_a_job_with_a_straggler_gives_up_half_at_once(self) -> None:
        """(beta - 0.1)^0 / 1.9 = 0.526, whatever the contention beyond the tolerance."""
        for beta in (0.11, 0.5, 1.0):
            control = a2tp(1000, beta=beta, gamma=0.0)
            control.on_round(a_round(1000, collided=round(1000 * beta), waiting=1.0))
            assert control._aggregator == int(1000 * (1 - 1 / 1.9)) == 473

    @given(st.floats(0.11, 1), st.floats(0, 1), st.floats(0, 1))
    def test_the_slower_its_slowest_rank_the_more_a_job_gives_up(
        self, beta: float, gamma: float, other: float
    ) -> None:
        windows = []
        for degree in sorted((gamma, other)):
            control = a2tp(1000, beta=beta, gamma=degree)
            control.on_round(a_round(1000, collided=round(1000 * beta), waiting=1 - degree))
            windows.append(control._aggregator)
        assert windows[0] <= windows[1]

    def test_the_straggling_degree_converges_to_the_share_that_came_promptly(self) -> None:
        control = a2tp(100)
        for _ in range(1000):
            control.on_round(a_round(100, waiting=0.7))
        assert control.gamma == pytest.approx(0.3, abs=1e-5)

    def test_claims_are_the_same_share_of_the_core_window_as_of_what_is_in_flight(self) -> None:
        control = a2tp(512, alpha=1.0)
        limits = control.on_round(a_round(512, marked=512))
        assert limits == Limits(256, 512)
        control.beta = 1.0
        control.gamma = 0.0
        limits = control.on_round(a_round(256, collided=256, waiting=1.0))
        assert control._aggregator == 121
        assert limits == Limits(256, 512 * 121 // 256)

    def test_an_aggregator_window_stays_until_results_show_its_cut(self) -> None:
        control = a2tp(1000, beta=1.0, gamma=0.0)
        collided = a_round(1000, collided=1000, waiting=1.0)
        windows = []
        for _ in range(6):
            control.on_round(collided)
            windows.append(control._aggregator)
        assert windows == [473, 473, 473, 473, 224, 224]

    def test_an_empty_round_changes_nothing(self) -> None:
        control = A2tp()
        limits = control.start(40)
        assert control.on_round(a_round(0)) == limits


def window_of(kernel: Kernel, control: Recorder, *, framed: bool = True, in_flight: int = 8) -> Window:
    settings_ = CoreSettings(
        *(JOB, 0, 2, 0, LANES, endpoints(0) if framed else None), window=8 * in_flight, fallback=True
    )
    return Window(settings_, kernel, control)


def test_a_reminder_of_the_next_collective_is_honoured_when_its_packet_goes(make_kernel: MakeKernel) -> None:
    """It was thrown away, and the packet then waited alone in a slot for the next one."""
    window = window_of(make_kernel(), Recorder(Limits(8, 8)))
    begin(window, 1)
    hear(window, wire.KIND_RESULT, sent(window)["psn"])
    hear(window, wire.KIND_REMINDER, 2, bitmap=1)
    assert len(sent(window)) == 0
    assert (window.count(Counter.REMINDERS), window.count(Counter.STALE)) == (1, 0)
    begin(window, 3)
    found = sent(window)
    assert found["psn"].tolist() == [1, 2, 3]
    assert found["flags"].tolist() == [0, wire.FLAG_RESEND, 0]
    assert window.count(Counter.RESENT) == 0


def test_a_reminder_of_what_the_limit_holds_back_is_honoured_too(make_kernel: MakeKernel) -> None:
    window = window_of(make_kernel(), Recorder(Limits(2, 1)))
    begin(window, 4)
    first = sent(window)
    hear(window, wire.KIND_REMINDER, 3, bitmap=1)
    hear(window, wire.KIND_RESULT, first["psn"])
    assert sent(window)["flags"].tolist() == [wire.FLAG_BYPASS, wire.FLAG_RESEND]


def deliver(kernel: Kernel, marks: frozenset[int], order: random.Random) -> tuple[list[Round], list[int]]:
    """Carry out two collectives, results in some order; return the rounds, and what bypassed the slots."""
    control = Recorder(Limits(8, 8), Limits(5, 3), Limits(7, 4))
    window = window_of(kernel, control)
    bypassing: list[int] = []
    now = 0
    for packets in (61, 40):
        begin(window, packets, now)
        waiting: list[int] = []
        while not window.complete:
            now += 1000
            found = sent(window, now)
            bypassing += found["psn"][found["flags"] & wire.FLAG_BYPASS != 0].tolist()
            waiting += found["psn"].tolist()
            order.shuffle(waiting)
            arrived, waiting = waiting[: -(-len(waiting) // 2)], waiting[-(-len(waiting) // 2) :]
            flags = [wire.FLAG_ECN if psn in marks else 0 for psn in arrived]
            hear(window, wire.KIND_RESULT, arrived, now, flags=flags)
    return control.rounds, bypassing


@settings(max_examples=effort.cases(60), deadline=None)
@given(st.frozensets(st.integers(0, 100), max_size=30), st.integers(2, 2**32), st.sampled_from("np"))
def test_whatever_order_results_come_in_the_rounds_are_the_same(
    marks: frozenset[int], seed: int, kernel: str
) -> None:
    expected, _ = deliver(NativeKernel(), marks, random.Random(1))
    rounds, _ = deliver(NumpyKernel() if kernel == "p" else NativeKernel(), marks, random.Random(seed))
    assert [(outcome.results, outcome.marked) for outcome in rounds] == [
        (outcome.results, outcome.marked) for outcome in expected
    ]
    counted = sum(outcome.results for outcome in expected)
    assert [outcome.results for outcome in expected[:3]] == [8, 8, 7]  # as many as before a cut, then fewer
    assert sum(outcome.marked for outcome in expected) == sum(psn < counted for psn in marks)


def test_ranks_agree_on_rounds_limits_and_lines_however_their_packets_are_delayed() -> None:
    outcomes: dict[int, list[tuple[Round, Limits]]] = {}

    class Watched(A2tp):
        __slots__ = ()

        def on_round(self, outcome: Round) -> Limits:
            limits = A2tp.on_round(self, outcome)
            outcomes.setdefault(id(self), []).append((outcome, limits))
            return limits

    controls = [Watched() for _ in range(4)]
    network = shared_network(
        NativeKernel,
        4,
        window=128,
        slots=8,
        make_congestion=iter(controls).__next__,
        impairments=Impairments(reorder=0.2, reorder_s=30e-6),
    )
    for _ in range(3):
        network.run([np.ones(32 * 300, np.int32)] * 4, starts_us=[0, 20, 400, 0])
    first, *others = (outcomes[id(control)] for control in controls)
    assert all(other == first for other in others)
    assert sum(outcome.collided for outcome, _ in first) > 0
    assert any(limits.claims < 16 for _, limits in first)


def test_a_line_holds_from_a_packet_on_that_nobody_has_sent(make_kernel: MakeKernel) -> None:
    network = shared_network(
        make_kernel, window=64, make_congestion=lambda: Recorder(Limits(8, 8), Limits(8, 3))
    )
    bypassing = bypasses(network)
    network.run([np.ones(32 * 20, np.int32)] * 2)
    network.run([np.ones(32 * 70, np.int32)] * 2)
    beyond = 8 + 2 * 8  # of the first round, and two windows
    assert bypassing == {
        (rank, psn): psn >= beyond and psn % 8 >= 3 for rank in range(2) for psn in range(90)
    }


def test_a_queue_that_our_copies_of_results_met_is_told_to_all_ranks(make_kernel: MakeKernel) -> None:
    window = window_of(make_kernel(), Recorder(Limits(4, 8)))
    begin(window, 12)
    hear(window, wire.KIND_RESULT, sent(window)["psn"][:2], ip_tos=wire.ECN_CONGESTED)
    assert sent(window)["flags"].tolist() == [wire.FLAG_ECN] * 2
    window.on_timeout(10**9)
    again = sent(window, 10**9)
    assert (again["flags"] & wire.FLAG_ECN == 0).all(), "told once"


@pytest.mark.parametrize("tos", [0, 1, 2])
def test_results_that_met_no_queue_are_not_told_of(make_kernel: MakeKernel, tos: int) -> None:
    window = window_of(make_kernel(), Recorder(Limits(4, 8)))
    begin(window, 12)
    hear(window, wire.KIND_RESULT, sent(window)["psn"], ip_tos=tos)
    assert sent(window)["flags"].tolist() == [0] * 4


def test_a_packet_whose_query_goes_unanswered_is_sent_again_with_a_mark(make_kernel: MakeKernel) -> None:
    window = window_of(make_kernel(), Recorder(Limits(2, 8)))
    begin(window, 2)
    sent(window)
    flags = []
    for _ in range(3):
        now = window.next_timeout()
        window.on_timeout(now)
        again = sent(window, now)
        flags.append(dict(zip(again["psn"].tolist(), again["flags"].tolist(), strict=True)))
        hear(
            window, wire.KIND_STATUS, 0, now, bitmap=1
        )  # the first packet is counted, another rank is missing
    asks, marked = wire.FLAG_RESEND | wire.FLAG_QUERY, wire.FLAG_RESEND | wire.FLAG_ECN
    assert [each.get(1) for each in flags] == [asks, marked, asks]
    assert not any(each.get(0, 0) & wire.FLAG_ECN for each in flags)


def test_all_ranks_hear_how_long_the_one_waits_that_waits_most(make_kernel: MakeKernel) -> None:
    controls = [Recorder(Limits(4, 4)) for _ in range(3)]
    network = shared_network(make_kernel, 3, window=32, make_congestion=iter(controls).__next__)
    for starts_us in ([0, 0, 0], [0, 0, 5000], [0, 0, 0], [0, 0, 0]):
        network.run([np.ones(32 * 12, np.int32)] * 3, starts_us=starts_us)
    first, second, straggler = ([outcome.waiting for outcome in control.rounds] for control in controls)
    assert first == second == straggler
    assert first[0] == first[-1] == 0
    assert 0 < max(first) < 1


def test_waiting_is_told_whatever_the_numbers(make_kernel: MakeKernel) -> None:
    """Packets that announce an exponent do not tell; those behind them do, and int32, and fixed numbers."""
    makers: list[Callable[[], NDArray[np.generic]]] = [
        lambda: np.full(12 * 32, 3.0, np.float32),
        lambda: np.ones(12 * 32, np.int32),
    ]
    for numbers in ("exponent", "fixed"):
        for make in makers:
            controls = [Recorder(Limits(4, 4)) for _ in range(2)]
            network = shared_network(
                make_kernel, window=32, make_congestion=iter(controls).__next__, numbers=numbers
            )
            for start_us in (0, 5000, 0, 0):
                results = network.run([make(), make()], starts_us=[0, start_us])  # type: ignore[arg-type]
                assert np.array_equal(results[0], 2 * make())
            told = [[outcome.waiting for outcome in control.rounds] for control in controls]
            assert told[0] == told[1]
            assert 0 < max(told[0]) < 1


def exclusive_network(make_kernel: MakeKernel, controls: Sequence[Congestion]) -> VirtualNetwork:
    switch, make = exclusive_switch(JOB, 2, 64), iter(controls).__next__
    return VirtualNetwork(switch, make_kernel, size=2, slots=64, lanes=LANES, make_congestion=make)


class Hears(Recorder):
    hears_losses = True


@pytest.mark.parametrize("lost", ["contribution", "result"])
def test_all_ranks_hear_of_a_loss_of_one(make_kernel: MakeKernel, lost: str) -> None:
    controls = [Hears(Limits(8, 32)) for _ in range(2)]
    network = exclusive_network(make_kernel, controls)
    dropped: list[int] = []

    def watch(worker: int, packet: bytes, upwards: bool) -> bool:
        fields = header(packet)
        mine = worker == 1 and upwards == (lost == "contribution")
        if mine and fields["psn"] == 40 and fields["lanes"]:
            dropped.append(fields["flags"])
            return len(dropped) > 1
        return True

    network.on_packet = watch
    results = network.run([np.ones(32 * 160, np.int32)] * 2)
    assert all((result == 2).all() for result in results)
    assert len(dropped) == 2
    assert controls[0].rounds == controls[1].rounds
    assert sum(each.lost for each in controls[0].rounds) == 1


def test_losses_are_not_told_where_no_rule_hears_of_them(make_kernel: MakeKernel) -> None:
    controls = [Recorder(Limits(8, 32)) for _ in range(2)]
    network = exclusive_network(make_kernel, controls)
    network.impairments = Impairments(loss=0.02)
    network.run([np.ones(32 * 160, np.int32)] * 2)
    assert sum(each.lost + each.collided for control in controls for each in control.rounds) == 0


def lost(results: int, packets: int) -> Round:
    return Round(results, 0, 0, 0.0, packets)


def test_tcp_doubles_until_a_loss_and_is_cut_once_for_two_rounds() -> None:
    control = Tcp(packet_bytes=1514)
    assert control.start(256).in_flight == 10
    assert [control.on_round(lost(n, 0)).in_flight for n in (10, 20, 40)] == [20, 40, 80]
    assert control.on_round(lost(80, 3)).in_flight == 56
    assert control.on_round(lost(80, 3)).in_flight == 56  # sent before the cut
    assert [control.on_round(lost(56, 0)).in_flight for _ in range(4)] == [56, 57, 57, 58]  # 0.53 each
    assert control.on_round(lost(58, 1)).in_flight == 40
    assert control.on_round(Round(41, 41, 0, 0.0)).in_flight == 40  # of the round before
    assert control.on_round(Round(41, 41, 0, 0.0)).in_flight == 41  # queues are no losses


def test_small_packets_cut_tcps_window_by_the_bytes_that_are_lost() -> None:
    small = Tcp(packet_bytes=326)
    small.start(1024)
    for _ in range(3):
        assert small.on_round(lost(46, 1)).in_flight > 46
    before = small.on_round(lost(368, 0)).in_flight
    assert small.on_round(lost(before, 1)).in_flight == int(before * 0.7)  # the fourth: 1,304 bytes
