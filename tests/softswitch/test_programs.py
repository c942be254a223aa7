"""What is kept of programs: the same as made anew, and made again where that is not certain."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from softswitch.compiler import Choice, compile_source, p4info, preprocess_file
from softswitch.compiler.errors import CompileError
from softswitch.engine import cache
from softswitch.engine.cache import compile_once, emit_once, p4info_once, preprocess_once
from softswitch.engine.emit_c import emit_c
from tests import effort

ROOT = Path(__file__).parents[2]
SOURCES = [*(ROOT / "p4src").glob("*.p4"), *(ROOT / "tests/softswitch/features").glob("*.p4")]


pytestmark = pytest.mark.usefixtures("cache_folder")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is compiled, by name."""
    names: list[str] = []

    def count(text: str, *, name: str, preprocessed: bool, undefined: Choice | None) -> object:
        names.append(name)
        return compile_source(text, name=name, preprocessed=preprocessed, undefined=undefined)

    monkeypatch.setattr(cache, "compile_source", count)
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_kept_program_is_the_one_that_was_compiled(path: Path, compiled: list[str]) -> None:
    text = preprocess_file(path, defines={"LANES": "32"})
    first, second = compile_once(text, name=path.name), compile_once(text, name=path.name)
    assert compiled == [path.name]
    assert second == first
    assert emit_c(second) == emit_c(first)


TEXT = preprocess_file(ROOT / "tests/softswitch/features/slices.p4")


def test_another_text_or_name_is_another_program(compiled: list[str]) -> None:
    for text, name in ((TEXT, "a"), (TEXT, "b"), (TEXT + "\n", "a"), (TEXT, "a")):
        compile_once(text, name=name)
    assert compiled == ["a", "b", "a"]


@pytest.mark.parametrize("harm", ["cut off", "changed", "others may write"])
def test_what_is_not_as_it_was_written_is_compiled_again(
    harm: str, cache_folder: Path, compiled: list[str]
) -> None:
    good = compile_once(TEXT, name="a")
    (file,) = cache_folder.glob("*.ir")
    data = file.read_bytes()
    if harm == "cut off":
        file.write_bytes(data[:-1])
    elif harm == "changed":
        file.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    else:
        file.chmod(0o666)
    assert compile_once(TEXT, name="a") == good
    assert compiled == ["a", "a"]
    assert file.read_bytes() == data
    assert list(cache_folder.iterdir()) == [file]


def test_a_program_that_does_not_compile_is_not_kept(cache_folder: Path) -> None:
    for _ in range(2):
        with pytest.raises(CompileError):
            compile_once("control {")
    assert not list(cache_folder.glob("program-*"))


def test_without_a_folder_programs_are_compiled(monkeypatch: pytest.MonkeyPatch, compiled: list[str]) -> None:
    def refuse() -> cache.Folder:
        raise cache.NoCache("no folder")

    monkeypatch.setattr(cache, "find_folder", refuse)
    compile_once(TEXT, name="a")
    compile_once(TEXT, name="a")
    assert compiled == ["a", "a"]


@pytest.mark.parametrize("path", effort.some(SOURCES[:3], every=3), ids=lambda path: path.name)
def test_what_is_derived_is_kept_too(path: Path, cache_folder: Path) -> None:
    defines = {"LANES": "32"}
    expected = preprocess_file(path, defines=defines)
    for _ in range(2):
        assert preprocess_once(path, defines=defines) == expected
        program = compile_once(expected)
        assert emit_once(program) == emit_c(program)
        assert p4info_once(expected) == p4info(program)
    assert sorted(file.suffix for file in cache_folder.iterdir()) == [".bin", ".c", ".ir", ".json"]
    other = {"LANES": "64"}
    assert preprocess_once(path, defines=other) == preprocess_file(path, defines=other) != expected


def test_a_program_made_by_hand_is_emitted_each_time(cache_folder: Path) -> None:
    program = compile_source(TEXT, name="a", preprocessed=True)
    assert program.origin is None
    assert emit_once(program) == emit_c(program)
    assert not cache_folder.exists()


@pytest.mark.parametrize("changed", ["program.p4", "part.p4", "core.p4"])
def test_a_file_that_changes_or_appears_where_it_is_looked_for_is_read(changed: str, tmp_path: Path) -> None:
    """Beside the program it goes before the standard one of the same name."""
    program, part = tmp_path / "program.p4", tmp_path / "part.p4"
    program.write_text('#include "core.p4"\n#include "part.p4"\n')
    part.write_text("const bit<8> PART = 1;\n")
    before = preprocess_once(program)
    assert preprocess_once(program) == before
    with (tmp_path / changed).open("a") as end:
        end.write("const bit<8> NEW = 3;\n")
    assert "NEW" in (after := preprocess_once(program))
    assert after == preprocess_file(program)


def test_what_is_kept_is_had_without_what_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch starts in four fifths of the time, ``ina run`` without any IR."""
    made = emit_once(compile_once(TEXT)), p4info_once(TEXT)
    for module in ("softswitch.engine.emit_c", "softswitch.compiler.p4info_export"):
        monkeypatch.setitem(sys.modules, module, None)
    assert (emit_once(compile_once(TEXT)), p4info_once(TEXT)) == made
