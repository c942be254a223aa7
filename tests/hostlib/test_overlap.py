"""Asynchronous collectives, several at a time: fused, sliced, small ones first; the same sums as alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import hostlib as ina
from hostlib.collectives import CallOptions, Collective, local_ranks, make_barrier, make_collective
from hostlib.collectives.fusion import slice_of
from hostlib.collectives.schedule import Fused, Limits, Packets, Schedule, Slice
from tests.hostlib.socket_switch import LANES, SocketSwitch
from tests.hostlib.test_communicator import Body, run_ranks

SMALL = Limits(fusion_bytes=16 * 4 * LANES, slice_bytes=40 * 4 * LANES)
"""Of 16 packets; of 40, so that arrays of tests are sliced."""


def limited(*limits: Limits) -> Callable[[ina.JobConfig], ina.Communicator]:
    """Return what makes communicators with one of `limits` for each rank, or for all."""
    return lambda config: ina.Communicator(config, limits=limits[config.rank % len(limits)])


@dataclass(frozen=True)
class Task:
    """A call of a rank, and how long it thinks before."""

    length: int
    dtype: str
    op: Any
    layer: tuple[int, int] | None
    priority: int | None
    is_waited_for: bool
    numbers: Any = None

    def values(self, number: int, rank: int) -> np.ndarray[Any, Any]:
        generator = np.random.default_rng([number, rank])
        if self.dtype == "int32":
            return generator.integers(-1000, 1000, self.length, np.int32)
        scale = np.float32(2.0) ** int(generator.integers(-9, 9))
        return (generator.standard_normal(self.length) * scale).astype(self.dtype)

    def call(self, comm: ina.Communicator, number: int) -> Callable[[], Any]:
        options: dict[str, Any] = {"op": self.op, "name": f"t{number}", "layer": self.layer}
        options |= {"priority": self.priority, "nonfinite": "propagate", "numbers": self.numbers}
        values = self.values(number, comm.rank)
        if self.is_waited_for:
            result = comm.allreduce(values, **options)
            return lambda: result
        return comm.allreduce_async(values, **options).wait


TASKS = st.lists(
    st.builds(
        Task,
        length=st.sampled_from([0, 1, 31, 32, 33, 100, 500, 513, 2000]),
        dtype=st.sampled_from(["float32", "float16", "int32"]),
        op=st.sampled_from(["sum", "average"]),
        layer=st.sampled_from([None, (0, 3), (2, 3)]),
        priority=st.sampled_from([None, 0, 200]),
        is_waited_for=st.sampled_from([False] * 5 + [True]),
        numbers=st.sampled_from([None, None, "block16", "block8", "block4", "exponent"]),
    ).filter(lambda task: task.op == "sum" or task.dtype != "int32"),
    min_size=1,
    max_size=9,
)


@settings(max_examples=8, deadline=None, derandomize=True, phases=[Phase.generate])
@given(tasks=TASKS, seed=st.integers(0, 1000), fallback=st.booleans(), loss=st.sampled_from([0.0, 0.05]))
def test_sums_are_bit_for_bit_those_of_blocking_calls(
    tasks: list[Task], seed: int, fallback: bool, loss: float
) -> None:
    """Whatever the ranks' timing, sizes, priorities and losses."""

    def one_by_one(comm: ina.Communicator) -> list[Any]:
        return [
            comm.allreduce(
                task.values(number, comm.rank), task.op, nonfinite="propagate", numbers=task.numbers
            )
            for number, task in enumerate(tasks)
        ]

    def overlapped(comm: ina.Communicator) -> list[Any]:
        thinking = random.Random(100 * seed + comm.rank)
        waits = []
        for number, task in enumerate(tasks):
            if thinking.random() < 0.3:
                threading.Event().wait(thinking.random() / 500)
            waits.append(task.call(comm, number))
        thinking.shuffle(waits_in_order := list(enumerate(waits)))
        results = {number: wait() for number, wait in waits_in_order}
        return [results[number] for number in range(len(tasks))]

    options: dict[str, Any] = {"fallback": True, "slots": 0, "window": 64} if fallback else {}
    expected = run_ranks(2, one_by_one, **options)[0]
    for found in run_ranks(2, overlapped, limited(SMALL), loss=loss, **options):
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)


