"""Ranks of a machine that are summed there first: two machines' worth of ranks on a reference switch."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hostlib
from hostlib import Communicator, ConfigError, JobConfig, Limits
from hostlib.collectives import KEYS, local_ranks
from hostlib.config import TransportConfig
from hostlib.meet.rendezvous import Rendezvous
from hostlib.meet.rendezvous_peers import RendezvousPeers
from hostlib.wire import encodings
from tests import effort
from tests.hostlib.socket_switch import JOB, SocketSwitch
from tests.hostlib.test_communicator import ENDLESS, on_every_rank

Hosts = tuple[tuple[int, ...], ...]
TWO_BY_TWO: Hosts = ((0, 1), (2, 3))


@contextlib.contextmanager
def job(hosts: Hosts = TWO_BY_TWO, **fields: Any) -> Iterator[list[JobConfig]]:
    """Give the configurations of a job's ranks."""
    size = sum(map(len, hosts))
    with SocketSwitch(len(hosts)) as switch, Rendezvous(job=JOB, size=size) as rendezvous:
        told = {"rendezvous": rendezvous.address, "token": rendezvous.token, **fields}
        yield [
            replace(switch.configs[worker], rank=rank, size=size, hosts=hosts, **told)
            for worker, ranks in enumerate(hosts)
            for rank in ranks
        ]


def join(config: JobConfig, limits: Limits | None = None) -> Communicator:
    assert config.rendezvous is not None
    assert config.token is not None
    peers = RendezvousPeers(
        config.rendezvous, job=config.job, rank=config.rank, size=config.size, token=config.token
    )
    return Communicator(config, peers, limits)


def run_job(work: Callable[[Communicator], Any], hosts: Hosts = TWO_BY_TWO, **fields: Any) -> list[Any]:
    """Return what each rank of such a job comes to: a result, or an exception."""
    with job(hosts, **fields) as configs:
        return on_every_rank(configs, work, join)


def data(rank: int, length: int, seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng([rank, seed]).standard_normal(length).astype(np.float32)


@settings(max_examples=effort.cases(15), deadline=None)
@given(
    hosts=st.sampled_from(
        [TWO_BY_TWO, ((0, 2), (1, 3)), ((0,), (1, 2, 3)), ((0, 1, 2),), ((1, 0, 2), (3, 4))]
    ),
    length=st.integers(0, 3000),
    op=st.sampled_from(["sum", "average"]),
    numbers=st.sampled_from(encodings.NUMBERS),
    seed=st.integers(0, 99),
)
def test_sums_are_within_the_bound_and_the_same_on_all_ranks(
    hosts: Hosts, length: int, op: Any, numbers: Any, seed: int
) -> None:
    results = run_job(lambda c: c.allreduce(data(c.rank, length, seed), op, numbers=numbers), hosts)
    size = sum(map(len, hosts))
    inputs = np.array([data(rank, length, seed) for rank in range(size)], np.float64)
    exact = inputs.sum(axis=0) / (size if op == "average" else 1)
    largest = float(np.abs(inputs).max(initial=0))
    bound = hostlib.error_bound(largest, size, numbers=numbers, hierarchical=True)
    assert all(result.tobytes() == results[0].tobytes() for result in results)
    assert np.abs(results[0] - exact).max(initial=0) <= bound


def test_one_machine_of_many_ranks_among_many_machines_is_within_the_bound() -> None:
    many = tuple(range(9))
    unit = 2.0 ** (16 - encodings.scale_log2(126 + 5, 9))  # of a packet whose largest is 9 * 1.9
    half = np.full(8, 20.5 * unit, np.float32)  # all rounded to the same side
    half[0] = 1.9
    results = run_job(
        lambda c: c.allreduce(half if c.rank > 8 else np.full(8, 1.9, np.float32), numbers="block16"),
        (many, *((rank,) for rank in range(9, 17))),
    )
    exact = 9 * float(np.float32(1.9)) + 8 * float(half[1])
    error = abs(float(results[0][1]) - exact)
    flat = hostlib.error_bound(1.9, 17, numbers="block16")
    assert flat < error <= hostlib.error_bound(1.9, 17, numbers="block16", hierarchical=True)


def test_int32_is_exact_and_overflows_by_name_on_all_ranks() -> None:
    def work(c: Communicator) -> tuple[Any, ...]:
        total = c.allreduce(np.arange(100, dtype=np.int32) * (c.rank + 1))
        with pytest.raises(hostlib.SumOverflow) as on_a_machine:
            c.allreduce(np.full(100, 2**30 if c.rank < 2 else -(2**30), np.int32))
        with pytest.raises(hostlib.SumOverflow) as between_machines:
            c.allreduce(np.full(100, 2**29 + 5 if c.rank % 2 else 2**29, np.int32))
        far = np.zeros(100, np.int32)
        far[70] = 2**30 if c.rank > 1 else 1
        with pytest.raises(hostlib.SumOverflow) as at_70:
            c.allreduce(far)
        after = c.allreduce(np.ones(3, np.int32)).tolist()
        found = [e.value.element for e in (on_a_machine, between_machines, at_70)]
        return total.tolist(), found, after

    results = run_job(work)
    assert results == [([10 * i for i in range(100)], [0, 0, 64], [4, 4, 4])] * 4


def test_calls_of_every_kind() -> None:
    def work(c: Communicator) -> Any:
        handles = [c.allreduce_async(np.full(n, c.rank + 1.0, np.float32), name=f"w{n}") for n in range(40)]
        reduced = c.reduce(np.full(5, c.rank, np.float32), root=3)
        c.barrier()
        big = c.allreduce(np.full(100_000, 1, np.float32), out=(into := np.empty(100_000, np.float32)))
        mine = np.full(9, 1.5, np.float16)
        c.allreduce(mine, out=mine)
        c.progress(1, 2)
        return (
            [handle.wait().tolist() for handle in handles] == [[10.0] * n for n in range(40)],
            None if reduced is None else reduced.tolist(),
            big is into and bool((into == 4).all()),
            mine.tolist() == [6] * 9,
            c.statistics()["elements"] > 100_000,
        )

    results = run_job(work)
    for rank, (fused, reduced, big, mine, counted) in enumerate(results):
        assert fused
        assert reduced == ([6.0] * 5 if rank == 3 else None)
        assert big
        assert mine
        assert counted


def test_a_machines_second_rank_has_the_same_counters_as_its_first() -> None:
    def work(c: Communicator) -> Any:
        c.allreduce(np.ones(1000, np.float32))
        return c.statistics()

    for rank, statistics in enumerate(run_job(work)):
        assert statistics.keys() == set(KEYS)
        assert (statistics["collectives"], statistics["elements"]) == (1, 1000)
        assert (statistics["packets_sent"] > 0) is (rank in (0, 2)), "the first of each machine sends"


def test_large_arrays_are_summed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_ranks, "CHUNK_BYTES", 4 * 512)

    def work(c: Communicator) -> Any:
        array = data(c.rank, 2000, 0)
        array[1500] = np.nan
        with pytest.raises(hostlib.NonFiniteError) as caught:
            c.allreduce(array)
        unfit = c.allreduce(array, nonfinite="propagate")
        return caught.value.element, np.flatnonzero(np.isnan(unfit)).tolist()

    results = run_job(work)
    first = 1024 + (1500 - 1024) // 32 * 32
    assert results == [(first, list(range(first, first + 32)))] * 4


