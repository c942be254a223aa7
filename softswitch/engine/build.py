"""Compile the C text of a program to a shared object, once per content.

The object's name has the hash of all its inputs: the C text, the runtime headers, the flags, the processor
that ``-march=native`` selects, and the compiler. A new object is written to a temporary file, which is then
renamed. If several processes need the same object at the same time, one process builds it and the others
wait. `cache` determines the folder, and whether a file there may be loaded. Without a compiler, an object
built by another compiler, or supplied with the package, is used (`c_compiler.find`).

The data-path engine (runtime/engine*.c) is built in the same way.

``python -m softswitch.engine.build FOLDER PROGRAM.p4:LANES… PART.h+PART.c…`` builds the engine, programs, and
joined C files (`join_c`) for machines without a compiler (`c_compiler`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from softswitch.compiler import ir
from softswitch.engine import c_compiler
from softswitch.engine.c_compiler import LEVELS, compiler_name, compiler_path
from softswitch.engine.cache import REMEDY, emit_once, find_folder, hashed, seal, whole
from softswitch.engine.pipeline import BuildFailed, NoCache, NoCompiler, Pipeline

if TYPE_CHECKING:
    from softswitch.engine.pipeline import Trace

_log = logging.getLogger(__name__)
RUNTIME = Path(__file__).parent / "runtime"
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-shared", "-fPIC", "-fvisibility=hidden")
SANITIZE_FLAGS = (
    *("-std=gnu11", "-O1", "-g1", "-shared", "-fPIC", "-fvisibility=hidden"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"),
)
TIMEOUT_S = 300
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|/\*.*?\*/', re.DOTALL)
_INSTALL = "install one (Debian: gcc libc6-dev, Fedora: gcc glibc-devel, Alpine: gcc musl-dev), or set CC"
_ADVICE = (
    (".h: No such file", "the C library's headers are missing; install them (Debian: libc6-dev)"),
    ("file not found", "the C library's headers are missing; install them (Debian: libc6-dev)"),
    ("march", "the compiler does not know this processor; set CC to a newer GCC or Clang"),
    ("unrecognized", "the compiler does not know an option; set CC to a newer GCC or Clang"),
    ("No space left", "free some space, or set XDG_CACHE_HOME to another directory"),
    ("cannot execute", "a part of the compiler is missing; reinstall it (Debian: gcc)"),
)
"""(words, advice) pairs: the advice holds if the words occur in the compiler's first error."""

Backend = Literal["auto", "compiled", "interpreter"]


def build(program: ir.Program, *, sanitize: bool = False) -> Path:
    """Return the path of a shared object for `program`, building the object if necessary.

    The object implements ``runtime/pipeline.h``.

    With `sanitize`, a memory or arithmetic error in the object ends the process that has loaded it, with a
    report. This process must have preloaded the sanitizers' runtime (`sanitizer_environment`).

    Raises Unsupported, NoCompiler, NoCache or BuildFailed.
    """
    return build_c(emit_once(program), flags=SANITIZE_FLAGS if sanitize else FLAGS)


def build_c(text: str, *, flags: tuple[str, ...] = FLAGS) -> Path:
    """Return the path of the shared object of a C text, building the object if necessary.

    The text may include headers of ``runtime/``.

    Logs a warning if the object is not written to the usual folder.

    Raises NoCompiler, NoCache or BuildFailed.
    """
    content = content_hash(text, flags)
    here = hashed(content, _processor())
    try:
        compiler = find_compiler()
        version = _compiler_version(compiler)
    except NoCompiler:
        if built := _built_elsewhere(content, here):
            return built
        raise
    folder = find_folder()
    target = folder.path / f"pipeline-{here}-{hashed(version)[:8]}.so"
    if whole(target):
        return target
    try:
        return _build(text, flags, compiler, target, folder.hint)
    except OSError as error:  # for example, a full disk
        raise NoCache(f"cannot keep a program in {folder.path}: {error.strerror}: {REMEDY}") from error


