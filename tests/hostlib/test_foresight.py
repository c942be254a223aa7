"""Sums whose exponents are foreseen from earlier calls of the same name, to the bit, on bad networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hostlib.collectives import CallOptions, Collective, make_collective
from hostlib.collectives.fusion import FusedCollective
from hostlib.collectives.schedule import Packets
from hostlib.core.congestion import CONGESTION
from hostlib.core.foresight import Foresight
from hostlib.core.state import Counter
from hostlib.errors import RanksDisagree
from hostlib.wire import encodings
from tests import effort
from tests.hostlib.cases import LANES, Case, MakeKernel, network_of, probabilities
from tests.hostlib.test_fallback_window import shared_network
from tests.hostlib.virtual_network import Impairments, Task, VirtualNetwork
from tests.twins import quantize
from tests.twins.kernel import NumpyKernel

CLEAN = Impairments()
Arrays = list[NDArray[np.float32]]


class Oracle:
    """What every call has to give, by the rules of the protocol's page: a dictionary, and nothing shared."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], tuple[list[int], bool]] = {}
        """By name and length: exponents of the next call, and whether they are used."""

    def sum_of(self, name: str | None, inputs: Arrays) -> tuple[NDArray[np.float32], int]:
        """Return the sum to the bit, and the number of packets that were sent twice."""
        length, ranks = len(inputs[0]), len(inputs)
        packets = max(1, -(-length // LANES))
        padded = np.zeros((ranks, packets * LANES), np.float32)
        padded[:, :length] = inputs
        rows = padded.reshape(ranks, packets, LANES).swapaxes(0, 1)
        found = [int(quantize.exponents(row).max()) for row in rows]
        before, steady = self.kept.get((name or "", length), ([], False))
        wrong = [0 < new < 255 and not 0 <= old - new <= 3 for old, new in zip(before, found, strict=False)]
        scales = found
        if before and steady and name:
            scales = [
                new if bad or new == 255 else old for old, new, bad in zip(before, found, wrong, strict=True)
            ]
        if name:
            nexts = [
                (before[at] if before else 254 * (new > 0)) if new in (0, 255) else min(new + 1, 254)
                for at, new in enumerate(found)
            ]
            self.kept[name, length] = nexts, not before or 4 * sum(wrong) <= packets
        total = np.sum(
            [quantize.quantize(part, np.array(scales, np.uint8), ranks) for part in rows.swapaxes(0, 1)],
            axis=0,
        )
        summed = quantize.dequantize(total.astype(np.int32), np.array(scales, np.uint8), ranks)
        twice = sum(wrong) if before and steady and name else 0
        return summed.reshape(-1)[:length], twice


def check(network: VirtualNetwork, oracle: Oracle, name: str | None, inputs: Arrays, **options: Any) -> int:
    """Sum through the network, compare with the oracle, and return how many packets were sent twice."""
    wanted, twice = oracle.sum_of(name, [array.copy() for array in inputs])
    results = network.run(inputs, names=[name] * len(inputs), **options)
    for worker, result in zip(network.workers, results, strict=True):
        assert worker.error is None
        assert result.tobytes() == wanted.tobytes()
    return twice


def sent(network: VirtualNetwork) -> int:
    return network.workers[0].window.count(Counter.SENT)


def normal(rng: np.random.Generator, ranks: int, length: int) -> Arrays:
    return list(rng.standard_normal((ranks, length)).astype(np.float32))


@dataclass(frozen=True)
class Calls:
    """Calls of a job: of each the name, the length in packets, and how its values differ from the last."""

    case: Case
    calls: tuple[tuple[str | None, int, int], ...]


calls = st.builds(
    Calls,
    st.builds(
        Case,
        size=st.integers(1, 4),
        window=st.integers(1, 12),
        lengths=st.just(()),
        dtype=st.just("float32"),
        op=st.just("sum"),
        in_place=st.booleans(),
        impairments=st.builds(Impairments, probabilities, probabilities, probabilities, probabilities),
        seed=st.integers(0, 2**32),
        first_psn=st.one_of(st.just(0), st.integers(2**32 - 60, 2**32 - 1)),
        skew_us=st.sampled_from([0, 0, 100, 30_000]),
    ),
    st.lists(
        st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 40, 700]), st.integers(0, 7)),
        min_size=2,
        max_size=6,
    ).map(tuple),
)


