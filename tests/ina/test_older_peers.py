"""What a process of another version gets, of each protocol between processes (docs/explanations/journeys.md).

The peer is a process that says what one of an earlier version said; doors are tried in `tests/hostlib`
(`test_connections.py`, `test_rendezvous.py`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from controller.switches.model import Feature, SwitchInfo
from controller.vocabulary.catalog import named
from hostlib.errors import RendezvousError
from hostlib.launch import command_line, hosting
from hostlib.launch.launcher import LaunchError
from hostlib.settings import Settings
from hostlib.version import PROTOCOL
from ina.errors import BadRun, EngineError, ProcessFailed
from ina.run.fallback.process import FallbackProcess
from ina.run.launch import ray_runs
from ina.run.launch.agents import Agents, LaunchedAgent
from ina.run.launch.executor import LocalRuns
from ina.run.launch.files import plain
from ina.run.launch.orders import RunOrder, RunStatus
from ina.run.launch.runner import given_job, order_of
from ina.run.switches.switch_process import EmbeddedSwitch

VERSIONS = pytest.mark.parametrize("version", [1, PROTOCOL + 1], ids=["no version", "another version"])


def other(version: int) -> str:
    """Return the reason to refuse a peer of this version."""
    return f"it speaks protocol {version}, this end {PROTOCOL}: install the same ina at both"


def document(version: int, **fields: object) -> str:
    """Return fields as JSON, with a version; version 1 had none."""
    return json.dumps(fields if version == 1 else {**fields, "protocol": version})


def older(line: str) -> list[str]:
    """Return a command that says a line, and ends with its input."""
    return [sys.executable, "-c", f"import sys; print({line!r}, flush=True); sys.stdin.read()"]


def say(monkeypatch: pytest.MonkeyPatch, version: int, **fields: object) -> None:
    """Have the processes that are started say this, and no more."""
    for way in ("ina", "module"):
        monkeypatch.setattr(command_line, way, lambda *_: older(document(version, **fields)))


@VERSIONS
def test_a_switch_and_a_fallback_server_are_refused(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, version, p4runtime="unix:no", shm_ports={})
    with (
        EmbeddedSwitch([]) as switch,
        pytest.raises(ProcessFailed, match=f"the switch process: {other(version)}"),
    ):
        switch.ready()
    with pytest.raises(ProcessFailed, match=f"the fallback server: {other(version)}"):
        FallbackProcess([])


@VERSIONS
def test_a_fallback_server_that_was_started_again_is_used_no_more(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(monkeypatch, PROTOCOL, ready={})
    server = FallbackProcess([])
    say(monkeypatch, version, ready={"local": "127.0.0.1:9", "lanes": 32})
    server._child.kill()
    try:
        while not (why := server.check()):
            time.sleep(0.01)
        assert why == f"the fallback server: {other(version)}"
    finally:
        server.stop()


@VERSIONS
def test_an_admission_is_refused(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, version, configs=[{"rank": 0}])
    with pytest.raises(RendezvousError, match=f"'ina admit' ended with status 0: {other(version)}"):
        hosting.admit(Settings(), [[0]], [["here"]], hierarchical=False)


@VERSIONS
def test_the_order_of_a_run_is_refused_and_its_status_not_read(version: int, tmp_path: Path) -> None:
    """The runner ends, and says why; a controller ends the run (`tests/ina/run/test_life.py`)."""
    (folder := tmp_path / "3").mkdir()
    (folder / "run.json").write_text(order := document(version, number=3))
    runner = command_line.module("ina.run.launch.run_process", str(folder))
    done = subprocess.run(runner, capture_output=True, text=True, check=False)
    assert (done.returncode, f"the order of the run: {other(version)}" in done.stderr) == (1, True), (
        done.stderr
    )
    with pytest.raises(BadRun, match=f"the order of the run: {other(version)}"):
        given_job(order, [], [])
    assert (LocalRuns(tmp_path).other_version(3), LocalRuns(tmp_path).status(3)) == (
        other(version),
        RunStatus(),
    )
    (folder / "status.json").write_text(document(version, ends={"a": ""}))
    assert LocalRuns(tmp_path).status(3) == RunStatus(failure=f"its runner: {other(version)}")


def test_an_order_has_what_the_program_of_the_switches_lacks() -> None:
    """Found by reading: ranks of a placed job took any program for one that moves shards."""
    order = RunOrder(1, "", SwitchInfo(32, 64, 8, 8, lacks={Feature.SHARDS: "a table"}), (), {})
    assert order_of(json.loads(json.dumps(plain(order)))).offers.lacks == order.offers.lacks


def test_an_agent_of_another_machine_is_refused() -> None:
    agents = Agents({"h2": LaunchedAgent("h2", older('{"here": {"version": "0.0.9", "store": 1}}'))})
    with agents, pytest.raises(LaunchError, match=r"machine h2 has ina 0.0.9, this one .*: install the same"):
        agents.ready()


@VERSIONS
def test_a_watcher_of_nodes_is_refused(version: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ray_runs.importlib.util, "find_spec", lambda name: name)
    say(monkeypatch, version, alive=["h1"])
    with (
        pytest.raises(EngineError, match=other(version)),
        closing(ray_runs.RayRuns(tmp_path, named("single-switch:2"))),
    ):
        pass
