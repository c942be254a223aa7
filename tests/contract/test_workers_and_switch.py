"""The real workers and the real switch program together, in virtual time: invariants 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

from controller.switches.model import Admission, Member
from controller.vocabulary import Region
from hostlib._native import NativeKernel
from hostlib.core.state import Counter
from hostlib.errors import PeerTimeout, RanksDisagree
from softswitch.engine.switch import Switch
from tests import effort
from tests.contract.admitted import SLOTS, serving
from tests.contract.compiled_fabric import compiled_fabric
from tests.hostlib.cases import JOB, Case, cases, network_of, run_case
from tests.hostlib.fabric import FabricCase, carry_out, fabric_cases
from tests.hostlib.virtual_network import Impairments, VirtualNetwork


@contextmanager
def switch_for(case: Case) -> Iterator[Switch]:
    """One switch with one exclusive job, rank r at port r; regions need not be powers of two."""
    slots = 2 * case.window
    admission = Admission(
        job=JOB,
        counter_row=1,
        region=Region(SLOTS - slots, slots),
        generation=0x100,
        group=1,
        members=tuple(Member(r, r, f"02:00:00:00:00:{r:02x}", "10.0.0.1", 42592) for r in range(case.size)),
        fan_in=case.size,
        window=case.window,
        result_bitmap=(1 << case.size) - 1,
    )
    with serving("exclusive", [admission]) as switch:
        yield switch


@contextmanager
def network_for(case: Case) -> Iterator[VirtualNetwork]:
    with switch_for(case) as switch:
        yield network_of(case, NativeKernel, switch)


@pytest.mark.slow
@settings(max_examples=effort.cases(1000))
@given(cases)
@example(Case(4, 20, (1500, 0, 700), "float32", "sum", True, Impairments(0.2, 0.2, 0.2, 0.2), 1))
@example(Case(6, 1, (100,), "int32", "sum", True, Impairments(0.2, 0.2, 0.2, 0.2), 2, first_psn=2**32 - 2))
@example(Case(3, 5, (700,), "float32", "sum", False, Impairments(0.1), 3, first_psn=2**32 - 20))
# time-outs that followed the pace of all results let ranks get different sums
@example(Case(3, 1, (637,), "float32", "sum", False, Impairments(0.1875, 0.0, 0.0, 0.125), 428, skew_us=100))
def test_every_sum_is_exact_on_any_network(case: Case) -> None:
    with switch_for(case) as switch:
        run_case(case, NativeKernel, switch)


@pytest.mark.slow
@settings(max_examples=effort.cases(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fabric_cases)
def test_every_sum_is_exact_in_any_tree_of_any_jobs(case: FabricCase) -> None:
    """Both programs, one to three levels, up to three jobs at once, with the real fallback server."""
    with compiled_fabric(case) as network:
        carry_out(case, network)


@pytest.mark.parametrize("kind", ["loss", "duplicate", "reorder", "corrupt"])
@pytest.mark.parametrize("probability", [0.01, 0.2])
def test_every_impairment_alone(kind: str, probability: float) -> None:
    case = Case(4, 16, (3000, 40), "float32", "sum", True, Impairments(**{kind: probability}), 4)
    with switch_for(case) as switch:
        run_case(case, NativeKernel, switch)


def test_psns_wrap_where_the_region_does_not_divide_their_range() -> None:
    case = Case(2, 5, (3000,), "float32", "sum", False, Impairments(0.1, 0.1, 0.1), 5, 2**32 - 17)
    with switch_for(case) as switch:
        network = run_case(case, NativeKernel, switch)
    psns = network.workers[0].window.psns()
    assert psns.last < psns.first


def test_an_int32_overflow_reaches_every_rank() -> None:
    with network_for(Case(2, 4, (), "int32", "sum", False, Impairments(0.1), 1)) as network:
        inputs = [np.zeros(100, np.int32), np.zeros(100, np.int32)]
        inputs[0][70], inputs[1][70] = -(2**31), -1
        network.run(inputs)
        assert [worker.window.numeric_errors().overflow for worker in network.workers] == [64, 64]


def test_values_that_are_not_finite_reach_every_rank() -> None:
    with network_for(Case(3, 4, (), "float32", "sum", False, Impairments(0.1), 1)) as network:
        inputs = [np.ones(100, np.float32) for _ in range(3)]
        inputs[2][5] = -np.inf
        for result in network.run(inputs):
            assert np.isnan(result[:32]).all()
            assert (result[32:] == 3).all()


def test_ranks_that_differ_all_get_an_error() -> None:
    with network_for(Case(2, 4, (), "float32", "sum", False, Impairments(0.1), 1)) as network:
        network.run([np.ones(100, np.float32), np.ones(101, np.float32)], limit_s=5)
        for worker in network.workers:
            assert isinstance(worker.error, RanksDisagree)


def test_a_silent_rank_is_named() -> None:
    with network_for(Case(3, 4, (), "float32", "sum", False, Impairments(0.1), 1)) as network:
        network.run([np.ones(100, np.float32)] * 3, absent=[2], limit_s=10)
        for worker in network.workers[:2]:
            assert isinstance(worker.error, PeerTimeout)
            assert worker.error.missing == (2,)
            assert worker.window.count(Counter.STATUSES) > 0


def test_packets_lost_by_the_switch_itself_change_nothing_on_a_clean_network() -> None:
    """A clean run: every packet is aggregated once, none is sent again."""
    case = Case(4, 16, (3000,), "float32", "sum", True, Impairments(), 1)
    with switch_for(case) as switch:
        network = run_case(case, NativeKernel, switch)
        for worker in network.workers:
            assert worker.window.count(Counter.RESENT) == 0
        assert switch.statistics(0).rx_packets == switch.statistics(0).tx_packets == 94 + 16
