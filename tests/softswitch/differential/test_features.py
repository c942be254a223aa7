from pathlib import Path

import pytest

from softswitch.engine.build import load
from tests.programs import program_of
from tests.softswitch.differential.script import Runner, read
from tests.softswitch.differential.traffic import snapshot

FEATURES = sorted(path.parent for path in (Path(__file__).parent.parent / "features").glob("*/program.p4"))


@pytest.mark.parametrize("folder", FEATURES, ids=lambda folder: folder.name)
def test_feature_does_what_its_script_says_on_both_back_ends(folder: Path) -> None:
    program = program_of(folder / "program.p4")
    lines = list(read((folder / "packets.txt").read_text()))
    assert any(line.command == "expect" for line in lines)
    oracle = Runner(load(program, backend="interpreter"))
    compiled = Runner(load(program, backend="compiled"))
    oracle.run(lines)
    compiled.run(lines)
    assert compiled.bench.verdicts == oracle.bench.verdicts
    assert snapshot(compiled.pipeline) == snapshot(oracle.pipeline)
