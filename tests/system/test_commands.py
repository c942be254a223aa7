"""Commands are imported when they run; until then help pages say of them what they say themselves."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest
import typer

from ina.cli.commands import app
from ina.cli.register import unfold
from tests.system.command import ROOT


def commands(group: typer.Typer, path: str = "ina") -> dict[str, tuple[str, object]]:
    """Return the line that a group's page has for each command, and what it stands for."""
    found: dict[str, tuple[str, object]] = {}
    for info in group.registered_commands:
        module, _, attribute = info.callback.place.partition(":")
        thing = getattr(importlib.import_module(module), attribute)
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
    assert "'ina.cli.register'" in loaded
    for heavy in ("numpy", "grpc", "hostlib", "softswitch", "ina.cli.run"):
        assert f"'{heavy}'" not in loaded


@pytest.mark.parametrize(
    ("module", "unneeded"),
    [
        ("ina.cli.run, ina.cli.execute", ("numpy", "softswitch.compiler.ir", "hostlib.core.window")),
        ("ina.cli.admit", ("numpy", "softswitch.compiler.ir", "hostlib.core.window")),
        ("ina.runtime.agent", ("numpy", "grpc")),  # it starts ranks
        ("ina.cli.fallback", ("grpc", "softswitch")),  # a server sums, and one of a machine starts another
        ("ina.cli.switch", ("numpy", "controller", "hostlib")),
        (
            "ina.service.runner",
            ("numpy", "grpc", "softswitch", "controller.core", "controller.switches.fleet"),
        ),
    ],
)
def test_what_runs_start_loads_nothing_that_it_does_not_need(module: str, unneeded: tuple[str, ...]) -> None:
    """That was a tenth to a half of its start."""
    script = f"import sys, {module}; print({{*{unneeded}}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout == b"set()\n"
