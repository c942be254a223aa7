"""The terminal session of docs/controller.md works, in the order in which it stands there."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

import httpx
import pytest
from pydantic import TypeAdapter

from ina.service import views
from ina.service.client import Client, Refused
from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler
from tests.system.command import ROOT, ina
from tests.system.console import make_folder, run_step, steps

STEPS = list(steps((ROOT / "docs" / "controller.md").read_text()))
REASON = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"
PATIENCE_S = 120.0


def answers(path: Path) -> None:
    """Wait until a controller serves at a socket."""
    until = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    with Client(f"unix:{path}") as client:
        while True:
            try:
                client.jobs()
            except Refused:  # not yet
                assert time.monotonic() < until
                time.sleep(0.05)
            else:
                return


def check_answers(path: Path) -> None:
    """Compare what a real service answers with the shapes that the API promises."""
    transport = httpx.HTTPTransport(uds=str(path))
    with httpx.Client(transport=transport, base_url="http://localhost") as http:
        for resource, kind in (
            ("/v1/jobs", views.JobsView),
            ("/v1/jobs/urgent", views.JobView),
            ("/v1/jobs/urgent/explanation", views.ExplanationView),
            ("/v1/jobs/urgent/logs/0", views.LogView),
            ("/v1/cluster", views.ClusterView),
            ("/v1/memory", views.MemoryView),
            ("/v1/events", views.DecisionsView),
            ("/v1/audit", views.AuditView),
        ):
            found = http.get(resource).json()
            TypeAdapter(kind).validate_python(found, strict=True, extra="forbid")
        memory = http.get("/v1/memory").json()
        assert any(
            share["job"] == "urgent"
            for of in memory["switches"].values()
            for each in of
            for share in each["shares"]
        )
        assert 'ina_controller_jobs{state="completed"} 3' in http.get("/metrics").text.splitlines()
        assert http.get("/readyz").status_code == 200


@pytest.mark.netns
@pytest.mark.slow
@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_from_an_empty_machine_to_three_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INA_TESTBEDS", str(tmp_path / "testbeds"))
    path = tmp_path / "controller.sock"
    (tmp_path / "page").mkdir()
    folder = make_folder(tmp_path / "page")
    supervisor = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    supervisor.bind(str(tmp_path / "notify"))
    supervisor.settimeout(PATIENCE_S)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    try:
        for command, shown in STEPS:
            if command.startswith("export "):
                monkeypatch.setenv("INA_CONTROLLER", f"unix:{path}")
                continue
            run_step(folder, command.replace("--testbed lab", f"--testbed lab --listen unix:{path}"), shown)
            if "--testbed lab" in command:
                answers(path)
                assert supervisor.recv(4096).decode() == f"READY=1\nSTATUS=serving at unix:{path}"
            if command.startswith("ina audit"):
                check_answers(path)
    finally:
        ina("topo", "down", "--all")
    until = time.monotonic() + PATIENCE_S
    while path.exists():  # until it has ended in good order
        assert time.monotonic() < until
        time.sleep(0.05)
    assert supervisor.recv(4096).startswith(b"STOPPING=1")
    supervisor.close()
    written = (folder / "controller.log").read_text()
    assert re.search(r"info +\[decision=\d+ event=started jobs=urgent\] on (2 GPUs|GPU .*): ", written)