@pytest.mark.parametrize("hosts", [((0, 1, 2),), ((0,),)])
def test_ranks_that_reach_no_switch_are_summed_in_steps(
    monkeypatch: pytest.MonkeyPatch, hosts: Hosts
) -> None:
    """The same on all of them, also what is not finite: once it was left out if it was to be propagated."""
    monkeypatch.setattr(local_ranks, "CHUNK_BYTES", 4 * 512)
    ranks = len(hosts[0])

    def work(c: Communicator) -> Any:
        array = data(c.rank, 2000, 0)
        mean = c.allreduce(array, "average")
        array[1500] = np.nan
        unfit = c.allreduce(array, nonfinite="propagate")
        with pytest.raises(hostlib.NonFiniteError) as not_finite:
            c.allreduce(array)
        whole = np.arange(2000, dtype=np.int32)
        exact = c.allreduce(whole)
        whole[[700, 1900]] = 2**30
        beyond = None
        if ranks > 1:
            with pytest.raises(hostlib.SumOverflow, match="left the int32 range") as overflow:
                c.allreduce(whole)
            beyond = overflow.value.element
        reduced = c.reduce(np.full(700, c.rank + 1, np.float32), root=ranks - 1)
        residual = np.zeros(600, np.float32)
        blocks = c.allreduce(np.full(600, 1.1, np.float32), numbers="block8", residual=residual)
        assert not residual.any()
        c.barrier()
        found = mean.tobytes(), unfit.tobytes(), exact.tobytes(), blocks.tobytes()
        return found, not_finite.value.element, beyond, None if reduced is None else set(reduced.tolist())

    with job(hosts) as configs:
        alone = [replace(config, transport=TransportConfig("none", "", "")) for config in configs]
        results = on_every_rank(alone, work, join)
    inputs = [data(rank, 2000, 0).astype(np.float64) for rank in range(ranks)]
    mean, unfit, exact, blocks = results[0][0]
    assert mean == (sum(inputs) / ranks).astype(np.float32).tobytes()
    assert np.flatnonzero(np.isnan(np.frombuffer(unfit, np.float32))).tolist() == [1500]
    assert exact == (ranks * np.arange(2000, dtype=np.int32)).tobytes()
    assert blocks == np.full(600, ranks * np.float64(np.float32(1.1)), np.float32).tobytes()
    for rank, (found, not_finite, beyond, reduced) in enumerate(results):
        assert found == results[0][0]
        assert (not_finite, beyond) == (1500, 700 if ranks > 1 else None)
        assert reduced == ({ranks * (ranks + 1) / 2} if rank == ranks - 1 else None)


