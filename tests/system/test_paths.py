"""Files and directories that command lines name: one that cannot be used is wrong usage, of any command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ina.cli.declared import check_output
from ina.cli.errors import USAGE, Failure
from tests.system.command import here
from tests.system.test_option_helps import declared

PATHS = [
    (f"{name} {parameter.opts[0]}", command, parameter, option)
    for name, command, parameter, option in declared(Path)
    if option.parser is None
]


def refused(command: Any, parameter: Any, path: Path) -> str:
    """Return why a path is refused, which is told as wrong usage."""
    context = command.context_class(command, info_name=command.name)
    given = [str(path)] if parameter.multiple or parameter.nargs == -1 else str(path)
    with pytest.raises(Failure) as failure:
        parameter.process_value(context, given)
    assert failure.value.exit_code == USAGE
    return str(failure.value)


def test_what_a_command_reads_has_to_be_there_and_what_it_writes_can_be_made(tmp_path: Path) -> None:
    """Some commands ended with 1 and others with 2, some after they had worked for minutes."""
    (tmp_path / "file").touch()
    reading = {where for where, _, _, option in PATHS if not option.writable}
    assert len(reading) > 90
    assert {"ina run --jobs", "ina compile -I", "ina trace captures", "ina run --tls-ca"} <= reading
    assert len(PATHS) - len(reading) > 25
    for where, command, parameter, declaration in PATHS:
        option = f"{parameter.opts[0]} " if parameter.opts[0].startswith("-") else ""
        for path in (tmp_path / "file" / "below", tmp_path / "none"):
            if where in reading:
                why = "Not a directory" if path.parent.name == "file" else "No such file or directory"
                assert refused(command, parameter, path) == f"{option}{path}: {why}", where
            elif path.name == "below" and not declaration.exists:
                assert f"{option}{path}: " in refused(command, parameter, path), where


@pytest.mark.parametrize(
    "arguments",
    [
        ("compile", "none.p4"),
        ("compile", "--p4info=none.p4/x", "none.p4"),
        ("run", "--program", "none.p4", "--", "true"),
        ("stf", "none.p4", __file__),
        ("sim", "examples/three_jobs.toml", "--cluster", "none.toml"),
        ("submit", "none.toml", "--controller", "unix:/none"),
        ("experiment", "none.py"),
        ("topo", "show", "none.yaml"),
        ("schedule", "simulate", "--policy", "none.py:Policy"),
    ],
)
def test_files_that_are_named_in_another_way_have_to_be_there_as_well(arguments: tuple[str, ...]) -> None:
    done = here(*arguments)
    assert done.returncode == USAGE, done.stderr
    assert "none." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_is_made_with_the_directories_above_it(tmp_path: Path) -> None:
    made = tmp_path / "new" / "deep" / "exclusive.c"
    assert here("compile", "exclusive", "--lanes", 32, "-o", made).returncode == 0
    assert "#include" in made.read_text()


def test_outputs_that_cannot_be_are_refused_before_the_work(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.touch()
    folder.mkdir()
    for path, directory, why in (
        (file, True, "not a directory"),
        (folder, False, "a directory"),
        (file / "under", False, f"{file} is not a directory"),
        (file / "far" / "under", True, f"{file} is not a directory"),
        (tmp_path / ("x" * 300), False, "File name too long"),
    ):
        with pytest.raises(Failure) as caught:
            check_output("--output ", path, directory=directory)
        assert str(caught.value) == f"--output {path}: {why}"
    for path, directory in (
        (file, False),
        (folder, True),
        (folder / "new" / "deep", True),
        (Path("x"), False),
    ):
        check_output("--output ", path, directory=directory)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(Failure, match="no permission to write to"):
        check_output("--output ", tmp_path / "x")
    tmp_path.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_whose_directory_may_not_be_written_cannot_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    tmp_path.chmod(0o500)
    with pytest.raises(Failure, match=f"no permission to write to {tmp_path}"):
        check_output("--output ", tmp_path / "x")
    tmp_path.chmod(0o700)
