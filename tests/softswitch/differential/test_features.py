from pathlib import Path

import pytest

from softswitch.engine.build import FLAGS, build_c, load
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.emit_c.program import emit_c
from tests.programs import program_of

from .script import Runner, read
from .traffic import snapshot

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


@pytest.mark.parametrize("name", ["checksums", "headers"])
def test_compilers_that_cannot_keep_headers_as_on_the_wire_make_the_same(name: str) -> None:
    folder = Path(__file__).parent.parent / "features" / name
    program = program_of(folder / "program.p4")
    lines = list(read((folder / "packets.txt").read_text()))
    oracle = Runner(load(program, backend="interpreter"))
    text = emit_c(program)
    assert "#ifdef P4_WIRED" in text
    plain = Runner(CompiledPipeline(program, build_c(text, flags=(*FLAGS, "-DP4_PLAIN"))))
    oracle.run(lines)
    plain.run(lines)
    assert plain.bench.verdicts == oracle.bench.verdicts
    assert snapshot(plain.pipeline) == snapshot(oracle.pipeline)
