"""What a worker with a fallback server does that others do not, one thing at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hostlib import collectives, wire
from hostlib._native import NativeKernel
from hostlib.core import Patience
from hostlib.core.congestion import SPREAD, Congestion, Limits, Round
from hostlib.core.state import Chain, CoreSettings, Counter, RtoLimits
from hostlib.core.window import Exchange, Kernel, Window
from hostlib.errors import PeerTimeout
from hostlib.fallback import FallbackCore, FallbackJob, FallbackSettings
from hostlib.wire import encodings
from hostlib.wire.tree import Tree
from tests import effort
from tests.contract.admitted import load_jobs, serving
from tests.hostlib.cases import JOB, LANES, MakeKernel
from tests.hostlib.compiled_switch import SLOTS, admissions
from tests.hostlib.one_window import begin, hear, sent
from tests.hostlib.virtual_network import Impairments, Task, VirtualNetwork, endpoints
from tests.twins.kernel import NumpyKernel

PACKET = wire.packet_dtype(LANES, framed=True)
START = wire.FRAME_PREFIX_BYTES + wire.INA_BYTES


def shared_network(
    make_kernel: MakeKernel,
    size: int = 2,
    *,
    window: int = 8,
    slots: int = 64,
    tree: Tree | None = None,
    **options: Any,
) -> VirtualNetwork:
    resolved = tree or Tree.star(size)
    admitted = admissions(resolved, JOB, slots, window=window)
    switches = {node: serving("shared", [on], slots=SLOTS) for node, on in admitted.items()}
    server = FallbackCore(FallbackSettings(LANES, endpoints(200)))
    server.add_job(FallbackJob(JOB, 0, resolved, window))
    network = VirtualNetwork(
        switches, make_kernel, size=size, slots=2 * window, server=server, tree=tree, job=JOB, **options
    )
    network.counted = lambda: server.statistics()[JOB]

    def forget() -> None:
        for node, switch in switches.items():
            load_jobs(switch, "shared", [admitted[node]], slots=SLOTS)

    network.forget = forget
    return network


def header(packet: bytes) -> dict[str, int]:
    fields = np.frombuffer(packet[wire.FRAME_PREFIX_BYTES : START], wire.HEADER_DTYPE)[0]
    return {name: int(fields[name]) for name in fields.dtype.names or ()}


def lose_first_result(network: VirtualNetwork, rank: int) -> None:
    """Lose the first result for a rank, and with it what the switches remember."""
    lost: list[int] = []

    def filter_packet(worker: int, packet: bytes, upwards: bool) -> bool:
        if (
            worker == rank
            and not upwards
            and not lost
            and header(packet)["version_kind"] & 15 == wire.KIND_RESULT
        ):
            lost.append(worker)
            network.forget()
            return False
        return True

    network.on_packet = filter_packet


@pytest.mark.parametrize("tree", [None, Tree.of({0: [-1, -2], 1: [0, 1], 2: [2]})])
def test_who_has_a_result_that_is_nowhere_else_answers_the_reminder(
    make_kernel: MakeKernel, tree: Tree | None
) -> None:
    network = shared_network(make_kernel, 3, tree=tree)
    lose_first_result(network, 0)
    results = network.run([np.full(10, rank + 1, np.int32) for rank in range(3)])
    assert all(np.array_equal(result, np.full(10, 6)) for result in results)
    answers = [worker.window.count(Counter.ANSWERS) for worker in network.workers]
    assert answers[0] == 0 < sum(answers)


def test_a_late_copy_in_a_slot_does_not_stop_who_lost_the_result(make_kernel: MakeKernel) -> None:
    """The copy is of rank 1, which is done: the slot can only be emptied, never filled."""
    network = shared_network(make_kernel, 3)
    first: dict[int, bytes] = {}
    lost: list[int] = []

    def filter_packet(worker: int, packet: bytes, upwards: bool) -> bool:
        if upwards:
            first.setdefault(worker, packet)
        elif worker == 0 and not lost and header(packet)["version_kind"] & 15 == wire.KIND_RESULT:
            lost.append(worker)
            network.forget()
            network.deliver_again(1, first[1])
            network.deliver_again(0, first[0])
            return False
        return True

    network.on_packet = filter_packet
    results = network.run([np.full(10, rank + 1, np.int32) for rank in range(3)])
    assert lost
    assert all(np.array_equal(result, np.full(10, 6)) for result in results)
    assert network.now < 1e9


def finished(make_kernel: MakeKernel, **fields: Any) -> Window:
    """Return the window of a rank of two that has three windows of results."""
    window = Window(CoreSettings(JOB, 0, 2, 8, LANES, None, fallback=True, first_psn=0), make_kernel())
    begin(window, 3 * window.settings.window_packets, **fields)
    lanes = LANES if fields.get("target", 0) == 0 else 0
    while not window.complete:
        hear(window, wire.KIND_RESULT, sent(window)["psn"], lanes=lanes, **fields)
    return window


def test_a_reminder_of_what_nobody_lacks_is_answered_with_the_last_result(make_kernel: MakeKernel) -> None:
    """So the server learns that it may drop an entry that a late copy began."""
    window = finished(make_kernel)
    last = 3 * window.settings.window_packets
    for psn, answer in ((1, [last - 3]), (last - 1, [last - 1]), (last, [])):
        hear(window, wire.KIND_REMINDER, psn, bitmap=1)
        assert sent(window)["psn"].tolist() == answer


def test_a_reminder_of_what_nobody_lacks_is_answered_by_those_who_have_no_sum_too(
    make_kernel: MakeKernel,
) -> None:
    """Rank 0 of a reduce to 1 sends its contribution if asked for, else that the later packet is complete."""
    window = finished(make_kernel, target=1)
    last = 3 * window.settings.window_packets - 1
    older = last - window.settings.window_packets

    def answers_to(*psns: int) -> tuple[int, int, int, int]:
        for psn in psns:
            hear(window, wire.KIND_REMINDER, psn, bitmap=1)
        (answer,) = sent(window)
        assert (answer["psn"], answer["tag"], answer["target"]) == (last, 5, 1)
        kind, flags = int(answer["version_kind"]) & 0x0F, int(answer["flags"])
        return kind, int(answer["lanes"]), int(answer["bitmap"]), flags

    contribution = (wire.KIND_GRADIENT, LANES, 1, wire.FLAGS_OF_ANSWER | wire.FLAG_RAW)
    assert answers_to(last) == contribution
    assert answers_to(older) == (wire.KIND_RESULT, 0, 3, wire.FLAG_RESEND)
    assert answers_to(older, last) == contribution
    assert answers_to(last, older) == contribution


def test_a_straggler_is_waited_for_without_a_flood_of_reminders(make_kernel: MakeKernel) -> None:
    network = shared_network(make_kernel, 3, slots=0)
    network.run([np.full(800, rank, np.int32) for rank in range(3)], starts_us=[2_000_000, 0, 0])
    assert 0 < network.counted()["reminders"] < 8 * (2_000 / 250 + 20)
    assert network.counted()["merged"] == 3 * 25, "the server alone sums"


def test_answers_outlive_the_collective(make_kernel: MakeKernel) -> None:
    """Rank 1 is in the next one when it is asked for the only packet of the one before."""
    network = shared_network(make_kernel)
    lose_first_result(network, 0)
    arrays = [[np.full(10, 1, np.int32), np.full(300, 2, np.int32)] for _ in range(2)]
    tasks = [
        [Task(collectives.make_collective(array, "sum", collectives.CallOptions(array))) for array in own]
        for own in arrays
    ]
    network.run_tasks(tasks)
    assert all((own[0] == 2).all() and (own[1] == 4).all() for own in arrays)
    assert network.workers[1].window.count(Counter.ANSWERS) > 0


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_ranks_that_are_done_with_a_reduce_contribute_again(make_kernel: MakeKernel, dtype: type) -> None:
    """They have no values of the result, and their arrays may hold something else by now."""
    network = shared_network(make_kernel, 3)
    lose_first_result(network, 1)
    arrays = [np.full(40, rank + 1, dtype) for rank in range(3)]
    outputs = network.run(arrays, target=1)
    assert np.array_equal(outputs[1], np.full(40, 6))
    assert network.workers[0].window.count(Counter.ANSWERS) > 0


def test_an_int32_sum_is_repaired_if_only_a_part_of_it_overflowed(make_kernel: MakeKernel) -> None:
    network = shared_network(make_kernel, 3)
    top = 2**31 - 1
    inputs = [np.full(100, value, np.int32) for value in (top, top, -top)]
    results = network.run(inputs, starts_us=[0, 1, 2])
    assert all(np.array_equal(result, np.full(100, top)) for result in results)
    for worker in network.workers:
        assert worker.window.count(Counter.REPAIRS) == 4
        assert worker.numeric_errors[-1].overflow is None


def test_an_int32_sum_that_does_not_fit_is_told_to_every_rank(make_kernel: MakeKernel) -> None:
    network = shared_network(make_kernel)
    inputs = [np.zeros(100, np.int32), np.zeros(100, np.int32)]
    inputs[0][70], inputs[1][70] = 2**31 - 1, 1
    network.run(inputs)
    assert [worker.numeric_errors[-1].overflow for worker in network.workers] == [64, 64]


def test_values_beyond_the_fixed_scale_are_summed_as_they_are(make_kernel: MakeKernel) -> None:
    network = shared_network(make_kernel, 3, numbers="fixed", scale_bits=16)
    inputs = [np.full(100, 0.5, np.float32) for _ in range(3)]
    inputs[1][40] = 3e30
    for op, parts in (("sum", 1), ("average", 3)):
        results = network.run(inputs, op)  # type: ignore[arg-type]
        expected = np.full(100, 1.5, np.float32)
        expected[40] = np.float32(3e30)
        for result in results:
            assert np.array_equal(result, expected / np.float32(parts))
    assert network.workers[0].window.count(Counter.REPAIRS) == 2
    assert network.workers[0].window.count(Counter.SENT) == 8, "no lookahead"


def test_what_is_not_finite_passes_a_fixed_scale_and_is_told(make_kernel: MakeKernel) -> None:
    network = shared_network(make_kernel, numbers="fixed")
    inputs = [np.ones(100, np.float32), np.ones(100, np.float32)]
    inputs[1][40], inputs[1][41] = np.nan, np.inf
    for result in network.run(inputs):
        assert np.isnan(result[40])
        assert result[41] == np.inf
        assert (np.delete(result, [40, 41]) == 2).all()
    assert [worker.numeric_errors[-1].nonfinite for worker in network.workers] == [32, 32]


class Recorder:
    """Takes its limits from a list, stays at the last, and notes what it is told."""

    wants_rounds = True

    def __init__(self, *limits: Limits) -> None:
        self._limits = limits
        self.rounds: list[Round] = []

    def start(self, window: int) -> Limits:
        return self._limits[0]

    def on_round(self, outcome: Round) -> Limits:
        self.rounds.append(outcome)
        return self._limits[min(len(self.rounds), len(self._limits) - 1)]


def bypasses(network: VirtualNetwork) -> dict[tuple[int, int], bool]:
    """Whether a packet, by worker and number, asks for no slot when it is sent first; filled as it runs."""
    found: dict[tuple[int, int], bool] = {}

    def watch(worker: int, packet: bytes, upwards: bool) -> bool:
        fields = header(packet)
        if upwards and not fields["flags"] & wire.FLAG_RESEND:
            found[worker, fields["psn"]] = bool(fields["flags"] & wire.FLAG_BYPASS)
        return True

    network.on_packet = watch
    return found


def test_packets_beyond_the_claims_limit_do_not_ask_for_a_slot(make_kernel: MakeKernel) -> None:
    network = shared_network(make_kernel, window=64, make_congestion=lambda: Recorder(Limits(8, 3)))
    bypassing = bypasses(network)
    network.run([np.ones(32 * 96, np.int32)] * 2)
    assert bypassing == {(rank, psn): psn % 8 >= 3 for rank in range(2) for psn in range(96)}
    assert network.workers[0].window.count(Counter.BYPASSED) == 60


def test_no_more_packets_are_in_flight_than_allowed_but_for_the_oldest(make_kernel: MakeKernel) -> None:
    network = shared_network(make_kernel, window=64, make_congestion=lambda: Recorder(Limits(3, 8)))
    network.on_packet = lambda worker, packet, upwards: all(
        other.window.state.struct.in_flight <= 4 for other in network.workers
    )
    network.run([np.ones(32 * 24, np.int32)] * 2)


def test_rounds_are_told_as_they_end(make_kernel: MakeKernel) -> None:
    controls: list[Recorder] = []

    def make_congestion() -> Congestion:
        controls.append(Recorder(Limits(5, 8)))
        return controls[-1]

    network = shared_network(make_kernel, window=64, make_congestion=make_congestion)
    network.impairments = Impairments(mark=1.0)
    network.run([np.ones(32 * 23, np.int32)] * 2)
    network.run([np.ones(32 * 3, np.int32)] * 2)
    for control in controls:
        assert control.rounds == [Round(results=5, marked=5, collided=0, waiting=0.0)] * 5


def test_priority_and_target_are_in_every_packet(make_kernel: MakeKernel) -> None:
    settings_ = CoreSettings(
        JOB, 1, 4, 8, LANES, endpoints(1), epoch=0x1FE, tree=Tree.of({0: [-9, 3], 9: [0, 1, 2]})
    )
    window = Window(settings_, make_kernel())
    window.begin(Exchange(np.ones(40, np.int32), np.ones(40, np.int32), tag=5, priority=200, target=3), 0)
    out = np.zeros(2 * PACKET.itemsize, np.uint8)
    assert window.emit(out, 0) == 2
    fields = header(out.tobytes())
    assert (fields["priority"], fields["target"], fields["epoch"]) == (200, 3, 0xFE)
    assert (fields["node"], fields["bitmap"], fields["fan_in"]) == (9, 2, 3)


def test_waiting_for_a_straggler_costs_a_share_of_the_window_per_timeout(make_kernel: MakeKernel) -> None:
    network = shared_network(make_kernel, window=64 * SPREAD, slots=1024)
    network.run([np.ones(64 * LANES, np.int32)] * 2, starts_us=[0, 20_000_000])
    resent = network.workers[0].window.count(Counter.RESENT)
    assert 64 < resent < 64 + (64 // 8) * (20 / RtoLimits().max_s + 10)


def test_contributions_that_were_counted_and_then_lost_are_sent_again(make_kernel: MakeKernel) -> None:
    network = shared_network(make_kernel, 3, window=16, slots=256)
    seen_at: list[int] = []

    def lose_everything_once(worker: int, packet: bytes, upwards: bool) -> bool:
        counted = [int((w.window.state.status & Chain.COUNTED != 0).sum()) for w in network.workers[:2]]
        if not seen_at and counted == [16 // SPREAD, 16 // SPREAD]:
            seen_at.append(network.now)
            network.forget()
        return True

    network.on_packet = lose_everything_once
    results = network.run([np.ones(16 * LANES, np.int32)] * 3, starts_us=[0, 0, 3_000_000])
    assert seen_at
    assert network.now < 4e9
    assert all((result == 3).all() for result in results)


def answered(window: Window, kind: int, psns: list[int], now: int, **fields: int) -> list[tuple[int, bool]]:
    """Hand packets to rank 0 of two; return the PSN of each that it sends, and if it asks."""
    hear(window, kind, psns, now, **fields)
    return emitted(window, now)


def emitted(window: Window, now: int) -> list[tuple[int, bool]]:
    return [(int(each["psn"]), bool(each["flags"] & wire.FLAG_QUERY)) for each in sent(window, now)]


def begun(make_kernel: MakeKernel, dtype: type, packets: int) -> Window:
    """Return a window of 8, 4 of them in flight, of rank 0 of two, with its first packets sent at 0."""
    settings_ = CoreSettings(*(JOB, 0, 2, 16, LANES, endpoints(0)), window=8, spread=2, fallback=True)
    window = Window(settings_, make_kernel())
    begin(window, packets, dtype=dtype)
    assert [psn for psn, _ in emitted(window, 0)] == [0, 1, 2, 3]
    return window


@pytest.mark.parametrize(
    ("dtype", "packets", "asked_for"),
    [
        pytest.param(np.float32, 20, 4, id="whose exponent scales it"),
        pytest.param(np.int32, 20, 8, id="that is a window before it"),
        pytest.param(np.int32, 6, 6, id="of the collective before"),
    ],
)
def test_a_reminder_of_what_waits_for_a_result_asks_for_that(
    make_kernel: MakeKernel, dtype: type, packets: int, asked_for: int
) -> None:
    """Whoever has sent the packet has that result: it is no use to wait for a time-out, counted or not."""
    window = begun(make_kernel, dtype, packets)
    answered(window, wire.KIND_RESULT, [1, 2, 3], 1000, bitmap=3, lanes=LANES)
    answered(window, wire.KIND_STATUS, [0], 2000, bitmap=1)
    assert window.state.status[0] & Chain.COUNTED
    assert answered(window, wire.KIND_REMINDER, [asked_for], 5000, bitmap=1) == [(0, False)]
    assert not window.state.status[0] & Chain.COUNTED
    assert answered(window, wire.KIND_REMINDER, [asked_for], 5001, bitmap=1) == [], "not within a round trip"


def test_a_reminder_of_what_only_the_limit_holds_back_asks_for_nothing(make_kernel: MakeKernel) -> None:
    window = begun(make_kernel, np.int32, 20)
    assert answered(window, wire.KIND_REMINDER, [7], 5000, bitmap=1) == []


@pytest.mark.parametrize("fallback", [False, True])
def test_time_outs_ask_first_for_the_counted_packet_that_all_others_wait_for(
    make_kernel: MakeKernel, fallback: bool
) -> None:
    """And for more of them the longer they last: 1, 2, 4 and then 8, whatever was asked for before."""
    settings_ = CoreSettings(
        *(JOB, 0, 2, 32, LANES, endpoints(0)),
        window=16,
        spread=1,
        fallback=fallback,
        rto=RtoLimits(max_s=0.05),
    )
    window = Window(settings_, make_kernel())
    begin(window, 16)
    assert len(emitted(window, 0)) == 16
    answered(window, wire.KIND_STATUS, list(range(16)), 1000, bitmap=1)
    asked = []
    for _ in range(6):
        now = window.next_timeout()
        window.on_timeout(now)
        asked.append([psn for psn, _ in emitted(window, now)])
    assert asked == [list(range(count)) for count in (1, 2, 4, 8, 8, 8)]


def test_a_rank_in_another_part_of_the_tree_is_named(make_kernel: MakeKernel) -> None:
    tree = Tree.of({0: [-1, -2], 1: [0, 1], 2: [2, 3]})
    network = shared_network(make_kernel, 4, tree=tree, patience=Patience(8, 600))
    network.run([np.ones(10, np.int32)] * 4, absent=[3], limit_s=1000)
    for rank in range(3):
        error = network.workers[rank].error
        assert isinstance(error, PeerTimeout)
        assert 3 in error.missing
        assert rank not in error.missing


packets = st.fixed_dictionaries(
    {
        "version_kind": st.sampled_from([0x21, 0x22, 0x22, 0x22, 0x23, 0x24, 0x25, 0x25]),
        "flags": st.one_of(st.just(0), st.sampled_from([0x04, 0x80, 0x84, 0x30]), st.integers(0, 255)),
        "psn": st.integers(0, 14),
        "bitmap": st.sampled_from([3, 3, 3, 1, 2, 0]),
        "exponent": st.sampled_from([0, 127, 255]),
        "epoch": st.sampled_from([0] * 9 + [1]),
        "lanes": st.sampled_from([LANES, LANES, 0]),
        "tag": st.sampled_from([5] * 9 + [6]),
        "node": st.sampled_from([0, 0, 0, 1]),
        "value": st.integers(-(2**31), 2**31 - 1),
        "now": st.sampled_from([0, 10_000, 60_000_000]),
        "batch": st.booleans(),
    }
)


@settings(max_examples=effort.cases(400), deadline=None)
@given(
    st.lists(packets, max_size=40),
    st.sampled_from(["int32", *encodings.ENCODINGS]),
    st.sampled_from([wire.TARGET_ALL, 0, 1]),
    st.integers(1, 4),
)
def test_any_packets_leave_both_kernels_in_the_same_state(
    sent: list[dict[str, Any]], numbers: str, target: int, limit: int
) -> None:
    kernels: tuple[Kernel, ...] = (NativeKernel(), NumpyKernel())
    traces = [trace(kernel, sent, numbers, target, limit) for kernel in kernels]
    assert traces[0] == traces[1]


def trace(kernel: Kernel, sent: list[dict[str, Any]], numbers: str, target: int, limit: int) -> list[Any]:
    scheme: Any = "exponent" if numbers == "int32" else numbers
    settings_ = CoreSettings(
        *(JOB, 0, 2, 8, LANES, endpoints(0)), window=4, spread=1, fallback=True, numbers=scheme, scale_bits=24
    )
    window = Window(settings_, kernel, Recorder(Limits(limit, 3)))
    source: NDArray[Any] = np.linspace(-200, 200, 5 * LANES)
    source = source.astype(np.int32 if numbers == "int32" else np.float32)
    output = np.zeros_like(source)
    window.begin(Exchange(source, output, tag=5, target=target, feedback=numbers in encodings.BLOCKS), 0)
    now, held, found = 0, b"", []
    out = np.zeros(20 * PACKET.itemsize, np.uint8)
    for fields in sent:
        packet = np.zeros(1, PACKET)
        prefix = wire.frame_prefix(endpoints(9), 100)
        packet.view(np.uint8)[: len(prefix)] = np.frombuffer(prefix, np.uint8)
        packet["job"] = JOB
        for name in wire.HEADER_DTYPE.names or ():
            if name in fields:
                packet[name] = fields[name]
        packet["values"] = fields["value"]
        held += packet.tobytes()
        if fields["batch"]:
            continue
        now += fields["now"]
        window.absorb(np.frombuffer(held, np.uint8), PACKET.itemsize, now)
        held = b""
        window.on_timeout(now)
        count = window.emit(out, now)
        core, state = window.state.struct, window.state
        found.append((count, out[: count * PACKET.itemsize].tobytes(), output.tobytes(), list(core.counters)))
        found.append(
            (state.status.tolist(), state.kept.tolist(), state.answers.tobytes(), window.numeric_errors())
        )
        found += [
            source.tobytes(),
            (core.oldest, core.in_flight, core.srtt, core.rto, core.tolerance, core.min_rtt),
        ]
        found.append((core.round_results, core.round_marked, core.round_collided, core.round_late))
        found.append((core.settled, core.round_waits, core.change_at, core.echo, state.wanted.tolist()))
        found.append((window.next_timeout(), core.completed, core.disagree_index))
        found.append((state.node_bitmap.tolist(), state.node_heard_at.tolist()))
    return found
