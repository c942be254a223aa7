"""Probes: what has nothing behind it that would show its loss is asked for early, but not often."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from hostlib import wire
from hostlib._native import NativeKernel
from hostlib.core.state import NEVER, PROBES, Chain, CoreSettings, Counter, RtoLimits
from hostlib.core.window import Exchange, Window
from hostlib.fallback import FallbackCore, FallbackJob, FallbackSettings
from hostlib.wire.tree import Tree
from tests.contract.admitted import serving
from tests.hostlib.cases import JOB, LANES, MakeKernel
from tests.hostlib.compiled_switch import SLOTS, admissions, exclusive_switch
from tests.hostlib.one_window import begin, hear, sent
from tests.hostlib.virtual_network import Impairments, VirtualNetwork, endpoints
from tests.twins import NumpyKernel

RANKS = 4
WINDOW = 16
DELAY_US = 100
ROUND_TRIP_NS = 2_000 * DELAY_US
PROBING = RtoLimits(probe_s=0.00005)
SILENT = RtoLimits(probe_s=None)
PACKET = wire.packet_dtype(LANES, framed=True)


def network_of(program: str, make_kernel: MakeKernel, rto: RtoLimits) -> VirtualNetwork:
    """Return a network whose workers know its round trip time."""
    tree = Tree.star(RANKS)
    options: dict[str, Any] = {}
    if program == "shared":
        admitted = admissions(tree, JOB, 8 * WINDOW, window=8 * WINDOW)
        switch = serving("shared", admitted.values(), slots=SLOTS)
        server = FallbackCore(FallbackSettings(LANES, endpoints(200)))
        server.add_job(FallbackJob(JOB, 0, tree, 8 * WINDOW))
        options = {"server": server, "window": 8 * WINDOW}
    else:
        switch = exclusive_switch(JOB, RANKS, 2 * WINDOW)
    network = VirtualNetwork(
        switch,
        make_kernel,
        size=RANKS,
        slots=2 * WINDOW,
        impairments=Impairments(delay_s=DELAY_US * 1e-6),
        rto=rto,
        **options,
    )
    sum_packets(network, 4)
    return network


def sum_packets(network: VirtualNetwork, count: int, **options: Any) -> int:
    """Sum so many packets' worth of ones; return how long that took, ns."""
    began = network.now
    results = network.run([np.ones(count * LANES, np.int32)] * RANKS, **options)
    assert all((result == RANKS).all() for result in results)
    return network.now - began


def lose_once(network: VirtualNetwork, upwards: bool) -> None:
    """Lose the last packet of rank 1's next collective, or its result, once."""
    psn = int(network.workers[1].window.psns().last) + WINDOW
    lost: list[int] = []

    def passes(rank: int, packet: bytes, goes_up: bool) -> bool:
        wanted = rank == 1 and goes_up == upwards and int(np.frombuffer(packet, PACKET)["psn"][0]) == psn
        if wanted and not lost:
            lost.append(psn)
            return False
        return True

    network.on_packet = passes


def resent(network: VirtualNetwork) -> list[int]:
    return [worker.window.count(Counter.RESENT) for worker in network.workers]


@pytest.mark.parametrize("upwards", [True, False])
@pytest.mark.parametrize("program", ["exclusive", "shared"])
def test_a_lost_last_packet_costs_a_round_trip_and_a_bit(
    make_kernel: MakeKernel, program: str, upwards: bool
) -> None:
    took = {}
    for rto in (PROBING, SILENT):
        network = network_of(program, make_kernel, rto)
        clean = sum_packets(network, WINDOW)
        lose_once(network, upwards)
        took[rto] = sum_packets(network, WINDOW) - clean
        assert sum(resent(network)) == (RANKS if upwards else 1), "whoever lacks the result asks once"
    assert ROUND_TRIP_NS < took[PROBING] <= 1.5 * ROUND_TRIP_NS
    assert took[SILENT] > 1e9 * SILENT.margin_s


