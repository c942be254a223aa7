"""The folder of compiled programs, and the check of the files in it before they are loaded.

Loading a shared object runs code in it, so no other user may be able to write to the folder or replace the
folder. Therefore, the folder and all its parents must belong to this user or root, and only parents with the
sticky bit, such as ``/tmp``, may be writable by others. The first suitable one of these folders is used:

1. ``$XDG_CACHE_HOME/ina``, or ``~/.cache/ina``,
2. ``ina-UID`` in the folder for temporary files,
3. a folder of this process, removed when the process ends.

Files are sealed: a digest of the content is appended to the file, where loaders ignore it. Loading a file
that a full disk or a crash cut off would crash the process. Such a file is not `whole`, and is built again.

The products of a program's text are cached beside the shared objects:

==============================  ========================================  ==============================
file                            content                                   its name is the hash of
==============================  ========================================  ==============================
``source-….json``               the result of `preprocess_once`, and the  the file's name and text, the
                                digests of all files that it read         definitions, the compiler
``program-….ir``                the IR, a pickle: loading it can run      the text, its name in positions,
                                code, as loading a shared object can      the choice of undefined values,
                                                                          the compiler, Python
``p4info-….bin``                the P4Info, serialized                    the same inputs as for the IR
``emitted-….c``                 the C text                                the IR's hash, the back end
==============================  ========================================  ==============================
"""

from __future__ import annotations

import atexit
import dataclasses
import hashlib
import io
import json
import os
import pickle
import platform
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import softswitch.compiler
from softswitch.compiler import Choice, compile_source, p4info, p4info_from
from softswitch.compiler.errors import read_source
from softswitch.engine.pipeline import NoCache

if TYPE_CHECKING:
    from softswitch.compiler import ir

T = TypeVar("T")

_DIGEST = hashlib.sha256
_DIGEST_BYTES = _DIGEST().digest_size
REMEDY = "set XDG_CACHE_HOME to a folder of your own"
_MAX_LINKS = 40
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of compiled programs that was found suitable."""

    path: Path
    hint: str = ""
    """The reason why `path` is not the expected folder, with a remedy; empty if `path` is expected."""


def find_folder() -> Folder:
    """Return the first suitable folder, creating it if necessary. Raises NoCache if there is none."""
    refused: list[str] = []
    for candidate in (_expected, _by_user, _of_this_process):
        try:
            path = candidate()
        except NoCache as error:
            refused.append(str(error))
            continue
        hint = f"{'; '.join(refused)}; compiled programs are kept in {path} instead: {REMEDY}"
        return Folder(path, hint if refused else "")
    raise NoCache(f"no folder for compiled programs: {'; '.join(refused)}: {REMEDY}")


def seal(file: Path) -> None:
    """Append the digest of a file's content to the file, and make it accessible to its owner only."""
    digest = _DIGEST(file.read_bytes()).digest()
    with file.open("ab") as end:
        end.write(digest)
    file.chmod(0o600)


def hashed(*parts: str) -> str:
    """Return a hash of texts, to use in a file's name."""
    digest = _DIGEST()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]


def whole(file: Path, *, ours: bool = False) -> bool:
    """Return True if a file exists, was sealed, is unchanged since, and was written by this user or root.

    With `ours`, the file is part of this package and may belong to any user.
    """
    return unsealed(file, ours=ours) is not None


def unsealed(file: Path, *, ours: bool = False) -> bytes | None:
    """Return a file's content without the digest that `seal` appended; None if the file is not `whole`."""
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            data = opened.read()
    except OSError:
        return None
    if not ours and (status.st_uid not in _trusted() or status.st_mode & _OTHERS_WRITE):
        return None
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    return content if _DIGEST(content).digest() == digest else None


def _expected() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if Path(base).is_absolute():  # the XDG specification ignores relative paths
        return _make(Path(base) / "ina")
    try:
        return _make(Path.home() / ".cache" / "ina")
    except RuntimeError as error:  # a user id without a name, as in containers
        raise NoCache("there is no home directory") from error


def _by_user() -> Path:
    return _make(_temporary() / f"ina-{os.geteuid()}")


@cache
def _of_this_process() -> Path:
    parent = _temporary()
    try:
        folder = tempfile.TemporaryDirectory(prefix="ina-", dir=parent)
    except OSError as error:
        raise NoCache(f"{parent}: {error.strerror}") from error
    atexit.register(folder.cleanup)
    return _executable(Path(folder.name))


def _temporary() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise NoCache(f"no folder for temporary files: {error.strerror}") from error