def drawn(rng: np.random.Generator, ranks: int, length: int, kind: int) -> Arrays:
    """Return values that are like those of other calls; or some are not; or zeros, denormals, NaN."""
    values = rng.standard_normal((ranks, length))
    if kind == 1:
        values *= 2.0 ** rng.integers(-6, 6)
    elif kind == 2:
        values *= np.exp2(rng.integers(-60, 60, length // LANES + 1)).repeat(LANES)[:length]
    elif kind == 3:
        values *= 0
    elif kind == 4:
        values *= 1e-40
    elif kind == 5:
        values[rng.integers(ranks), rng.integers(length)] = rng.choice([np.inf, -np.inf, np.nan])
    elif kind == 6:
        values *= 2.0**124
    return list(values.astype(np.float32))


def run(plan: Calls, network: VirtualNetwork) -> None:
    oracle, rng, case = Oracle(), np.random.default_rng(plan.case.seed), plan.case
    for name, length, kind in plan.calls:
        inputs = drawn(rng, case.size, length, kind)
        starts = [int(rng.integers(0, case.skew_us + 1)) for _ in range(case.size)]
        check(network, oracle, name, inputs, in_place=case.in_place, starts_us=starts)


@settings(max_examples=effort.cases(300), deadline=None)
@given(calls)
def test_every_foreseen_sum_is_exact_on_bad_networks(plan: Calls) -> None:
    from hostlib._native import NativeKernel

    run(plan, network_of(plan.case, NativeKernel))


@settings(max_examples=effort.cases(60), deadline=None)
@given(calls)
def test_so_it_is_in_the_twin(plan: Calls) -> None:
    run(plan, network_of(plan.case, NumpyKernel))


@settings(max_examples=effort.cases(150), deadline=None)
@given(calls, st.sampled_from([0, 4, 64]))
def test_so_it_is_with_a_fallback_server(plan: Calls, slots: int) -> None:
    from hostlib._native import NativeKernel

    case = plan.case
    network = shared_network(
        NativeKernel, case.size, window=16, slots=slots, impairments=case.impairments, seed=case.seed
    )
    run(plan, network)


def test_a_call_of_a_known_name_takes_one_packet_for_each_of_its_data(make_kernel: MakeKernel) -> None:
    network = network_of(Case(2, 8, (), "float32", "sum", False, CLEAN, 1), make_kernel)
    oracle, rng = Oracle(), np.random.default_rng(0)
    counts = []
    for name in ("a", "a", None, "b", "a"):
        before = sent(network)
        again = check(network, oracle, name, normal(rng, 2, 20 * LANES))
        counts.append(sent(network) - before - again)
    assert counts == [28, 20, 28, 28, 20]


def test_only_what_does_not_fit_is_sent_again(make_kernel: MakeKernel) -> None:
    network = network_of(Case(3, 8, (), "float32", "sum", True, CLEAN, 1), make_kernel)
    oracle, ones = Oracle(), np.ones(20 * LANES, np.float32)
    for factor in (1.0, 1.0):
        check(network, oracle, "a", [ones * np.float32(factor)] * 3)
    for value in (2.0, 4.0, 2.0**-7, np.nan):
        inputs = [ones.copy() for _ in range(3)]
        inputs[1][40 : 40 + LANES] = value
        before = sent(network)
        again = check(network, oracle, "a", inputs, in_place=True)
        assert sent(network) - before == 20 + again
        assert again == (2 if value == 4.0 else 0), value
        check(network, oracle, "a", [ones] * 3)


def test_the_result_that_says_what_does_not_fit_may_be_lost(make_kernel: MakeKernel) -> None:
    """One rank hears of it by a replay, long after the others have begun to sum again."""
    network = network_of(Case(2, 4, (), "float32", "sum", False, CLEAN, 1), make_kernel)
    oracle, ones = Oracle(), np.ones(LANES, np.float32)
    check(network, oracle, "a", [ones, ones])
    lost: list[int] = []

    def lose_results_of_rank_0(rank: int, packet: bytes, upwards: bool) -> bool:
        if rank or upwards or len(lost) == 3:
            return True
        lost.append(rank)
        return False

    network.on_packet = lose_results_of_rank_0
    assert check(network, oracle, "a", [ones, ones * 64]) == 1
    assert len(lost) == 3


def test_names_of_which_much_did_not_fit_are_foreseen_when_they_would_fit_again(
    make_kernel: MakeKernel,
) -> None:
    network = network_of(Case(2, 4, (), "float32", "sum", False, CLEAN, 1), make_kernel)
    oracle, ones = Oracle(), np.ones(8 * LANES, np.float32)
    counts = []
    for power in (0, 20, 0, 20, 0, 1, 0):
        before = sent(network)
        check(network, oracle, "a", [ones * np.float32(2.0**power)] * 2)
        counts.append(sent(network) - before)
    assert counts == [12, 16, 12, 12, 12, 12, 8]


def test_numbers_that_a_call_names_make_its_sum_depend_on_its_values_alone(make_kernel: MakeKernel) -> None:
    network = network_of(Case(2, 4, (), "float32", "sum", False, CLEAN, 1), make_kernel)
    values = np.random.default_rng(1).standard_normal(LANES).astype(np.float32)
    for _ in range(2):
        network.run([values, values], names=["a", "a"])
    before = sent(network)
    given = make_collective(values, "sum", CallOptions(None, "a", numbers="exponent"))
    network.run_tasks([[Task(given)], [Task(given)]])
    assert sent(network) - before == 2


def test_ranks_that_foresee_different_exponents_do_not_sum(make_kernel: MakeKernel) -> None:
    """Which they cannot come to by themselves: here one has forgotten."""
    network = network_of(Case(2, 4, (), "float32", "sum", False, CLEAN, 1), make_kernel)
    ones = np.ones(LANES, np.float32)
    network.run([ones, ones], names=["a", "a"])
    network.workers[0].window._foresight = Foresight()
    network.run([ones, ones], names=["a", "a"], limit_s=5)
    assert all(isinstance(worker.error, RanksDisagree) for worker in network.workers)


@pytest.mark.parametrize("name", CONGESTION)
def test_a_congestion_control_that_hears_of_waiting_goes_on_to(make_kernel: MakeKernel, name: Any) -> None:
    network = shared_network(make_kernel, 2, make_congestion=CONGESTION[name])
    ones = np.ones(8 * LANES, np.float32)
    counts = []
    for _ in range(2):
        before = sent(network)
        network.run([ones, ones], names=["a", "a"])
        counts.append(sent(network) - before)
    assert (counts[1] == 8) == (name != "a2tp")


def test_fused_calls_are_foreseen_by_their_own_names(make_kernel: MakeKernel) -> None:
    network = network_of(Case(2, 8, (), "float32", "sum", False, CLEAN, 1), make_kernel)
    rng, oracle, number = np.random.default_rng(2), Oracle(), 0
    packets = Packets(LANES)
    for names in (("a", "b"), ("b", "a"), ("b",), ("a", None)):
        rounds: list[list[Collective]] = [[], []]
        wanted = []
        before = sent(network)
        for name in names:
            inputs = normal(rng, 2, 100 if name == "a" else 50)
            if None not in names:
                wanted.append(oracle.sum_of(name, inputs)[0])
            for rank in range(2):
                call = make_collective(inputs[rank], "sum", CallOptions(None, name), number=number)
                rounds[rank].append(call)
            number += 1
        fused = [FusedCollective(parts, packets) for parts in rounds]
        network.run_tasks([[Task(each.collective)] for each in fused])
        for each, sums in zip(fused[0]._starts, wanted, strict=False):
            assert np.array_equal(fused[0]._sums[each : each + len(sums)], sums)
        foreseen = sent(network) - before == sum(map(packets.count, rounds[0]))
        assert foreseen == (names in (("b", "a"), ("b",)))


# ------------------------------------------------------------------ what is kept


def test_the_least_recently_used_is_forgotten() -> None:
    foresight = Foresight(most_bytes=3 * 256 + 30)

    def learn(name: str, packets: int = 10) -> None:
        foresight.learn([(name, packets)], bytes([100] * packets), all_fit=False)

    def known(*names: str) -> list[bool]:
        return [foresight.foresee([(name, 10)]) is not None for name in names]

    for name in "abc":
        learn(name)
    assert known("a", "b", "c") == [True] * 3
    learn("a")
    learn("d")
    assert known("a", "b", "c", "d") == [True, False, True, True]
    learn("e", 2000)
    assert known("a", "c", "d") == [False] * 3
    assert foresight.foresee([("e", 2000)]) is None, "more than is kept at all"
    learn("a")
    assert known("a") == [True]


def test_it_is_known_how_far_a_foreseen_sum_may_be_off() -> None:
    rng = np.random.default_rng(3)
    for ranks in (1, 2, 3, 8, 200):
        values = rng.uniform(-1, 1, (ranks, 1, LANES)).astype(np.float32)
        exact = values.astype(np.float64).sum(axis=0)
        exponent = int(quantize.exponents(values).max())
        for above in range(encodings.SPARE + 1):
            scale = np.array([exponent + above], np.uint8)
            total = sum(quantize.quantize(row, scale, ranks) for row in values)
            error = np.abs(quantize.dequantize(np.asarray(total), scale, ranks) - exact).max()
            assert error <= encodings.error_bound(exponent, ranks, foreseen=True)
            assert above or error <= encodings.error_bound(exponent, ranks)