@pytest.mark.parametrize("program", ["exclusive", "shared"])
def test_a_rank_that_has_not_begun_is_asked_for_by_one_packet_at_a_time(
    make_kernel: MakeKernel, program: str
) -> None:
    for rto, expected in ((PROBING, PROBES), (SILENT, 0)):
        network = network_of(program, make_kernel, rto)
        sum_packets(network, WINDOW, starts_us=[0, 0, 0, 4_000])  # no time-out comes so soon
        assert resent(network) == [expected] * 3 + [0]
    network = network_of(program, make_kernel, PROBING)
    silent = network_of(program, make_kernel, SILENT)
    for each in (network, silent):
        sum_packets(each, WINDOW, starts_us=[0, 0, 0, 5_000_000])
    assert sum(resent(network)) < 1.1 * sum(resent(silent))


def test_a_probe_asks_and_the_time_out_after_it_asks_too_before_one_flushes(make_kernel: MakeKernel) -> None:
    """A sum that waits for another rank only stays in its slot."""
    network = network_of("shared", make_kernel, PROBING)
    flags: list[int] = []

    def watch(rank: int, packet: bytes, upwards: bool) -> bool:
        if rank == 0 and upwards:
            flags.append(int(np.frombuffer(packet, PACKET)["flags"][0]))
        return rank != 0 or upwards or len(flags) > 5

    network.on_packet = watch
    sum_packets(network, 1)
    asks = wire.FLAG_RESEND | wire.FLAG_QUERY
    # that nobody answered is told to all ranks
    assert flags[:5] == [0, *[asks] * PROBES, asks, wire.FLAG_RESEND | wire.FLAG_ECN]


def begun_window(make_kernel: MakeKernel, rto: RtoLimits | None = None) -> Window:
    """Return a window that knows a round trip of 1 ms and has 16 packets in flight since 10 ms."""
    settings = CoreSettings(
        JOB,
        0,
        2,
        32,
        LANES,
        endpoints(0),
        rto or PROBING,
        window=8 * WINDOW,
        fallback=True,
    )
    window = Window(settings, make_kernel())
    for length, at in ((1, 0), (WINDOW, 10_000_000)):
        begin(window, length, at)
        sent(window, at)
        if length == 1:
            hear(window, wire.KIND_RESULT, window.psns().first, 1_000_000)
    return window


def test_probes_are_due_after_a_round_trip_without_a_result_twice(make_kernel: MakeKernel) -> None:
    window = begun_window(make_kernel)
    assert window.next_timeout() == 11_050_000
    hear(window, wire.KIND_RESULT, window.psns().first, 11_500_000)
    due = 11_500_000 + window.srtt_ns // 4
    assert window.next_timeout() == due, "results still come"
    window.on_timeout(due - 1)
    assert len(sent(window, due - 1)) == 0
    window.on_timeout(due)
    assert len(sent(window, due)) == 8
    assert window.next_timeout() == due + window.srtt_ns + 2 * 50_000
    window.on_timeout(window.next_timeout())
    assert len(sent(window, 13_000_000)) == 8
    assert window.next_timeout() == 10_000_000 + window.state.struct.rto, "from here on, time-outs"


def test_before_the_first_result_of_a_job_and_without_the_setting_nothing_is_probed_for(
    make_kernel: MakeKernel,
) -> None:
    for rto in (PROBING, SILENT):
        window = Window(CoreSettings(JOB, 0, 2, 32, LANES, endpoints(0), rto), make_kernel())
        assert window.next_timeout() == NEVER
        begin(window, 1)
        sent(window)
        assert window.next_timeout() == round(1e9 * rto.initial_s)