def _make(folder: Path) -> Path:
    """Create a folder if it is missing and return it. Raises NoCache if it is not usable."""
    try:
        for path in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
            with suppress(FileExistsError):  # another process's
                path.mkdir(mode=0o700)
        if reason := _distrust(folder):
            raise NoCache(reason)
    except OSError as error:
        raise NoCache(f"{error.filename or folder}: {error.strerror}") from error
    except RuntimeError as error:  # a cycle of links
        raise NoCache(str(error)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise NoCache(f"{folder}: not writable")
    return _executable(folder)


def _executable(folder: Path) -> Path:
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise NoCache(f"{folder}: on a file system mounted noexec")
    return folder


def _distrust(folder: Path) -> str | None:
    """Return the reason why other users could write to `folder` or replace it; None if they cannot."""
    real = folder.resolve()
    for path in _ways(folder):
        status = path.lstat()
        if status.st_uid not in _trusted():
            return f"{path} belongs to user {status.st_uid}, not to {os.geteuid()}"
        if stat.S_ISLNK(status.st_mode):
            continue
        sticky = status.st_mode & stat.S_ISVTX and path != real
        if status.st_mode & _OTHERS_WRITE and not sticky:
            return f"{path} is writable by others (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _ways(folder: Path) -> Iterator[Path]:
    """Yield a folder and its parents; for each symbolic link among them, also the target and its parents."""
    path = folder
    for _ in range(_MAX_LINKS):
        yield path
        yield from path.parents
        link = next((part for part in (*reversed(path.parents), path) if part.is_symlink()), None)
        if link is None:
            return
        # Without links above it, the meaning of ".." follows from its name.
        target = Path(os.path.normpath(link.parent.resolve() / link.readlink()))
        path = target / path.relative_to(link)
    raise NoCache(f"{folder}: too many links")


def _trusted() -> tuple[int, int]:
    return 0, os.geteuid()


_BACK_END = Path(__file__).parent / "emit_c"
_FRONT_END = Path(softswitch.compiler.__file__).parent


def preprocess_once(path: Path, *, defines: Mapping[str, str] | None = None) -> str:
    """Return the result of `preprocess_file`, from the cache if none of its input files has changed.

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
    """Return the result of `compile_source` for a preprocessed text, from the cache if present.

    Raises CompileError.
    """
    key = _key(text, name, undefined)

    def make() -> ir.Program:
        compiled = compile_source(text, name=name, preprocessed=True, undefined=undefined)
        return dataclasses.replace(compiled, origin=key)

    program: ir.Program = _once(f"program-{key}.ir", make, read=pickle.loads, write=_pickled)
    return program


def p4info_once(text: str, *, name: str = "<string>", undefined: Choice | None = None) -> Any:
    """Return the P4Info (`softswitch.compiler.p4info`) of `compile_once`'s result, without loading the IR.

    Raises CompileError.
    """
    return _once(
        f"p4info-{_key(text, name, undefined)}.bin",
        lambda: p4info(compile_once(text, name=name, undefined=undefined)),
        read=p4info_from,
        write=lambda info: info.SerializeToString(),
    )


def _once(file: str, make: Callable[[], T], *, read: Callable[[bytes], T], write: Callable[[T], bytes]) -> T:
    """Return the content of a cached file or, if there is none, the result of `make`, and cache it."""
    if (kept := _kept(file)) is not None:
        return read(kept)
    made = make()
    _keep(file, write(made))
    return made


def _key(text: str, name: str, undefined: Choice | None) -> str:
    return hashed(_code(_FRONT_END), text, name, platform.python_version(), undefined or "")


class _Pickler(pickle.Pickler):
    """Pickles dataclasses as calls of their constructors, which makes loading them three times as fast."""

    def reducer_override(self, it: Any) -> Any:
        if not dataclasses.is_dataclass(it) or isinstance(it, type):
            return NotImplemented
        values = {field.name: getattr(it, field.name) for field in dataclasses.fields(it)}
        named = {field.name: values.pop(field.name) for field in dataclasses.fields(it) if field.kw_only}
        if named.keys() == {"pos"}:
            return _at, (type(it), named["pos"], *values.values())
        return (partial(type(it), **named) if named else type(it)), tuple(values.values())


def _at(kind: Any, pos: ir.Position, *values: Any) -> Any:
    return kind(*values, pos=pos)


def _pickled(program: ir.Program) -> bytes:
    into = io.BytesIO()
    _Pickler(into, pickle.HIGHEST_PROTOCOL).dump(program)
    return into.getvalue()


def emit_once(program: ir.Program) -> str:
    """Return the C text of a program (`emit_c`), from the cache if `compile_once` returned the program.

    Raises Unsupported.
    """
    if program.origin is None:
        return _emitted(program)
    file = f"emitted-{hashed(_code(_BACK_END), program.origin)}.c"
    return _once(file, lambda: _emitted(program), read=bytes.decode, write=str.encode)


def _emitted(program: ir.Program) -> str:
    from softswitch.engine.emit_c import emit_c  # most processes find the program's C text in the cache

    return emit_c(program)


def _kept(name: str) -> bytes | None:
    try:
        return unsealed(find_folder().path / name)
    except NoCache:
        return None


def _keep(name: str, content: bytes) -> None:
    with suppress(NoCache, OSError):  # for example, a full disk: the file is made again next time
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
    for source in sorted(folder.rglob("*.p[y4]")):
        digest.update(source.read_bytes() + b"\0")
    return digest.hexdigest()
