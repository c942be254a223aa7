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
    """Values of options that replace the values of all jobs in a job file.

    None means that the option was not given: each job keeps the file's value, or else the default of `Job`.
    """

    slots: int | None = None
    window: int | None = None
    preempt: bool | None = None
    priority: int | None = None
    congestion: str | None = None
    numbers: Encoding | None = None

    def of(self, entry: Job) -> Job:
        """Return the job `entry` of a job file, with the values of the options that were given."""
        given = {key.name: getattr(self, key.name) for key in fields(self)}
        return replace(entry, **{key: value for key, value in given.items() if value is not None})


def specs_of_file(overrides: Overrides, entries: Sequence[Job], *, shared: bool) -> list[LaunchSpec]:
    """Return a `LaunchSpec` for each job of a job file; options that were given replace the file's values.

    With `shared`, ``--slots`` is the number of slots that jobs share. A job for which the file gives a number
    of slots gets exclusive slots instead. The regions of these jobs follow the shared slots, one after the
    other.

    Without `shared`, a job for which only the window is given gets twice as many slots as packets in the
    window. ``--slots`` replaces the windows in the file, too: each window is then half the number of slots.
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
    """Create the log file of a run, or empty an existing one; return its absolute path.

    Workers in any folder can open that path. Raises BadRun if the file cannot be written, or is not a regular
    file, to which several workers could not append.
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
