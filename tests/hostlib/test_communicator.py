"""Whole workers on real loopback sockets, one thread per rank, with the reference switch."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hostlib as ina
from hostlib.collectives import CallOptions
from hostlib.core.congestion import CONGESTION, Limits, Round
from hostlib.meet.rendezvous import Rendezvous
from hostlib.meet.rendezvous_peers import RendezvousPeers
from hostlib.wire import encodings
from tests.hostlib.socket_switch import FallbackOnly, SocketSwitch
from tests.sockets import bound_udp

pytestmark = pytest.mark.filterwarnings("ignore::hostlib.PrecisionWarning")

ENDLESS = {"timeout_s": 3600.0, "straggler_timeout_s": 3600.0}
"""Patience that no test outlasts: what ends has ended for another reason."""
ONES = np.ones(3, np.float32)

Body = Callable[[ina.Communicator], Any]


def on_every_rank(
    configs: Sequence[ina.JobConfig],
    body: Body,
    make: Callable[[ina.JobConfig], ina.Communicator] = ina.Communicator,
) -> list[Any]:
    """Run `body` as each rank; return what each returned or raised, in their order."""

    def run(config: ina.JobConfig) -> Any:
        communicator = make(config)
        try:
            return body(communicator)
        except ina.InaError as error:
            return error
        finally:
            communicator.close()

    with ThreadPoolExecutor(len(configs)) as pool:
        return list(pool.map(run, sorted(configs, key=lambda config: config.rank)))


def run_ranks(
    size: int,
    body: Body,
    make: Callable[[ina.JobConfig], ina.Communicator] = ina.Communicator,
    **options: Any,
) -> list[Any]:
    """As `on_every_rank`, of a job of this size on a switch of its own with these options."""
    with SocketSwitch(size, **options) as switch:
        return on_every_rank(switch.configs, body, make)


@pytest.mark.parametrize("framed", [True, False], ids=["loopback", "udp"])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_sums_of_all_kinds(loss: float, framed: bool) -> None:
    def body(comm: ina.Communicator) -> list[Any]:
        floats = np.full((40, 30), comm.rank + 0.5, np.float32)
        ints = np.arange(1000, dtype=np.int32)
        doubles = np.full(70, 1e-3 * (comm.rank + 1))
        halves = np.full(5, comm.rank, np.float16)
        comm.allreduce(floats, out=floats)
        comm.barrier()
        return [
            floats,
            comm.allreduce(ints.T, name="ints"),
            comm.allreduce(doubles, op="average"),
            comm.allreduce(halves),
            comm.allreduce(np.empty(0, np.float32)),
            comm.allreduce(2.5),
        ]

    with SocketSwitch(3, loss=loss, framed=framed) as switch:
        outcomes = on_every_rank(switch.configs, body)
    for floats, ints, doubles, halves, empty, scalar in outcomes:
        assert np.array_equal(floats, np.full((40, 30), 4.5, np.float32))
        assert np.array_equal(ints, 3 * np.arange(1000))
        assert np.allclose(doubles, 2e-3, rtol=1e-6)
        assert doubles.dtype == np.float64
        assert np.array_equal(halves, np.full(5, 3, np.float16))
        assert empty.shape == (0,)
        assert scalar == 7.5
    assert switch.largest_batch > 1, "segmentation offload was not used"


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_a_reduce_gives_the_sum_to_one_rank(loss: float, fallback: bool) -> None:
    def body(comm: ina.Communicator) -> list[Any]:
        floats, ints = np.full(3000, comm.rank + 0.5, np.float32), np.arange(100, dtype=np.int32)
        doubles, out = np.full((2, 40), comm.rank + 1.0), np.zeros((2, 40))
        given = floats.copy(), ints.copy(), doubles.copy()
        results = [
            comm.reduce(floats),
            comm.reduce(ints, 2, out=ints, name="ints"),
            comm.reduce_async(doubles, 1, "average", out=out).wait(),
            comm.allreduce(np.float32(1)),
        ]
        unchanged = [np.array_equal(a, b) for a, b in zip((floats, ints, doubles), given, strict=True)]
        return [results, unchanged, out]

    outcomes = run_ranks(3, body, loss=loss, fallback=fallback)
    for rank, (results, unchanged, out) in enumerate(outcomes):
        assert [result is not None for result in results] == [rank == 0, rank == 2, rank == 1, True]
        assert unchanged == [True, rank != 2, True]
        assert np.array_equal(out, np.full((2, 40), 2.0 if rank == 1 else 0.0))
        assert results[3] == 3
    assert np.array_equal(outcomes[0][0][0], np.full(3000, 4.5, np.float32))
    assert np.array_equal(outcomes[2][0][1], 3 * np.arange(100))
    assert outcomes[1][0][2] is outcomes[1][2]


def test_a_reduce_to_different_ranks_raises_everywhere() -> None:
    def body(comm: ina.Communicator) -> Any:
        return comm.reduce(np.ones(3, np.float32), root=comm.rank)

    outcomes = run_ranks(2, body)
    for rank, error in enumerate(outcomes):
        assert isinstance(error, ina.RanksDisagree)
        assert str(error).endswith(f"here: sum of 3 float32 for rank {rank}")


@pytest.mark.parametrize("leaves", [False, True], ids=["computes", "leaves"])
def test_a_rank_answers_for_its_results_when_it_is_busy_or_done(leaves: bool) -> None:
    """The result is lost on its way to rank 1, and the fallback server forgets it: only rank 0 has it."""
    with SocketSwitch(2, fallback=True, slots=0, window=64) as switch, ThreadPoolExecutor(2) as pool:
        model = switch.model
        assert isinstance(model, FallbackOnly)
        model.deaf.add(1)
        one, other = (ina.Communicator(config) for config in switch.configs)
        values = np.arange(40, dtype=np.int32)
        waiting = pool.submit(other.allreduce, values)
        assert np.array_equal(one.allreduce(values), 2 * values)
        assert not waiting.done()
        left = pool.submit(one.close) if leaves else None
        model.silent.add(0)  # a late copy of a contribution would complete the sum as an answer does
        model.restart()
        model.deaf.clear()
        assert np.array_equal(waiting.result(), 2 * values)
        assert one.statistics()["packets_answers"] > 0
        other.close()
        one.close()
        assert left is None or left.result() is None


def test_after_giving_up_nothing_is_written_any_more() -> None:
    """The result that was waited for comes in the end, but the array is the caller's again."""
    with (
        SocketSwitch(2, fallback=True, slots=0, window=64, **ENDLESS) as switch,
        ThreadPoolExecutor(1) as pool,
    ):
        model = switch.model
        assert isinstance(model, FallbackOnly)
        model.deaf.add(1)
        one = ina.Communicator(switch.configs[0])
        other = ina.Communicator(replace(switch.configs[1], timeout_s=0.4))
        values = np.arange(40, dtype=np.int32)
        waiting = pool.submit(one.allreduce, values)
        kept = values.copy()
        with pytest.raises(ina.PeerTimeout):
            other.allreduce(kept, out=kept)
        model.deaf.clear()
        assert waiting.result()[39] == 78
        with pytest.raises(ina.PeerTimeout):
            other.barrier()
        threading.Event().wait(0.1)
        assert np.array_equal(kept, values)
        other.close()
        one.close()


