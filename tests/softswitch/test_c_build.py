"""Building and loading: what is cached, and what happens without a compiler."""

from __future__ import annotations

import platform
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from softswitch.compiler import compile_source, preprocess_file
from softswitch.engine import build as building
from softswitch.engine import c_compiler, native
from softswitch.engine.build import FLAGS, RUNTIME, build, find_compiler, load
from softswitch.engine.cache import emit_once
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.interpreter.pipeline import Interpreter
from softswitch.engine.pipeline import BuildFailed, NoCompiler
from softswitch.engine.ports import parse_port
from softswitch.engine.switch import Switch
from tests.programs import program_of

from . import ir_programs as hand

FEATURES = sorted((Path(__file__).parent / "features").glob("*/program.p4"))
EXCLUSIVE = Path(__file__).parents[2] / "p4src" / "exclusive.p4"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ina"


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_second_build_takes_the_first_ones_object(cache: Path) -> None:
    program = hand.lanes_program(8)
    first = build(program)
    stamp = first.stat().st_mtime_ns
    assert build(program) == first
    assert first.stat().st_mtime_ns == stamp
    assert build(hand.lanes_program(9)) != first
    assert {path.suffix for path in cache.iterdir()} == {".so", ".c"}


def test_another_compiler_does_not_get_the_old_object(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = hand.lanes_program(8)
    first = build(program)
    real = find_compiler()
    wrapper = f'if [ "$1" = --version ]; then echo other; else exec {real} "$@"; fi'
    monkeypatch.setenv("CC", script(tmp_path / "other-cc", wrapper))
    assert build(program) != first


def test_builds_at_the_same_time_all_succeed(cache: Path) -> None:
    program = hand.lanes_program(10)
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: build(program), range(4)))
    assert len(set(paths)) == 1
    assert isinstance(CompiledPipeline(program, paths[0]), CompiledPipeline)


def test_nobody_else_can_hold_up_a_build(cache: Path) -> None:
    """Who may read a file can hold its lock, for ever."""
    cache.mkdir(mode=0o755)  # by the user; ours are for nobody else anyway
    build(hand.lanes_program(8))
    assert {path.stat().st_mode & 0o077 for path in cache.iterdir()} == {0}


def test_a_compiler_that_fails_is_reported_with_its_words(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = script(tmp_path / "cc", '[ "$1" = --version ] && exit 0; echo "no disk" >&2; exit 1')
    monkeypatch.setenv("CC", broken)
    with pytest.raises(BuildFailed, match=r"/cc is there, but ended with status 1: no disk\nits command: /"):
        build(hand.lanes_program(8))
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (
            'echo "In x:" >&2; echo "x.c:1: fatal error: stdio.h: No such file or directory" >&2; exit 1',
            "ended with status 1: x.c:1: fatal error: stdio.h: No such file or directory: the C library's"
            " headers are missing; install them (Debian: libc6-dev)\n",
        ),
        ("kill -9 $$", "was ended by signal 9: it said nothing: was there too little memory?\n"),
        (
            "echo \"cc1: error: bad value 'native' for '-march=' switch\" >&2; exit 1",
            "for '-march=' switch: it does not know this processor; set CC to a newer GCC or Clang\n",
        ),
    ],
)
def test_a_compiler_that_is_there_and_fails_is_told_with_what_to_do(
    does: str, said: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", script(tmp_path / "cc", f'[ "$1" = --version ] && exit 0; {does}'))
    with pytest.raises(BuildFailed) as failed:
        build(hand.lanes_program(8))
    assert f"the C compiler {tmp_path}/cc is there, but " in str(failed.value)
    assert said in str(failed.value)


def test_a_compiler_that_does_not_even_tell_its_version_is_told_with_its_words(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = script(tmp_path / "cc", 'echo "cc: error: libisl.so.23: cannot open" >&2; exit 127')
    monkeypatch.setenv("CC", broken)
    said = (
        f"the C compiler {broken} does not work"
        " ('--version' ended with status 127: cc: error: libisl.so.23: cannot open)"
    )
    with pytest.raises(NoCompiler) as failed:
        build(hand.lanes_program(8))
    assert str(failed.value) == said
    native._library.cache_clear()  # an engine that an earlier test has loaded needs no compiler
    with pytest.raises(NoCompiler, match=r"the C compiler .*/cc does not work"):
        Switch({1: parse_port("shm")})


def test_a_compiler_that_writes_nothing_is_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "echo")
    with pytest.raises(BuildFailed, match=r"wrote no pipeline\.so"):
        build(hand.lanes_program(8))


def test_without_a_compiler_the_program_is_interpreted_with_a_warning(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    program = hand.lanes_program(8)
    with pytest.raises(NoCompiler, match="no-such-compiler is not on PATH"):
        load(program, backend="compiled")
    pipeline = load(program)
    assert isinstance(pipeline, Interpreter)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("softswitch.engine.build", "WARNING")
    assert "the program is interpreted" in record.getMessage()


def test_without_a_compiler_what_came_with_the_package_serves_if_it_fits_the_source(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c_compiler, "FOLDER", tmp_path / "built")
    (tmp_path / "built").mkdir()
    building._build_for_others(tmp_path / "built", f"{EXCLUSIVE}:32")
    levels = sorted(file.name.partition("-")[2] for file in (tmp_path / "built").iterdir())
    assert levels == sorted(f"{level}.so" for level, _ in c_compiler.LEVELS[platform.machine()])
    monkeypatch.setenv("CC", "no-such-compiler")
    text = preprocess_file(EXCLUSIVE, defines={"LANES": "32"})
    program = compile_source(text, name="by another name", preprocessed=True)
    found = build(program)
    assert found.name.endswith(f"-{c_compiler.levels()[0]}.so")
    CompiledPipeline(program, found)
    monkeypatch.setattr(c_compiler, "levels", lambda: c_compiler.LEVELS[platform.machine()][-1][:1])
    oldest = build(program)
    assert oldest.name == f"{found.name.partition('-')[0]}-{c_compiler.levels()[0]}.so"
    with pytest.raises(NoCompiler, match=r"install one \(Debian: gcc libc6-dev"):
        build(compile_source(preprocess_file(EXCLUSIVE, defines={"LANES": "64"}), preprocessed=True))
    oldest.write_bytes(oldest.read_bytes()[:-1])
    with pytest.raises(NoCompiler):
        build(program)


def test_without_a_compiler_an_object_that_one_has_built_serves(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = hand.lanes_program(8)
    built = build(program)
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build(program) == built
    with pytest.raises(NoCompiler):
        build(hand.lanes_program(9))


@pytest.mark.parametrize("source", [*FEATURES, EXCLUSIVE], ids=lambda path: path.parent.name)
def test_the_c_text_has_no_warnings(source: Path, tmp_path: Path) -> None:
    text = tmp_path / "pipeline.c"
    text.write_text(emit_once(program_of(source)))
    flags = [flag for flag in FLAGS if flag not in ("-O3", "-shared")]
    command = [find_compiler(), *flags, "-O1", "-Wall", "-Wextra", "-Werror", "-I", str(RUNTIME)]
    done = subprocess.run(
        [*command, "-c", "-o", str(tmp_path / "pipeline.o"), str(text)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
