"""Files and directories that options name: looked at before the work, and wrong usage if they cannot be used.

An option that writes declares that its path is `writable`, and one of a directory has the metavar DIR; the
paths of all other options and arguments have to be there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ina.cli.errors import USAGE, Failure


def check(declared: Any, context: Any, parameter: Any, value: Any) -> Any:
    """Return the value of an option whose type is a path, or several. Raises Failure.

    Args:
        declared: The option or argument as typer has it.
        context: Of the command line.
        parameter: The parsed option.
        value: Its value.
    """
    several = value if isinstance(value, list | tuple) else () if value is None else (value,)
    option = f"{parameter.opts[0]} " if parameter.param_type_name == "option" else ""
    keywords = {"writable": declared.writable, "exists": declared.exists, "metavar": parameter.metavar}
    check_declared(keywords, option, several)
    return value


def check_declared(keywords: Mapping[str, Any], option: str, several: Iterable[Any]) -> None:
    """Raise Failure if paths cannot be used as these keywords of an option say. `option` ends in a space."""
    for path in several:
        if not keywords.get("writable"):
            check_input(option, Path(path))
        elif not keywords.get("exists"):
            check_output(option, Path(path), directory=keywords.get("metavar") == "DIR")


def check_input(option: str, path: Path) -> None:
    """Raise Failure if there is no such file or directory, or nobody may look. `option` ends in a space."""
    try:
        path.stat()
    except OSError as error:
        raise Failure(f"{option}{path}: {error.strerror}", USAGE) from error


def check_output(option: str, path: Path, *, directory: bool = False) -> None:
    """Raise Failure if `path` cannot become a file, or a directory of files. `option` ends in a space."""
    try:
        if path.exists() and path.is_dir() != directory:
            raise Failure(f"{option}{path}: {'not a directory' if directory else 'a directory'}", USAGE)
        there = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    except OSError as error:
        raise Failure(f"{option}{path}: {error.strerror}", USAGE) from error
    if not path.exists() and not there.is_dir():
        raise Failure(f"{option}{path}: {there} is not a directory", USAGE)
    beside = there.resolve().parent if there.is_file() else there  # a file is replaced by one beside it
    for each in (there, beside):
        if not os.access(each, os.W_OK):
            raise Failure(f"{option}{path}: no permission to write to {each}", USAGE)