def test_ranks_leave_together_when_the_launcher_tells_them_who_is_done() -> None:
    """The first to leave is still there when the last one is done, and not until its patience ends."""
    events: list[str] = []
    with (
        SocketSwitch(2, fallback=True, **ENDLESS) as switch,
        Rendezvous(job=7, size=2) as meeting,
    ):

        def run(rank: int) -> None:
            peers = RendezvousPeers(meeting.address, job=7, rank=rank, size=2, token=meeting.token)
            communicator = ina.Communicator(switch.configs[rank], peers)
            communicator.barrier()
            if rank == 1:
                threading.Event().wait(0.4)  # the other could leave
                events.append("the last is done")
            communicator.close()
            events.append(f"rank {rank} left")

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(run, range(2)))
    assert events[0] == "the last is done"
    assert len(events) == 3


def test_no_more_packets_are_in_flight_than_the_job_was_granted() -> None:
    """From the beginning, and from the next collective on when the grant changes; 0 is no bound."""
    with SocketSwitch(2, slots=64, fallback=True, **ENDLESS) as switch, Rendezvous(job=7, size=2) as meeting:
        meeting.grant(3)

        def run(rank: int) -> list[float]:
            peers = RendezvousPeers(meeting.address, job=7, rank=rank, size=2, token=meeting.token)
            communicator = ina.Communicator(switch.configs[rank], peers)
            windows = []
            for granted in (2, 0, None):
                found = communicator.allreduce(np.full(4000, rank + 1, np.int32))
                assert (found == 3).all()
                windows.append(communicator.statistics()["window_packets"])
                communicator.barrier()
                if granted is not None and rank == 0:
                    meeting.grant(granted)
                while granted is not None and peers.news.granted != granted:
                    threading.Event().wait(0.01)
            held_s = communicator.statistics()["hold_s"]
            communicator.close()
            return [*windows, held_s]

        with ThreadPoolExecutor(2) as pool:
            for first, second, whole, held_s in pool.map(run, range(2)):
                assert (first, second) == (3, 2)
                assert whole > 3
                assert held_s > 0


