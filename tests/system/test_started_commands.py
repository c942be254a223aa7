"""The product's own commands as processes: composed in one place, with options that these commands have."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from bmv2_topos.testbeds.netns.commands import Program
from bmv2_topos.testbeds.netns.embedded import switch_options
from controller.vocabulary.catalog import star
from hostlib import command_line
from hostlib.hosting import admit_options
from hostlib.settings import Settings
from tests.system.test_option_helps import commands

ROOT = Path(__file__).parents[2]
PRODUCT = ("softswitch", "controller", "hostlib", "bmv2_topos", "ina")
COMPOSER = "hostlib/command_line.py"


def runs_a_module(path: Path) -> bool:
    """Whether a file writes down ``-m``, by which Python runs a module."""
    tree = ast.parse(path.read_text())
    return any(isinstance(node, ast.Constant) and node.value == "-m" for node in ast.walk(tree))


def test_command_lines_of_the_product_are_composed_in_one_place() -> None:
    files = [path for package in PRODUCT for path in (ROOT / package).rglob("*.py")]
    assert [str(path.relative_to(ROOT)) for path in files if runs_a_module(path)] == [COMPOSER]


def test_an_ina_command_is_run_by_this_interpreter_from_where_this_process_has_it() -> None:
    assert command_line.ina("jobs", "--json") == [sys.executable, "-P", "-m", "ina", "jobs", "--json"]


SETTINGS = {
    "by default": Settings(),
    "all of them": Settings(switch="grpc://10.1.0.9:9559", options=("--slots", "64", "--host", "1=a/b")),
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("hierarchical", [False, True])
@pytest.mark.parametrize("listen", [None, "10.0.0.1"])
def test_what_hostlib_starts_is_a_command_with_these_options(
    settings: Settings, hierarchical: bool, listen: str | None
) -> None:
    """`hostlib` imports nothing of `ina`: this holds its command line to the command."""
    arguments = admit_options(
        settings, [[0, 2], [1]], [["a"], ["b", "10.0.0.2"]], hierarchical=hierarchical, listen=listen
    )
    parsed = dict(commands())["ina admit"].make_context("admit", list(arguments)).params
    assert parsed["workers"] == 3
    assert parsed["machines"] == "0,2/1"
    assert parsed["hierarchical"] is hierarchical
    assert parsed["listen"] == listen
    assert parsed["switch"] == settings.switch


def test_what_a_testbed_starts_is_a_command_with_these_options() -> None:
    topology = star(2)
    (switch,) = topology.ports
    arguments = switch_options(topology, switch, Program("exclusive", lanes=32), Path("/run/s"))
    parsed = dict(commands())["ina switch"].make_context("switch", list(arguments)).params
    assert json.dumps([parsed["lanes"], parsed["p4runtime"]]) == '[32, "unix:/run/s"]'
