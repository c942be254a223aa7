"""Features by their scripts, and random programs, through both back ends; `sweep` runs more of these."""

from pathlib import Path

import pytest

from softswitch.engine.build import load
from tests.effort import cases
from tests.programs import program_of
from tests.softswitch.differential import trial
from tests.softswitch.differential.script import Runner, packets_of, read
from tests.softswitch.differential.traffic import snapshot

FEATURES = sorted((Path(__file__).parent.parent / "features").glob("*.p4"))


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.stem)
def test_feature_does_what_its_script_says_on_both_back_ends(feature: Path) -> None:
    program = program_of(feature)
    lines = list(read(packets_of(feature)))
    assert any(line.command == "expect" for line in lines)
    oracle = Runner(load(program, backend="interpreter"))
    compiled = Runner(load(program, backend="compiled"))
    oracle.run(lines)
    compiled.run(lines)
    assert compiled.bench.verdicts == oracle.bench.verdicts
    assert snapshot(compiled.pipeline) == snapshot(oracle.pipeline)


PROGRAMS = cases(100)
PER_TEST = 8


@pytest.mark.parametrize("first", range(0, PROGRAMS, PER_TEST))
def test_back_ends_agree(first: int) -> None:
    for seed in range(first, min(first + PER_TEST, PROGRAMS)):
        try:
            trial.run(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