@pytest.mark.parametrize("limits", [SMALL, Limits(fusion_bytes=0), Limits()], ids=["both", "none", "default"])
def test_errors_are_those_of_the_call_that_they_are_about(limits: Limits) -> None:
    def body(comm: ina.Communicator) -> list[Any]:
        bad = np.ones(100, np.float32)
        bad[50] = np.nan if comm.rank else 1
        much = np.full(40, 2**30, np.int32)
        large = np.full(2000, 1, np.int32)
        large[1500] = 2**30
        handles = [
            comm.allreduce_async(np.full(9, 3, np.int32), name="fine"),
            comm.allreduce_async(bad, name="bad"),
            comm.allreduce_async(much, name="much", out=much),
            comm.allreduce_async(bad, name="bad, but wanted", nonfinite="propagate"),
            comm.allreduce_async(np.full(9, 4, np.int32), name="fine too"),
            comm.allreduce_async(np.full(70, 2**30, np.int32), name="much again"),
            comm.allreduce_async(large, name="large"),
            *(comm.allreduce_async(np.full(5, value, np.float32), "average") for value in (0.5, 1.5)),
        ]
        found: list[Any] = []
        for handle in handles:
            try:
                found.append(handle.wait(60))
            except (ina.NonFiniteError, ina.SumOverflow) as error:
                found.append((type(error), error.element))
        return [*found, comm.allreduce(np.ones(1, np.float32))]

    for fine, bad, much, wanted, too, again, large, *means, after in run_ranks(2, body, limited(limits)):
        assert fine.tolist() == [6] * 9
        assert bad == (ina.NonFiniteError, 32)
        assert much == (ina.SumOverflow, 0)
        assert np.flatnonzero(np.isnan(wanted)).tolist() == list(range(32, 64))
        assert too.tolist() == [8] * 9
        assert again == (ina.SumOverflow, 0)
        assert large == (ina.SumOverflow, 1472)
        assert [mean.tolist() for mean in means] == [[0.5] * 5, [1.5] * 5]
        assert after == [2]


def test_only_what_may_be_fused_or_is_sliced_is_voted_on() -> None:
    """By packets sent: one for each vote beside those of the call, of int32, which need no exponents."""

    def body(comm: ina.Communicator) -> list[int]:
        def packets(count: int) -> np.ndarray[Any, Any]:
            return np.ones(count * LANES, np.int32)

        calls: list[Callable[[], ina.Handle[Any]]] = [
            lambda: comm.all_gather_async(packets(3)),
            lambda: comm.reduce_scatter_async(packets(4)),
            lambda: comm.broadcast_async(packets(5), 1),
            lambda: comm.reduce_async(packets(5), 1),
            lambda: comm.allreduce_async(packets(20)),  # too large to be fused, and one slice
            lambda: comm.allreduce_async(packets(16)),  # no other fits beside it
            lambda: comm.allreduce_async(packets(5)),
            lambda: comm.allreduce_async(packets(100)),  # three slices
            lambda: comm.start(
                comm.request("allreduce", packets(100), CallOptions(inline=True))
            ),  # both ranks wait
            lambda: comm.start(comm.request("allreduce", packets(100), CallOptions(inline=comm.rank == 0))),
        ]
        sent = []
        for call in calls:
            before = comm.statistics()
            assert (call().wait(20) is None) == (call is calls[3] and comm.rank == 0)
            after = comm.statistics()
            sent.append(int(after["packets_sent"] - before["packets_sent"]))
        return sent

    found = run_ranks(2, body, limited(SMALL), slots=64)
    assert found == [[6, 4, 5, 5, 20, 16, 5 + 1, 100 + 3, 100 + 1, 100 + 3]] * 2


