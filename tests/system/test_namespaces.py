"""A switch between network namespaces: jobs over the kernel's own UDP, beside ordinary traffic."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bmv2_topos.testbeds.netns.names import namespace
from controller.vocabulary.catalog import named
from tests.softswitch.namespaces import Namespace
from tests.system import traffic
from tests.system.clusters import NETNS
from tests.system.command import WORKERS, ina
from tests.system.controllers import PREFIX, laid_out

pytestmark = NETNS
SIZE = 3
NAME = f"{PREFIX}beside"
ANYONE_PINGS = "echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range"


@dataclass(frozen=True)
class Bed:
    """Three hosts around a switch."""

    hosts: list[Namespace]

    def run(self, *arguments: object) -> dict[str, float]:
        """Run a job of one worker per host, which checks its sums; return its metrics."""
        exact = [sys.executable, WORKERS / "exact.py", *arguments]
        done = ina("topo", "run", NAME, "--slots", 512, "--json", "--", *exact)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("finished") == SIZE
        found: dict[str, float] = json.loads(done.stdout)["metrics"]
        return found

    def buffers(self) -> tuple[int, int]:
        """Return how many buffers the switch's end of a link has taken and given: one superframe is one."""
        shown = ["ip", "-n", namespace(NAME, "s1"), "-s", "-j", "link", "show", "dev", "s1-eth1"]
        ((link),) = json.loads(subprocess.run(shown, capture_output=True, check=True).stdout)
        return link["stats64"]["rx"]["packets"], link["stats64"]["tx"]["packets"]


@contextlib.contextmanager
def bed(folder: Path, lanes: int, *options: object) -> Iterator[Bed]:
    described, topology = f"single-switch:{SIZE}", named(f"single-switch:{SIZE}")
    program = ("--program", "exclusive", "--lanes", lanes)
    with laid_out(folder, NAME, Path(described), *program, *options) as state:
        hosts = []
        for name in topology.servers_for("worker"):
            inside, ip, mac = namespace(NAME, name), state.topology.ip(name), state.topology.mac(name)
            subprocess.run(["ip", "netns", "exec", inside, "sh", "-c", ANYONE_PINGS], check=True)
            hosts.append(Namespace(inside, "", ip, "", mac, f"{name}-eth0"))
        yield Bed(hosts)


def came_through(ordinary: traffic.Traffic) -> bool:
    return all(kind.result() for kind in (ordinary.pings, ordinary.datagrams, ordinary.transfers))


@pytest.mark.parametrize("lanes", [32, 256])
def test_jobs_and_ordinary_traffic_share_the_switch(lanes: int, tmp_path: Path) -> None:
    with bed(tmp_path, lanes) as it, traffic.between(it.hosts) as ordinary:
        counters = it.run("--rounds", 2, 1, lanes, lanes + 1, 5003, 200_000)
    assert came_through(ordinary)
    assert counters["switch_completed_packets"] >= 4 * 205_000 // lanes
    assert not any(
        count
        for name, count in counters.items()
        if "overflow" in name or "disagree" in name or "refused" in name
    )


def test_jobs_and_ordinary_traffic_survive_loss(tmp_path: Path) -> None:
    with bed(tmp_path, 256, "--loss", 0.05) as it, traffic.between(it.hosts) as ordinary:
        assert it.run(1, 1000, 200_000)["switch_replayed_packets"] > 0
    assert came_through(ordinary)


def test_packets_cross_the_links_in_superframes(tmp_path: Path) -> None:
    with bed(tmp_path, 256) as it:
        before = it.buffers()
        packets = it.run(1_000_000)["switch_completed_packets"]
        taken, given = (now - then for now, then in zip(it.buffers(), before, strict=True))
    assert taken < packets / 4
    assert given < packets / 4
