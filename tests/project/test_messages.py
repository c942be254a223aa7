"""Libraries print nothing: what they have to tell goes through `logging` or `warnings`, or to the caller."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Programs of their own, whose standard output is their result.
PROGRAMS = {
    "bmv2_topos/testbeds/mininet/hold.py",
    "hostlib/include.py",
    "hostlib/demos/four_stages.py",
    "hostlib/demos/steps.py",
    "hostlib/demos/digits.py",
    "ina/run/launch/agent.py",
    "ina/run/launch/ray_agents.py",
    "ina/run/launch/runner.py",
    "ina/doctor/machine_facts.py",
    "ina/doctor/probe.py",
    "ina/run/fallback/testbed.py",
}
# What a programmer does wrong in calling the library, at the line that does it. All else is logged.
WARN = {"hostlib/horovod/optimizer.py", "hostlib/collectives/arrays.py", "hostlib/torch_autoload.py"}
COMMAND_LINE = {"typer", "rich", "click"}
CONFIGURES = {"basicConfig", "addHandler", "setLevel", "dictConfig", "fileConfig", "captureWarnings"}


def library_files() -> Iterator[str]:
    for package in (
        "softswitch",
        "controller",
        "hostlib",
        "bmv2_topos",
        "ina/run/launch",
        "ina/run/switches",
        "ina/run/fallback",
        "ina/doctor",
    ):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT))


def messages(text: str) -> set[str]:
    """Return the ways in which a module tells somebody something: print, stderr, warn, configure, typer."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name(id="print"), keywords=given):
                if not any(each.arg == "file" for each in given):
                    found.add("print")
            case ast.Attribute(value=ast.Name(id="sys"), attr="stderr" | "stdout"):
                found.add("print")
            case ast.Attribute(value=ast.Name(id="sys"), attr="exit"):
                found.add("exit")
            case ast.Attribute(value=ast.Name(id="warnings"), attr="warn"):
                found.add("warn")
            case ast.Attribute(attr=name) if name in CONFIGURES:
                found.add("configure")
            case ast.ImportFrom(module=str(name)) | ast.alias(name=name):
                if name.partition(".")[0] in COMMAND_LINE:
                    found.add("command line")
    return found


def too_many(file: str) -> set[str]:
    """Return the messages of a file that it should not have."""
    if file == "ina/run/launch/run_process.py":  # a program of two lines
        return set()
    allowed = {"print", "exit"} if file in PROGRAMS else {"warn"} if file in WARN else set()
    return messages((ROOT / file).read_text()) - allowed


def test_a_library_prints_nothing_and_configures_no_logging() -> None:
    found = [f"{file}: {each}" for file in library_files() for each in sorted(too_many(file))]
    assert not found, "\n".join(found)


def test_what_may_print_or_warn_does() -> None:
    assert [file for file in PROGRAMS if messages((ROOT / file).read_text()) - {"exit"} != {"print"}] == []
    assert [file for file in WARN if messages((ROOT / file).read_text()) != {"warn"}] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("print('here')", {"print"}),
        ("print('here', file=log)", set()),
        ("import sys; sys.stderr.write('here')", {"print"}),
        ("import warnings; warnings.warn('here')", {"warn"}),
        ("import logging; logging.basicConfig()", {"configure"}),
        ("import sys; sys.exit(1)", {"exit"}),
        ("import rich.console", {"command line"}),
        ("from click import echo", {"command line"}),
        ("import logging; logging.getLogger().addHandler(mine)", {"configure"}),
        ("_log.warning('here')", set()),
    ],
)
def test_each_way_is_found(text: str, found: set[str]) -> None:
    assert messages(text) == found
