"""Small programs, one a feature, with scripts that say what each packet becomes: in both back ends."""

from pathlib import Path
from typing import Literal

import pytest

from softswitch.compiler import ir
from softswitch.stf import parse_script, run_script
from tests.p4 import make_scripts
from tests.programs import program_of

FEATURES = sorted(path.parent for path in Path(__file__).parent.glob("*/program.p4"))
Backend = Literal["compiled", "interpreter"]
BACKENDS: tuple[Backend, ...] = ("compiled", "interpreter")


@pytest.fixture(scope="module", params=FEATURES, ids=lambda folder: folder.name)
def feature(request: pytest.FixtureRequest) -> tuple[ir.Program, Path]:
    folder: Path = request.param
    return program_of(folder / "program.p4"), folder


@pytest.mark.parametrize("backend", BACKENDS)
def test_packets_become_what_the_script_says(feature: tuple[ir.Program, Path], backend: Backend) -> None:
    program, folder = feature
    report = run_script(program, parse_script((folder / "packets.stf").read_text()), backend=backend)
    assert report.packets
    assert report.checks
    assert report.failures == []


def test_the_scripts_of_our_own_programs_are_up_to_date() -> None:
    for path, text in make_scripts.files():
        assert path.read_text() == text, "python -m tests.p4.make_scripts writes them anew"


def test_each_script_has_its_program() -> None:
    scripts = sorted(path.parent for path in Path(__file__).parent.glob("*/packets.stf"))
    assert scripts == FEATURES
