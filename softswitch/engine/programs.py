"""Products of a program's text, made once per content: they are cached beside the shared objects.

==============================  ========================================  ==============================
file                            what it holds                             what its name is the hash of
==============================  ========================================  ==============================
``source-….json``               the text that `preprocess_once` made, and  the file's name and text, the
                                the digests of all that it read            definitions, the compiler
``program-….ir``                the IR, a pickle: to load one is to run    the text, the name that positions
                                it, as a shared object                     give it, what undefined values
                                                                           are, the compiler, Python
``p4info-….bin``                its P4Info, serialized                    as of the IR
``emitted-….c``                 the C text                                 the IR's, the back end
==============================  ========================================  ==============================

`cache` says which may be loaded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import pickle
import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import softswitch.compiler
from softswitch.compiler import Choice, compile_source, p4info, p4info_from
from softswitch.compiler.source import read_source
from softswitch.engine.cache import find_folder, hashed, seal, unsealed
from softswitch.engine.pipeline import NoCache

if TYPE_CHECKING:
    from softswitch.compiler import ir

_BACK_END = Path(__file__).parent / "emit_c"
_FRONT_END = Path(softswitch.compiler.__file__).parent


def preprocess_once(path: Path, *, defines: Mapping[str, str] | None = None) -> str:
    """Return the result of `preprocess_file`, from the cache if no file that it asks for has changed.

    Raises CompileError, or OSError if the file cannot be read.
    """
    main = read_source(path)
    key = hashed(
        _code(_FRONT_END), str(path), str(path.absolute()), main, *map("=".join, (defines or {}).items())
    )
    file = f"source-{key}.json"
    if (kept := _kept(file)) is not None:
        found = json.loads(kept)
        if all(_digest_of(Path(name)) == digest for name, digest in found["read"].items()):
            return str(found["text"])
    read: dict[str, str | None] = {}

    def note(included: Path) -> str:
        read[str(included)] = _digest_of(included)
        return read_source(included)

    from softswitch.compiler.frontend.preprocess import preprocess

    text = preprocess(main, str(path), defines=defines, read=note)
    _keep(file, json.dumps({"read": read, "text": text}).encode())
    return text


def compile_once(text: str, *, name: str = "<string>", undefined: Choice | None = None) -> ir.Program:
    """Return the result of `compile_source` for a preprocessed text, from the cache if it is there.

    Raises CompileError.
    """
    key = _key(text, name, undefined)
    if (kept := _kept(f"program-{key}.ir")) is not None:
        found: ir.Program = pickle.loads(kept)
        return found
    compiled = compile_source(text, name=name, preprocessed=True, undefined=undefined)
    program = dataclasses.replace(compiled, origin=key)
    _keep(f"program-{key}.ir", _pickled(program))
    return program


def p4info_once(text: str, *, name: str = "<string>", undefined: Choice | None = None) -> Any:
    """Return the P4Info (`softswitch.compiler.p4info`) of what `compile_once` returns, without loading it.

    Raises CompileError.
    """
    file = f"p4info-{_key(text, name, undefined)}.bin"
    if (kept := _kept(file)) is not None:
        return p4info_from(kept)
    info = p4info(compile_once(text, name=name, undefined=undefined))
    _keep(file, info.SerializeToString())
    return info


def _key(text: str, name: str, undefined: Choice | None) -> str:
    return hashed(_code(_FRONT_END), text, name, platform.python_version(), undefined or "")


class _Pickler(pickle.Pickler):
    """Writes dataclasses as calls, which loads 20,000 of them in a third of the time."""

    def reducer_override(self, it: Any) -> Any:
        if dataclasses.is_dataclass(it) and not isinstance(it, type):
            return type(it), tuple(getattr(it, field.name) for field in dataclasses.fields(it))
        return NotImplemented


def _pickled(program: ir.Program) -> bytes:
    into = io.BytesIO()
    _Pickler(into, pickle.HIGHEST_PROTOCOL).dump(program)
    return into.getvalue()


def emit_once(program: ir.Program) -> str:
    """Return `emit_c` of a program, from the cache if `compile_once` made it. Raises Unsupported."""
    if program.origin is None:
        return _emitted(program)
    file = f"emitted-{hashed(_code(_BACK_END), program.origin)}.c"
    if (kept := _kept(file)) is not None:
        return kept.decode()
    text = _emitted(program)
    _keep(file, text.encode())
    return text


def _emitted(program: ir.Program) -> str:
    from softswitch.engine.emit_c.program import emit_c  # most processes find what they need emitted already

    return emit_c(program)


def _kept(name: str) -> bytes | None:
    try:
        return unsealed(find_folder().path / name)
    except NoCache:
        return None


def _keep(name: str, content: bytes) -> None:
    with suppress(NoCache, OSError):  # a full disk, say: it is made again the next time
        file = find_folder().path / name
        scratch = file.with_suffix(f".{os.getpid()}")
        try:
            scratch.write_bytes(content)
            seal(scratch)
            scratch.replace(file)
        finally:
            scratch.unlink(missing_ok=True)


def _digest_of(path: Path) -> str | None:
    """Return the digest of a file, None if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


@cache
def _code(folder: Path) -> str:
    digest = hashlib.sha256()
    for source in sorted(folder.rglob("*.py")):
        digest.update(source.read_bytes() + b"\0")
    return digest.hexdigest()