class Sawtooth:
    """A congestion control that shrinks to one packet and grows again; notes what it is told."""

    wants_rounds = True

    def __init__(self) -> None:
        self.rounds: list[tuple[Limits, Round]] = []
        self._limits = Limits(1, 1)
        self._window = 1

    def start(self, window: int) -> Limits:
        self._window = window
        self._limits = Limits(window, window // 2)
        return self._limits

    def on_round(self, outcome: Round) -> Limits:
        self.rounds.append((self._limits, outcome))
        in_flight = 1 if len(self.rounds) % 4 == 1 else min(5 * self._limits.in_flight, self._window)
        self._limits = Limits(in_flight, self._window // 2)
        return self._limits


def test_a_congestion_control_is_asked_round_by_round(monkeypatch: pytest.MonkeyPatch) -> None:
    controls: list[Sawtooth] = []

    def make() -> Sawtooth:
        controls.append(Sawtooth())
        return controls[-1]

    monkeypatch.setitem(CONGESTION, "aimd", make)

    def body(comm: ina.Communicator) -> dict[str, float]:
        for _ in range(3):
            comm.allreduce(np.ones(8000, np.int32))
        return comm.statistics()

    outcomes = run_ranks(2, body, slots=0, window=200, fallback=True, congestion="aimd")
    for statistics in outcomes:
        assert statistics["packets_results"] == 750
        assert 250 <= statistics["packets_bypassed"] <= 400  # PSNs beyond the first half of each window
    for control in controls:
        assert sum(outcome.results for _, outcome in control.rounds) > 500
        for limits, outcome in control.rounds:
            assert limits.in_flight <= outcome.results <= 200
            assert outcome.marked == outcome.collided == 0
            assert 0 <= outcome.waiting <= 1


def test_a_call_may_choose_exponents_in_a_job_of_fixed_numbers() -> None:
    def body(comm: ina.Communicator) -> Any:
        return comm.allreduce(np.full(100, 20_000, np.float32), numbers="exponent")

    assert np.all(np.array(run_ranks(2, body, numbers="fixed", scale_bits=16)) == 40_000)


def test_fixed_numbers_do_without_exponents_and_refuse_what_is_too_large() -> None:
    def body(comm: ina.Communicator) -> list[Any]:
        values = np.linspace(-1, 1, 2000, dtype=np.float32)
        first = comm.allreduce(values)
        sent = comm.statistics()["packets_sent"]
        with pytest.raises(
            ina.SumOverflow, match='element 32 does not fit numbers="fixed" with 16 scale_bits'
        ):
            comm.allreduce(np.where(np.arange(100) == 40, np.float32(20_000), np.float32(1)))
        return [first, sent, comm.allreduce(values, op="average")]

    outcomes = run_ranks(2, body, numbers="fixed", scale_bits=16)
    exact = np.linspace(-1, 1, 2000, dtype=np.float32)
    for first, sent, average in outcomes:
        assert sent == -(-2000 // 32)
        assert np.abs(first - 2 * exact).max() <= ina.error_bound(1.0, 2, scale_bits=16)
        assert np.abs(average - exact).max() <= 2**-17


@pytest.mark.parametrize("block", encodings.BLOCKS)
@pytest.mark.parametrize("job_wide", [True, False])
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_sums_in_few_bits_take_as_few_packets_and_keep_their_bound(
    block: encodings.Block, job_wide: bool, loss: float
) -> None:
    def body(comm: ina.Communicator) -> list[NDArray[np.float32]]:
        rng = np.random.default_rng(comm.rank)
        values = rng.uniform(-1, 1, 5000).astype(np.float32)
        numbers: Any = None if job_wide else block
        total = comm.allreduce(values, numbers=numbers)
        sent = comm.statistics()["packets_results"]
        mean = comm.allreduce_async(values, op="average", numbers=numbers).wait()
        fine = comm.allreduce(values, numbers="exponent")
        ints = comm.allreduce(np.arange(100, dtype=np.int32), numbers=numbers)
        assert np.array_equal(ints, 3 * np.arange(100))
        window = comm.statistics()["window_packets"]
        assert sent <= -(-5000 // (32 * encodings.per_lane(block))) + window
        return [total, 3 * mean, fine]

    outcomes = run_ranks(3, body, loss=loss, numbers=block if job_wide else "exponent")
    inputs = [np.random.default_rng(rank).uniform(-1, 1, 5000).astype(np.float32) for rank in range(3)]
    exact = np.sum(inputs, axis=0, dtype=np.float64)
    bound = ina.error_bound(0.99, 3, numbers=block)
    for total, mean, fine in outcomes:
        assert np.array_equal(total, outcomes[0][0])
        assert 1e-5 < np.abs(total - exact).max() <= bound
        assert np.abs(mean - exact).max() <= 1.01 * bound
        assert np.abs(fine - exact).max() <= ina.error_bound(0.99, 3)


@pytest.mark.parametrize("numbers", encodings.BLOCKS)
def test_with_error_feedback_nothing_is_left_out_for_good(numbers: encodings.Block) -> None:
    """Small elements beside large ones vanish from each sum, but not from the sum of sums."""
    rounds = 40

    def body(comm: ina.Communicator) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        values = np.full(200, 1e-5 * (comm.rank + 1), np.float32)
        values[::100] = 1
        residual, total = np.zeros_like(values), np.zeros_like(values)
        for _ in range(rounds):
            total += comm.allreduce(values, numbers=numbers, residual=residual)
        return total, residual

    outcomes = run_ranks(2, body)
    wanted = np.full(200, rounds * 3e-5)
    wanted[::100] = 2 * rounds
    left = sum(residual for _, residual in outcomes)
    np.testing.assert_allclose(outcomes[0][0] + left, wanted, rtol=1e-4)
    assert np.abs(left).max() <= ina.error_bound(1.1, 2, numbers=numbers)


def test_a_sum_that_the_fields_have_no_room_for_is_refused_and_the_job_goes_on() -> None:
    def body(comm: ina.Communicator) -> list[float]:
        ones = np.ones(5, np.float32)
        for call in (comm.allreduce, comm.allreduce_async):
            with pytest.raises(
                ina.UnsupportedArray, match="room for the sum of at most 7 ranks, and there are 8"
            ):
                call(ones, numbers="block4")
        whole = comm.allreduce(np.ones(5, np.int32), numbers="block4")  # of which numbers say nothing
        return [*comm.allreduce(ones, numbers="block8").tolist(), *whole.tolist()]

    assert run_ranks(8, body) == [[8.0] * 10] * 8


def test_a_residual_is_added_and_what_remains_is_left_in_it(alone: ina.Communicator) -> None:
    residual = np.full(4, 0.5, np.float32)
    total = alone.allreduce(np.ones(4, np.float32), numbers="block16", residual=residual)
    assert total.tolist() == [1.5] * 4
    assert not residual.any()


def test_priorities_follow_layer_share_and_progress() -> None:
    def body(comm: ina.Communicator) -> list[float]:
        def priority(**options: Any) -> float:
            comm.allreduce(np.ones(3, np.float32), **options)
            return comm.statistics()["priority"]

        unknown = priority()
        for done in range(2):
            comm.progress(done, 9)
            comm.reduce_async(np.ones(3, np.float32), layer=(0, 9)).wait()
        # from one iteration's end to the next, share and remaining time do not change
        seen = [priority(), priority(layer=(0, 9)), priority(layer=(8, 9)), priority(priority=7)]
        comm.progress(9, 9)
        return [unknown, *seen, priority(layer=(0, 9))]

    for unknown, neutral, front, back, given, last in run_ranks(2, body, fallback=True):
        assert unknown > 0
        assert 0 < neutral < front
        assert back < front < last
        assert given == 7
    assert run_ranks(1, body) == [[0, 0, 0, 0, 7, 0]]  # exclusive: nobody to be compared with
    assert run_ranks(1, body, fallback=True, priority=9) == [[9, 9, 9, 9, 7, 9]]


def test_ranks_that_wait_for_each_call_vote_less_and_less() -> None:
    """Until one waits no longer, which the others learn by the next vote; and again."""
    calls = 40

    def body(comm: ina.Communicator) -> list[float]:
        options, votes = CallOptions(inline=True), []
        for at_once in (True, comm.rank == 0, True):
            before, handles = comm.statistics()["packets_sent"], []
            for each in range(calls):
                array = np.full(9, each + comm.rank, np.int32)
                handles.append(
                    comm.start(comm.request("allreduce", array, options if at_once else CallOptions()))
                )
                if at_once:
                    handles[-1].wait()
            assert [h.wait().tolist() for h in handles] == [[2 * each + 1] * 9 for each in range(calls)]
            votes.append(comm.statistics()["packets_sent"] - before - calls)
        return votes

    votes = run_ranks(2, body, **ENDLESS)
    assert votes[0] == votes[1]
    waiting, mixed, again = votes[0]
    assert waiting == 6, "at calls 1, 2, 4, 8, 16 and 32"
    assert mixed > 6
    assert again <= 8


def test_close_finishes_what_was_submitted() -> None:
    def body(comm: ina.Communicator) -> list[ina.Handle]:
        return [comm.allreduce_async(np.ones(2000, np.float32)) for _ in range(5)]

    for handles in run_ranks(2, body):
        assert all(handle.done() for handle in handles)
        assert [handle.result()[0] for handle in handles] == [2.0] * 5


def test_numbers_that_cannot_be_summed_raise_everywhere_and_the_job_goes_on() -> None:
    def body(comm: ina.Communicator) -> list[Any]:
        values = np.ones(100, np.float32)
        if comm.rank == 1:
            values[50] = np.nan
        seen: list[Any] = []
        for call in (
            lambda: comm.allreduce(values),
            lambda: comm.allreduce(np.full(40, 2**30, np.int32)),
            lambda: comm.allreduce(values, nonfinite="propagate"),
            lambda: comm.allreduce(np.full(3, 7, np.int32)),
        ):
            try:
                seen.append(call())
            except ina.InaError as error:
                seen.append(error)
        return seen

    outcomes = run_ranks(2, body)
    for nonfinite, overflow, propagated, fine in outcomes:
        assert isinstance(nonfinite, ina.NonFiniteError)
        assert nonfinite.element == 32
        assert isinstance(overflow, ina.SumOverflow)
        assert isinstance(overflow, OverflowError)
        assert "job 7, PSN 8..9" in str(overflow)
        assert np.isnan(propagated[32:64]).all()
        assert not np.isnan(propagated[:32]).any()
        assert fine.tolist() == [14, 14, 14]


@pytest.mark.parametrize("numbers", encodings.BLOCKS)
def test_in_few_bits_a_packet_that_is_not_finite_raises_or_is_nan_and_leaves_no_rest(
    numbers: encodings.Block,
) -> None:
    packet = 32 * encodings.per_lane(numbers)

    def body(comm: ina.Communicator) -> list[Any]:
        values = np.full(3 * packet, 1 + comm.rank / 3, np.float32)
        values[::packet] = 20
        values[packet + 5] = np.inf if comm.rank else 1
        residual = np.zeros_like(values)
        with pytest.raises(ina.NonFiniteError) as caught:
            comm.allreduce(values, numbers=numbers)
        total = comm.allreduce(values, numbers=numbers, residual=residual, nonfinite="propagate")
        return [caught.value.element, total, residual, values]

    outcomes = run_ranks(2, body)
    middle = slice(packet, 2 * packet)
    exact = sum(values.astype(np.float64) for *_, values in outcomes)
    left = sum(residual for _, _, residual, _ in outcomes)
    for element, total, residual, _ in outcomes:
        assert element == packet
        assert np.isnan(total[middle]).all()
        assert not residual[middle].any()
        for fine in (slice(packet), slice(2 * packet, None)):
            np.testing.assert_allclose(total[fine] + left[fine], exact[fine], rtol=1e-6)


def test_different_lengths_raise_on_every_rank_and_end_the_job() -> None:
    def body(comm: ina.Communicator) -> tuple[str, str]:
        with pytest.raises(ina.RanksDisagree) as first:
            comm.allreduce(np.ones(100 + comm.rank, np.float32), name="w")
        with pytest.raises(ina.RanksDisagree) as second:
            comm.allreduce_async(np.ones(3, np.float32)).wait()
        return str(first.value), str(second.value)

    outcomes = run_ranks(2, body)
    for rank, (first, second) in enumerate(outcomes):
        assert first == second
        assert first.startswith("job 7, PSN 0..7: ranks disagree")
        assert first.endswith(f"here: sum of {100 + rank} float32 'w'")


def test_a_switch_that_is_not_there_is_named_with_the_job() -> None:
    with bound_udp() as free:
        transport = ina.TransportConfig("loopback", "127.0.0.1:0", f"127.0.0.1:{free.getsockname()[1]}")
    config = ina.JobConfig(9, 0, 2, 32, transport, timeout_s=0.4)
    with closing(ina.Communicator(config)) as communicator:
        told = rf"job 9, PSN 0\.\.0: no answer from the switch at {transport.switch} for"
        with pytest.raises(ina.PeerTimeout, match=told):
            communicator.allreduce(np.ones(3, np.int32))


def test_the_death_of_a_rank_that_the_launcher_saw_reaches_the_others_before_their_patience_ends() -> None:
    with Rendezvous(job=7, size=2) as meeting:

        def make(config: ina.JobConfig) -> ina.Communicator:
            peers = RendezvousPeers(meeting.address, job=7, rank=config.rank, size=2, token=meeting.token)
            return ina.Communicator(config, peers)

        def body(comm: ina.Communicator) -> Any:
            comm.barrier()
            return comm.allreduce(ONES) if comm.rank == 0 else meeting.ended(1, 137, "killed by SIGKILL")

        error, _ = run_ranks(2, body, make, **ENDLESS)
    assert isinstance(error, ina.PeerLost)
    assert str(error) == "job 7, PSN 1..2: lost rank 1: killed by SIGKILL"
    assert error.missing == (1,)


def test_numbers_of_numpy_serve_as_arguments() -> None:
    def body(comm: ina.Communicator) -> Any:
        one = np.ones(3, np.float32)
        comm.progress(np.int64(1), np.int64(10))  # type: ignore[arg-type]
        whole = np.int64(1)
        return comm.reduce(one, root=whole, priority=np.uint8(7), layer=(whole, np.int32(3)))  # type: ignore[arg-type]

    nothing, total = run_ranks(2, body, fallback=True)
    assert nothing is None
    assert np.array_equal(total, np.full(3, 2, np.float32))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"op": "max"}, "op is 'max'"),
        ({"op": np.ones(3)}, "op is array"),
        ({"nonfinite": "ignore"}, "nonfinite is 'ignore'"),
        ({"array": np.ones(3, np.int32), "op": "average"}, "average of int32"),
        *(
            ({"layer": layer}, r"layer is .*, must be")
            for layer in ((3, 3), (-1, 2), (0,), "front", (0.0, 1))
        ),
        *(({"priority": priority}, r"priority is .*, must be 0\.\.255") for priority in (-1, 256, 1.0)),
        *(({"name": name}, r"name is .*, must be a text or None") for name in (b"w", 3, object())),
        *(
            ({"numbers": "block16", "residual": residual}, why)
            for residual, why in (
                (np.zeros(3), "float32 of the array's shape"),
                (np.zeros(5, np.float32), "shape"),
                (np.zeros(6, np.float32)[::2], "contiguous"),
                (ONES, "shares memory"),
                ([0.0] * 3, "NumPy array"),
            )
        ),
        ({"residual": np.zeros(3, np.float32)}, "block16"),
        (
            {"array": np.ones(3, np.int32), "numbers": "block16", "residual": np.zeros(3, np.float32)},
            "for arrays of floats",
        ),
        ({"numbers": "posit"}, "'exponent', 'block16', 'block8', 'block4'\\), or None"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
@pytest.mark.parametrize("call", ["allreduce", "allreduce_async"])
def test_arguments_are_checked_before_anything_is_sent(
    alone: ina.Communicator, call: str, arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(ina.UnsupportedArray, match=why):
        getattr(alone, call)(**{"array": ONES, **arguments})


@pytest.mark.parametrize("root", [1, -1, 0.0, False, None, "0", np.True_])
def test_a_root_that_is_no_rank_is_refused(alone: ina.Communicator, root: Any) -> None:
    with pytest.raises(ValueError, match=r"root is .*, must be a rank: 0\.\.0, a whole number"):
        alone.reduce(np.ones(3), root=root)


def test_a_handle_can_be_asked_before_it_is_done() -> None:
    with SocketSwitch(2) as switch:
        one, other = (ina.Communicator(config) for config in switch.configs)
        handle = one.allreduce_async(np.ones(3, np.float32))
        with pytest.raises(TimeoutError, match=r"sum of 3 float32 is not done within 0\.01 s"):
            handle.wait(timeout=0.01)
        assert not handle.done()
        with pytest.raises(RuntimeError, match="not done"):
            handle.result()
        other.allreduce_async(np.ones(3, np.float32)).wait()
        assert handle.wait().tolist() == [2, 2, 2]
        one.close()
        other.close()
        with pytest.raises(ina.NotInitialized):
            one.allreduce(np.ones(3))


def test_the_memory_of_an_array_is_free_once_its_collective_is_over() -> None:
    def body(comm: ina.Communicator) -> list[bool]:
        found = []
        for call in (
            lambda array: comm.allreduce(array, out=array),
            lambda array: comm.broadcast(array, out=array),
        ):
            array = np.ones(100, np.float32)
            call(array)
            gone = weakref.ref(array)
            del array
            found.append(gone() is None)
        return found

    assert run_ranks(2, body) == [[True] * 2] * 2
