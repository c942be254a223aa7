"""What a process of another version gets, of each private protocol (docs/explanations/architecture.md).

The peer is a process that says what one of an earlier version said; doors are tried in `tests/hostlib`
(`test_connections.py`, `test_rendezvous.py`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from controller.vocabulary.catalog import named
from hostlib.errors import RendezvousError
from hostlib.launch import command_line, hosting
from hostlib.launch.launcher import LaunchError
from hostlib.settings import Settings
from ina.errors import EngineError
from ina.fallback.process import FallbackProcess
from ina.launch import ray_runs
from ina.launch.agents import Agents, LaunchedAgent

OTHER = "it speaks protocol 1, this end 3: install the same ina at both"


def older(line: str) -> list[str]:
    """Return a command that says a line, and ends with its input."""
    return [sys.executable, "-c", f"import sys; print({line!r}, flush=True); sys.stdin.read()"]


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have the processes that are started say this, and no more."""

    def say(line: str) -> None:
        for way in ("ina", "module"):
            monkeypatch.setattr(command_line, way, lambda *_: older(line))

    return say


def test_a_fallback_server_is_used_no_more(peer: Callable[[str], None]) -> None:
    peer('{"ready": {"local": "127.0.0.1:9", "lanes": 32}}')
    server = FallbackProcess(0, [])
    try:
        while not (why := server.check()):
            time.sleep(0.01)
        assert why == f"the fallback server: {OTHER}"
    finally:
        server.stop()


def test_an_admission_is_refused(peer: Callable[[str], None]) -> None:
    peer('{"configs": [{"rank": 0}]}')
    with pytest.raises(RendezvousError, match=f"'ina admit' ended with status 0: {OTHER}"):
        hosting.admit(Settings(), [[0]], [["here"]], hierarchical=False)


def test_an_agent_of_another_machine_is_refused() -> None:
    agents = Agents({"h2": LaunchedAgent("h2", older('{"here": {"version": "0.0.9", "store": 1}}'))})
    with agents, pytest.raises(LaunchError, match=r"machine h2 has ina 0.0.9, this one .*: install the same"):
        agents.ready()


def test_a_watcher_of_nodes_is_refused(
    peer: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ray_runs.importlib.util, "find_spec", lambda name: name)
    peer('{"alive": ["h1"]}')
    with (
        pytest.raises(EngineError, match=OTHER),
        closing(ray_runs.RayRuns(tmp_path, named("single-switch:2"))),
    ):
        pass
