"""Programs in IR, compiled once per text: the compiler's results are kept beside the shared objects.

A file's name is the hash of everything that makes it: the text, the name that positions give it, the
compiler's own source and Python's version. It is a pickle, and to load one is to run it, like a shared
object; `cache` says which may be loaded.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path

import softswitch.compiler
from softswitch.compiler import compile_source, ir
from softswitch.engine.cache import find_folder, seal, unsealed
from softswitch.engine.pipeline import NoCache


def compile_once(text: str, *, name: str = "<string>") -> ir.Program:
    """Return the result of `compile_source` for a preprocessed text, from the cache if it is there.

    Raises CompileError.
    """
    try:
        file = find_folder().path / f"program-{_content_hash(text, name)}.ir"
    except NoCache:
        return compile_source(text, name=name)
    kept = unsealed(file)
    if kept is not None:
        found: ir.Program = pickle.loads(kept)
        return found
    program = compile_source(text, name=name)
    with suppress(OSError):  # a full disk, say: it is compiled again the next time
        _keep(program, file)
    return program


def _keep(program: ir.Program, file: Path) -> None:
    scratch = file.with_suffix(f".{os.getpid()}")
    try:
        scratch.write_bytes(pickle.dumps(program))
        seal(scratch)
        scratch.replace(file)
    finally:
        scratch.unlink(missing_ok=True)


def _content_hash(text: str, name: str) -> str:
    digest = hashlib.sha256(_compiler())
    for part in (text, name, platform.python_version()):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]


@cache
def _compiler() -> bytes:
    folder = Path(softswitch.compiler.__file__).parent
    return b"\0".join(source.read_bytes() for source in sorted(folder.rglob("*.py")))
