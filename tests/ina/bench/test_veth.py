"""`ina bench switch`: tables in memory; with `--veth` windows of frames, and real ones through the switch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bmv2_topos.testbeds.netns.errors import MissingRequirement
from bmv2_topos.testbeds.netns.namespaces import existing
from hostlib.launch import command_line
from ina.bench.switch import bench_switch
from ina.bench.veth import FRAME, PATIENCE_S, VethBench, VethPassed, bench_veth, check, keep_full
from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler

REASON = why_not() if have_compiler else "no C compiler"


NOBODY = 1 << 22
"""No process has this id: ids are lower."""


class VirtualLink:
    """Delivers what was sent at the next look but one, and drops what is beyond its room."""

    def __init__(self, room: int) -> None:
        self.now_s = 0.0
        self.most = self.dropped = self._sent = self._arrived = self._before = 0
        self._room = room

    def clock(self) -> float:
        self.now_s += 0.01
        return self.now_s

    def send(self, frames: int) -> int:
        fitting = min(frames, self._room - (self._sent - self._arrived))
        self.dropped += frames - fitting
        self._sent += fitting
        self.most = max(self.most, self._sent - self._arrived)
        return frames

    def arrived(self) -> int:
        self._arrived, self._before = self._before, self._sent
        return self._arrived


def test_a_window_is_kept_full_and_nothing_more() -> None:
    link = VirtualLink(room=1000)
    arrived, lost = keep_full(link, 40, 1.0, link.clock)
    assert link.most == 40
    assert (arrived, lost) == (link._sent, 0)
    assert arrived > 40 * 10  # several windows within the 100 looks of that second


def test_what_is_lost_is_counted_and_makes_room_after_a_while() -> None:
    link = VirtualLink(room=30)
    arrived, lost = keep_full(link, 40, 4 * PATIENCE_S, link.clock)
    assert arrived == link._sent
    assert lost == link.dropped > 0


def case(switch: str, frames: int, cpu_s: float) -> VethPassed:
    return VethPassed(switch, "x", frames, FRAME, 0, 2.0, cpu_s)  # type: ignore[arg-type]


def test_ratios_are_of_the_same_case() -> None:
    found = VethBench((case("ina", 1000, 0.5), case("bmv2", 100, 1.0)))
    assert found.cases[0].frames_per_s == 500
    assert found.cases[0].bits_per_s == 500 * 8 * FRAME
    assert found.times_baseline(lambda each: each.frames_per_s) == {"x": 10}
    assert VethBench(found.cases[:1]).times_baseline(lambda each: each.frames_per_s) == {}


@pytest.fixture
def only_iproute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in ("ip", "tc"):
        (tmp_path / tool).symlink_to(shutil.which("true") or "/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("only_iproute")
def test_without_bmv2_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    check(["ina"])
    with pytest.raises(
        MissingRequirement, match=r"baseline bmv2 needs simple_switch_grpc on PATH \(https://.* and p4c"
    ):
        check(["ina", "bmv2"])


@pytest.mark.usefixtures("only_iproute")
def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingRequirement, match="network namespaces need root"):
        bench_veth(baseline=False, round_s=0.01, rounds=1)


@pytest.mark.netns
@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_frames_and_superframes_arrive_and_nothing_is_left_behind() -> None:
    left = f"ina-bench-{NOBODY}-0"  # as by a run that was killed
    subprocess.run(command_line.ina("topo", "up", "single-switch:2", "--name", left), check=True)
    few = ("--exact", "1", "--lpm", "1", "--ternary", "1", "--duration", "0.05")
    command = command_line.ina("bench", "switch", "--veth", *few, "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        found = json.loads(process.communicate()[0])["metrics"]["veth"]
    assert [case["name"] for case in found] == [
        "64 B, frame by frame",
        "1066 B, frame by frame",
        "1066 B, frame by frame, a second switch forwarding, too",
        "1066 B, superframes",
    ]
    assert all(case["packets_per_s"] > 0 and case["lost_packets"] == 0 for case in found)
    assert existing(f"ina.{left}.") == existing(f"ina.ina-bench-{process.pid}-") == []


def test_every_table_is_measured_at_its_size() -> None:
    measured = bench_switch(exact=50, lpm=40, ternary=30, round_s=0.001, rounds=1, writes=20)
    assert [case.entries for case in measured.cases] == [1, 50, 1, 40, 30]
    assert all(case.ns_per_packet > 0 < case.one_by_one_ns_per_packet for case in measured.cases)
    assert all(case.forwarded == 1 for case in measured.cases)  # of each packet one left
    assert measured.writes_per_s > 0
