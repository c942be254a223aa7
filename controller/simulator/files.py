"""Files of results: written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def file_in_errors(path: Path) -> Iterator[None]:
    """Add `path` to each OSError of the ``with`` block that names no file, such as a full disk's error."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; the file written to it replaces `path` at the end.

    After an error or an interrupt there is no new file, and an older file is unchanged. Missing directories
    are created. If `path` exists and is not a regular file (a pipe, /dev/stdout), it is yielded itself, and
    written directly. Raises OSError.
    """
    path = path.resolve()  # the target of a link is replaced, not the link
    path.parent.mkdir(parents=True, exist_ok=True)
    direct = path.exists() and not path.is_file()
    # the end of the name tells the format
    draft = path if direct else path.with_name(f".ina-{os.getpid()}-{path.name}")
    try:
        with file_in_errors(draft):
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
