"""The jobs of a job file, the options that override values of all of them, and the log of their run."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from controller.vocabulary import Encoding, Job
from ina.errors import BadRun
from ina.launch.spec import LaunchSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Options that replace a value of all jobs of a job file; None: not given, and the file's value applies.

    Without an option and a value in the file, the default of `Job` applies.
    """

    slots: int | None = None
    window: int | None = None
    preempt: bool | None = None
    priority: int | None = None
    congestion: str | None = None
    numbers: Encoding | None = None

    def of(self, entry: Job) -> Job:
        """Return one job of the file with the given options."""
        given = {key.name: getattr(self, key.name) for key in fields(self)}
        return replace(entry, **{key: value for key, value in given.items() if value is not None})


def specs_of_file(overrides: Overrides, entries: Sequence[Job], *, shared: bool) -> list[LaunchSpec]:
    """Return the launches of a file's jobs; given options replace the file's values.

    If jobs share slots, --slots is the number of shared slots. Jobs with own slots get regions behind the
    shared slots, one after the other. An exclusive job's window is half its slots, whichever of the two is
    given.
    """
    if not shared:
        return [LaunchSpec(job=_exclusive(entry, overrides)) for entry in entries]
    specs = []
    first_own = overrides.slots or 0
    for entry in map(replace(overrides, slots=None).of, entries):
        if entry.slots is None:
            specs.append(LaunchSpec(job=replace(entry, slots=overrides.slots)))
        else:
            specs.append(LaunchSpec(job=entry, first_slot=first_own))
            first_own += entry.slots
    return specs


def _exclusive(entry: Job, overrides: Overrides) -> Job:
    job = overrides.of(entry)
    window = job.window if overrides.slots is None else None
    return replace(job, window=window, slots=2 * window if job.slots is None and window else job.slots)


def begin_log(path: Path) -> Path:
    """Create the log file of a run, empty; return its absolute path, for workers in any folder.

    Raises BadRun if it cannot be written, or is not a regular file: all workers open it by name.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise BadRun(f"{error.strerror}", setting="log", value=str(path)) from error
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise BadRun(
                "not a regular file: several workers cannot append to it", setting="log", value=str(path)
            )
        os.ftruncate(file, 0)
    finally:
        os.close(file)
    return path.absolute()