def test_what_is_small_overtakes_what_is_large() -> None:
    def body(comm: ina.Communicator) -> list[str]:
        order: list[str] = []
        handles = [comm.allreduce_async(np.ones(5000, np.float32), name="large")]
        handles += [comm.allreduce_async(np.ones(3, np.float32), name=f"small {i}") for i in range(3)]
        for handle in handles:
            handle.on_done(lambda done: order.append(done.collective.description[-8:].strip("'")))
        assert [float(handle.wait()[-1]) for handle in handles] == [2.0] * 4
        return order

    for order in run_ranks(2, body, limited(SMALL)):
        assert order[-1].endswith("large")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Limits(fusion_bytes=5000), Limits(fusion_bytes=6000)),
        (Limits(slice_bytes=5000), Limits(slice_bytes=6000)),
    ],
)
def test_ranks_with_other_limits_are_told(one: Limits, other: Limits) -> None:
    def body(comm: ina.Communicator) -> Any:
        return comm.allreduce_async(np.ones(3, np.float32)).wait(60)

    outcomes = run_ranks(2, body, limited(one, other))
    assert [type(outcome) for outcome in outcomes] == [ina.RanksDisagree] * 2


def test_a_call_that_one_rank_alone_waits_for_is_told() -> None:
    def body(comm: ina.Communicator) -> Any:
        if comm.rank:
            return comm.allreduce(np.ones(3, np.float32))
        return comm.allreduce_async(np.ones(3, np.float32)).wait(60)

    for outcome in run_ranks(2, body, limited(SMALL)):
        assert isinstance(outcome, ina.RanksDisagree)
        assert "or number of earlier calls; call 1 here: sum of 3 float32" in str(outcome)


def test_all_that_was_submitted_fails_with_the_job() -> None:
    def body(comm: ina.Communicator) -> list[str]:
        handles = [comm.allreduce_async(np.ones(5000, np.float32), name=f"{i}") for i in range(3)]
        name = f"of rank {comm.rank}"
        handles += [comm.allreduce_async(np.ones(3, np.float32), name=name) for _ in range(5)]
        handles += [comm.allreduce_async(np.ones(5000, np.float32), name="last")]
        kinds = []
        for handle in handles:
            try:
                handle.wait(60)
                kinds.append("")
            except ina.RanksDisagree as error:
                kinds.append(type(error).__name__)
        return kinds

    for kinds in run_ranks(2, body, limited(SMALL)):
        assert kinds[-6:] == ["RanksDisagree"] * 6


def test_aborted_calls_end_wherever_they_are() -> None:
    """One rank has submitted nothing, so the other's calls are not agreed on."""
    with SocketSwitch(2) as switch, closing(ina.Communicator(switch.configs[0])) as comm:
        handles = [comm.allreduce_async(np.ones(3, np.float32), name=f"{i}") for i in range(3)]
        comm.abort("the test ends them")
        for handle in handles:
            with pytest.raises(ina.JobFault, match="the test ends them"):
                handle.wait(60)
        with pytest.raises(ina.JobFault):
            comm.allreduce_async(np.ones(3, np.float32)).wait(60)


def test_limits_that_are_none_are_refused() -> None:
    with pytest.raises(ina.ConfigError, match="fusion_bytes is -1"):
        Limits(fusion_bytes=-1)
    with pytest.raises(ina.ConfigError, match=r"slice_bytes is 1\.5"):
        Limits(slice_bytes=1.5)  # type: ignore[arg-type]


# The schedule alone


@dataclass(frozen=True, eq=False)
class Planned:
    collective: Collective


def plan(*collectives: Collective) -> Schedule[Planned]:
    schedule: Schedule[Planned] = Schedule(SMALL, Packets(LANES))
    for collective in collectives:
        schedule.add(Planned(collective))
    return schedule


def steps(schedule: Schedule[Planned]) -> list[Any]:
    """Return the numbers of the calls of each step, of slices with what they take."""
    found: list[Any] = []
    while schedule:
        match schedule.next():
            case Fused(calls):
                found.append([call.collective.number for call in calls])
            case Slice(call, first, count, is_last):
                found.append((call.collective.number, first, count, is_last))
    return found


def calls(*lengths: int, **options: Any) -> list[Collective]:
    return [
        make_collective(np.ones(length, np.float32), "sum", CallOptions(**options), number=number)
        for number, length in enumerate(lengths)
    ]


