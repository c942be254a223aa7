"""Groups of the service's jobs take turns, whatever becomes of the daemon, and go on where they saved."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from bmv2_topos.testbeds import netns
from hostlib.interleave.stages import STAGES
from tests.system.clusters import NETNS
from tests.system.command import WORKERS, until
from tests.system.controllers import PREFIX, Controller, laid_out

pytestmark = NETNS
BED = f"{PREFIX}groups"
CLUSTER = """
switch = ["s1", "s2"]
server = [
    {name = "left", switch = "s1", gpus = 1},
    {name = "right", switch = "s2", gpus = 1},
    {name = "sums", switch = "s1", gpus = 0},
]
link = [["s1", "s2"]]
"""
ENOUGH = 4
"""Iterations of each job of a group that are looked at, between two events."""


class Turn(NamedTuple):
    """A stage of a rank, by the clock that all processes share."""

    process: int
    iteration: int
    stage: str
    begin_s: float
    end_s: float


class Plan(NamedTuple):
    """What the daemon has a runner do: the stage at which each job starts its rounds."""

    run: int
    offsets: Mapping[str, int]


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[netns.State]:
    with laid_out(tmp_path_factory.mktemp("testbeds"), BED, CLUSTER) as up:
        yield up


def group(folder: Path, jobs: Mapping[str, Sequence[float]]) -> list[dict[str, object]]:
    """Return jobs with these stage times, of which each needs all GPUs."""
    turns = [sys.executable, str(WORKERS / "turns.py")]
    return [
        {
            **{"name": name, "workers": 2, "iterations": 100_000, "stages_s": list(stages_s)},
            "command": [*turns, str(folder / name), str(folder / "stop")],
        }
        for name, stages_s in jobs.items()
    ]


def runs(folder: Path, job: str) -> list[list[Turn]]:
    """Return what both ranks of a job have written down, by its starts."""
    found: list[list[Turn]] = []
    for rank in (0, 1):
        path = folder / f"{job}-{rank}"
        text = path.read_text() if path.exists() else ""
        whole, _, _ = text.rpartition("\n")  # the last line may be half written
        lines = (Turn(*json.loads(line)) for line in whole.splitlines())
        for number, (_, each) in enumerate(groupby(lines, key=lambda turn: turn.process)):
            found += [[]] * (number == len(found))
            found[number] = [*found[number], *each]
    return found


def done(folder: Path, job: str) -> int:
    """Return the latest iteration that a job has begun."""
    return max((turn.iteration for run in runs(folder, job) for turn in run), default=-1)


def plans(state: Path) -> list[Plan]:
    """Return what is being run, in order of starts."""
    orders = [json.loads(path.read_text()) for path in (state / "runs").glob("*/run.json")]
    found = [
        Plan(each["number"], {job["job"]["name"]: job["offset"] for job in each["jobs"]}) for each in orders
    ]
    return sorted(found)


def check_order(plan: Plan, jobs: Mapping[str, Sequence[Turn]]) -> int:
    """Check that jobs had their stages as the plan says; return the slots in which all had one.

    In slot s a job is at stage (offset + s) mod 4, all ranks of it, and one slot comes after the other.
    """
    seen = sorted(
        (turn.begin_s, turn.end_s, (STAGES.index(turn.stage) - plan.offsets[job]) % len(STAGES), job)
        for job, turns in jobs.items()
        for turn in turns
    )
    slots = [(slot, list(each)) for slot, each in groupby(seen, key=lambda turn: turn[2])]
    for (slot, turns), (later, after) in pairwise(slots):
        assert later == (slot + 1) % len(STAGES), (turns, after)
        assert max(end_s for _, end_s, _, _ in turns) < min(begin_s for begin_s, *_ in after)
    return sum(len({job for *_, job in turns}) == len(plan.offsets) for _, turns in slots)


def test_a_group_takes_turns_through_a_kill_of_the_daemon_and_goes_on_from_checkpoints(
    bed: netns.State, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    two = {"a": (0.04, 0.01, 0.01, 0.01), "b": (0.01, 0.04, 0.01, 0.01)}

    def go_on(*jobs: str) -> None:
        """Wait until these jobs have done some iterations more."""
        before = {job: done(tmp_path, job) for job in jobs}
        until(lambda: all(done(tmp_path, job) > before[job] + ENOUGH for job in jobs))

    def together(*jobs: str) -> Plan:
        """Wait until these jobs are in one run, and nobody else runs."""
        until(lambda: [{*plan.offsets} for plan in plans(state)] == [{*jobs}], 120.0)
        go_on(*jobs)
        return plans(state)[0]

    service = Controller(tmp_path, ["--testbed", BED, "--scheduler", "muri-s"])
    with service.serving() as client:
        client.submit(group(tmp_path, two))
        both = together("a", "b")
    killed_s = time.monotonic()
    go_on("a", "b")  # nobody is there but the runner
    with service.serving() as client:
        client.submit(group(tmp_path, {"c": (0.01, 0.01, 0.04, 0.01)}))
        three = together("a", "b", "c")
        told_s = time.monotonic()
        (tmp_path / "stop").touch()
        service.until(lambda: all(job["over"] for job in service.jobs().values()))
        found = {name: (job["state"], job["starts"]) for name, job in service.jobs().items()}
        assert found == {"a": ("completed", 2), "b": ("completed", 2), "c": ("completed", 1)}, service.said()
        service.until(service.clean)
    found_runs = {job: runs(tmp_path, job) for job in (*two, "c")}
    assert [len(each) for each in found_runs.values()] == [2, 2, 1]
    for job in two:
        before, after = ([turn.iteration for turn in run] for run in found_runs[job])
        assert max(before) <= min(after) <= max(before) + 1, f"{job} goes on elsewhere than it was"
        assert any(turn.begin_s > killed_s for turn in found_runs[job][0]), "the same processes went on"
    slots = check_order(both, {job: found_runs[job][0] for job in two})
    assert slots > 2 * ENOUGH
    until_told = {job: [turn for turn in each[-1] if turn.end_s < told_s] for job, each in found_runs.items()}
    assert check_order(three, until_told) > ENOUGH
