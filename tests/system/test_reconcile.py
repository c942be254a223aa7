"""Reconciling over P4Runtime: a switch that was started anew is as before, and nothing else is written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from controller import Deployment, Fleet, SwitchSession, TreeAdmission, Uplink
from controller.p4runtime_shim.target import P4RuntimeTarget
from controller.switches.fleet import ReconcileReport
from ina.run.switches.programs import bundle
from ina.run.switches.switch_process import EmbeddedSwitch
from tests.controller.failing import Recording
from tests.controller.trees import switch

LANES = 32
FALLBACK = Uplink(6, "02:00:00:00:fb:01", "10.0.1.1")
PATIENCE_S = 120


class Bed:
    """Two switches, each a process, reached over P4Runtime."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.processes = {name: stack.enter_context(self.start(name)) for name in ("root", "a")}
        self.targets = {
            name: Recording(P4RuntimeTarget(process.address)) for name, process in self.processes.items()
        }
        for target in self.targets.values():
            stack.callback(target.close)
        self.fleet = Fleet({name: SwitchSession(target) for name, target in self.targets.items()})

    def start(self, name: str) -> EmbeddedSwitch:
        ports = [word for port in range(7) for word in ("--port", f"{port}=memory")]
        return EmbeddedSwitch(ports, p4runtime=f"unix:{self.folder / name}")

    def written(self) -> dict[str, int]:
        """Take how many entries were written to which switch since this was asked last."""
        found = {name: len(target.writes) for name, target in self.targets.items() if target.writes}
        for target in self.targets.values():
            target.writes.clear()
            target.turns = 0
        return found


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with ExitStack() as stack:
        yield Bed(tmp_path, stack)


def jobs(bed: Bed) -> list[TreeAdmission]:
    trees = switch("root", switch("a", 0, 1), 2), switch("a", 0), switch("root", 0, 1)
    deployments = [Deployment(tree, window=8, mode="shared", fallback=FALLBACK) for tree in trees]
    return [bed.fleet.admit(deployment) for deployment in deployments]


def test_a_switch_started_anew_is_programmed_as_before_and_the_other_is_left_alone(bed: Bed) -> None:
    program = bundle("shared", LANES)
    report = bed.fleet.reconcile([], program=program)
    assert [(action.verb, action.switch) for action in report.actions] == [("load", "root"), ("load", "a")]
    desired = jobs(bed)
    before = bed.fleet.read()
    bed.written()

    assert bed.fleet.reconcile(desired, program=program) == ReconcileReport(())
    assert [target.turns for target in bed.targets.values()] == [0, 0], "nothing to do takes no turn"

    bed.processes["a"].stop()
    report = bed.fleet.reconcile(desired, program=program)
    assert report.actions == ()
    assert list(report.left_out) == ["a"]
    assert "does not answer" in report.left_out["a"]
    assert not report.done

    with bed.start("a") as anew:
        assert anew.address
        deadline = time.monotonic() + PATIENCE_S
        while not report.done and time.monotonic() < deadline:  # until gRPC has found it
            report = bed.fleet.reconcile(desired, program=program)
        done = [(action.verb, action.switch, action.job) for action in report.actions]
        assert done == [("load", "a", 0), *(("add", "a", tree.job) for tree in desired[:2])]
        assert all("it is not there" in str(action) for action in report.actions[1:])
        assert set(bed.written()) == {"a"}
        assert bed.fleet.read() == before
        assert bed.fleet.reconcile(desired, program=program) == ReconcileReport(())
        assert bed.written() == {}
        assert [target.turns for target in bed.targets.values()] == [0, 0]
