"""Many jobs on shared and exclusive switches, in trees, with a fallback server: exact, and never stuck."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings

from hostlib import wire
from hostlib._native import NativeKernel
from tests import effort
from tests.hostlib.fabric import FabricCase, JobCase, build, carry_out, fabric_cases, run
from tests.hostlib.virtual_network import Impairments
from tests.twins import SERVERS
from tests.twins.kernel import NumpyKernel

SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

DIFFERENT_ORDERS = FabricCase(
    (
        JobCase((0,) * 6, frozenset(), 4, (588, 119)),
        JobCase((0, 2, 2, 2), frozenset(), 3, (210, 298, 315), "float32", 1, priority=7, congestion="aimd"),
    ),
    slots=64,
    impairments=Impairments(corrupt=0.013, mark=0.05),
    seed=6330,
)
"""With limits below the window, ranks that got results in different orders waited for each other."""

REPAIR_WITH_REMINDERS = FabricCase(
    (
        JobCase((2, 2), frozenset({1, 2}), 7, (336, 106, 614), target=0, congestion="aimd"),
        JobCase(
            (1, 2, 3, 3, 1, 0), frozenset({1, 2, 3}), 14, (224, 103), "fixed", congestion="a2tp", large=True
        ),
    ),
    slots=16,
    impairments=Impairments(0.046, 0.037, 0.0, 0.061),
    seed=471,
    forget_after=50,
)
"""A reminder of a packet under repair fetched, from the switch, the result that had overflowed."""

ONE_SLOT = FabricCase(
    (
        JobCase((0,) * 6, frozenset(), 1, (507, 171), "fixed", congestion="a2tp", skew_us=30_000),
        JobCase((3, 3), frozenset({1, 2, 3}), 4, (777,), "float32", priority=1, congestion="a2tp"),
        JobCase((0, 3, 1), frozenset({1}), 9, (489, 142), "fixed", 0, priority=7),
    ),
    slots=1,
    impairments=Impairments(loss=0.1),
    seed=0,
)
"""Chains that ran ahead of others made the fallback server take the others' packets for obsolete."""


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_jobs_on_a_fabric_without_faults_get_exact_sums(exclusive: bool, seed: int) -> None:
    jobs = (
        JobCase((0, 1, 2, 3), frozenset({1, 2, 3}), 8, (700, 0, 33), "float32"),
        JobCase((3, 3, 2, 2), frozenset({1, 2}), 8, (700,), "int32", target=2),
        JobCase((1, 2), frozenset(), 4, (400,), "fixed", large=True),
    )
    case = FabricCase(jobs, 16, Impairments(), seed, exclusive)
    carry_out(case, build(case, NativeKernel))


def test_stranded_sums_are_pulled_long_before_anybody_times_out() -> None:
    """Some contributions stay in a slot, others went by it: a time-out each would take five seconds."""
    job = JobCase((1, 2, 3), frozenset({1, 2, 3}), 8, (3200,), skew_us=50)
    case = FabricCase((job, job), 1, Impairments(), 0)
    network = build(case, NativeKernel)
    kinds: list[tuple[str, int]] = []
    network.on_link = lambda at, _, packet: kinds.append((at, packet[wire.FRAME_PREFIX_BYTES] & 15))
    carry_out(case, network)
    assert ("server", wire.KIND_REMINDER) in kinds
    assert network.now < 0.2e9


@settings(SETTINGS, max_examples=effort.cases(30))
@given(fabric_cases)
@example(REPAIR_WITH_REMINDERS)
def test_both_kernels_send_the_same_packets_at_the_same_times(case: FabricCase) -> None:
    assert run(case, NativeKernel) == run(case, NumpyKernel)


@pytest.mark.parametrize("name", effort.some(SERVERS, every=2))
@settings(SETTINGS, max_examples=effort.cases(120))
@given(case=fabric_cases)
@example(case=DIFFERENT_ORDERS)
@example(case=REPAIR_WITH_REMINDERS)
@example(case=ONE_SLOT)
def test_every_sum_is_exact(name: str, case: FabricCase) -> None:
    carry_out(case, build(case, NativeKernel, SERVERS[name]))