def test_a_fused_step_holds_no_more_than_the_threshold() -> None:
    assert steps(plan(*calls(*[100] * 10))) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_calls_with_the_same_numbers_are_fused_and_those_with_a_residual_are_not() -> None:
    numbers = [None, "block16", "block16", None, "exponent", "block16", "block8", "block4", "block8"]
    coarse = [
        make_collective(
            np.ones(9, np.float32),
            "sum",
            CallOptions(
                numbers=each,  # type: ignore[arg-type]
                residual=np.zeros(9, np.float32) if number == 5 else None,
            ),
            number=number,
        )
        for number, each in enumerate(numbers)
    ]
    assert steps(plan(*coarse)) == [[0, 3], [1, 2], [4], [5], [6, 8], [7]]
    sizes = Packets(LANES), Packets(LANES, "block16")
    assert [[each.elements(call) // LANES for call in coarse] for each in sizes] == [
        [1, 2, 2, 1, 1, 2, 4, 8, 4],
        [2, 2, 2, 2, 1, 2, 4, 8, 4],
    ]


def test_an_array_of_more_than_31_bits_of_elements_is_sliced_to_its_end() -> None:
    """Its memory is never touched but at the end: 8 GB of zeros that are nowhere."""
    length = 2**31 + 1000
    huge = np.zeros(length, np.float32)
    huge[-1] = 7
    whole = make_collective(huge, "sum", CallOptions(huge, nonfinite="propagate"))
    schedule: Schedule[Planned] = Schedule(Limits(), Packets(LANES))
    schedule.add(Planned(whole))
    taken = steps(schedule)
    ends = [first + count for _, first, count, _ in taken]
    assert [first for _, first, *_ in taken] == [0, *ends[:-1]]
    assert ends[-1] == length
    _, first, count, is_last = taken[-1]
    part = slice_of(whole, first, count, is_last=is_last)
    assert part.staged.source.tolist() == [0.0] * (count - 1) + [7.0]
    assert local_ranks.chunks(length)[-1] == (1024 * local_ranks.CHUNK_BYTES // 4, 1000)


def test_small_and_large_take_turns() -> None:
    large, small = 3 * 40 * LANES, 10 * LANES
    assert steps(plan(*calls(large, small, small, small))) == [
        [1],
        (0, 0, 1280, False),
        [2],
        (0, 1280, 1280, False),
        [3],
        (0, 2560, 1280, True),
    ]


def test_front_layers_go_first_also_between_slices_which_are_smaller() -> None:
    back, front = (
        make_collective(np.ones(600, np.int32), "sum", CallOptions(layer=layer), number=number)
        for number, layer in enumerate([(2, 3), (0, 3)])
    )
    schedule = plan(back)
    match schedule.next():
        case Slice(call, 0, 320, False):
            assert call.collective is back
        case other:
            pytest.fail(f"{other}")
    schedule.add(Planned(front))
    assert steps(schedule) == [(1, 0, 320, False), (1, 320, 280, True), (0, 320, 280, True)]


def test_a_barrier_waits_and_is_waited_for() -> None:
    first, *rest = calls(5000, 3, 3)
    assert steps(plan(first, make_barrier(7), *rest)) == [
        *[(0, start, min(1280, 5000 - start), start == 3840) for start in range(0, 5000, 1280)],
        [7],
        [1, 2],
    ]


SIX = np.ones(6, np.float32)


def all_disagree(body: Body, *, fallback: bool = False) -> list[str]:
    """Run `body` on two ranks; return the errors, which must be RanksDisagree on both."""
    outcomes = run_ranks(2, body, fallback=fallback)
    assert [type(outcome) for outcome in outcomes] == [ina.RanksDisagree] * 2, outcomes
    return list(map(str, outcomes))


@pytest.mark.parametrize("fallback", [False, True], ids=["exclusive", "fallback"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((SIX, {"name": "a"}), (SIX, {"name": "b"})),
        ((SIX, {}), (SIX, {"name": "b"})),
        ((SIX.reshape(2, 3), {}), (SIX.reshape(3, 2), {})),
        ((SIX, {"layer": (0, 2)}), (SIX, {"layer": (1, 2)})),
        ((SIX, {}), (SIX.astype(np.float16), {})),
        ((SIX, {}), (SIX, {"op": "average"})),
    ],
    ids=["names", "one name", "shapes", "layers", "types", "operations"],
)
def test_asynchronous_collectives_in_different_order_raise(
    one: tuple[Any, dict[str, Any]], other: tuple[Any, dict[str, Any]], fallback: bool
) -> None:
    def body(comm: ina.Communicator) -> list[Any]:
        order = (one, other) if comm.rank == 0 else (other, one)
        handles = [comm.allreduce_async(array, **options) for array, options in order]
        return [handle.wait(60) for handle in handles]

    for message in all_disagree(body, fallback=fallback):
        assert "call 1 here: " in message


def test_a_call_that_one_rank_refused_does_not_shift_the_others() -> None:
    """The second call of that rank would meet the first of the other, and looks the same."""

    def body(comm: ina.Communicator) -> Any:
        first = np.array(["text"]) if comm.rank == 0 else np.ones(2, np.float32)
        try:
            comm.allreduce_async(first)
        except ina.UnsupportedArray:
            assert comm.rank == 0
        return comm.allreduce_async(np.full(2, 10, np.float32)).wait(60)

    messages = all_disagree(body)
    assert messages[0].endswith("number of earlier calls; call 2 here: sum of 2 float32")


def test_a_root_that_one_rank_refused_does_not_shift_the_others() -> None:
    def body(comm: ina.Communicator) -> Any:
        try:
            comm.reduce_async(SIX, root=9 if comm.rank == 0 else 1)
        except ValueError:
            assert comm.rank == 0
        return comm.reduce_async(SIX, root=1).wait(60)

    all_disagree(body)


def test_a_missing_barrier_is_noticed() -> None:
    def body(comm: ina.Communicator) -> Any:
        if comm.rank == 0:
            comm.barrier()
        return comm.allreduce(np.empty(0, np.int32))

    all_disagree(body)


def test_calls_that_all_ranks_refuse_do_no_harm() -> None:
    def body(comm: ina.Communicator) -> Any:
        for wrong in ({"op": "max"}, {"priority": -1}, {"out": np.empty(3, np.float32)}):
            with pytest.raises(ina.UnsupportedArray):
                comm.allreduce(SIX, **wrong)
        with pytest.raises(ValueError, match="root is 2"):
            comm.reduce(SIX, root=2)
        return comm.allreduce(SIX).tolist()

    assert run_ranks(2, body) == [[2.0] * 6] * 2


def test_threads_that_take_turns_keep_the_order() -> None:
    def body(comm: ina.Communicator) -> list[float]:
        with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
            handles = [
                (first, second)[i % 2]
                .submit(comm.allreduce_async, np.full(5, i, np.float32), name=f"t{i}")
                .result()
                for i in range(10)
            ]
        return [float(handle.wait(60)[0]) for handle in handles]

    assert run_ranks(2, body) == [[2.0 * i for i in range(10)]] * 2


def test_what_ranks_compare_differs_in_each_part() -> None:
    def tag(
        array: Any = SIX, op: Any = "sum", number: int = 0, root: int | None = None, **options: Any
    ) -> int:
        return make_collective(array, op, CallOptions(**options), number=number, root=root).tag

    tags = [
        tag(),
        tag(number=1),
        tag(SIX[:5]),
        tag(SIX.reshape(2, 3)),
        tag(SIX.reshape(3, 2)),
        tag(SIX.astype(np.int32)),
        tag(SIX.astype(np.float16)),
        tag(op="average"),
        tag(name="a"),
        tag(name=""),
        tag(root=0),
        tag(root=1),
        tag(layer=(0, 2)),
        tag(layer=(1, 2)),
        make_barrier(0).tag,
        make_barrier(1).tag,
    ]
    assert len(set(tags)) == len(tags)
    assert tag(priority=3) == tag(), "ranks may differ in it"
