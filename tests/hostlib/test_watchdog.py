"""What ends a collective that cannot end well, and how soon; in virtual time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import pytest

from hostlib.core import News, Patience, Peers
from hostlib.core.pace import UNKNOWN, Pace, SlotHold
from hostlib.core.state import RtoLimits
from hostlib.core.window import Kernel
from hostlib.errors import JobFault, PeerLost, PeerTimeout
from tests.hostlib.compiled_switch import exclusive_switch
from tests.hostlib.virtual_network import Impairments, VirtualNetwork

SLOTS = 8
MakeKernel = Callable[[], Kernel]


@dataclass
class Known(Peers):
    """Peers of whom a test decides what is known."""

    dead: dict[int, str] = field(default_factory=dict)
    living: set[int] = field(default_factory=set)
    absent: dict[int, int] = field(default_factory=dict)
    broken: str | None = None

    def __post_init__(self) -> None:
        self.news = News(gone=self.dead, left=self.absent, fault=self.broken)

    def alive(self, ranks: Iterable[int]) -> bool:
        return self.living.issuperset(ranks)


def network_of(make_kernel: MakeKernel, peers: Known, **options: object) -> VirtualNetwork:
    switch = exclusive_switch(7, 3, SLOTS)
    return VirtualNetwork(switch, make_kernel, size=3, slots=SLOTS, peers=peers, **options)  # type: ignore[arg-type]


INPUTS = [np.ones(100, np.float32)] * 3


def test_a_dead_switch_is_named_after_the_timeout(make_kernel: MakeKernel) -> None:
    network = network_of(make_kernel, Known(living={0, 1, 2}))
    network.run(INPUTS)
    network.on_packet = lambda rank, packet, upwards: False
    started = network.now
    network.run(INPUTS, limit_s=10)
    assert network.now - started < 8.5e9
    for rank, worker in enumerate(network.workers):
        assert isinstance(worker.error, PeerTimeout)
        assert worker.error.job == 7
        assert (worker.error.psns.first, worker.error.psns.last) == (8, 15)
        assert str(worker.error).startswith("job 7, PSN 8..15: no answer from the switch for 8.")
        assert f"rank {rank}" in str(worker.error)


def test_a_silent_rank_is_named_after_the_timeout(make_kernel: MakeKernel) -> None:
    network = network_of(make_kernel, Known(), impairments=Impairments(loss=0.2))
    network.run(INPUTS, absent=[1], limit_s=10)
    for rank in (0, 2):
        error = network.workers[rank].error
        assert isinstance(error, PeerTimeout)
        assert error.missing == (1,)
        assert "no contribution from rank 1 for 8." in str(error)


def test_a_rank_that_is_known_to_live_is_waited_for(
    make_kernel: MakeKernel, caplog: pytest.LogCaptureFixture
) -> None:
    network = network_of(make_kernel, Known(living={1}))
    with caplog.at_level(logging.WARNING, "hostlib"):
        results = network.run(INPUTS, starts_us=[0, 60_000_000, 0])
    assert all(worker.error is None for worker in network.workers)
    assert np.array_equal(results[0], np.full(100, 3, np.float32))
    assert len(caplog.records) == 2, "one line per waiting rank"
    assert "rank 1" in caplog.text


def test_even_a_living_rank_is_not_waited_for_forever(make_kernel: MakeKernel) -> None:
    network = network_of(make_kernel, Known(living={1}), patience=Patience(8, 20))
    network.run(INPUTS, absent=[1], limit_s=21)
    assert isinstance(network.workers[0].error, PeerTimeout)


def test_a_switch_that_dies_while_a_rank_is_waited_for_is_noticed(make_kernel: MakeKernel) -> None:
    network = network_of(make_kernel, Known(living={1}))
    network.on_packet = lambda rank, packet, upwards: network.now < 30e9
    network.run(INPUTS, absent=[1], limit_s=40)
    assert "no answer from the switch" in str(network.workers[0].error)


@pytest.mark.parametrize(
    ("peers", "reason"),
    [
        (Known(dead={1: "killed by SIGKILL"}, living={0, 2}), "killed by SIGKILL"),
        (Known(living={0, 2}, absent={1: 0}), "it left the job after 0 collectives"),
    ],
    ids=["died", "left before this collective"],
)
def test_a_rank_that_is_gone_ends_the_job_at_once(make_kernel: MakeKernel, peers: Known, reason: str) -> None:
    network = network_of(make_kernel, peers)
    network.run(INPUTS, absent=[1], limit_s=1)
    for rank in (0, 2):
        error = network.workers[rank].error
        assert isinstance(error, PeerLost)
        assert error.missing == (1,)
        assert str(error) == f"job 7, PSN 0..7: lost rank 1: {reason}"


def test_a_rank_that_left_after_this_collective_has_done_its_part(make_kernel: MakeKernel) -> None:
    """The fallback server may have to ask it, and it answers; here it is rank 2 that is slow."""
    network = network_of(make_kernel, Known(living={2}, absent={1: 1}))
    results = network.run(INPUTS, starts_us=[0, 0, 5_000_000])
    assert network.workers[0].error is None
    assert np.array_equal(results[0], np.full(100, 3, np.float32))


def test_the_death_of_a_rank_that_has_done_its_part_ends_nothing(make_kernel: MakeKernel) -> None:
    """It is rank 2 that is slow; rank 1 had contributed when it died."""
    peers = Known(living={0, 2})
    network = network_of(make_kernel, peers)
    inputs = [np.ones(10, np.int32)] * 3
    network.on_packet = lambda rank, packet, upwards: (
        not (upwards and rank == 1 and peers.dead.update({1: "killed"}))
    )
    network.workers[1].error = None
    results = network.run(inputs, starts_us=[0, 0, 5_000_000])
    assert network.workers[0].error is None
    assert np.array_equal(results[0], np.full(10, 3, np.int32))


def test_a_fault_of_the_whole_job_ends_it_at_once(make_kernel: MakeKernel) -> None:
    network = network_of(make_kernel, Known(living={0, 1, 2}, broken="the switch exited with status 1"))
    network.on_packet = lambda rank, packet, upwards: False
    network.run(INPUTS, limit_s=1)
    for worker in network.workers:
        assert isinstance(worker.error, JobFault)
        assert "the switch exited with status 1" in str(worker.error)


def test_collectives_of_less_than_a_window_say_nothing() -> None:
    pace = Pace(32)
    assert pace.collective(32, 1.0) is None
    assert pace.collective(1, 0.0) is None


@pytest.mark.parametrize(("results_per_s", "margin_s"), [(2_000, 0.032), (10_000, 0.0064), (1e6, 0.005)])
def test_a_time_out_leaves_room_for_two_full_windows(results_per_s: float, margin_s: float) -> None:
    """At least what the scheduler may add anywhere, at most what the slowest switch needs."""
    limits = Pace(32).collective(321, 320 / results_per_s)
    assert limits is not None
    assert limits.margin_s == pytest.approx(margin_s)
    assert limits.probe_s == pytest.approx(max(margin_s / 2, 0.002), rel=0.3)
    assert (limits.max_s, limits.initial_s) == (UNKNOWN.max_s, UNKNOWN.initial_s)


def test_the_slowest_pace_is_no_slower_than_what_is_taken_for_unknown() -> None:
    assert Pace(32).collective(321, 60.0) == UNKNOWN
    assert UNKNOWN.margin_s > RtoLimits().margin_s


def test_one_slow_collective_moves_the_limits_by_a_quarter() -> None:
    pace = Pace(10)
    margins = [limits.margin_s for time_s in (0.1, 0.2, 0.1) if (limits := pace.collective(101, time_s))]
    assert margins == pytest.approx([0.02, 0.025, 0.02375])


def test_a_slot_is_held_for_as_long_as_a_window_of_results_takes() -> None:
    hold = SlotHold()
    hold.collective(32, 1.0, 32)
    assert hold.hold_s == 0.0, "no more than a window say little"
    hold.collective(101, 0.5, 20)
    assert hold.hold_s == pytest.approx(20 * 0.005)
    hold.collective(101, 0.1, 20)
    assert hold.hold_s == pytest.approx(0.08), "by a quarter"
