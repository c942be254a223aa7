"""What is kept of earlier builds: what is loaded of it, where it lies, and who may have put it there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from softswitch.engine import build as building
from softswitch.engine.build import FLAGS, build, build_c, find_compiler
from softswitch.engine.cache import find_folder, seal
from tests.softswitch import ir_programs as hand

ROOT = Path(__file__).parents[2]
NOBODY = 65534
SOON = (*FLAGS, "-O0")
"""Objects of these tests are built often, and run no packets."""
LOAD = f"""
from softswitch.engine import build
from softswitch.engine.compiled import CompiledPipeline
from tests.softswitch import ir_programs as hand
build.FLAGS = {SOON}
program = hand.lanes_program(11)
path = build.build(program)
CompiledPipeline(program, path)
print(path)
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")


@pytest.fixture(autouse=True)
def _soon_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "FLAGS", SOON)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files that looks like /tmp."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def environment(**values: object) -> dict[str, str]:
    return {**os.environ, **{name: str(value) for name, value in values.items()}}


def load_in_another_process(**values: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LOAD]
    return subprocess.run(
        command, cwd=ROOT, env=environment(**values), capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The object of `LOAD`, in a folder of its own."""
    done = load_in_another_process(XDG_CACHE_HOME=tmp_path_factory.mktemp("built"))
    return Path(done.stdout.strip())


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.6, 0.999])
def test_an_object_that_was_cut_off_is_built_again(tmp_path: Path, built: Path, keep: float) -> None:
    """Loading it would end the process with SIGBUS."""
    path = shutil.copytree(built.parent, tmp_path / "ina") / built.name
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole))])
    again = load_in_another_process(XDG_CACHE_HOME=tmp_path)
    assert again.returncode == 0, again.stderr
    assert Path(again.stdout.strip()) == path
    assert len(path.read_bytes()) == len(whole)


def test_an_object_that_was_changed_is_built_again(cache_folder: Path) -> None:
    program = hand.lanes_program(8)
    path = build(program)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    assert build(program) == path
    assert path.read_bytes() != damaged


def test_processes_that_need_it_at_the_same_time_build_it_once(tmp_path: Path) -> None:
    """The compiler waits until all have asked for its version, as each does before it looks."""
    compiler, log, here = tmp_path / "cc", tmp_path / "log", tmp_path / "here"
    here.mkdir()
    compiler.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then touch {here}/$PPID; exit; fi\necho build >>{log}\n'
        f'while [ $(ls {here} | wc -l) -lt 5 ]; do sleep 0.1; done\nexec {find_compiler()} "$@"\n'
    )
    compiler.chmod(0o755)
    with ThreadPoolExecutor(5) as pool:
        values = {"XDG_CACHE_HOME": tmp_path, "CC": compiler}
        done = list(pool.map(lambda _: load_in_another_process(**values), range(5)))
    assert [each.returncode for each in done] == [0] * 5, done
    assert len({each.stdout for each in done}) == 1
    assert log.read_text() == "build\n"


def test_a_builder_that_dies_leaves_the_others_free_to_build(
    tmp_path: Path, write_file: Callable[[str, str], Path]
) -> None:
    """Two processes, and the compiler of one never ends."""
    started = tmp_path / "started"
    os.mkfifo(started)
    stuck = write_file(
        "cc",
        f'#!/bin/sh\n[ "$1" = --version ] && exec {find_compiler()} --version\n'
        f'[ -n "$STUCK" ] && echo >{started} && exec sleep 1000\nexec {find_compiler()} "$@"\n',
    )
    stuck.chmod(0o755)
    values = environment(XDG_CACHE_HOME=tmp_path, CC=stuck)
    command = [sys.executable, "-c", LOAD]
    first = subprocess.Popen(command, cwd=ROOT, env={**values, "STUCK": "1"}, start_new_session=True)
    started.read_text()
    second = subprocess.Popen(command, cwd=ROOT, env=values, stdout=subprocess.PIPE, text=True)
    os.killpg(first.pid, 9)
    first.wait()
    output, _ = second.communicate()
    assert second.returncode == 0
    assert Path(output.strip()).exists()


@pytest.mark.parametrize("home", ["file", "missing"])
def test_without_a_home_it_is_kept_where_only_this_user_writes(
    home: str,
    tmp_path: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A container's home that cannot be written to, or a user id that has none."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if home == "file":
        (tmp_path / "home").write_text("")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        reason = "home/.cache: Not a directory"
    else:
        monkeypatch.delenv("HOME", raising=False)
        monkeypatch.setattr("pwd.getpwuid", _no_such_user)
        reason = "there is no home directory"
    program = hand.lanes_program(8)
    path = build(program)
    (warning,) = caplog.messages
    assert re.search(rf"{reason}.*set XDG_CACHE_HOME to a folder of your own", warning)
    assert path.parent == temporary / f"ina-{os.geteuid()}"
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert build(program) == path
    assert build(hand.lanes_program(4)) != path
    assert caplog.messages == [warning], "two are built, and a process warns once"


def _no_such_user(number: int) -> None:
    raise KeyError(number)


def test_the_command_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    values = environment(HOME=tmp_path / "home", TMPDIR=tmp_path)
    values.pop("XDG_CACHE_HOME", None)
    command = [sys.executable, "-m", "ina", "compile", "tests/softswitch/features/slices.p4"]
    done = subprocess.run([*command, "--build"], cwd=ROOT, env=values, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "home/.cache: Not a directory" in done.stderr
    assert "set XDG_CACHE_HOME to a folder of your own" in done.stderr


@pytest.fixture
def planted(tmp_path: Path, built: Path) -> tuple[Path, Path]:
    """An object in a folder called ina that leaves a mark when it is loaded; the folder, and the mark."""
    mark = tmp_path / "mark"
    text = f"""#include <stdio.h>
        __attribute__((constructor)) static void run(void) {{ fclose(fopen("{mark}", "w")); }}"""
    source, evil = tmp_path / "evil.c", tmp_path / "evil.so"
    source.write_text(text)
    subprocess.run([find_compiler(), "-shared", "-fPIC", "-o", str(evil), str(source)], check=True)
    seal(evil)
    folder = tmp_path / "ina"
    folder.mkdir()
    evil.replace(folder / built.name)
    return folder, mark


def test_the_planted_object_would_run(planted: tuple[Path, Path]) -> None:
    """Otherwise the tests below would show nothing."""
    load_in_another_process(XDG_CACHE_HOME=planted[0].parent)
    assert planted[1].exists()


@pytest.mark.parametrize(
    "let_in",
    [
        pytest.param(lambda folder: os.chown(folder, NOBODY, NOBODY), id="foreign", marks=as_root),
        pytest.param(lambda folder: os.chown(folder.parent, NOBODY, -1), id="foreign-parent", marks=as_root),
        pytest.param(lambda folder: folder.chmod(0o777), id="world-writable"),
        pytest.param(lambda folder: folder.chmod(0o1777), id="sticky"),
        pytest.param(lambda folder: folder.parent.chmod(0o770), id="parent-of-a-group"),
        pytest.param(lambda folder: next(folder.glob("*.so")).chmod(0o666), id="foreign-file"),
        pytest.param(lambda folder: _behind_a_link(folder), id="foreign-link", marks=as_root),
    ],
)
def test_what_another_user_may_have_put_there_is_not_loaded(
    let_in: object, planted: tuple[Path, Path], temporary: Path
) -> None:
    folder, mark = planted
    assert callable(let_in)
    let_in(folder)
    done = load_in_another_process(XDG_CACHE_HOME=folder.parent, TMPDIR=temporary)
    folder.parent.chmod(0o700)
    assert done.returncode == 0, done.stderr
    assert not mark.exists()


def _behind_a_link(folder: Path) -> None:
    """Another user's link, to a folder of ours."""
    real = folder.rename(folder.parent / "real")
    folder.symlink_to(real)
    os.chown(folder, NOBODY, NOBODY, follow_symlinks=False)


@as_root
def test_a_folder_that_another_user_made_first_is_left_alone(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then each process has a folder of its own, which goes with it."""
    squatted = temporary / f"ina-{os.geteuid()}"
    squatted.mkdir()
    os.chown(squatted, NOBODY, NOBODY)
    (tmp_path / "home").write_text("")
    done = load_in_another_process(XDG_CACHE_HOME=tmp_path / "home", TMPDIR=temporary)
    assert done.returncode == 0, done.stderr
    assert f"{squatted} belongs to user {NOBODY}, not to 0" in done.stderr
    path = Path(done.stdout.strip())
    assert path.parent.parent == temporary
    assert path.parent != squatted
    assert list(temporary.iterdir()) == [squatted]
    assert list(squatted.iterdir()) == []


def test_where_there_is_no_room_at_all_the_message_names_all_places(
    write_file: Callable[[str, str], Path],
) -> None:
    file = write_file("file", "")
    code = "import tempfile; tempfile.tempdir = '/proc/no'\n" + LOAD
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment(XDG_CACHE_HOME=file),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "NoCache: no folder for compiled programs" in done.stderr
    assert f"{file}/ina: Not a directory" in done.stderr
    assert "/proc/no" in done.stderr
    assert "set XDG_CACHE_HOME to a folder of your own" in done.stderr


def test_a_full_disk_is_told_with_the_folder_and_what_to_do(cache_folder: Path) -> None:
    """A file-size limit stands for the full disk: writing fails in the same places."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"
    done = subprocess.run(
        [sys.executable, "-c", f"{limit}\n{LOAD}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stderr.splitlines()[-1]
    assert f"NoCache: cannot keep a program in {cache_folder}: File too large: set XDG_CACHE_HOME to" in told


def test_a_folder_is_made_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    before = os.umask(0)
    try:
        folder = find_folder()
        built = build_c("int x;")
    finally:
        os.umask(before)
    assert folder.hint == ""
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "new", folder.path)] == [0o700, 0o700]
    assert built.stat().st_mode & 0o777 == 0o600


def test_a_link_on_the_way_may_not_lie_where_others_write(
    tmp_path: Path, cache_folder: Path, temporary: Path
) -> None:
    """They could put another in its place, once the folder behind it has been looked at."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    own.mkdir(mode=0o700)
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "hop").symlink_to(own)
    cache_folder.symlink_to(shared / "hop")
    assert f"{shared} is writable by others" in find_folder().hint
    shared.chmod(0o755)
    assert find_folder().path == cache_folder
    assert find_folder().hint == ""


def test_links_that_lead_to_each_other_are_no_folder(cache_folder: Path, temporary: Path) -> None:
    cache_folder.symlink_to(cache_folder)
    assert find_folder().path.parent == temporary
