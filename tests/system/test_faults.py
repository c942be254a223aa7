"""Invariants 1 and 2 in virtual time: the compiled P4, the real controller and the real window core.

Whatever the links do to the frames, every rank gets the exact sum, and every allreduce ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from controller import Admission, Member, Part, SwitchSession, connect
from controller.switches.layout import Branch, Deployment
from controller.switches.planning import Identity
from controller.switches.programs import source_of
from hostlib import error_bound
from hostlib._native import NativeKernel
from softswitch import Impairments as LinkImpairments
from softswitch import PortImpairments, Switch, parse_port, preprocess_file, serve
from tests import effort
from tests.contract.admitted import LANES, admit, serving
from tests.controller import single
from tests.hostlib.virtual_network import Impairments, VirtualNetwork, endpoints

MAX_WORKERS = 6
TRIES = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

chance = st.one_of(st.just(0.0), st.floats(0.0, 0.2))

pytestmark = pytest.mark.filterwarnings("ignore::hostlib.PrecisionWarning")


@dataclass
class Bed:
    """A switch on memory ports, under its controller."""

    switch: Switch
    controller: SwitchSession
    time_ns: int = 0


def members(size: int) -> tuple[Member, ...]:
    """Rank r at port r."""
    own = [endpoints(rank) for rank in range(size)]
    return tuple(Member(rank, rank, end.src_mac, end.src_ip, end.src_port) for rank, end in enumerate(own))


def network_of(switch: Switch, admission: Admission, **options: Any) -> VirtualNetwork:
    """The workers of an admitted job."""
    return VirtualNetwork(
        switch,
        NativeKernel,
        size=admission.fan_in,
        slots=2 * admission.window,
        lanes=LANES,
        job=admission.job,
        epoch=admission.epoch,
        **options,
    )


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    path, defines = source_of("exclusive", LANES)
    with (
        Switch({port: parse_port("memory") for port in range(MAX_WORKERS)}) as switch,
        closing(serve(switch, source=preprocess_file(path, defines=defines))) as service,
        connect(service.address) as controller,
    ):
        yield Bed(switch, controller)


def check_sums(inputs: list[NDArray[np.generic]], results: list[NDArray[np.generic]]) -> None:
    """Every rank has the same array, and it is the sum: exactly, or within the documented bound."""
    for result in results[1:]:
        np.testing.assert_array_equal(results[0], result)
    if inputs[0].dtype == np.int32:
        np.testing.assert_array_equal(results[0], np.sum(inputs, axis=0, dtype=np.int64))
        return
    exact = np.sum(inputs, axis=0, dtype=np.float64)
    for start in range(0, exact.size, LANES):
        part = slice(start, start + LANES)
        largest = float(max(np.abs(array[part]).max() for array in inputs))
        bound = error_bound(largest, len(inputs)) + np.abs(exact[part]) * 2.0**-24
        assert (np.abs(results[0][part] - exact[part]) <= bound).all()


def carry_out(network: VirtualNetwork, size: int, lengths: list[int], rng: np.random.Generator) -> None:
    """Run several allreduces of both types, one after the other."""
    for i, length in enumerate(lengths):
        if i % 2:
            inputs = [rng.integers(-(2**26), 2**26, length, dtype=np.int32) for _ in range(size)]
        else:
            scale = np.float32(10.0) ** rng.integers(-30, 30)
            inputs = [rng.standard_normal(length, dtype=np.float32) * scale for _ in range(size)]
        starts = [int(start) for start in rng.integers(0, 2000, size)]
        results = network.run(inputs, starts_us=starts)
        assert not any(worker.error for worker in network.workers)
        check_sums(inputs, results)


@given(
    size=st.integers(1, MAX_WORKERS),
    slots=st.sampled_from([2, 4, 8, 32, 128]),
    lengths=st.lists(st.integers(1, 700), min_size=1, max_size=4),
    impairments=st.builds(Impairments, loss=chance, duplicate=chance, reorder=chance, corrupt=chance),
    first_psn=st.one_of(st.just(0), st.integers(2**32 - 40, 2**32 - 1)),
    seed=st.integers(0, 2**32 - 1),
)
@settings(TRIES, max_examples=effort.cases(400))
def test_sums_are_exact_whatever_the_links_do(
    bed: Bed,
    size: int,
    slots: int,
    lengths: list[int],
    impairments: Impairments,
    first_psn: int,
    seed: int,
) -> None:
    admission = single.admit(bed.controller, Part(members(size), slots))
    network = network_of(bed.switch, admission, impairments=impairments, seed=seed, first_psn=first_psn)
    # The bed has one clock: this job begins where the one before it ended.
    network.now = bed.time_ns
    carry_out(network, size, lengths, np.random.default_rng(seed))
    bed.time_ns = network.now + 1_000_000
    counters = bed.controller.counters(admission.job)
    assert counters["overflow"] == counters["disagree"] == 0
    single.remove(bed.controller, admission)


@given(
    impairments=st.builds(
        LinkImpairments,
        loss=chance,
        duplicate=chance,
        reorder=chance,
        corrupt=chance,
        delay_s=st.sampled_from([0.0, 1e-4]),
        jitter_s=st.sampled_from([0.0, 1e-4]),
        rate_bps=st.sampled_from([0.0, 1e8]),
        queue_packets=st.just(8),
    ),
    seed=st.integers(0, 2**32 - 1),
)
@settings(TRIES, max_examples=effort.cases(150))
def test_sums_are_exact_whatever_the_ports_of_the_switch_do(impairments: LinkImpairments, seed: int) -> None:
    tree = Deployment(Branch("switch", members(4)), 16)
    _, present = admit("exclusive", {Identity(7, 0x501): tree})
    (admission,) = present["switch"]
    ports = PortImpairments(rx=impairments, tx=impairments)
    with serving("exclusive", [admission], impairments=ports, seed=seed) as switch:
        carry_out(network_of(switch, admission), 4, [500, 300], np.random.default_rng(seed))
