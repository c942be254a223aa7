"""The product's own commands as processes: composed in one place, with options that these commands have."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bmv2_topos.testbeds.netns.commands import Program
from bmv2_topos.testbeds.netns.embedded import switch_options
from controller.vocabulary.catalog import star
from hostlib.launch import command_line
from hostlib.launch.hosting import admit_options
from hostlib.settings import Settings
from ina.cli.admit import admit
from ina.cli.command import Failure
from ina.cli.declared import flattened, read
from ina.cli.fallback import fallback
from ina.cli.switch import switch as ina_switch
from tests.extras import needs
from tests.system.command import TORCHRUN
from tests.system.test_options import commands

ROOT = Path(__file__).parents[2]
PRODUCT = ("softswitch", "controller", "hostlib", "bmv2_topos", "ina")
COMPOSER = "hostlib/launch/command_line.py"


def runs_a_module(path: Path) -> bool:
    """Whether a file writes down ``-m``, by which Python runs a module."""
    tree = ast.parse(path.read_text())
    return any(isinstance(node, ast.Constant) and node.value == "-m" for node in ast.walk(tree))


def test_command_lines_of_the_product_are_composed_in_one_place() -> None:
    files = [path for package in PRODUCT for path in (ROOT / package).rglob("*.py")]
    assert [str(path.relative_to(ROOT)) for path in files if runs_a_module(path)] == [COMPOSER]


def test_an_ina_command_is_run_by_this_interpreter_from_where_this_process_has_it() -> None:
    assert command_line.ina("jobs", "--json") == [sys.executable, "-P", "-m", "ina", "jobs", "--json"]


def by_typer(command: str, line: Sequence[str]) -> dict[str, Any]:
    """Return what typer reads from a command line; of several values a list or None, as commands get."""
    found = dict(commands())[command].make_context(command, [*line]).params
    return {name: [*value] or None if isinstance(value, tuple) else value for name, value in found.items()}


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
    parsed = by_typer("ina admit", arguments)
    assert read(flattened(admit), arguments) == parsed
    assert parsed["workers"] == 3
    assert parsed["machines"] == "0,2/1"
    assert parsed["hierarchical"] is hierarchical
    assert parsed["listen"] == listen
    assert parsed["switch"] == settings.switch


def test_what_a_testbed_starts_is_a_command_with_these_options() -> None:
    topology = star(2)
    (switch,) = topology.ports
    arguments = switch_options(topology, switch, Program("exclusive", lanes=32), Path("/run/s"))
    parsed = by_typer("ina switch", arguments)
    assert read(flattened(ina_switch), arguments) == parsed
    assert json.dumps([parsed["lanes"], parsed["p4runtime"]]) == '[32, "unix:/run/s"]'


COMMANDS = {"admit": admit, "fallback": fallback, "switch": ina_switch}
LINES = {
    "nothing": ["-np", "2"],
    "short with its value": ["-n4"],
    "a value after =": ["--workers=4", "--machine=a", "--machine", "b,c", "--loss=0.5"],
    "flags": ["-np", "2", "--hierarchical", "--no-preempt", "--repeat"],
    "a number of a range": ["-np", "2", "--priority", "255", "--timeout", "0.1"],
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_lines_are_read_as_typer_reads_them(line: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INA_CONTROLLER", "https://lab:9580")
    parsed = by_typer("ina admit", line)
    assert read(flattened(admit), line) == parsed
    assert parsed["controller"] == "https://lab:9580"


WRONG = {
    "no such option": (
        "admit",
        ["-np", "2", "--slot", "4"],
        "no such option: --slot (did you mean --slots?)",
    ),
    "no option at all": ("admit", ["-np", "2", "32"], "no such option: 32"),
    "no number": ("admit", ["-np", "two"], "-np 'two': want a whole number"),
    "out of its range": (
        "admit",
        ["-np", "2", "--priority", "256"],
        "--priority 256: want a number from 0 to 255",
    ),
    "too small": ("admit", ["-np", "2", "--timeout", "0"], "--timeout 0: want a number from 0.1"),
    "NaN": ("admit", ["-np", "2", "--loss", "nan"], "--loss nan: want a number"),
    "no value": ("fallback", ["--lanes"], "--lanes: give a value"),
    "a value of a flag": ("fallback", ["--held=1"], "--held takes no value"),
    "no such encoding": (
        *("admit", ["-np", "2", "--numbers", "block17"]),
        "--numbers 'block17': want one of exponent, block16, block8, block4, fixed",
    ),
    "no such choice": ("switch", ["--undefined", "one"], "--undefined 'one': want one of zero, random, bmv2"),
    "no such file": ("admit", ["-np", "2", "--tls-ca", "/no"], "--tls-ca /no: No such file or directory"),
    "missing": ("admit", [], "-np is missing"),
}


@pytest.mark.parametrize(("name", "line", "why"), WRONG.values(), ids=WRONG)
def test_wrong_usage_of_what_ranks_start_is_told(name: str, line: list[str], why: str) -> None:
    with pytest.raises(Failure) as told:
        read(flattened(COMMANDS[name]), line)
    assert (str(told.value), told.value.exit_code) == (why, 2)


@needs("torch")
def test_ranks_train_where_the_library_of_the_command_line_cannot_be_imported(
    tmp_path: Path, write_file: Callable[[str, str], Path]
) -> None:
    """Rank 0 has the job admitted, which starts a switch and a fallback server: none is to need typer."""
    hook = "import sys\nsys.modules.update(dict.fromkeys(('typer', 'click')))\n"  # None: importing it fails
    (tmp_path / "sitecustomize.py").write_text(hook)
    script = write_file(
        "train.py",
        "import torch.distributed as dist, torch, hostlib.torch\n"
        "dist.init_process_group('ina')\n"
        "tensor = torch.ones(3)\n"
        "dist.all_reduce(tensor)\n"
        "print(f'{tensor.tolist()} {hostlib.torch.paths()}\\n', end='')\n"  # in one piece, unbuffered, too
        "dist.destroy_process_group()\n",
    )
    without = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*TORCHRUN, "--nproc-per-node", "2", str(script)],
        env={**without, "INA_OPTIONS": "--program shared --slots 256"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[2.0, 2.0, 2.0] {'allreduce sum float32': {'switch': 1}}") == 2
    refused = subprocess.run(
        command_line.ina("admit", "-np", "2", "--program", "none"),
        env=without,
        capture_output=True,
        text=True,
    )
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
