"""Ranks that submit different things at the same point get an error, never the sum of two arrays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import hostlib as ina
from hostlib.collectives import CallOptions, make_barrier, make_collective
from tests.hostlib.socket_switch import SocketSwitch
from tests.hostlib.test_communicator import Body, on_every_rank

SIX = np.ones(6, np.float32)


def all_disagree(body: Body, *, fallback: bool = False) -> list[str]:
    """Run `body` on two ranks; return the errors, which must be RanksDisagree on both."""
    with SocketSwitch(2, fallback=fallback) as switch:
        outcomes = on_every_rank(switch, body)
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
    assert messages[0].endswith("number of calls before; call 2 here: sum of 2 float32")


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

    with SocketSwitch(2) as switch:
        assert on_every_rank(switch, body) == [[2.0] * 6] * 2


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

    with SocketSwitch(2) as switch:
        assert on_every_rank(switch, body) == [[2.0 * i for i in range(10)]] * 2


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
