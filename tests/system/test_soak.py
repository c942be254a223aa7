"""The invariants over thousands of random schedules, and the command that runs more of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import p4src
from bmv2_topos.soak import ProcessDied, draw_schedule, missing, replay, soak
from bmv2_topos.soak.campaign import SwitchPools
from bmv2_topos.soak.draw import draw_testbed
from bmv2_topos.soak.network import PacketLog
from bmv2_topos.soak.run import Tally, run_schedule
from bmv2_topos.soak.schedule import TESTBED_SEEDS, Defector
from bmv2_topos.soak.testbed import RunningTestbed, SwitchPool
from controller import Mode
from ina.cli.command import USAGE, Failure
from ina.cli.commands import app
from tests import effort
from tests.interrupts import interrupted
from tests.system.faults_mutants import PROGRAMS

SCHEDULES = effort.cases(2048)
NEW_SCHEDULES = effort.cases(768)
NEW_DEATHS = 64
TNA = str(Path(p4src.__file__).with_name("tna") / "{}.p4")
MOST = 16_384
"""Schedules within which everything has to happen; a run with `effort.THOROUGH` goes on until it has."""


def held(
    first: int, schedules: int, enough: Callable[[Tally], bool] = lambda tally: False, **more: Any
) -> Tally:
    """Run schedules, until they are `enough`; fail at the first that breaks an invariant."""
    tally = Tally()
    for tally in soak(first, schedules=schedules, **more):
        for failure in tally.failures:
            pytest.fail(f"{failure.reason}\n{failure.schedule}\n{failure.command}")
        if enough(tally):
            break
    return tally


@pytest.mark.slow
def test_the_invariants_hold_over_random_schedules() -> None:
    def enough(tally: Tally) -> bool:
        return tally.schedules >= SCHEDULES and not (effort.THOROUGH and missing(tally.counts))

    tally = held(0, MOST, enough)
    assert tally.schedules >= SCHEDULES
    # rare things need more schedules than a usual run has
    assert [what for what in missing(tally.counts) if effort.THOROUGH or what.startswith("kind: ")] == []


@pytest.mark.parametrize(
    ("seed", "own"),
    [
        # rank 2 dies, rank 0 waits for what only rank 2 had, and rank 1 heard last of the switch that lacks
        # rank 0: its error named rank 0 alone
        pytest.param(
            158169123596547, None, id="who died is named by those who wait for one that waits for it"
        ),
        # late copies of what all had filled the fallback server's memory; ranks without the sum answered its
        # reminders with their contributions, from which it could not tell that
        pytest.param(2026112600562, None, id="late copies do not keep the fallback server's memory"),
        # what an answer to a reminder brought had to be dropped, for an earlier packet had the memory; when
        # that was finished, nobody asked again before the longest time-out
        pytest.param(2026113332851, None, id="the fallback server asks again for what it had no room for"),
        # the owner of a shard lost its sum, what it had sent again was alone in a slot, and only its second
        # time-out at their longest would have taken that along
        pytest.param(
            2026113088018, None, id="a status at the longest time-out takes along what is in the slot"
        ),
        # a rank had lost a result and believed itself counted; it asked for one such packet in a time-out,
        # and not for that one, while reminders asked for packets that it could not send without it
        pytest.param(
            918384, None, id="a reminder of what waits for a lost result makes the rank ask for that"
        ),
        pytest.param(
            77020675, None, id="a rank whose clipped window waits for a lost result asks for that first"
        ),
        # of two packets counted in private slots only the first was ever asked for
        pytest.param(3000000009521, None, id="all of a few counted packets are asked for in a long time-out"),
        # the fallback server refused a result without lanes that its reminder had pulled from a slot
        pytest.param(160030, None, id="a result to which nobody gave lanes finishes what the server lacks"),
        # on programs for Tofino
        # refused packets were counted as contributions of no job
        pytest.param(6, "shared", id="packets of no job are counted as such"),
        # a packet that asked joined the slot that its sum had left; the reminder then took that, each time,
        # and never reached the ranks that had the result
        pytest.param(77001298, "shared", id="what is sent again does not begin a sum"),
        # a switch below the root sent a result again with its own fan-in, which the switch below it refused
        pytest.param(289, "exclusive", id="a result that is sent again is the job's, three levels down"),
    ],
)
def test_a_schedule_that_broke_an_invariant_holds_it_now(seed: int, own: str | None) -> None:
    tally, _ = replay(seed, own=own and TNA.format(own))
    assert [failure.reason for failure in tally.failures] == []


def test_late_answers_do_not_take_the_least_memory_of_a_fallback_server() -> None:
    """Ranks that had a result sent what they had contributed, after it was finished and forgotten.

    Each such answer began it anew, with a lower PSN than the one that all ranks lacked.
    """
    schedule = replace(draw_schedule(4100000036142), server_capacity=3)
    racks = SwitchPools()
    with RunningTestbed(schedule.testbed, racks.get(schedule.testbed.program)) as built:
        course = run_schedule(schedule, built)
    racks.close()
    assert max(recovery.share for recovery in course.recoveries) < 0.5
    assert course.counts["server: unasked"]


@pytest.mark.parametrize("own", [None, "exclusive", "shared"])
def test_schedules_that_nobody_has_run_hold_the_invariants(own: str | None) -> None:
    """Fixed seeds find nothing new: every run of the tests draws some of its own, and says which."""
    program, first = own and TNA.format(own), secrets.randbelow(1 << 48)
    print(f"ina soak --program {program} --seed {first} --schedules {NEW_SCHEDULES}")
    tally = held(first, NEW_SCHEDULES, processes=1, own=program)
    assert tally.schedules == NEW_SCHEDULES
    assert tally.counts["switch: completed"] > NEW_SCHEDULES


def test_whoever_waits_for_a_rank_that_died_names_it_in_schedules_that_nobody_has_run() -> None:
    """One in 130 jobs loses a rank in drawn schedules; here all do, so that time-outs of many ranks meet.

    The soak's own check: whoever gives up and names somebody names the dead rank.
    """
    first = secrets.randbelow(1 << 40) * TESTBED_SEEDS
    print(f"first seed of schedules in which a rank of each job dies: {first}")
    racks, raised = SwitchPools(), 0
    for number in range(NEW_DEATHS):
        seed = first + number // 4 * TESTBED_SEEDS + number % 4  # four schedules of each testbed
        schedule = draw_schedule(seed)
        ranks = [len(placement.workers) for placement in schedule.testbed.placements]
        jobs = tuple(
            replace(job, defector=Defector(seed % size, dies=True) if size > 1 else None)
            for job, size in zip(schedule.jobs, ranks, strict=True)
        )
        with RunningTestbed(schedule.testbed, racks.get(schedule.testbed.program)) as built:
            course = run_schedule(replace(schedule, jobs=jobs), built)
        raised += course.counts["worker: raised PeerTimeout"]
    racks.close()
    assert raised > NEW_DEATHS / 4


@pytest.mark.parametrize("number", [0, 3])
def test_a_schedule_is_the_same_alone_as_after_others(number: int) -> None:
    testbed = draw_testbed(number)
    first, last = number * TESTBED_SEEDS, number * TESTBED_SEEDS + TESTBED_SEEDS - 1
    racks = SwitchPools()
    rack = racks.get(testbed.program)
    alone, after_others = [], []
    for seed in range(first, last + 1, 5):
        log = PacketLog(100_000)
        with RunningTestbed(testbed, rack) as built:
            run_schedule(draw_schedule(seed), built, log)
        alone.append(log.lines())
    with RunningTestbed(testbed, rack) as built:
        for seed in range(first, last + 1):
            log = PacketLog(100_000)
            run_schedule(draw_schedule(seed, testbed), built, log)
            if (seed - first) % 5 == 0:
                after_others.append(log.lines())
    racks.close()
    assert alone == after_others
    assert all(lines for lines in alone)


def run_command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["soak", *map(str, arguments)], env={"COLUMNS": "200", "NO_COLOR": "1"})


def test_the_command_counts_what_happened() -> None:
    done = run_command("--seed", 7, "--schedules", 50, "--processes", 1, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["setup"]["seed"] == 7
    metrics = found["metrics"]
    assert metrics["schedules"] == 50
    assert metrics["failures"] == []
    assert metrics["happened"]["worker: results"] > 500
    assert metrics["recoveries"] > 10
    median, worst = (metrics[f"recovery_round_trips_per_packet_{which}"] for which in ("median", "worst"))
    assert 0 < median <= worst
    assert 7 <= metrics["recovery_worst_seed"] < 57
    assert 0 < metrics["recovery_largest_share_of_allowed"] <= 1
    assert "switch: aggregated" not in metrics["never_happened"]


def test_the_command_ends_when_time_is_up() -> None:
    done = run_command("--minutes", 0.001, "--processes", 1)
    assert done.exit_code == 0, done.output
    assert re.search(r"^[1-9]\d* schedules? in", done.stdout, re.MULTILINE)
    assert "all invariants held" in done.stdout


def test_invariants_do_not_hold_if_nothing_has_run() -> None:
    done = run_command("--minutes", 0, "--processes", 1)
    assert done.stdout == ""
    assert isinstance(done.exception, Failure)
    assert (str(done.exception), done.exception.exit_code) == (
        "--minutes 0: too short for a single schedule",
        USAGE,
    )


def test_a_failure_is_shown_with_its_schedule_and_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = PROGRAMS["a contributor's bit is not looked at"].compile()

    def take_broken(program: Mode, own: str | None) -> SwitchPool:
        assert program == "shared"
        return SwitchPool(broken)

    monkeypatch.setattr(SwitchPool, "for_program", take_broken)
    seed = next(seed for seed in range(100) if _fails(seed))
    done = run_command("--replay", seed, "--packets", 5)
    assert done.exit_code == 1
    assert draw_schedule(seed).describe() in done.stdout
    assert f"ina soak --replay {seed}" in str(done.exception)
    assert "elements are wrong" in str(done.exception)
    assert done.stdout.count(" us  ") == 5


def _fails(seed: int) -> bool:
    if draw_schedule(seed).testbed.program != "shared":
        return False
    tally, _ = replay(seed)
    return bool(tally.failures)


def test_a_process_that_dies_is_told_of_with_its_seeds() -> None:
    running = soak(96, processes=1)
    next(running)
    for child in multiprocessing.active_children():
        child.kill()
    with pytest.raises(ProcessDied, match=r"of these seeds were running: \d+\.\.\d+"):
        for _ in running:
            pass


def test_a_replay_goes_without_what_a_campaign_takes() -> None:
    done = run_command("--replay", 1, "--minutes", 1)
    assert done.exception is not None
    assert "--replay is mutually exclusive with" in str(done.exception)


def test_an_interrupt_of_all_processes_is_told_once() -> None:
    """As a terminal interrupts them; those that still loaded their modules wrote tracebacks."""
    status, out, said = interrupted("soak", "--minutes", 5, loaded="_multiarray_umath")
    assert status == 128 + signal.SIGINT
    assert (out, said) == ("", "ina: interrupted by SIGINT\n")


def test_an_interrupted_campaign_prints_the_result_of_the_schedules_that_are_done() -> None:
    """Hours of schedules without a failure count, whenever they end."""
    screen, terminal = os.openpty()
    command = [sys.executable, "-m", "ina", "soak", "--minutes", "60", "--processes", "1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        while not (done := re.search(rb"([1-9]\d*) schedules?,", shown)):
            shown += os.read(screen, 4096)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=600)
    os.close(screen)
    assert process.returncode == 128 + signal.SIGINT
    assert json.loads(out)["metrics"]["schedules"] >= int(done[1])
