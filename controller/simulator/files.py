"""Files of results: written completely or not at all, and checked to be writable before the work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controller.scheduling.errors import BadSpec


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have errors name `path` that name no file: a write, as to a full disk, does not know where it goes."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`; the file written there replaces `path` at the end.

    After an error or an interrupt there is no new file, and an older file is unchanged. Missing directories
    are created. Other than regular files (a pipe, /dev/stdout) are written directly. Raises OSError.
    """
    path = path.resolve()  # what a link leads to is replaced, not the link
    path.parent.mkdir(parents=True, exist_ok=True)
    direct = path.exists() and not path.is_file()
    # the end of the name tells the format
    draft = path if direct else path.with_name(f".ina-{os.getpid()}-{path.name}")
    try:
        with naming(draft):
            yield draft
        if not direct:
            draft.replace(path)
    except OSError as error:
        if error.filename == str(draft):
            error.filename = str(path)  # the name that people know
        raise
    finally:
        if not direct:
            draft.unlink(missing_ok=True)


def check_output(option: str, path: Path, *, directory: bool = False) -> None:
    """Raise BadSpec if `path`, given by `option`, cannot become a file (or a directory of files)."""
    try:
        if path.exists() and path.is_dir() != directory:
            raise BadSpec(f"{option} {path}: {'not a directory' if directory else 'a directory'}")
        there = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    except OSError as error:
        raise BadSpec(f"{option} {path}: {error.strerror}") from error
    if not path.exists() and not there.is_dir():
        raise BadSpec(f"{option} {path}: {there} is not a directory")
    beside = there.resolve().parent if there.is_file() else there  # a file is replaced by one beside it
    for each in (there, beside):
        if not os.access(each, os.W_OK):
            raise BadSpec(f"{option} {path}: no permission to write to {each}")
