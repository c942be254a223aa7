"""A switch between network namespaces: jobs over the kernel's own UDP, beside ordinary traffic."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from bmv2_topos.testbeds.netns.names import namespace
from controller.vocabulary.catalog import named
from tests.sockets import digest_of
from tests.softswitch.namespaces import Namespace
from tests.system.clusters import NETNS
from tests.system.command import WORKERS, ina
from tests.system.controllers import PREFIX, laid_out

# --------------------------------------------------------------------- ordinary traffic between names


TCP_BYTES = 256 << 10


def transfers(a: Namespace, b: Namespace, done: threading.Event) -> int:
    """TCP transfers from `a` to `b`, one after the other, each checked by its digest; counts them."""
    count = 0
    with b.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((b.ip, 7001))
        listener.listen()
        while not (done.is_set() and count):
            data = os.urandom(TCP_BYTES)
            with a.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
                client.connect((b.ip, 7001))
                server, _ = listener.accept()
                with server, ThreadPoolExecutor(1) as threads:
                    server.settimeout(600)
                    digest = threads.submit(digest_of, server)
                    client.sendall(data)
                    client.shutdown(socket.SHUT_WR)
                    assert digest.result() == hashlib.sha256(data).hexdigest()
            count += 1
    return count


@contextlib.contextmanager
def between(hosts: list[Namespace]) -> Iterator[Future[int]]:
    """Keep up TCP transfers, which need ARP and both directions, while the block runs; give their number.

    Pings and datagrams take the same rows: `tests/softswitch/test_engine_interfaces.py`, `tests/bmv2`.
    """
    first, _, third = hosts
    done = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        try:
            yield threads.submit(transfers, third, first, done)
        finally:
            done.set()


# --------------------------------------------------------------------- a switch between network names


pytestmark = NETNS
SIZE = 3
NAME = f"{PREFIX}beside"


@dataclass(frozen=True)
class Bed:
    """Three hosts around a switch."""

    hosts: list[Namespace]

    def run(self, *arguments: object) -> dict[str, float]:
        """Run a job of one worker per host, which checks its sums; return its metrics."""
        exact = [sys.executable, WORKERS / "exact.py", *arguments]
        done = ina("topo", "run", NAME, "--slots", 512, "--json", "--", *exact, status=0)
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
            hosts.append(Namespace(inside, "", ip, "", mac, f"{name}-eth0"))
        yield Bed(hosts)


@pytest.mark.parametrize("lanes", [32, 256])
def test_jobs_and_ordinary_traffic_share_the_switch(lanes: int, tmp_path: Path) -> None:
    with bed(tmp_path, lanes) as it, between(it.hosts) as ordinary:
        counters = it.run("--rounds", 2, 1, lanes, lanes + 1, 5003, 200_000)
    assert ordinary.result()
    assert counters["switch_completed_packets"] >= 4 * 205_000 // lanes
    assert not any(
        count
        for name, count in counters.items()
        if "overflow" in name or "disagree" in name or "refused" in name
    )


def test_jobs_and_ordinary_traffic_survive_loss(tmp_path: Path) -> None:
    with bed(tmp_path, 256, "--loss", 0.05) as it, between(it.hosts) as ordinary:
        assert it.run(1, 1000, 200_000)["switch_replayed_packets"] > 0
    assert ordinary.result()


def test_packets_cross_the_links_in_superframes(tmp_path: Path) -> None:
    with bed(tmp_path, 256) as it:
        before = it.buffers()
        packets = it.run(1_000_000)["switch_completed_packets"]
        taken, given = (now - then for now, then in zip(it.buffers(), before, strict=True))
    assert taken < packets / 4
    assert given < packets / 4
