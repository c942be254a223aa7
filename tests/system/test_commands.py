"""The commands: declared once, read when they are used, with the oldest and the newest dependencies."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from controller import OtherProgram
from ina.cli.command import FAILED, INTERNAL, USAGE
from ina.cli.commands import app, found_at, unfold
from ina.cli.errors import verdict
from ina.errors import (
    AddressTaken,
    BadRun,
    GroupFailed,
    ProcessFailed,
    StagesNotMeasured,
    WorkerFailed,
)
from tests import effort
from tests.system.command import ENVIRONMENT, ROOT

# --------------------------------------------------------------------- commands are imported when the


def commands(group: typer.Typer, path: str = "ina") -> dict[str, tuple[str, object]]:
    """Return the line that a group's page has for each command, and what it stands for."""
    found: dict[str, tuple[str, object]] = {}
    for info in group.registered_commands:
        thing = found_at(place) if isinstance(place := info.callback.place, str) else place
        name = f"{path} {info.name}"
        found[name] = (info.help or "", thing)
        if isinstance(thing, typer.Typer):
            found |= commands(thing, name)
    return found


COMMANDS = commands(app)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_line_of_help_is_the_first_of_the_command_itself(name: str) -> None:
    line, thing = COMMANDS[name]
    text = thing.info.help if isinstance(thing, typer.Typer) else inspect.getdoc(thing)
    assert unfold(text).split("\n\n")[0] == line


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["schedule", "--help"], ["bench"]])
def test_help_imports_no_command(arguments: list[str]) -> None:
    script = (
        "import sys; sys.argv[1:] = sys.argv[1:]\n"
        "from ina.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print(sorted(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 2), done.stderr
    loaded = done.stderr.splitlines()[-1]
    assert "'ina.cli.commands'" in loaded
    for heavy in ("numpy", "grpc", "hostlib", "softswitch", "ina.cli.run"):
        assert f"'{heavy}'" not in loaded


@pytest.mark.parametrize(
    ("module", "unneeded"),
    [
        ("ina.cli.run, ina.cli.execute", ("numpy", "softswitch.compiler.ir", "hostlib.core.window")),
        ("ina.cli.admit", ("numpy", "softswitch.compiler.ir", "hostlib.core.window")),
        ("ina.run.launch.agent", ("numpy", "grpc")),  # it starts ranks
        ("ina.cli.fallback", ("grpc", "softswitch")),  # a server sums, and one of a machine starts another
        (
            "ina.cli.switch",
            ("numpy", "controller", "hostlib.job", "hostlib.meet"),
        ),  # the protocol's version only
        (
            "ina.run.launch.runner",
            ("numpy", "grpc", "softswitch", "controller.core", "controller.switches.fleet"),
        ),
    ],
)
def test_what_runs_start_loads_nothing_that_it_does_not_need(module: str, unneeded: tuple[str, ...]) -> None:
    """That was a tenth to a half of its start."""
    script = f"import sys, {module}; print({{*{unneeded}}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout == b"set()\n"


# --------------------------------------------------------------------- the command line and ranks wit


RANK = "import hostlib; hostlib.init(); print(hostlib.allreduce([1.0, 2.0]).tolist()); hostlib.shutdown()"


def wanted(end: str) -> list[str]:
    """Return what to install: of each dependency the oldest release that may be, or the newest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [re.fullmatch(r"([\w-]+)>=([\d.]+)", each) for each in project["dependencies"]]
    assert all(found), "each has a lower bound, and no upper one"
    return [f"{each[1]}=={each[2]}" if end == "oldest" else each[0] for each in found if each]


@pytest.mark.slow
@pytest.mark.parametrize("end", effort.some(["oldest", "newest"], every=2))
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the oldest releases are for Python 3.11")
def test_commands_and_ranks_work_with_the_releases_of_each_end(end: str, tmp_path: Path) -> None:
    """The newest are those that a new environment has, in which all other tests run."""
    options = ["--quiet", "--no-compile", "--target", str(tmp_path)]
    command = [sys.executable, "-m", "pip", "install", *options, *wanted(end)]
    installed = subprocess.run(command, capture_output=True, text=True)
    if re.search("Connection|Temporary failure|from versions: none", installed.stderr):
        pytest.skip("needs a package index")
    assert installed.returncode == 0, installed.stderr

    def ina(*arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(tmp_path), str(ROOT)])
        environment = os.environ | ENVIRONMENT | {"PYTHONPATH": path}
        command = [sys.executable, "-P", "-m", "ina", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    for arguments, status, text in (
        (("--help",), 0, "admit"),
        (("admit", "--help"), 0, "--straggler-timeout"),
        (("compile", "p4src/exclusive.p4", "--json"), 0, '"c_lines"'),
        (("run", "-np", "2", "--timeout", "nan", "--", "true"), 2, "Invalid value for '--timeout'"),
        (("compile", "nosuch.p4"), 2, "nosuch.p4: No such file or directory"),
        (("run", "-np", "2", "--", sys.executable, "-c", RANK), 0, "[0] [2.0, 4.0]"),
    ):
        done = ina(*arguments)
        assert (done.returncode, text in done.stdout + done.stderr) == (status, True), (arguments, done)


# --------------------------------------------------------------------- what the command line makes of


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (BadRun("9 workers: too many"), "9 workers: too many", USAGE),
        (BadRun("want one of s2", setting="transit", value="'s9'"), "--transit 's9': want one of s2", USAGE),
        (BadRun("no", setting="worker_base"), "--worker-base: no", USAGE),
        (AddressTaken("cannot take UDP 1", chosen=False), "cannot take UDP 1", FAILED),
        (
            AddressTaken("cannot take UDP 1", chosen=True),
            "cannot take UDP 1; choose other ports with --worker-base",
            FAILED,
        ),
        (ProcessFailed("it was killed"), "it was killed", FAILED),
        (ProcessFailed("it did not start", status=3), "it did not start", 3),
        (ProcessFailed("it did not start", status=0), "it did not start", FAILED),
        (WorkerFailed("rank 0 failed"), "rank 0 failed", FAILED),
        (GroupFailed("the group broke"), "the group broke", FAILED),
        (StagesNotMeasured("too short"), "too short", FAILED),
        (OtherProgram("it runs 'shared'"), "it runs 'shared'; give --replace-program to replace it", USAGE),
        (FileNotFoundError(2, "No such file", "jobs.toml"), "jobs.toml: No such file", FAILED),
        (RuntimeError("can't start new thread"), "can't start new thread", FAILED),  # ulimit -u, pids.max
        (MemoryError(), "out of memory", FAILED),
    ],
)
def test_an_error_is_told_in_terms_of_the_command(error: Exception, message: str, code: int) -> None:
    assert verdict(error) == (message, code)


def test_what_nobody_foresaw_is_told_with_its_traceback() -> None:
    message, code = verdict(KeyError("x"))
    assert code == INTERNAL
    assert "KeyError: 'x'" in message


# --------------------------------------------------------------------- disks that are full


FULL = Path("/dev/full")
"""Takes no byte."""

ALLOCATION = ROOT / "examples" / "allocation"
BATCH = ("--jobs", str(ALLOCATION / "batch.yaml"), "--cluster", str(ALLOCATION / "fabric.toml"))
SIMULATE = ("schedule", "simulate", "--generate", "5", "--policy", "fifo", "--processes", "1")


@pytest.mark.skipif(not FULL.exists(), reason="this kernel has no /dev/full")
@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("place", *BATCH, "--write", "full.json"), "full.json"),
        ((*SIMULATE, "--jobs-csv", "full.csv"), "full.csv"),
        ((*SIMULATE, "--output", "folder"), "folder/metrics.json"),
        (("schedule", "sweep", "--generate", "5", "--policy", "fifo", "--output", "full.json"), "full.json"),
    ],
    ids=["place", "jobs-csv", "simulate", "sweep"],
)
def test_results_that_do_not_fit_on_the_disk_name_their_file(
    words: tuple[str, ...], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).symlink_to(FULL)
    with pytest.raises(OSError, match="No space left on device") as caught:
        app(list(words), standalone_mode=False)
    assert verdict(caught.value) == ("/dev/full: No space left on device", 1)
