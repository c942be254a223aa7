"""The switch process between network namespaces: jobs over the kernel's own UDP, beside ordinary traffic."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller import Admission, Member, Part, SwitchSession, connect
from controller.switches import forwarding
from hostlib import JobConfig, TransportConfig
from hostlib.launch.launcher import Workers
from hostlib.meet.rendezvous import Rendezvous
from ina.runtime.switch_process import EmbeddedSwitch
from tests import started
from tests.controller import single
from tests.softswitch.namespaces import Namespace, hosts
from tests.system import traffic
from tests.system.clusters import NETNS
from tests.system.command import WORKERS

pytestmark = NETNS

SIZE = 3
SLOTS = 512
UDP_PORT = 42592
AGGREGATION_IP, AGGREGATION_MAC = "10.77.0.254", "02:00:00:00:ff:01"
FLOOD_GROUP = 1000


@dataclass(frozen=True)
class Bed:
    """Three hosts around a switch; host i is at port i."""

    hosts: list[Namespace]
    controller: SwitchSession
    lanes: int

    def run(self, *arguments: object) -> tuple[Admission, list[str]]:
        """Run a job of one worker per host, without errors; returns what the workers said."""
        members = (
            Member(rank, rank + 1, host.mac, host.ip, UDP_PORT) for rank, host in enumerate(self.hosts)
        )
        admission = single.admit(self.controller, Part(tuple(members), SLOTS))
        said: list[str] = []
        first = self.hosts[0]
        # The workers meet in the first namespace, over TCP through the switch.
        with first.inside(lambda: Rendezvous(job=admission.job, size=SIZE, host=first.ip)) as rendezvous:
            workers = Workers(
                [
                    "sh",
                    "-c",
                    'exec ip netns exec "$HOST" "$@"',
                    "sh",
                    sys.executable,
                    str(WORKERS / "exact.py"),
                ]
                + [str(argument) for argument in arguments],
                [
                    {
                        "HOST": host.name,
                        "PYTHONPATH": started.PATH,
                        "INA_JOB": self._config(admission, rank, rendezvous).to_json(),
                    }
                    for rank, host in enumerate(self.hosts)
                ],
                rendezvous,
                lambda rank, data, is_error: said.extend(
                    f"[{rank}] {line}" for line in data.decode().splitlines()
                ),
            )
            try:
                failure = workers.wait(on_tick=lambda: None)
            finally:
                workers.kill()
        assert failure is None, "\n".join(said)
        return admission, said

    def _config(self, admission: Admission, rank: int, rendezvous: Rendezvous) -> JobConfig:
        return JobConfig(
            job=admission.job,
            rank=rank,
            size=SIZE,
            lanes=self.lanes,
            slots=2 * admission.window,
            epoch=admission.epoch,
            rendezvous=rendezvous.address,
            token=rendezvous.token,
            transport=TransportConfig(
                kind="udp",
                local=f"{self.hosts[rank].ip}:{UDP_PORT}",
                switch=f"{AGGREGATION_IP}:{UDP_PORT}",
            ),
        )


@contextlib.contextmanager
def bed(lanes: int, *options: str) -> Iterator[Bed]:
    with hosts(SIZE) as made, contextlib.ExitStack() as stack:
        ports = list(range(1, SIZE + 1))
        given = [
            f"--port={port}=veth:{host.switch_interface}" for port, host in zip(ports, made, strict=True)
        ]
        switch = stack.enter_context(
            EmbeddedSwitch(["--program=exclusive", f"--lanes={lanes}", *given, *options])
        )
        controller = stack.enter_context(connect(switch.address))
        controller.install(
            [
                forwarding.flood_group(FLOOD_GROUP, ports),
                forwarding.broadcast(FLOOD_GROUP),
                forwarding.own_address(AGGREGATION_IP, AGGREGATION_MAC),
                *(forwarding.bridge(host.mac, port) for port, host in zip(ports, made, strict=True)),
            ]
        )
        yield Bed(made, controller, lanes)


def superframes(host: Namespace) -> tuple[int, int]:
    """How many buffers the switch's end of a link has taken and given: one superframe is one."""
    counters = Path("/sys/class/net") / host.switch_interface / "statistics"
    return int((counters / "rx_packets").read_text()), int((counters / "tx_packets").read_text())


@pytest.mark.parametrize("lanes", [32, 256])
def test_jobs_and_ordinary_traffic_share_the_switch(lanes: int) -> None:
    with bed(lanes) as it:
        with traffic.between(it.hosts) as ordinary:
            admission, said = it.run("--rounds", 2, 1, lanes, lanes + 1, 5003, 200_000)
        assert sorted(said) == sorted(
            f"[{r}] {word}" for r in range(SIZE) for word in ("started", "finished")
        )
        assert ordinary.pings.result() > 0
        assert ordinary.datagrams.result() > 0
        assert ordinary.transfers.result() > 0
        counters = it.controller.counters(admission.job)
        assert counters["completed"] >= 4 * 205_000 // lanes
        assert counters["overflow"] == counters["disagree"] == 0
        assert not any(it.controller.row_counters(0).values())


def test_jobs_and_ordinary_traffic_survive_loss() -> None:
    with bed(256, "--impair=loss=5%") as it, traffic.between(it.hosts) as ordinary:
        admission, _ = it.run(1, 1000, 200_000)
        counters = it.controller.counters(admission.job)
        assert counters["replayed"] > 0
    assert ordinary.pings.result() > 0
    assert ordinary.datagrams.result() > 0
    assert ordinary.transfers.result() > 0


def test_packets_cross_the_links_in_superframes() -> None:
    with bed(256) as it:
        before = superframes(it.hosts[0])
        admission, _ = it.run(1_000_000)
        taken, given = (now - then for now, then in zip(superframes(it.hosts[0]), before, strict=True))
        counters = it.controller.counters(admission.job)
    packets = counters["completed"]
    assert taken < packets / 4
    assert given < packets / 4
