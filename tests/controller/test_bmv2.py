"""The same controller on BMv2: program, jobs, turns between controllers, ordinary traffic."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bmv2_topos.testbeds.netns.bmv2 import missing
from controller import (
    Admission,
    Member,
    OtherProgram,
    Part,
    ProgramMismatch,
    Region,
    Registration,
    SwitchSession,
    Uplink,
    connect,
)
from controller.errors import NoSuchJob, Refused, SwitchRestarted, Unreachable
from controller.p4runtime_shim.cells import CellReader, CounterReading
from controller.p4runtime_shim.client import P4RuntimeClient
from controller.p4runtime_shim.target import P4RuntimeTarget
from controller.switches import forwarding
from controller.switches.fleet import Fleet
from controller.switches.layout import Branch, Deployment
from controller.switches.programs import P4C, bmv2_bundle
from tests.bmv2.reference import free_port
from tests.controller import single
from tests.programs import COUNTING, EVICTION, copied
from tests.system.command import here

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.skipif(bool(missing()), reason=f"needs {missing()}"),
]


@contextmanager
def bmv2(program: str) -> Iterator[str]:
    # at no port: one that is free may be another test's before the switch has taken it
    with TemporaryDirectory() as folder, bmv2_at(f"unix:{folder}/p4runtime", program) as address:
        yield address


@contextmanager
def bmv2_at(address: str, program: str) -> Iterator[str]:
    with empty_bmv2_at(address):
        with connect(address) as controller:
            assert controller.load(bmv2_bundle(program, lanes=32))
        yield address


@contextmanager
def empty_bmv2_at(address: str) -> Iterator[None]:
    command = ["simple_switch_grpc", "--no-p4", "--device-id", "0"]
    if "--thrift-port" in subprocess.run([command[0], "--help"], capture_output=True, text=True).stdout:
        command += ["--thrift-port", str(free_port())]
    process = subprocess.Popen(
        [*command, "-L", "off", "--", "--grpc-server-addr", address],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with bmv2("exclusive") as address:
        yield address


@pytest.fixture(scope="module")
def shared_address() -> Iterator[str]:
    with bmv2("shared") as address:
        yield address


@pytest.mark.parametrize("tool", P4C)
def test_either_compiler_is_enough(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} on PATH")
    for folder in map(Path, reversed(os.environ["PATH"].split(os.pathsep))):
        for program in folder.glob("*"):
            if not program.name.startswith("p4c") or program.name == tool:
                (tmp_path / program.name).unlink(missing_ok=True)
                (tmp_path / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(tmp_path))
    bundle = bmv2_bundle("exclusive", lanes=32)
    assert any(table.preamble.alias == "job" for table in bundle.p4info.tables)
    assert b"InaIngress" in bundle.device_config


def job(ranks: int, first_port: int) -> Part:
    return Part(single.members(first_port, ranks), 64)


def test_shared_jobs_come_and_go(shared_address: str) -> None:
    """Two jobs in overlapping regions."""
    fallback = Uplink(30, "02:00:00:00:fb:01", "10.0.255.2", 4000)
    with connect(shared_address) as one, connect(shared_address) as other:
        assert one.info().mode == "shared"
        first = single.admit(
            one, replace(job(4, 0), mode="shared", fallback=fallback, preempt=True, window=1000, max_age_us=7)
        )
        second = single.admit(
            other, replace(job(2, 4), mode="shared", region=Region(5, 10), fallback=fallback)
        )
        assert one.jobs() == other.jobs() == {first.job: first, second.job: second}
        resized = single.move(other, first, Region(0, 0))
        one.set_ecn_threshold(100)
        assert one.jobs() == {first.job: resized, second.job: second}
        assert set(one.counters(first.job).values()) == {0}
        with pytest.raises(ProgramMismatch, match=r"the program of the switch at .* is for shared jobs"):
            single.admit(one, job(1, 8))
        single.remove(one, second)
        single.remove(other, first)
        assert one.jobs() == {}


def test_leases_are_kept_renewed_and_swept(address: str) -> None:
    now_s = 0.0
    held = Registration("host pid 7", lease_s=60.0)
    with (
        SwitchSession(P4RuntimeTarget(address)) as one,
        SwitchSession(P4RuntimeTarget(address), ticks_s=lambda: now_s) as other,
    ):
        assert one.info().slots == 8192
        dead = single.admit(one, job(2, 0), registration=held)
        living = single.admit(one, job(2, 2), registration=held)
        assert set(one.counters(living.job).values()) == {0}
        for look in range(1, 5):
            assert other.jobs() == {dead.job: dead, living.job: living}
            living = replace(living, registration=replace(held, renewals=look))
            one.renew(living, replace(held, renewals=look))
            now_s += 15.0
        heir = single.admit(other, job(2, 0))
        assert other.jobs() == {living.job: living, heir.job: heir}
        single.remove(other, living)
        single.remove(one, heir)
        assert one.jobs() == {}


def test_a_switch_that_was_restarted_is_told_from_one_whose_job_was_removed() -> None:
    held = Registration("host pid 7", lease_s=60.0)
    place = f"127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as stack:
        with bmv2_at(place, "exclusive") as address:
            owner = stack.enter_context(connect(address))
            for number in range(3):
                there = single.admit(owner, job(2, 0), registration=held)
                owner.renew(there, replace(held, renewals=1))
                owner.check(there)
                with connect(address) as other:
                    single.remove(other, there)
                with pytest.raises(NoSuchJob) as caught:
                    owner.check(there)
                assert caught.type is NoSuchJob, f"removed, the {number}. time"
            there = single.admit(owner, job(2, 0), registration=held)
            owner.renew(there, replace(held, renewals=1))
        with empty_bmv2_at(place):
            connect(place).close()  # it answers
            with pytest.raises(SwitchRestarted, match="was restarted, and has no program"):
                check_once_reached(owner, there)
        with bmv2_at(place, "exclusive"), pytest.raises(NoSuchJob) as caught:
            check_once_reached(owner, there)
        assert caught.type is NoSuchJob, "BMv2's election ids do not tell, and nothing else does"


def test_a_fleet_brings_its_jobs_back_to_a_switch_that_was_restarted() -> None:
    """What it finds there, cookie included, is then what it wrote: reconciling again writes nothing."""
    bundle = bmv2_bundle("exclusive", lanes=32)
    place = f"127.0.0.1:{free_port()}"
    with bmv2_at(place, "exclusive") as address, connect(address) as controller:
        fleet = Fleet({"s1": controller})
        tree = fleet.admit(Deployment(Branch("s1", job(2, 0).members), 64))
        assert str(fleet.reconcile([tree])) == "nothing to do"
    with empty_bmv2_at(place), connect(place) as controller:
        fleet = Fleet({"s1": controller})
        report = fleet.reconcile([tree], program=bundle)
        assert report.done
        assert report.actions[0].verb == "load"
        assert controller.jobs() == {tree.job: tree.switches["s1"]}
        assert not controller.load(bundle)
        assert str(fleet.reconcile([tree], program=bundle)) == "nothing to do"


def test_a_copy_with_another_rule_and_the_same_tables_is_another_program(tmp_path: Path) -> None:
    """BMv2 keeps the cookie that it was given with the program."""
    ours = str(copied(tmp_path / "ours", EVICTION) / "shared.p4")
    changed, plain, exclusive = (bmv2_bundle(program, lanes=32) for program in (ours, "shared", "exclusive"))
    assert changed.p4info.tables == plain.p4info.tables
    with bmv2("shared") as address, connect(address) as controller:
        assert not controller.load(plain)
        with pytest.raises(OtherProgram):
            controller.load(changed)
        with pytest.raises(OtherProgram, match="it is for shared jobs, not for exclusive ones"):
            controller.load(exclusive)
        assert controller.info().mode == "shared"


def check_once_reached(controller: SwitchSession, admission: Admission) -> None:
    """Check a job as soon as gRPC has found the switch again, which takes a second at most."""
    while True:
        with contextlib.suppress(Unreachable):
            return controller.check(admission)
        time.sleep(0.1)


def test_controllers_take_turns(address: str) -> None:
    def work(first_port: int) -> None:
        with connect(address) as controller:
            for _ in range(3):
                single.remove(controller, single.admit(controller, job(2, first_port)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, (0, 2, 4, 6)))


def test_ordinary_forwarding(address: str) -> None:
    entries = [
        forwarding.flood_group(300, [0, 1, 2]),
        forwarding.broadcast(300),
        forwarding.bridge("02:00:00:00:00:01", 1),
        forwarding.own_address("10.0.0.254", "02:00:00:00:00:fe"),
        forwarding.own_mac("02:00:00:00:00:fe"),
        forwarding.route("10.9.0.0", 16, port=3, src="02:00:00:00:00:fe", dst="02:00:00:00:09:01"),
    ]
    with connect(address) as controller:
        controller.install(entries)
        controller.install(entries)
        controller.install([forwarding.flood_unknown(300)])
        controller.uninstall(entries)
        controller.uninstall(entries)


def test_rows_of_ordinary_traffic_are_written_together_also_if_some_are_there(address: str) -> None:
    """BMv2 says of each row of a request whether it could be written; those before and after it stay."""
    rows = [forwarding.bridge(f"02:00:00:01:{n >> 8:02x}:{n & 255:02x}", n % 4) for n in range(600)]
    moved = [forwarding.bridge(f"02:00:00:01:00:{n:02x}", 5) for n in range(10)]
    with connect(address) as controller, connect(address) as other:
        assert controller.update_entries(rows) == 600
        assert controller.update_entries(rows) == other.update_entries(rows) == 0
        other.uninstall(rows[20:400])
        assert controller.update_entries([*moved, *rows[10:]]) == 390
        assert controller.update_entries([*moved, *rows[10:]]) == 0
        controller.uninstall(rows[20:400])
        twice = [*rows[20:400], *rows[300:310]]
        assert controller.update_entries(twice) == 390, (
            "the second of two alike is refused, as if others wrote it"
        )
        assert other.update_entries([*moved, *rows[10:]]) == 0
        controller.uninstall(rows)


def test_an_own_program_serves_jobs_and_its_counter_is_read_its_register_is_not(tmp_path: Path) -> None:
    path = copied(tmp_path, *COUNTING, EVICTION) / "shared.p4"
    with bmv2(str(path)) as address, connect(address) as controller:
        assert controller.info().mode == "shared"
        members = (Member(0, 1, "02:00:00:00:00:01", "10.0.0.1", 9000),)
        fallback = Uplink(30, "02:00:00:00:fb:01", "10.0.255.2", 4000)
        admission = single.admit(controller, Part(members, 8, mode="shared", fallback=fallback))
        single.remove(controller, admission)
        with CellReader(P4RuntimeClient(address)) as cells:
            ways = cells.counts(cells.counter("ways"))
            assert ways == [CounterReading(cell, 0, 0) for cell in range(5)]
            with pytest.raises(Refused, match="UNIMPLEMENTED"):
                cells.values(cells.register("last_psn"))
        done = here("registers", "--switch", address, "last_psn", status=1)
        assert "cannot read registers over P4Runtime" in done.stderr
        assert "BMv2 does not support it" in done.stderr
