"""What the soak times in the calm, and that a long collective is fast again once links are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from bmv2_topos.faults import LinkFault
from bmv2_topos.soak.programs import LANES
from bmv2_topos.soak.recovery import Recovery
from bmv2_topos.soak.run import ScheduleFailed, run_schedule
from bmv2_topos.soak.schedule import CollectivePlan, JobPlan, SoakSchedule, SoakTestbed
from bmv2_topos.soak.testbed import RunningTestbed, SwitchPool
from bmv2_topos.testbeds.virtual.placement import Placement
from bmv2_topos.testbeds.virtual.settings import COMPILED, Cores
from controller.vocabulary import Link, Server, Switch, Topology
from hostlib.core.congestion import CONGESTION_NAMES, Aimd, CongestionName, Limits, Round, window_for
from hostlib.core.state import NEVER
from softswitch import Impairments
from tests.twins import TWINS
from tests.twins import kernel as twin_kernel
from tests.twins.kernel import NumpyKernel

IN_FLIGHT = 256
CUT_US = 2000
ROUND_TRIPS_PER_WINDOW = 1.5
"""Results come from the fallback server at worst, which takes one; meanwhile a window may have to open.
Measured: 1.4, all time-outs included."""

TOPOLOGY = Topology(
    (Switch("s1"),),
    tuple(map(Server, ("h0", "h1", "p"))),
    (Link("h0", "s1"), Link("h1", "s1"), Link("p", "s1")),
)
BED = SoakTestbed(0, "shared", TOPOLOGY, (Placement(("h0", "h1"), "p"),), {}, (0,))


def one_rank_is_cut_off(congestion: CongestionName, packets: int = 12_000) -> SoakSchedule:
    """Return a schedule in which one of two ranks hears and says nothing for a while, amid a collective."""
    collective = CollectivePlan("int32", packets * LANES, waits_us=(0, 0))
    plan = JobPlan(
        *(1, 77, window_for(IN_FLIGHT), None, False, 100_000, congestion, "exponent", 0, (collective,))
    )
    links = (Impairments(delay_s=10e-6),) * len(TOPOLOGY.links)
    cut = LinkFault(300e-6, ("h1", "s1"), "loss", 1.0, CUT_US / 1e6)
    return SoakSchedule(*(0, BED, (plan,), links, 0, 100_000, 0, (cut,), 300 + CUT_US))


def recovery_of(schedule: SoakSchedule, rack: SwitchPool, cores: Cores = COMPILED) -> Recovery:
    """Run the schedule; return how its collective recovered."""
    with RunningTestbed(BED, rack) as built:
        (recovery,) = run_schedule(schedule, built, cores=cores).recoveries
    return recovery


@pytest.fixture(scope="module")
def rack() -> Iterator[SwitchPool]:
    with closing(SwitchPool.for_program("shared")) as rack:
        yield rack


def allowed_ns(recovery: Recovery) -> float:
    """Return what a recovery may take: a worker's time-out has doubled to no more than the cut was long."""
    windows = recovery.packets / IN_FLIGHT
    return ROUND_TRIPS_PER_WINDOW * windows * recovery.round_trip_ns + CUT_US * 1000


@pytest.mark.parametrize("congestion", CONGESTION_NAMES)
def test_windows_are_open_again_soon_after_one_rank_lost_all(
    rack: SwitchPool, congestion: CongestionName
) -> None:
    recovery = recovery_of(one_rank_is_cut_off(congestion), rack)
    assert recovery.packets > 8000
    assert recovery.round_trip_ns == 40_000
    assert not recovery.begun_in_calm
    assert recovery.duration_ns <= allowed_ns(recovery)


def test_a_window_that_stays_small_is_found(rack: SwitchPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def collapse(self: Aimd, outcome: Round) -> Limits:
        self._packets = 1.0
        return self._limits()

    monkeypatch.setattr(Aimd, "on_round", collapse)
    recovery = recovery_of(one_rank_is_cut_off("aimd"), rack)
    assert recovery.duration_ns > allowed_ns(recovery)


def test_who_is_too_slow_is_told_with_what_is_lacking(
    rack: SwitchPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NumpyKernel, "next_timeout", lambda self, state: NEVER)
    monkeypatch.setattr(twin_kernel, "_take_reminder", lambda state, header, chain, now: None)
    schedule = one_rank_is_cut_off("fixed", packets=5000)
    with pytest.raises(
        ScheduleFailed, match=r"^TooSlow .* job 1 recovers .*: it lacked \d+ packets .*PSNs \d+ \(rank"
    ):
        recovery_of(schedule, rack, TWINS)
