"""Everything that a run starts ends with it, and a run that is interrupted says what it has done so far."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from hostlib.launch.launcher import cannot_run
from tests.system.command import begun, children, here, ina, start, worker

LANES = ("--lanes", 32)
STOP_S = 60.0


def family(pid: int) -> set[int]:
    """Return the descendants of a process."""
    found = set(children(pid))
    for child in list(found):
        found |= family(child)
    return found


def runs(pid: int) -> bool:
    """Return whether a process is there and no zombie."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def end(pids: set[int]) -> set[int]:
    """Wait until processes have ended; return those that have not, made to."""
    deadline = time.monotonic() + STOP_S
    while any(map(runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = set(filter(runs, pids))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


@pytest.mark.parametrize("where", ["", ">/dev/null 2>&1"], ids=["holds the pipes", "holds nothing"])
def test_what_a_worker_leaves_running_is_ended_and_does_not_hold_up_the_run(where: str) -> None:
    done = ina("run", *LANES, "--", "sh", "-c", f"sleep 600 {where} & echo $! started")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "ina: warning: the workers left 1 process running, which is now ended\n"
    assert not runs(int(done.stdout.split()[0]))


def test_what_ends_soon_after_its_worker_is_waited_for_and_no_word_said() -> None:
    done = ina("run", *LANES, "--", "sh", "-c", "seq 30000 | cat & true")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("summary")[0] == "".join(f"{i}\n" for i in range(1, 30001))
    assert done.stderr == ""


@pytest.mark.parametrize("trap", ["", "trap '' TERM HUP INT;"], ids=["polite", "stubborn"])
def test_all_processes_end_with_a_run_that_is_killed_while_workers_sleep(trap: str) -> None:
    process = start(
        "run", "-np", 2, *LANES, "--", "sh", "-c", f"{trap} sleep 600 & echo started; sleep 600; true"
    )
    begun(process, 2)
    all_of_them = family(process.pid)
    assert len(all_of_them) >= 1 + 1 + 2 * 2  # the switch, the keeper, each worker and its child
    process.kill()
    process.communicate()
    assert not end(all_of_them)


def test_a_worker_that_left_its_process_group_ends_with_a_run_that_is_terminated() -> None:
    process = start("run", *LANES, "--", "setsid", "sh", "-c", "echo started; sleep 600; true")
    begun(process, 1)
    all_of_them = family(process.pid)
    process.terminate()
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    left = set(filter(runs, all_of_them))
    for pid in left:  # its own child is out of reach (docs/limitations.md)
        os.kill(pid, signal.SIGKILL)
    assert len(left) <= 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_what_was_ended_and_gives_its_summary_so_far(number: signal.Signals) -> None:
    process = start(
        "run", "-np", 2, *LANES, *worker("sums.py", "--times", 20, "--victim", 0, "--stall-at", 10)
    )
    begun(process, 2)
    process.send_signal(number)
    output, errors = process.communicate()
    assert process.returncode == 128 + number
    assert re.fullmatch(rf"ina: interrupted by {number.name} after [\d.,]+ m?s; ended 2 workers\n", errors)
    assert "allreduces" in output


def test_an_interrupted_run_of_a_job_file_tells_its_jobs_apart(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(
        "[[job]]\nname = 'short'\nworkers = 1\ncommand = 'echo over'\n"
        "[[job]]\nname = 'bad'\nworkers = 1\ncommand = 'sh -c \"echo failing; exit 3\"'\n"
        "[[job]]\nname = 'long'\nworkers = 2\ncommand = 'sh -c \"echo started; sleep 600\"'\n"
        "[[job]]\nname = 'late'\nworkers = 1\ncommand = 'true'\narrival_s = 600\n"
    )
    process = start("run", *LANES, "--jobs", file, "--json")
    stream = process.stderr
    assert stream is not None
    said = {stream.readline() for _ in range(4)}
    assert said == {"[short:0] over\n", "[bad:0] failing\n", "[long:0] started\n", "[long:1] started\n"}
    (keeper,) = _keepers_of_one_job_left(process.pid)
    process.terminate()
    output, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    first, second = errors.splitlines()
    assert first == "ina: job bad: rank 0 exited with status 3"
    assert re.fullmatch(r"ina: interrupted by SIGTERM after [\d.,]+ m?s; ended 2 workers of long", second)
    assert set(json.loads(output)["jobs"]) == {"short", "bad", "long"}
    assert not runs(keeper)


def _keepers_of_one_job_left(pid: int) -> list[int]:
    """Wait until one job only has a keeper: the others have ended."""
    deadline = time.monotonic() + STOP_S
    while len(found := [child for child, line in children(pid).items() if "keeper.py" in line]) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_python_file_that_is_given_as_the_command_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.touch()
    assert (
        str(cannot_run("train.py", "No such file"))
        == "cannot run 'train.py': No such file; want 'python train.py'"
    )
    assert str(cannot_run("gone.py", "No such file")) == "cannot run 'gone.py': No such file"
    done = here("run", "-np", 2, "--", script)
    assert done.returncode == 1
    assert done.stderr == f"ina: cannot run '{script}': Permission denied; want 'python {script}'\n"
