"""A researcher's own copy of a program runs wherever a program of p4src does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.programs import COUNTING, EVICTION, WITHOUT_PRIORITY, WITHOUT_UPLINK, copied
from tests.system.attached import Attached, open_switch
from tests.system.command import PATIENT, good, refused, report, worker

LANES = ("--lanes", 32)
SUMS = worker("exact.py", 1, 5000)
JOBS = """
[[job]]
name = "a"
workers = 2
layers_bytes = [20000]
iterations = 2
compute_s = 0.0001
straggler = { rank = 1, compute_s = 0.001 }
priority = 7
preempt = true

[[job]]
name = "b"
workers = 2
layers_bytes = [20000]
iterations = 2
priority = 7
preempt = true
"""
SCENARIO = """
summary = "two ranks on a program of one's own"
topology = "single-switch:3"
program = "shared.p4"

[[job]]
name = "a"
workers = 2
slots = 16
layers_bytes = [8000]
iterations = 2
"""


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a kind of copy, which is made once."""
    base = tmp_path_factory.mktemp("copies")
    edits = {
        "plain": (),
        "edited": (*COUNTING, EVICTION),
        "unranked": (WITHOUT_PRIORITY,),
        "cut": (WITHOUT_UPLINK,),
    }

    def get(kind: str) -> Path:
        folder = base / kind
        return folder if folder.exists() else copied(folder, *edits[kind])

    return get


@pytest.mark.parametrize(
    ("kind", "program", "options"),
    [
        ("plain", "atp", ("--slots", 16)),
        ("edited", "shared", ("--slots", 16, "--preempt")),
        ("unranked", "shared", ("--slots", 16, "--tree", "2x1")),
    ],
)
def test_a_copy_runs_on_sockets(
    copies: Callable[[str], Path], kind: str, program: str, options: tuple[object, ...]
) -> None:
    path = copies(kind) / f"{program}.p4"
    result = report("run", "-np", 2, *PATIENT, *LANES, "--program", path, *options, *SUMS)
    assert result["setup"]["program"] == str(path)
    assert result["metrics"]["switch_completed_packets"] > 0


@pytest.mark.parametrize("kind", ["plain", "edited"])
def test_a_copy_runs_in_virtual_time(
    copies: Callable[[str], Path], write_file: Callable[[str, str], Path], kind: str
) -> None:
    jobs = write_file("jobs.toml", JOBS)
    ours, own = (
        report("sim", jobs, "--program", program, "--lanes", 32, "--slots", 8)["jobs"]
        for program in ("shared", copies(kind) / "shared.p4")
    )
    assert (own == ours) == (kind == "plain"), "another eviction rule evicts others"


def test_a_copy_runs_in_soak_and_its_failures_are_replayed_with_it(copies: Callable[[str], Path]) -> None:
    path = copies("edited") / "shared.p4"
    assert (
        report("soak", "--program", path, "--seed", 0, "--schedules", 20, "--processes", 1)["metrics"][
            "happened"
        ]["switch: preempted"]
        > 0
    )
    said = good("soak", "--program", path, "--replay", 3).stdout
    assert "1 schedule in " in said
    assert "per second" not in said, "of one alone"


def test_a_copy_runs_in_a_scenario_beside_its_file(copies: Callable[[str], Path]) -> None:
    folder = copies("edited")
    (folder / "own.toml").write_text(SCENARIO)
    for runner in ("virtual", "loopback"):
        good("scenario", "run", folder / "own.toml", "--runner", runner)
    (folder / "none.toml").write_text(SCENARIO.replace("shared.p4", "none.p4"))
    assert "none.p4" in refused("scenario", "run", folder / "none.toml")


@pytest.fixture(scope="module")
def attached(copies: Callable[[str], Path]) -> Attached:
    with open_switch("--program", copies("edited") / "shared.p4", *LANES) as switch:
        yield switch


def test_a_switch_with_an_edited_program_is_attached_to_if_no_file_is_asked_for(attached: Attached) -> None:
    run = ("run", "-np", 2, *PATIENT, *attached.options, "--slots", 16)
    assert report(*run, *SUMS)["setup"]["lanes"] == 32, "as many as the switch's program has"
    done = good(*run, "--program", "shared", *SUMS)
    assert "runs another program than 'shared', which stays because it serves the same jobs" in done.stderr


def test_a_file_is_asked_for_as_it_is(attached: Attached, copies: Callable[[str], Path]) -> None:
    path = copies("plain") / "shared.p4"
    errors = refused("run", "-np", 2, *LANES, *attached.options, "--slots", 16, "--program", path, *SUMS)
    assert f"runs another program than '{path}' (it serves the same jobs, but is compiled from" in errors
    assert errors.endswith("give --replace-program to replace it\n")


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (
            "unranked",
            ("--preempt",),
            "--preempt: the program {path} has no priorities: it lacks register"
            " 'InaIngress.aggregator.slot_priority'; want a program with priorities, such as --program"
            " shared",
        ),
        (
            "cut",
            (),
            "the program {path} is not one for aggregation: it lacks table 'InaIngress.uplink.uplink'",
        ),
    ],
)
def test_what_is_missing_is_named(
    copies: Callable[[str], Path], kind: str, options: tuple[object, ...], said: str
) -> None:
    path = copies(kind) / "shared.p4"
    errors = refused("run", "-np", 2, *LANES, "--program", path, "--slots", 16, *options, *SUMS)
    assert said.format(path=path) in errors


def test_a_job_of_a_file_that_wants_what_the_program_lacks_is_refused_by_name(
    copies: Callable[[str], Path], write_file: Callable[[str, str], Path]
) -> None:
    jobs = write_file("jobs.toml", JOBS)
    said = refused("sim", jobs, "--program", copies("unranked") / "shared.p4", "--lanes", 32)
    assert "lacks register 'InaIngress.aggregator.slot_priority', which jobs with preemption need" in said
