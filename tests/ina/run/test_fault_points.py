"""The daemon is killed after each of its steps, in virtual time, and there is a fault point after each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ina import faults
from tests.ina.run.schedule import CLUSTERS, Schedule, dying_at_each_step, play

INA = Path(faults.__file__).parent
OUTSIDE = {
    "run/effects.py": {
        *("_executor.start", "_executor.grant", "_executor.stop", "_executor.forget"),
        *("_network.admit", "_network.remove"),
    },
    "run/checks.py": {"fallbacks.serve"},
    "run/ledger.py": {
        "store.append",
        "store.hold",
        "store.remove_hold",
        "store.snapshot",
        "store.sync",
    },
    "run/loop.py": {"shutil.rmtree"},
    "run/network.py": {"_fleet.reconcile", "_fleet.admit", "_fleet.remove", "update_entries"},
    "run/launch/executor.py": {"files.write", "subprocess.Popen"},
    "run/external.py": {"files.write"},
    "run/fallback/process.py": {"at.hold"},
}
"""Calls by which something outside the daemon's memory changes."""
OF_PROCESSES = {"ordered", "asked to end"}
"""Points in what starts processes, of which there are none in virtual time."""


def steps(tree: ast.AST, calls: set[str]) -> Iterator[tuple[ast.stmt, ast.stmt | None]]:
    """Yield the statements with such calls, and the one that is carried out next; None: their caller's."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def after(node: ast.AST) -> ast.stmt | None:
        parent = parents[node]
        for _, block in ast.iter_fields(parent):
            if isinstance(block, list) and node in block and node is not block[-1]:
                following: ast.stmt = block[block.index(node) + 1]
                return following
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        assert not isinstance(parent, ast.For | ast.While), f"a step ends a round: {ast.unparse(node)}"
        return after(parent)

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and any(ast.unparse(node.func).endswith(call) for call in calls):
            statement: ast.AST = node
            while not isinstance(statement, ast.stmt):
                statement = parents[statement]
            yield statement, after(statement)


def is_point(statement: ast.stmt | None) -> bool:
    return statement is None or ast.unparse(statement).startswith("fault_point(")


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_fault_point_follows_each_call_that_leaves_something(name: str) -> None:
    """One that ends its function is followed by the point of who calls that."""
    tree = ast.parse((INA / name).read_text())
    assert all([*steps(tree, {call})] for call in OUTSIDE[name]), "each call has this name"
    found = list(steps(tree, OUTSIDE[name]))
    lacking = [f"{name}:{step.lineno}: {ast.unparse(step)}" for step, then in found if not is_point(then)]
    assert not lacking, lacking


def test_a_step_without_a_fault_point_is_noticed() -> None:
    tree = ast.parse("def f(self):\n    self._store.hold(1)\n    self.x = 1\n    fault_point('kept')\n")
    assert [is_point(then) for _, then in steps(tree, {"_store.hold"})] == [False]


def test_all_fault_points_are_named() -> None:
    used = {
        node.args[0].value
        for path in INA.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "fault_point"
        if isinstance(node.args[0], ast.Constant)
    }
    assert used == set(faults.POINTS)
    assert len(faults.POINTS) == len(used)


async def life(schedule: Schedule) -> None:
    """Jobs come and end, move, are cancelled, lose a runner, and get other slots; a run is found astray."""
    world, job = schedule.world, schedule.job
    wide = job("wide", 4.0, workers=4)
    await schedule.ask(lambda daemon: daemon.submit([wide], key="wide"))
    await schedule.until(lambda daemon: daemon.reports.record("wide").state == "running" and bool(world.runs))
    world.switches["s1"].wipe()
    (number,) = world.runs
    world.runs[99] = world.runs[number].again()  # as if a daemon had died that had started it
    schedule.kill()
    await schedule.until(lambda daemon: 99 not in world.runs)
    await schedule.ask(lambda daemon: daemon.drain("h1"))
    await schedule.until(lambda daemon: daemon.reports.record("wide").state == "queued")
    await schedule.ask(lambda daemon: daemon.drain("h1", back=True))
    await schedule.until(lambda daemon: daemon.reports.record("wide").over)
    pair = [job("patient", 1.0, workers=2), job("urgent", 1.0, workers=2, deadline_s=100.0)]
    await schedule.ask(lambda daemon: daemon.submit(pair, key="pair"))
    await schedule.until(lambda daemon: bool(world.runs))
    for run in [*world.runs]:
        world.kill(run)
    gone = job("gone", 100.0, workers=1)
    await schedule.ask(lambda daemon: daemon.submit([gone], key="gone"))
    await schedule.ask(lambda daemon: daemon.cancel("gone"))


def test_jobs_are_done_once_and_nothing_stays_wherever_the_daemon_dies() -> None:
    """After each step of a life in which every kind of step occurs, each entry of a switch included."""
    whole = play(1, life, CLUSTERS[0])
    assert set(whole.passed) - {"written"} == set(faults.POINTS) - OF_PROCESSES
    assert {name: state for name, (state, _) in whole.ends.items()} == {
        "wide": "completed",
        "patient": "completed",
        "urgent": "completed",
        "gone": "cancelled",
    }
    dying_at_each_step(whole, life)
