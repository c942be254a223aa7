"""The same controller on BMv2: program, jobs, turns between controllers, ordinary traffic."""

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from controller import Controller, Job, Member, Place, ProgramMismatch, Region, Uplink, forwarding
from controller.programs import bmv2_bundle

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.skipif(
        not (shutil.which("p4c") and shutil.which("simple_switch_grpc")),
        reason="needs p4c and simple_switch_grpc on PATH",
    ),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def bmv2(program: str) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    command = ["simple_switch_grpc", "--no-p4", "--device-id", "0", "--thrift-port", str(free_port())]
    process = subprocess.Popen(
        [*command, "-L", "off", "--", "--grpc-server-addr", address],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with Controller.connect(address) as controller:
        assert controller.load(bmv2_bundle(program, lanes=32))
    yield address
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


def job(ranks: int, first_port: int) -> Job:
    members = [
        Member(r, first_port + r, f"02:00:00:00:00:{r:02x}", f"10.0.0.{r + 1}", 9000 + r)
        for r in range(ranks)
    ]
    return Job(tuple(members), 64)


def test_jobs_come_and_go(address: str) -> None:
    with Controller.connect(address) as one, Controller.connect(address) as other:
        assert not one.load(bmv2_bundle("exclusive", lanes=32))
        assert one.info().slots == 8192
        first = one.admit(job(4, 0))
        second = other.admit(job(2, 4))
        assert second.region == Region(64, 64)
        assert one.jobs() == other.jobs() == {first.job: first, second.job: second}
        assert set(one.counters(first.job).values()) == {0}
        other.remove(first.job)
        one.remove(second.job)
        assert one.jobs() == {}


def test_shared_jobs_come_and_go(shared_address: str) -> None:
    """Two jobs in overlapping regions, one of them a node below another switch."""
    fallback = Uplink(30, "02:00:00:00:fb:01", "10.0.255.2", 4000)
    parent = Uplink(30, "02:00:00:00:00:fe", "10.0.0.254", node=0, bitmap=0b10, fan_in=2)
    with Controller.connect(shared_address) as one, Controller.connect(shared_address) as other:
        assert one.info().program == "shared"
        first = one.admit(
            replace(job(4, 0), mode="shared", fallback=fallback, preempt=True, window=1000, max_age_us=7)
        )
        second = other.admit(
            replace(job(2, 4), mode="shared", region=Region(5, 10), place=Place(3, parent, 0b11))
        )
        assert one.jobs() == other.jobs() == {first.job: first, second.job: second}
        resized = other.resize(first.job, Region(0, 0))
        one.set_ecn_threshold(100)
        assert one.jobs() == {first.job: resized, second.job: second}
        assert set(one.counters(first.job).values()) == {0}
        with pytest.raises(ProgramMismatch, match="the switch runs the program 'shared'"):
            one.admit(job(1, 8))
        one.remove(second.job)
        other.remove(first.job)
        assert one.jobs() == {}


def test_controllers_take_turns(address: str) -> None:
    failures: list[BaseException] = []

    def work(first_port: int) -> None:
        try:
            with Controller.connect(address) as controller:
                for _ in range(3):
                    controller.remove(controller.admit(job(2, first_port)).job)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(2 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_ordinary_forwarding(address: str) -> None:
    entries = [
        forwarding.flood_group(300, [0, 1, 2]),
        forwarding.broadcast(300),
        forwarding.bridge("02:00:00:00:00:01", 1),
        forwarding.own_address("10.0.0.254", "02:00:00:00:00:fe"),
        forwarding.own_mac("02:00:00:00:00:fe"),
        forwarding.route("10.9.0.0", 16, port=3, src="02:00:00:00:00:fe", dst="02:00:00:00:09:01"),
    ]
    with Controller.connect(address) as controller:
        controller.install(entries)
        controller.install(entries)
        controller.install([forwarding.flood_unknown(300)])
        controller.uninstall(entries)
        controller.uninstall(entries)