@pytest.mark.filterwarnings("ignore::hostlib.PrecisionWarning")
def test_what_does_not_fit_is_named_in_packets_of_a_calls_own_numbers() -> None:
    """Of which one is longer than those of the job: the element is not in its first 32."""

    def work(c: Communicator) -> str:
        array = np.ones(200)
        array[100] = 1e300
        with pytest.raises(hostlib.NonFiniteError) as caught:
            c.allreduce(array, numbers="block8")
        return f"{caught.value.element} {caught.value.what}"

    results = run_job(work)
    assert all(
        result.startswith("0 1e+300 (element 100), beyond the range of float32") for result in results
    ), results


@pytest.mark.parametrize("numbers", encodings.BLOCKS)
def test_what_is_rounded_off_stays_with_the_machine(numbers: encodings.Block) -> None:
    """Sums with error feedback add up: what is left is in the residuals of all ranks together."""
    steps, length = 5, 500

    def work(c: Communicator) -> Any:
        residual = np.zeros(length, np.float32)
        total = np.zeros(length)
        for step in range(steps):
            total += c.allreduce(data(c.rank, length, step), "average", numbers=numbers, residual=residual)
        return total, residual

    results = run_job(work)
    exact = sum(data(rank, length, step).astype(np.float64) for rank in range(4) for step in range(steps)) / 4
    left = sum(residual.astype(np.float64) for _, residual in results) / 4
    assert np.abs(left).max() > 1e-6
    assert np.abs(results[0][0] + left - exact).max() < 1e-5


def test_ranks_that_differ_are_named_on_their_machine_and_noticed_on_the_other() -> None:
    results = run_job(lambda c: c.allreduce(np.ones(4 if c.rank == 1 else 3, np.float32)))
    assert [type(result) for result in results] == [hostlib.RanksDisagree] * 4
    for result in results[:2]:
        assert "call 1: sum of 3 float32 at rank 0; call 1: sum of 4 float32 at rank 1" in str(result)


def test_machines_that_differ_are_noticed() -> None:
    results = run_job(lambda c: c.allreduce(np.ones(4 if c.rank > 1 else 3, np.float32)))
    assert [type(result) for result in results] == [hostlib.RanksDisagree] * 4


def test_a_rank_that_leaves_early_is_named() -> None:
    def work(c: Communicator) -> Any:
        c.barrier()
        return None if c.rank == 3 else c.allreduce(np.ones(3, np.float32))

    results = run_job(work)
    for result in results[:3]:
        assert isinstance(result, hostlib.PeerLost)
        assert "rank 3: it left the job after 1 collective" in str(result)


@pytest.mark.parametrize("victim", [0, 3])
def test_a_rank_that_is_killed_ends_all_before_their_patience_ends(victim: int) -> None:
    """The first of a machine, or another one; rank 3 and rank 0 are processes of their own."""
    with job(**ENDLESS) as configs:
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                communicator = join(configs[victim])
                communicator.barrier()
                os.kill(os.getpid(), 9)
            os._exit(1)
        others = [config for config in configs if config.rank != victim]

        def work(c: Communicator) -> Any:
            c.barrier()
            return c.allreduce(np.ones(100, np.float32))

        results = on_every_rank(others, work, join)
        os.waitpid(pid, 0)
    for result in results:
        assert isinstance(result, hostlib.PeerLost), result
        assert f"lost rank {victim}: its connection" in str(result)


@pytest.mark.parametrize(
    ("at_first", "fields", "error", "said"),
    [
        (
            lambda c: threading.Timer(0.3, c.abort, ("enough",)).start(),
            {},
            hostlib.JobFault,
            "enough",
        ),
        (
            lambda c: None,
            {"timeout_s": 0.4, "straggler_timeout_s": 0.8},
            hostlib.PeerTimeout,
            "nothing received from rank 1, on this machine",
        ),
    ],
    ids=["by an abort", "when patience ends"],
)
def test_a_slow_rank_is_given_up(
    at_first: Callable[[Communicator], None], fields: dict[str, float], error: type[Exception], said: str
) -> None:
    wait = threading.Event()

    def work(c: Communicator) -> Any:
        if c.rank == 1:
            return wait.wait(300)
        if c.rank == 0:
            at_first(c)
        try:
            return c.allreduce(np.ones(3, np.float32))
        finally:
            if c.rank == 0:
                wait.set()

    first, _, *others = run_job(work, **fields)
    assert isinstance(first, error)
    assert said in str(first)
    assert all(isinstance(other, hostlib.JobBroken) for other in others)


def test_a_configuration_has_each_rank_at_one_machine() -> None:
    with job() as configs:
        config = configs[3]
    assert (config.worker, config.workers, config.host_of(1)) == (1, 2, 0)
    assert JobConfig.from_json(config.to_json()) == config
    for hosts in (((0, 1), (2,)), ((0, 1), (1, 2, 3)), ((0, 1, 2, 3), ()), 5, [["a"]]):
        with pytest.raises(ConfigError, match="hosts is"):
            replace(config, hosts=hosts)  # type: ignore[arg-type]
