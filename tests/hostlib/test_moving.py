"""Reduce-scatter, all-gather and broadcast of whole workers, on real sockets and alone."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import hostlib as ina
from hostlib.collectives.schedule import Limits
from hostlib.core.state import CoreStruct, turn_of
from hostlib.core.window import place_of
from tests.hostlib.cases import LANES, MakeKernel
from tests.hostlib.fabric import Does, FabricCase, JobCase, build, carry_out
from tests.hostlib.test_communicator import run_ranks
from tests.hostlib.virtual_network import Impairments

RANKS = 3
TYPES = (np.float32, np.float64, np.int32, np.int64, np.int16, np.uint8, np.bool_, np.complex64)


def values(rank: int, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    generator = np.random.default_rng(rank)
    return (generator.standard_normal(shape) * 100).astype(dtype)


@pytest.mark.parametrize("framed", [True, False], ids=["loopback", "udp"])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_every_rank_gets_what_is_its(loss: float, framed: bool) -> None:
    shape = (7, 5)

    def body(comm: ina.Communicator) -> None:
        for dtype in TYPES:
            mine = values(comm.rank, shape, dtype)
            everything = np.concatenate([values(rank, shape, dtype) for rank in range(RANKS)])
            assert np.array_equal(comm.all_gather(mine), everything)
            assert np.array_equal(comm.all_gather_async(mine).wait(), everything)
            given = comm.broadcast(mine, root=1)
            assert np.array_equal(given, values(1, shape, dtype))
            assert given.dtype == dtype
        whole = (3 * RANKS, 50)
        for dtype in (np.float32, np.int32, np.float16):
            shards = np.split(values(comm.rank, whole, dtype), RANKS)
            alone = [comm.allreduce(shard) for shard in shards]
            mine = comm.reduce_scatter(np.concatenate(shards))
            assert mine.tobytes() == alone[comm.rank].tobytes()
            assert mine.shape == (3, 50)
            assert mine.dtype == dtype
        averaged = [
            comm.allreduce(shard, "average") for shard in np.split(values(comm.rank, whole, np.float32), 3)
        ]
        mine = comm.reduce_scatter_async(values(comm.rank, whole, np.float32), "average").wait()
        assert mine.tobytes() == averaged[comm.rank].tobytes()

    assert run_ranks(RANKS, body, loss=loss, framed=framed) == [None] * RANKS


def test_results_go_where_they_are_to_be() -> None:
    def body(comm: ina.Communicator) -> None:
        rows = np.zeros((RANKS, 40), np.int64)
        rows[comm.rank] = comm.rank + 1
        assert comm.all_gather(rows[comm.rank], out=rows.reshape(-1)) is not None
        assert [int(row[0]) for row in rows] == [1, 2, 3]
        spread = np.full((40, 2), comm.rank, np.float32)[:, 0]  # not contiguous
        assert comm.broadcast(spread, 2, out=spread) is spread
        assert (spread == 2).all()
        gradient = np.full(RANKS * 100, comm.rank + 1, np.float32)
        part = gradient[comm.rank * 100 : (comm.rank + 1) * 100]
        assert comm.reduce_scatter(gradient, out=part) is part
        assert (part == 6).all()
        rest = np.delete(gradient, np.s_[comm.rank * 100 : (comm.rank + 1) * 100])
        assert (rest == comm.rank + 1).all(), "only its own part changes"

    assert run_ranks(RANKS, body) == [None] * RANKS


def test_large_ones_are_carried_out_in_slices() -> None:
    shape = (2000,)

    def body(comm: ina.Communicator) -> None:
        gathered = comm.all_gather_async(values(comm.rank, shape, np.float32))
        given = comm.broadcast_async(values(comm.rank, shape, np.int32), root=2)
        summed = comm.reduce_scatter_async(values(comm.rank, (RANKS * 2000,), np.int32))
        everything = np.concatenate([values(rank, shape, np.float32) for rank in range(RANKS)])
        assert np.array_equal(gathered.wait(60), everything)
        assert np.array_equal(given.wait(60), values(2, shape, np.int32))
        exact = sum(values(rank, (RANKS * 2000,), np.int32) for rank in range(RANKS))
        assert np.array_equal(summed.wait(60), exact[comm.rank * 2000 : (comm.rank + 1) * 2000])

    def make(config: ina.JobConfig) -> ina.Communicator:
        return ina.Communicator(config, limits=Limits(fusion_bytes=0, slice_bytes=1000))

    assert run_ranks(RANKS, body, make) == [None] * RANKS


def test_ranks_that_call_different_ones_all_hear_of_it() -> None:
    def body(comm: ina.Communicator) -> None:
        comm.broadcast(np.ones(10), root=(comm.rank + 1) % RANKS)  # nobody is the root that the others expect

    outcomes = run_ranks(RANKS, body)
    assert [type(outcome) for outcome in outcomes] == [ina.RanksDisagree] * RANKS


def test_what_is_not_finite_is_told_to_all_ranks() -> None:
    def body(comm: ina.Communicator) -> NDArray[Any]:
        gradient = np.ones(RANKS * 10, np.float32)
        gradient[15] = np.inf if comm.rank == 0 else 1  # in the shard of rank 1
        with pytest.raises(ina.NonFiniteError, match="element 10"):
            comm.reduce_scatter(gradient)
        return comm.reduce_scatter(gradient, nonfinite="propagate")

    outcomes = run_ranks(RANKS, body)
    assert [bool(np.isnan(outcome).all()) for outcome in outcomes] == [False, True, False]


def test_one_rank_has_it_all(alone: ina.Communicator) -> None:
    array = np.arange(6.0, dtype=np.float32)
    for result in (alone.reduce_scatter(array), alone.all_gather(array), alone.broadcast(array)):
        assert np.array_equal(result, array)
        assert not np.shares_memory(result, array)


def test_a_job_whose_program_cannot_do_it_refuses() -> None:
    def body(comm: ina.Communicator) -> str:
        with pytest.raises(ina.UnsupportedArray) as refused:
            comm.broadcast(np.ones(3))
        assert (comm.allreduce(np.ones(3, np.float32)) == RANKS).all(), "the job goes on"
        return str(refused.value)

    def make(config: ina.JobConfig) -> ina.Communicator:
        return ina.Communicator(replace(config, bare=False))

    (said, *_) = run_ranks(RANKS, body, make)
    assert said == (
        "broadcast is not available in this job: its switch program takes no contributions without lanes"
    )


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda comm: comm.broadcast(np.ones(3), root=1), "root is 1, must be a rank: 0..0"),
        (lambda comm: comm.broadcast(np.array([object()])), "dtype is object"),
        (lambda comm: comm.reduce_scatter(np.float32(1)), "first dimension must be a multiple of 1"),
        (lambda comm: comm.reduce_scatter(np.ones(3, np.int64)), "dtype is int64"),
        (
            lambda comm: comm.all_gather(np.ones(3), out=np.ones(4)),
            r"out is float64\(4,\), must be like all shards",
        ),
        (lambda comm: comm.all_gather(np.ones(3), priority=256), "priority is 256"),
    ],
)
def test_bad_arguments_are_named(alone: ina.Communicator, call: Any, says: str) -> None:
    with pytest.raises(ValueError if "root" in says else ina.UnsupportedArray, match=says):
        call(alone)


@pytest.mark.parametrize("call", ["allreduce", "reduce", "reduce_scatter", "all_gather", "broadcast"])
def test_calls_that_wait_and_that_do_not_show_the_same_arguments_and_refuse_others(call: str) -> None:
    waits, starts = (inspect.signature(getattr(ina, f"{call}{end}")) for end in ("", "_async"))
    assert waits.parameters == starts.parameters
    assert starts.return_annotation == f"Handle[{waits.return_annotation}]"
    assert {"array", "out", "name", "layer", "priority"} <= waits.parameters.keys()
    ina.init()
    try:
        for end in ("", "_async"):
            with pytest.raises(TypeError, match="unexpected keyword argument 'residuals'"):
                getattr(ina, f"{call}{end}")(np.ones(4), residuals=None)
    finally:
        ina.shutdown()


@pytest.mark.parametrize(
    ("in_flight", "ranks", "turn"),
    [(512, 2, 64), (512, 4, 64), (512, 8, 32), (512, 32, 8), (128, 4, 16), (64, 4, 8), (1, 2, 8), (1, 32, 8)],
)
def test_two_turns_of_all_shards_fit_into_what_is_in_flight(in_flight: int, ranks: int, turn: int) -> None:
    assert turn_of(in_flight, ranks) == turn


@given(
    turn=st.integers(1, 70), shards=st.integers(2, 5), of_shard=st.integers(1, 200), last=st.integers(1, 4)
)
def test_every_packet_has_a_place_of_its_own(turn: int, shards: int, of_shard: int, last: int) -> None:
    lanes = 4
    length = lanes * (of_shard - 1) + last
    core = CoreStruct(
        turn=turn, shards=shards, data_packets=shards * of_shard, lanes=lanes, per_lane=1, length=length
    )
    places = [place_of(core, data) for data in range(shards * of_shard)]
    assert {(place.shard, place.at) for place in places} == {
        (shard, lanes * number) for shard in range(shards) for number in range(of_shard)
    }
    assert all(place.count == min(lanes, length - place.at) for place in places)
    firsts = [place for place in places if place.at % (lanes * turn) == 0]
    assert [place.shard for place in firsts] == [*range(shards)] * (len(firsts) // shards)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("does", ["scatter", "gather"])
@pytest.mark.parametrize(("ranks", "window"), [(2, 512), (3, 512), (3, 128)])
def test_long_turns_under_loss(
    make_kernel: MakeKernel, does: Does, ranks: int, window: int, exclusive: bool
) -> None:
    """Shards whose last turn is shorter than the others."""
    job = JobCase((0,) * ranks, frozenset(), window, (150 * LANES + 7,), "float32", does=does)
    impairments = Impairments(0.02, 0.01, 0.01)
    case = FabricCase((job,), 512, impairments, 1, exclusive)
    network = build(case, make_kernel)
    carry_out(case, network)
    in_flight = window if exclusive else window // 8
    assert network.workers[0].window.state.struct.turn == turn_of(in_flight, ranks)