def _built_elsewhere(content: str, here: str) -> Path | None:
    """Return a suitable object that another compiler built on this machine, or that the package supplies.

    Return None if there is no such object.
    """
    with suppress(NoCache):
        for file in find_folder().path.glob(f"pipeline-{here}-*.so"):
            if whole(file):
                return file
    found = c_compiler.find(content)
    return found if found and whole(found, ours=True) else None


def _build(text: str, flags: tuple[str, ...], compiler: str, target: Path, hint: str) -> Path:
    with _locked(target.with_suffix(".c")) as kept:
        if whole(target):  # another process has built it meanwhile
            return target
        if hint:
            _warn_once(hint)
        try:
            compile_c([compiler, *flags], text, target)
        except BaseException:
            kept.unlink(missing_ok=True)
            raise
        kept.write_text(text)
    return target


@cache
def _warn_once(hint: str) -> None:
    """Log `hint` once per process; a switch's engine and its program may both ask for the same hint."""
    _log.warning("%s", hint)


@contextmanager
def _locked(lock: Path) -> Iterator[Path]:
    """Hold an exclusive lock on the file `lock`, against other threads and processes.

    The system releases the lock when the holder's process ends. Lock only files of this user: any user who
    may read a file could keep it locked.
    """
    with os.fdopen(os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)) as opened:
        os.fchmod(opened.fileno(), 0o600)
        with suppress(OSError):  # on a file system without locks, each process builds its own
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield lock


def compile_c(command: list[str], text: str, target: Path) -> None:
    """Compile C `text` to the shared object `target`, and seal it (`softswitch.engine.cache.seal`).

    `command` is the compiler with its flags. Raises BuildFailed, or OSError if a file cannot be written.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as scratch:
        source, built = Path(scratch) / "pipeline.c", Path(scratch) / "pipeline.so"
        source.write_text(text)
        command = [*command, "-I", str(RUNTIME), "-o", str(built), str(source)]
        environment = {**os.environ, "TMPDIR": scratch}  # the machine's may not be writable
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment
            )
        except subprocess.TimeoutExpired as error:
            raise BuildFailed(f"{command[0]} took more than {TIMEOUT_S} s") from error
        if done.returncode != 0:
            raise BuildFailed(_failure(command, done.returncode, done.stderr))
        if not built.exists():
            raise BuildFailed(f"{command[0]} ended well, but wrote no {built.name}: is it a C compiler?")
        seal(built)
        built.replace(target)


def _failure(command: list[str], status: int, stderr: str) -> str:
    """Return a message with the compiler's first error, a remedy if one is known, and the whole output."""
    first = _first_error(stderr)
    advice = next((of for words, of in _ADVICE if words in first), "")
    if status < 0 and not advice:
        advice = "was there too little memory?"
    reason = f"{first}: {advice}" if advice else first
    return (
        f"the C compiler {command[0]} is there, but {_ended(status)}: {reason}\n"
        f"its command: {' '.join(command)}\n{stderr.rstrip()}"
    )


def _ended(status: int) -> str:
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"


def _first_error(stderr: str) -> str:
    """Return the first line of a compiler's output that states an error."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return next(
        (line for line in lines if "error" in line.lower()), lines[0] if lines else "it printed no message"
    )


def load(
    program: ir.Program, *, backend: Backend = "auto", seed: int = 0, trace: Trace | None = None
) -> Pipeline:
    """Return `program` ready to run, with empty registers and the entries of its source.

    Args:
        program: The program.
        backend: ``auto`` compiles the program; without a C compiler, it logs a warning and interprets.
        seed: Seed of the random numbers of ``random``.
        trace: Receives each step of each packet. With it, the program is interpreted, whatever `backend` is.

    Raises Unsupported, and with ``compiled`` NoCompiler.
    """
    from softswitch.engine.compiled import CompiledPipeline
    from softswitch.engine.interpreter import interpreter

    if backend == "interpreter" or trace is not None:
        return interpreter(program, seed=seed, trace=trace)
    try:
        return CompiledPipeline(program, build(program), seed=seed)
    except NoCompiler as error:
        if backend == "compiled":
            raise
        _log.warning("%s; the program is interpreted, which is ten thousand times slower", error)
        return interpreter(program, seed=seed)


def find_compiler() -> str:
    """Return the path of the C compiler: ``$CC``, or ``cc``. Raises NoCompiler."""
    path = compiler_path()
    if path is None:
        raise NoCompiler(f"no C compiler: {compiler_name()} is not on PATH; {_INSTALL}")
    return path


def content_hash(text: str, flags: tuple[str, ...]) -> str:
    """Return one hash of three inputs: C text without comments, the compiler's flags, the runtime headers."""
    plain = _COMMENT.sub(lambda found: found[1] or " ", text)
    return hashed(plain, " ".join(flags), "\0".join(path.read_text() for path in sorted(RUNTIME.glob("*.h"))))


