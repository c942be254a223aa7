"""Reading of job and cluster files for commands, which report keys of these files that they do not use."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from controller.vocabulary import (
    BadSpec,
    Job,
    Topology,
    documents,
    jobs_of,
    named,
    topology_of,
    unused,
    unusual,
)
from controller.vocabulary.documents import Document


def jobs(
    path: Path, command: str, on: Topology | None = None, *, require: tuple[str, ...] = ()
) -> tuple[Job, ...]:
    """Return the jobs of a file, and report keys that the command does not use.

    Args:
        path: The file.
        command: Name of the command.
        on: The topology on which every job must fit; None: do not check whether the jobs fit.
        require: Keys that the command needs in every job.

    Raises BadSpec.
    """
    document = documents.read(path)
    found = jobs_of(document, on, require=require)
    say_unused(document, command)
    return found


def topology(text: str, command: str) -> Topology:
    """Return the topology of a file, or the topology of the catalog with this name. Raises BadSpec.

    Reports the keys of a file that the command does not use.
    """
    if Path(text).suffix not in documents.FORMATS:
        return named(text)
    document = documents.read(Path(text))
    found = topology_of(document)
    say_unused(document, command)
    return found


def say_unused(document: Document, command: str) -> None:
    """Print one line with the keys of a file that a command does not use, and one for each unusual value."""
    for sentence in unusual(document):
        print(f"{document.path}: warning: {sentence}", file=sys.stderr)
    if keys := unused(document, command):
        print(f"{document.path}: ina {command} does not use {', '.join(keys)}", file=sys.stderr)


def unused_keys(command: str, *paths: Path | None) -> list[str]:
    """Return the keys of these files that a command does not use, each once.

    Files in other formats than .toml, .json and .yaml have none.
    """
    keys: dict[str, None] = {}
    for document in _ours(paths):
        keys |= dict.fromkeys(unused(document, command))
    return list(keys)


def note(command: str, *paths: Path | None) -> list[str]:
    """Report and return, each once, the keys of these files that a command does not use.

    For commands that read the files themselves.
    """
    for document in _ours(paths):
        say_unused(document, command)
    return unused_keys(command, *paths)


def _ours(paths: Sequence[Path | None]) -> Iterator[Document]:
    """Yield the readable .toml, .json and .yaml files; leave out public traces, which may also be JSON."""
    for path in paths:
        if path is not None and path.suffix in documents.FORMATS:
            with contextlib.suppress(BadSpec):
                yield documents.read(path)
