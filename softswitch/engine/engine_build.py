"""Builds the data-path engine (runtime/engine*.c) with the machine's C compiler, once."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from softswitch.engine.pipeline import BuildFailed, NoCompiler

_RUNTIME = Path(__file__).parent / "runtime"
_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-shared", "-fPIC", "-pthread", "-Wall", "-Wextra")
_SANITIZE = ("-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def cache_directory() -> Path:
    """Where built objects are kept: ``$XDG_CACHE_HOME/ina`` or ``~/.cache/ina``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ina"


def build_engine(*, sanitize: bool = False) -> Path:
    """The engine as a shared object, from the cache or built now.

    Raises NoCompiler without ``cc``, BuildFailed with the compiler's output.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise NoCompiler("no C compiler: 'cc' is not on PATH")
    sources = sorted(_RUNTIME.glob("engine*.c"))
    headers = [*sorted(_RUNTIME.glob("engine*.h")), _RUNTIME / "pipeline.h"]
    flags = _FLAGS + (_SANITIZE if sanitize else ())
    digest = hashlib.sha256(" ".join((compiler, *flags)).encode())
    for path in [*sources, *headers]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    target = cache_directory() / f"engine-{digest.hexdigest()[:24]}.so"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        built = Path(scratch) / "engine.so"
        command = [compiler, *flags, "-o", str(built), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise BuildFailed(f"{' '.join(command)}\n{done.stderr}")
        built.replace(target)  # atomic: others may build the same at the same time
    return target
