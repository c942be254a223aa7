"""The controller against a real switch: what it writes makes packets add up, and all of it goes again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import grpc
import pytest

from controller import Member, Part, ProgramBundle, Region, SwitchInfo, SwitchSession, connect
from controller.errors import (
    BadJob,
    NoSuchJob,
    NotPrimary,
    OtherProgram,
    OutOfMemory,
    OutOfRows,
    ProgramMismatch,
    Refused,
    Unreachable,
)
from controller.p4runtime_shim.client import ArbitrationStream, P4RuntimeClient, _claim, acquire
from controller.p4runtime_shim.target import P4RuntimeTarget
from controller.switches import forwarding, names
from controller.switches.jobs import job_row
from controller.switches.reconcile import Write
from controller.switches.target import CounterCell, Entry, Kind
from p4src.messages import code_pb2, p4runtime_pb2_grpc
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime import serve
from tests.controller import single
from tests.controller.conftest import LANES, SHORT_TURN_S, Running, Served, default_row, over_p4runtime
from tests.controller.failing import Passing, Recording
from tests.controller.frames import gradient
from tests.p4.bed import RESULT, parse


def job(ranks: int = 2, *, first_port: int | None = 0, slots: int = 64) -> Part:
    return Part(
        tuple(
            Member(
                r,
                None if first_port is None else first_port + r,
                f"02:00:00:00:00:{r:02x}",
                f"10.0.0.{r + 1}",
                9000 + r,
            )
            for r in range(ranks)
        ),
        slots,
    )


def test_an_admitted_job_gets_its_sums_and_counts_its_packets(
    controller: SwitchSession, running: Running
) -> None:
    admission = single.admit(controller, job(3))
    assert admission.window == 32
    for rank in range(3):
        running.switch.inject(rank, [gradient(admission, 5, rank, [rank + 1] * LANES)])
    for rank in range(3):
        (frame,) = running.switch.drain(rank)
        left = parse(rank, frame)
        assert (left.packet.kind, left.packet.bitmap, left.packet.psn) == (RESULT, 0b111, 5)
        assert left.packet.values == (6,) * LANES
        address = bytes((2, 0, 0, 0, 0, rank)), bytes((10, 0, 0, rank + 1))
        assert left.destination == (*address, 9000 + rank)
    counters = controller.counters(admission.job)
    assert {name: n for name, n in counters.items() if n} == {"aggregated": 2, "completed": 1}
    single.remove(controller, admission)
    running.switch.inject(0, [gradient(admission, 6, 0, [1] * LANES)])
    assert running.switch.drain(0) == []


def test_counters_start_at_zero_in_a_row_used_before(controller: SwitchSession, running: Running) -> None:
    before = controller.row_counters(0)["unknown_job"]
    for _ in range(2):
        admission = single.admit(controller, job(1))
        assert admission.counter_row == 1
        running.switch.inject(0, [gradient(admission, 0, 0, [1] * LANES)])
        assert controller.counters(admission.job)["completed"] == 1
        single.remove(controller, admission)
    running.switch.inject(0, [gradient(replace(admission, job=1), 0, 0, [1] * LANES)])
    assert controller.row_counters(0)["unknown_job"] == before + 1
    running.switch.drain(0)


def test_the_program_tells_what_it_offers(controller: SwitchSession) -> None:
    info = controller.info()
    assert info == SwitchInfo(LANES, 8192, 255, 32, "exclusive")


def test_controllers_share_a_switch_through_what_it_holds(connect: Callable[[], SwitchSession]) -> None:
    one, other = connect(), connect()
    first = single.admit(one, job(2, first_port=0, slots=100))
    second = single.admit(other, job(2, first_port=2, slots=100))
    assert first.region == Region(0, 128)
    assert second.region == Region(128, 128)
    assert first.job != second.job
    assert first.generation != second.generation
    assert (first.counter_row, second.counter_row) == (1, 2)
    assert one.jobs() == other.jobs() == {first.job: first, second.job: second}
    single.remove(other, first)
    assert one.jobs() == {second.job: second}
    third = single.admit(one, job(1, first_port=0, slots=128))
    assert third.region == first.region
    single.remove(one, second)
    single.remove(one, third)


def test_members_without_a_port_get_free_ones(connect: Callable[[], SwitchSession]) -> None:
    one, other = connect(), connect()
    pool = range(3)
    first = single.admit(one, job(2, first_port=None), ports=pool)
    assert [m.port for m in first.members] == [0, 1]
    said = ": 2 workers need 2 ports of the switch, and only 1 is free among the allowed ports: 2$"
    with pytest.raises(OutOfRows, match=said):
        single.admit(other, job(2, first_port=None), ports=pool)
    single.remove(one, first)
    second = single.admit(other, job(2, first_port=None), ports=pool)
    assert [m.port for m in second.members] == [0, 1]
    single.remove(other, second)


@over_p4runtime
def test_many_controllers_at_once_never_collide(connect: Callable[[], SwitchSession]) -> None:
    controllers = [connect() for _ in range(6)]
    overlaps: list[str] = []

    def work(controller: SwitchSession, first_port: int) -> None:
        try:
            for _ in range(3):
                admission = single.admit(controller, job(2, first_port=first_port, slots=2048), ports=())
                present = controller.jobs()
                taken = sorted((a.region.offset, a.region.end) for a in present.values())
                if any(end > start for (_, end), (start, _) in pairwise(taken)):
                    overlaps.append(str(taken))
                if len({a.counter_row for a in present.values()}) != len(present):
                    overlaps.append("counter rows")
                single.remove(controller, admission)
        except OutOfMemory:
            pass  # four of these jobs fill the switch; the others may come too early

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, controllers, range(0, 12, 2)))
    assert overlaps == []
    assert controllers[0].jobs() == {}


def test_a_job_too_large_is_refused_with_what_is_free(controller: SwitchSession) -> None:
    first = single.admit(controller, job(1, slots=4096))
    said = (
        ": 5000 slots are asked for, and a region is a power of two: 8192 are needed; 4096 are free, at most"
        " 4096 of them in one piece: ask for 4096 or fewer$"
    )
    with pytest.raises(OutOfMemory, match=said):
        single.admit(controller, job(1, first_port=1, slots=5000))
    with pytest.raises(BadJob, match="33 members; one switch sums up to 32"):
        single.admit(controller, job(33))
    single.remove(controller, first)


def test_an_unknown_job_is_refused(controller: SwitchSession) -> None:
    gone = single.admit(controller, job(1))
    single.remove(controller, gone)
    with pytest.raises(NoSuchJob, match=f"switch 's': .* has no job {gone.job}"):
        single.remove(controller, gone)
    with pytest.raises(NoSuchJob, match="has no job 5"):
        controller.counters(5)


def test_a_job_never_has_the_generation_of_one_before_it(running: Running) -> None:
    """Two jobs in one millisecond, the first of which has gone: its results may still be in the slots."""
    day_s = 1000.0
    with SwitchSession(running.target(), clock=lambda: day_s) as controller:
        generations = []
        for at_s in (1000.0, 1000.0, 1000.0, 990.0):  # the clock is set back, too
            day_s = at_s
            admission = single.admit(controller, job(1))
            generations.append(admission.generation)
            single.remove(controller, admission)
    assert generations == [1_000_000, 1_000_001, 1_000_002, 1_000_003]


def test_generations_are_never_zero_nor_in_use(running: Running) -> None:
    with SwitchSession(running.target(), clock=lambda: 2**32 / 1000, rng=random.Random(1)) as controller:
        admissions = [single.admit(controller, job(1, first_port=p)) for p in range(2)]
        assert [a.generation for a in admissions] == [1, 2]
        for admission in admissions:
            single.remove(controller, admission)


def test_another_controller_that_keeps_the_switch_is_named(running: Running) -> None:
    holder = running.target()
    with (
        SwitchSession(running.target(), turn_timeout_s=SHORT_TURN_S) as controller,
        holder.turn(timeout_s=10),
        pytest.raises(NotPrimary, match=r"another controller .*is the primary of the switch"),
    ):
        single.admit(controller, job(1))
    holder.close()


def test_a_controller_that_keeps_its_turn_is_elected_once(running: Running) -> None:
    """Also when a write has failed: admitting and removing a job once took an election each."""
    target = Recording(running.target())
    with (
        SwitchSession(target) as keeper,
        SwitchSession(running.target(), turn_timeout_s=SHORT_TURN_S) as other,
    ):
        keeper.keep_turn()
        for _ in range(2):
            admission = single.admit(keeper, job(1))
            single.remove(keeper, admission)
            with pytest.raises(NotPrimary, match="another controller"):
                single.admit(other, job(1))
            with keeper.turn(), pytest.raises(Refused):
                keeper.apply(Write("MODIFY", (job_row(admission),)))
        assert target.turns == 1
        keeper.close()
        single.remove(other, single.admit(other, job(1)))


def test_controllers_that_come_while_another_loads_the_program_wait_for_it(bundle: ProgramBundle) -> None:
    """A switch may compile for longer than a turn at its tables takes."""
    with (
        Switch({n: MemoryPort() for n in range(8)}) as switch,
        closing(serve(switch)) as service,
        closing(P4RuntimeClient(service.address)) as loading,
        SwitchSession(P4RuntimeTarget(service.address), turn_timeout_s=0.2) as controller,
        ThreadPoolExecutor(1) as pool,
    ):
        with loading.mastership():
            loads = pool.submit(controller.load, bundle)
            with pytest.raises(TimeoutError):
                loads.result(timeout=1.0)
            loading.load(bundle.p4info, bundle.device_config)
        assert not loads.result()
        with loading.mastership():
            assert not controller.load(bundle), "nothing is written, so nobody is waited for"


def test_what_another_controller_loaded_is_known_from_then_on(
    bundle: ProgramBundle, shared_bundle: ProgramBundle
) -> None:
    with (
        Switch({n: MemoryPort() for n in range(8)}) as switch,
        closing(serve(switch)) as service,
        connect(service.address) as controller,
        connect(service.address) as other,
    ):
        controller.load(bundle)
        assert controller.info().mode == "exclusive"
        other.load(shared_bundle, replace=True)
        assert not controller.load(shared_bundle)
        assert controller.info().mode == "shared"
        assert controller.jobs() == {}


class LateStream(ArbitrationStream):
    """A stream whose first claim comes after another controller's turn, and before a third one's claim."""

    def __init__(self, stub: p4runtime_pb2_grpc.P4RuntimeStub) -> None:
        super().__init__(stub, 0)
        self._stub = stub
        self.third: ArbitrationStream | None = None

    def ask(self, election_id: int | None) -> None:
        if election_id is None or self.third is not None:
            super().ask(election_id)
            return
        self.third = ArbitrationStream(self._stub, 0)
        self.third.ask(None)
        acquire(self._stub, 0, "here", timeout_s=600).release()
        super().ask(election_id)
        while (answer := self.third.answer(600)).status.code != code_pb2.NOT_FOUND or (
            answer.election_id.low < election_id
        ):
            pass  # the second one came, and went
        assert self.third.answer(600).status.code == code_pb2.ALREADY_EXISTS, "the late claim"
        self.third.ask(election_id + 1)
        assert self.third.answer(600).status.code == code_pb2.OK


def test_a_claim_that_comes_late_gives_no_turn_beside_the_next_controllers(bundle: ProgramBundle) -> None:
    """It did: both wrote under one election id, and chose the same multicast group for two jobs."""
    with (
        Switch({0: MemoryPort()}) as switch,
        closing(serve(switch, source=bundle.device_config.decode())) as service,
        grpc.insecure_channel(service.address) as channel,
    ):
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        late = LateStream(stub)
        assert not _claim(late, "here", time.monotonic() + 600), "its stream has ended: it asks again"
        late.release()
        assert late.third is not None
        late.third.release()
        acquire(stub, 0, "here", timeout_s=600).release()


def test_controllers_take_turns_after_the_highest_election_id_was_claimed(bundle: ProgramBundle) -> None:
    """By anybody, once: P4Runtime then lets no other id in until the switch restarts."""
    with (
        Switch({n: MemoryPort() for n in range(8)}) as switch,
        closing(serve(switch, source=bundle.device_config.decode())) as service,
    ):
        with grpc.insecure_channel(service.address) as channel:
            stranger = ArbitrationStream(p4runtime_pb2_grpc.P4RuntimeStub(channel), 0)
            stranger.ask(2**128 - 1)
            assert stranger.answer(10).status.code == 0
            with (
                SwitchSession(P4RuntimeTarget(service.address), turn_timeout_s=SHORT_TURN_S) as controller,
                pytest.raises(NotPrimary, match=rf"another controller \(election id {2**128 - 1}\) is the"),
            ):
                single.admit(controller, job(1))
            stranger.release()

        def work(first_port: int) -> None:
            with connect(service.address) as controller:
                for _ in range(3):
                    single.remove(controller, single.admit(controller, job(2, first_port=first_port)))

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(work, (0, 2, 4)))


@over_p4runtime
def test_ordinary_traffic_is_bridged_and_flooded(controller: SwitchSession, running: Running) -> None:
    entries = [
        forwarding.flood_group(300, [0, 1, 2]),
        forwarding.broadcast(300),
        forwarding.bridge("02:00:00:00:00:01", 1),
        forwarding.own_address("10.0.0.254", "02:00:00:00:00:fe"),
        forwarding.own_mac("02:00:00:00:00:fe"),
        forwarding.route("10.9.0.0", 16, port=3, src="02:00:00:00:00:fe", dst="02:00:00:00:09:01"),
    ]
    controller.install(entries)
    controller.install(entries)  # again is no error
    frame = bytes.fromhex("020000000001 020000000000 88b5") + b"hello"
    broadcast = b"\xff" * 6 + frame[6:]
    running.switch.inject(0, [frame, broadcast])
    assert running.switch.drain(1) == [frame, broadcast]
    assert running.switch.drain(2) == [broadcast]
    assert running.switch.drain(0) == []

    request = bytes.fromhex(
        "ffffffffffff 020000000000 0806 0001 0800 06 04 0001020000000000 0a000001 000000000000 0a0000fe"
    )
    running.switch.inject(0, [request])
    (reply,) = running.switch.drain(0)
    assert reply[6:12].hex() == reply[22:28].hex() == "0200000000fe"
    controller.uninstall(entries)
    controller.uninstall(entries)  # again is no error
    running.switch.drain(1)


@over_p4runtime
def test_unknown_destinations_are_flooded_on_request(
    controller: SwitchSession, running: Served, bundle: ProgramBundle
) -> None:
    drop = default_row(running.address, bundle, names.BRIDGE)
    controller.install([forwarding.flood_group(300, [0, 1]), forwarding.flood_unknown(300)])
    frame = bytes.fromhex("020000000077 020000000000 88b5") + b"hello"
    running.switch.inject(0, [frame])
    assert running.switch.drain(1) == [frame]
    controller.install([drop])
    controller.uninstall([forwarding.flood_group(300, [])])


# ---------------------------------------------------------------------- programs


def test_a_program_is_loaded_once(bundle: ProgramBundle) -> None:
    with (
        Switch({}) as switch,
        closing(serve(switch)) as service,
        connect(f"127.0.0.1:{service.port}") as controller,
    ):
        with pytest.raises(ProgramMismatch, match="has no program loaded"):
            controller.info()
        assert controller.load(bundle)
        assert not controller.load(bundle)
        assert controller.info().lanes == LANES


@over_p4runtime
def test_a_program_with_jobs_is_not_replaced(controller: SwitchSession, bundle: ProgramBundle) -> None:
    admission = single.admit(controller, job(1))
    changed = ProgramBundle("other", type(bundle.p4info)(), b"")
    with pytest.raises(ProgramMismatch, match=r"runs another program than 'other' .*, which serves 1 job;"):
        controller.load(changed, replace=True)
    assert list(controller.jobs()) == [admission.job]
    single.remove(controller, admission)


def test_another_program_is_replaced_on_request_only(
    bundle: ProgramBundle, shared_bundle: ProgramBundle
) -> None:
    with (
        Switch({}) as switch,
        closing(serve(switch, source=shared_bundle.device_config.decode())) as service,
        connect(service.address) as controller,
    ):
        controller.install([forwarding.bridge("02:00:00:00:00:01", 1)])
        with pytest.raises(
            OtherProgram,
            match=r"runs another program than 'exclusive' \(it is for shared jobs, not for exclusive"
            r" ones; its cookie is 0x[0-9a-f]+, not 0x[0-9a-f]+\), with 1 table entry",
        ):
            controller.load(bundle)
        assert controller.info().mode == "shared"
        assert controller.load(bundle, replace=True)
        assert not controller.load(bundle)


def test_a_program_that_does_not_compile_is_refused(bundle: ProgramBundle) -> None:
    with (
        Switch({}) as switch,
        closing(serve(switch)) as service,
        connect(f"127.0.0.1:{service.port}") as controller,
        pytest.raises(Refused, match=r"loading the program: INVALID_ARGUMENT: the program does not compile"),
    ):
        controller.load(replace(bundle, device_config=b"control {"))


# ---------------------------------------------------------------------- failures


def test_a_switch_that_is_not_there() -> None:
    with pytest.raises(Unreachable, match=r"no P4Runtime server answers at 127\.0\.0\.1:1"):
        P4RuntimeClient("127.0.0.1:1", timeout_s=0.3)


def test_a_switch_that_is_gone(bundle: ProgramBundle) -> None:
    with Switch({}) as switch:
        service = serve(switch, source=bundle.device_config.decode())
        with connect(f"127.0.0.1:{service.port}") as controller:
            assert controller.jobs() == {}
            service.close()
            with pytest.raises(Unreachable, match="does not answer"):
                controller.jobs()
            with pytest.raises(Unreachable):
                single.admit(controller, job(1))


class ReadOnlyCounters(Passing):
    """A switch that does not let its counters be written."""

    def write(self, kind: Kind, entries: Sequence[Entry]) -> None:
        if any(isinstance(entry, CounterCell) for entry in entries):
            raise Refused(kind, "UNIMPLEMENTED", "counters are read-only")
        self.target.write(kind, entries)


def test_counts_are_since_the_admission(running: Running) -> None:
    with SwitchSession(ReadOnlyCounters(running.target())) as controller:
        for _ in range(2):
            admission = single.admit(controller, job(1))
            running.switch.inject(0, [gradient(admission, 0, 0, [1] * LANES)])
            assert controller.counters(admission.job)["completed"] == 1
            single.remove(controller, admission)
    running.switch.drain(0)