@pytest.mark.parametrize(
    ("rto", "flags", "overtaken"),
    [
        pytest.param(SILENT, 0, 7, id="which an answer of the switch does"),
        pytest.param(SILENT, wire.FLAG_COLLISION, 0, id="by the fallback server after a collision"),
        pytest.param(SILENT, wire.FLAG_BYPASS, 0, id="by the fallback server after a bypass"),
        # it may answer what was sent first: beside ordinary traffic jobs were once 38 times as slow
        pytest.param(PROBING, 0, 0, id="after a probe"),
    ],
)
def test_an_answer_does_not_show_others_to_be_lost(
    make_kernel: MakeKernel, rto: RtoLimits, flags: int, overtaken: int
) -> None:
    window = begun_window(make_kernel, rto)
    first = window.psns().first
    hear(window, wire.KIND_RESULT, first, 11_000_000)
    due = window.next_timeout()
    window.on_timeout(due)
    assert len(sent(window, due)) == 8
    hear(window, wire.KIND_RESULT, first + 1, due + 1_100_000, flags=flags)
    assert len(sent(window, due + 1_100_000)) == overtaken


CHAINS = 16
PACKETS = 3 * CHAINS
MS = 1_000_000
FLAGS = (Chain.QUEUED, Chain.COUNTED, Chain.ASKED, Chain.RESENT)


def window_in_any_state(draw: random.Random, kernel: Any, fallback: bool) -> Window:
    """Return a window with packets in flight that were sent, counted, asked for and queued at random."""
    spread = draw.choice((1, 2)) if fallback else 1
    settings = CoreSettings(
        *(JOB, 0, 2, 2 * CHAINS, LANES, endpoints(0)),
        window=CHAINS,
        fallback=fallback,
        spread=spread,
        first_psn=draw.randrange(100),
    )
    window = Window(settings, kernel)
    values = np.ones(PACKETS * LANES, np.int32)
    window.begin(Exchange(values, values.copy(), tag=1), 0)
    state, core = window.state, window.state.struct
    core.oldest = draw.randrange(PACKETS - CHAINS)
    core.frontier = core.oldest + CHAINS
    for index in range(core.oldest, core.frontier):
        chain = (core.base + index) % CHAINS
        state.index[chain] = index
        state.sent_at[chain] = draw.choice((1, 1, 5, 9, 12, 40)) * MS
        state.status[chain] = 0
        if draw.random() < 0.8:
            state.status[chain] = Chain.FLIGHT
            for flag in FLAGS:
                state.status[chain] |= np.uint16(flag if draw.random() < 0.4 else 0)
    core.completed = draw.choice((0, core.oldest))
    core.srtt = draw.choice((0, 2 * MS))
    core.rto, core.backoff = draw.choice((4 * MS, 30 * MS)), draw.choice((0, 0, 1, 3, 30))
    core.progress_at, core.timeout_at, core.probed_at = (draw.choice((0, 10 * MS)) for _ in range(3))
    core.probes = draw.choice((0, 1))
    core.resend_head = draw.randrange(CHAINS)
    return window


def state_of(window: Window) -> dict[str, Any]:
    state, core = window.state, window.state.struct
    numbers = ("resend_head", "resend_count", "backoff", "probes", "timeout_at", "probed_at")
    rings = {"status": state.status.tolist(), "resends": state.resend_ring.tolist()}
    return rings | {name: getattr(core, name) for name in numbers}


@pytest.mark.parametrize("fallback", [False, True], ids=["private", "fallback"])
def test_both_kernels_choose_the_same(fallback: bool) -> None:
    chosen = set()
    for seed in range(2000):
        now = random.Random(seed).choice((3, 14, 15, 50, 400)) * MS
        states = []
        for kernel in (NativeKernel(), NumpyKernel()):
            window = window_in_any_state(random.Random(seed), kernel, fallback)
            before = state_of(window)
            window.on_timeout(now)
            states.append(state_of(window))
        assert states[0] == states[1], f"seed {seed}"
        change = {name for name in before if before[name] != states[0][name]}
        chosen.add((bool(change), "probes" in change, "backoff" in change, states[0]["resend_count"] > 8))
    assert {(False, False, False, False), (True, True, False, False)} < chosen, "nothing due, and probes"
    assert any(time_out and many for _, _, time_out, many in chosen), "many at once"