@cache
def _compiler_version(compiler: str) -> str:
    try:
        done = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        how = _ended(error.returncode)
        detail = f": {_first_error(error.stderr)}" if error.stderr.strip() else ""
        raise NoCompiler(f"the C compiler {compiler} does not work ('--version' {how}{detail})") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise NoCompiler(f"the C compiler {compiler} does not work: {error}") from error
    return done.stdout


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    wanted = ("model name", "flags", "Features", "CPU part")
    described = {line.split(":")[0].strip(): line for line in lines if line.startswith(wanted)}
    return platform.machine() + "\n".join(described.values())


ENGINE_FLAGS = (*FLAGS, "-D_GNU_SOURCE", "-pthread", "-Wall", "-Wextra")


def engine_sources() -> list[Path]:
    """Return the engine's C files, in the order of their translation unit."""
    return sorted(RUNTIME.glob("engine*.c"))


def engine_text() -> str:
    """Return the engine as one C text, so that calls between its files can be inlined."""
    return "\n".join(f'#line 1 "{path.name}"\n{path.read_text()}' for path in engine_sources())


def build_engine() -> Path:
    """Return the engine as a shared object. Raises NoCompiler or BuildFailed."""
    return build_c(engine_text(), flags=ENGINE_FLAGS)


def join_c(parts: Iterable[Path]) -> str:
    """Return the concatenated text of C files."""
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


def build_for_others(folder: Path, programs: Sequence[str]) -> None:
    """Build the engine and each of `programs` ("PROGRAM.p4:LANES" or "PART.h+PART.c") for all `LEVELS`."""
    from concurrent.futures import ProcessPoolExecutor  # a switch builds one object at a time

    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as processes:
        list(processes.map(partial(_build_for_others, folder), ["", *programs]))  # raises their errors


def _build_for_others(folder: Path, program: str) -> None:
    text, flags = engine_text(), tuple[str, ...](ENGINE_FLAGS)
    if program.endswith(".c"):
        text, flags = join_c(map(Path, program.split("+"))), FLAGS
    elif program:
        from softswitch.compiler import compile_file
        from softswitch.engine.emit_c import emit_c

        source, _, lanes = program.rpartition(":")
        text, flags = emit_c(compile_file(source, defines={"LANES": lanes})), FLAGS
    for level, _ in LEVELS.get(platform.machine(), ()):
        target = folder / f"{content_hash(text, flags)}-{level}.so"
        of_level = [flag.replace("-march=native", f"-march={level}") for flag in flags]
        compile_c([find_compiler(), *of_level, "-s"], text, target)
        target.chmod(0o644)


def sanitizer_environment() -> dict[str, str]:
    """Return the variables with which a Python process can load sanitized objects.

    Raises NoCompiler, and BuildFailed if the compiler has no sanitizers that can be preloaded.
    """
    environment = {
        "LD_PRELOAD": " ".join(_library(name) for name in ("libasan.so", "libubsan.so")),
        "PYTHONMALLOC": "malloc",  # so that every allocation has its red zones
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1",  # Python itself leaks memory
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    probe = [sys.executable, "-c", "import ctypes; ctypes.CDLL(None).__asan_init"]
    if subprocess.run(probe, env=environment, capture_output=True, check=False).returncode:
        raise BuildFailed(f"{find_compiler()} has no address sanitizer that can be preloaded")
    return environment


def _library(name: str) -> str:
    """Return the path of a sanitizer's library; if the compiler has no such library, return `name`."""
    command = [find_compiler(), f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    build_for_others(Path(sys.argv[1]), sys.argv[2:])
