"""Find switch programs: this folder's by name, and others by file."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

LANES: Final = (32, 64, 256)
"""The supported numbers of values per packet."""
FOLDER: Final = Path(__file__).parent


class NoSuchProgram(ValueError):
    """No program has this name, or the program does not support this number of values per packet."""

    exit_code = 2


def source_of(program: str, lanes: int) -> tuple[Path, dict[str, str]]:
    """Return a program's source file and the preprocessor definitions that build it.

    `program` is the name of a program of this folder, or the path of a file that ends in ``.p4``. Raises
    NoSuchProgram if the name or the number of lanes is not supported, FileNotFoundError for a missing file.
    """
    if is_file(program):
        path = Path(program)
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
        return path, {"LANES": str(lanes)}
    known = sorted(path.stem for path in FOLDER.glob("*.p4"))
    if program not in known:
        raise NoSuchProgram(
            f"there is no program '{program}'; want {', '.join(known)}, or a file that ends in .p4"
        )
    if lanes not in LANES:
        choices = ", ".join(map(str, LANES))
        raise NoSuchProgram(f"programs are built for {choices} values per packet, not {lanes}")
    return FOLDER / f"{program}.p4", {"LANES": str(lanes)}


def is_file(program: str) -> bool:
    """Return True if `program` is the path of a file, not the name of a program in this folder."""
    return program.endswith(".p4")
