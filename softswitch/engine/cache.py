"""The folder of compiled programs, and the check of the files in it before they are loaded.

To load a shared object is to run it, so the folder has to be one that nobody else can write to, or put
another in the place of: it and all above it belong to this user or root, and are not writable by others but
for folders with the sticky bit, such as ``/tmp``. The first that is so is taken of

1. ``$XDG_CACHE_HOME/ina``, or ``~/.cache/ina``,
2. ``ina-UID`` in the folder for temporary files,
3. a folder of this process, gone when it ends.

Files are sealed: their digest stands at their end, where loaders do not look. One that was cut off, by a full
disk or a crash, would end the process that loads it; it is not `whole`, and is built again.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from softswitch.engine.pipeline import NoCache

_DIGEST = hashlib.sha256
_DIGEST_BYTES = _DIGEST().digest_size
REMEDY = "set XDG_CACHE_HOME to a folder of your own"
_MAX_LINKS = 40
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder to use."""

    path: Path
    hint: str = ""
    """The reason why it is not the expected folder, with a remedy; empty if it is the expected one."""


def find_folder() -> Folder:
    """Return the folder to use, making it if need be. Raises NoCache."""
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
    """Append the digest of a file to it, and remove write permission for others."""
    digest = _DIGEST(file.read_bytes()).digest()
    with file.open("ab") as end:
        end.write(digest)
    file.chmod(0o600)


def hashed(*parts: str) -> str:
    """Return a hash of texts, for names of files."""
    digest = _DIGEST()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]


def whole(file: Path, *, ours: bool = False) -> bool:
    """Return True if a file is there, was sealed, is as it was then, and was written by this user or root.

    One that is `ours`, of the package, may be any user's: that user has written the package, too.
    """
    return unsealed(file, ours=ours) is not None


def unsealed(file: Path, *, ours: bool = False) -> bytes | None:
    """Return the content of a file when it was sealed; None if it is not `whole`."""
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
    if Path(base).is_absolute():  # others do not count, says the XDG specification
        return _make(Path(base) / "ina")
    try:
        return _make(Path.home() / ".cache" / "ina")
    except RuntimeError as error:  # a user id without a name, as containers have
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
    """Make a folder where there is none and return it. Raises NoCache if it cannot be used."""
    try:
        for path in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
            with suppress(FileExistsError):  # of another process
                path.mkdir(mode=0o700)
        if reason := _distrust(folder):
            raise NoCache(reason)
    except OSError as error:
        raise NoCache(f"{error.filename or folder}: {error.strerror}") from error
    except RuntimeError as error:  # links that lead to each other
        raise NoCache(str(error)) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise NoCache(f"{folder}: not writable")
    return _executable(folder)


def _executable(folder: Path) -> Path:
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise NoCache(f"{folder}: on a file system mounted noexec")
    return folder


def _distrust(folder: Path) -> str | None:
    """Return why others could put files into a folder, or replace it; None: nobody else can."""
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
    """Yield a folder, all above it, and the same of what links among them lead to."""
    path = folder
    for _ in range(_MAX_LINKS):
        yield path
        yield from path.parents
        link = next((part for part in (*reversed(path.parents), path) if part.is_symlink()), None)
        if link is None:
            return
        # Without links above it, what ".." means is in its name.
        target = Path(os.path.normpath(link.parent.resolve() / link.readlink()))
        path = target / path.relative_to(link)
    raise NoCache(f"{folder}: too many links")


def _trusted() -> tuple[int, int]:
    return 0, os.geteuid()
