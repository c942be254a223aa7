"""Everything that a run starts ends with it, and a run that is interrupted says what it has done so far."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hostlib.launch.launcher import cannot_run
from tests.system.command import begun, children, ended, finish, ina, refused, runs, start, until, worker

LANES = ("--lanes", 32)


def family(pid: int) -> set[int]:
    """Return the descendants of a process."""
    found = set(children(pid))
    for child in list(found):
        found |= family(child)
    return found


@pytest.mark.parametrize("where", ["", ">/dev/null 2>&1"], ids=["holds the pipes", "holds nothing"])
def test_what_a_worker_leaves_running_is_ended_and_does_not_hold_up_the_run(where: str) -> None:
    done = ina("run", *LANES, "--", "sh", "-c", f"sleep 600 {where} & echo $! started", status=0)
    assert done.stderr == "ina: warning: the workers left 1 process running; ended now\n"
    assert not runs(int(done.stdout.split()[0]))


def test_what_ends_soon_after_its_worker_is_waited_for_and_no_word_said() -> None:
    done = ina("run", *LANES, "--", "sh", "-c", "seq 30000 | cat & true", status=0)
    assert done.stdout.split("summary")[0] == "".join(f"{i}\n" for i in range(1, 30001))
    assert done.stderr == ""


SHARED = ("--program", "shared")


def sleeps(trap: str = "") -> tuple[object, ...]:
    return ("--", "sh", "-c", f"{trap} sleep 600 & echo started; sleep 600; true")


ENDS: dict[str, tuple[tuple[object, ...], Sequence[object], int, signal.Signals, int]] = {
    "workers that sleep": (("-np", 2), sleeps(), 2, signal.SIGKILL, 2 + 2 * 3),
    "workers that sleep, and are stubborn": (
        *(("-np", 2), sleeps("trap '' TERM HUP INT;"), 2),
        *(signal.SIGKILL, 2 + 2 * 3),
    ),
    "its switch and its worker's children": ((), sleeps(), 1, signal.SIGHUP, 2 + 3),
    "a fallback server": (("-np", 2, *SHARED), worker("sums.py"), 2, signal.SIGKILL, 1 + 1 + 2 + 1),
    "all its switches and its fallback server": (
        *((*SHARED, "--tree", "2x2"), worker("sums.py"), 4),
        *(signal.SIGINT, 3 + 1 + 4 + 1),
    ),
}
"""Options, command, workers that say that they started, the signal that ends the run, its processes then."""


@pytest.mark.parametrize(("options", "command", "workers", "number", "processes"), ENDS.values(), ids=ENDS)
def test_an_ended_run_takes_along(
    options: tuple[object, ...],
    command: Sequence[object],
    workers: int,
    number: signal.Signals,
    processes: int,
) -> None:
    process = begun(start("run", *LANES, *options, *command), workers)
    until(lambda: len(family(process.pid)) == processes, state=lambda: family(process.pid))
    all_of_them = family(process.pid)
    process.send_signal(number)
    if number == signal.SIGHUP:  # the shell and the kernel send it; a service manager sends SIGTERM, too
        process.send_signal(signal.SIGTERM)
        until(lambda: process.send_signal(number) or process.poll() is not None)
    process.communicate()  # until those that write there, too, have ended
    if number == signal.SIGKILL:
        assert process.returncode == -number
        until(lambda: not any(map(runs, all_of_them)))
    else:
        assert process.returncode == 128 + number
        assert not any(map(runs, all_of_them))


def test_a_worker_that_left_its_process_group_ends_with_a_run_that_is_terminated() -> None:
    process = begun(start("run", *LANES, "--", "setsid", "sh", "-c", "echo started; sleep 600; true"), 1)
    all_of_them = family(process.pid)
    assert ended(process, by=signal.SIGTERM)[0] == 128 + signal.SIGTERM
    left = set(filter(runs, all_of_them))
    for pid in left:  # its own child is out of reach (docs/reference/limitations.md)
        os.kill(pid, signal.SIGKILL)
    assert len(left) <= 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_what_was_ended_and_gives_its_summary_so_far(number: signal.Signals) -> None:
    stalls = worker("sums.py", "--times", 20, "--victim", 0, "--stall-at", 10)
    process = begun(start("run", "-np", 2, *LANES, *stalls), 2)
    process.send_signal(number)
    output, errors = finish(process, 128 + number)
    assert re.fullmatch(rf"ina: interrupted by {number.name} after [\d.,]+ m?s; ended 2 workers\n", errors)
    assert "allreduces" in output


def test_an_interrupted_run_of_a_job_file_tells_its_jobs_apart(
    write_file: Callable[[str, str], Path],
) -> None:
    file = write_file(
        "jobs.toml",
        "[[job]]\nname = 'short'\nworkers = 1\ncommand = 'echo over'\n"
        "[[job]]\nname = 'bad'\nworkers = 1\ncommand = 'sh -c \"echo failing; exit 3\"'\n"
        "[[job]]\nname = 'long'\nworkers = 2\ncommand = 'sh -c \"echo started; sleep 600\"'\n"
        "[[job]]\nname = 'late'\nworkers = 1\ncommand = 'true'\narrival_s = 600\n",
    )
    process = start("run", *LANES, "--jobs", file, "--json")
    said = {process.stderr.readline() for _ in range(4)}
    assert said == {"[short:0] over\n", "[bad:0] failing\n", "[long:0] started\n", "[long:1] started\n"}
    (keeper,) = _keepers_of_one_job_left(process.pid)
    process.terminate()
    output, errors = finish(process, 128 + signal.SIGTERM)
    first, second = errors.splitlines()
    assert first == "ina: job bad: rank 0 exited with status 3"
    assert re.fullmatch(r"ina: interrupted by SIGTERM after [\d.,]+ m?s; ended 2 workers of long", second)
    assert set(json.loads(output)["jobs"]) == {"short", "bad", "long"}
    assert not runs(keeper)


def _keepers_of_one_job_left(pid: int) -> list[int]:
    """Wait until one job only has a keeper: the others have ended."""

    def keepers() -> list[int]:
        return [child for child, line in children(pid).items() if "keeper.py" in line]

    until(lambda: len(keepers()) == 1)
    return keepers()


def test_a_python_file_that_is_given_as_the_command_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.touch()
    assert (
        str(cannot_run("train.py", "No such file"))
        == "cannot run 'train.py': No such file; use 'python train.py'"
    )
    assert str(cannot_run("gone.py", "No such file")) == "cannot run 'gone.py': No such file"
    said = refused("run", "-np", 2, "--", script, status=1)
    assert said == f"ina: cannot run '{script}': Permission denied; use 'python {script}'\n"
