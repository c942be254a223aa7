"""Jobs of a job file, with the options beside it that hold for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from controller.vocabulary import Encoding, Job
from ina.runtime.spec import LaunchSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Options that were given, by the key that they are about; None: not given, and what the file says holds.

    What neither says is as in `Job`.
    """

    slots: int | None = None
    window: int | None = None
    preempt: bool | None = None
    congestion: str | None = None
    numbers: Encoding | None = None
    iterations: int | None = None

    def of(self, entry: Job) -> Job:
        """Return the launch of one job of the file."""
        given = {key.name: getattr(self, key.name) for key in fields(self)}
        return replace(entry, **{key: value for key, value in given.items() if value is not None})


def specs_of_file(
    common: LaunchSpec, overrides: Overrides, entries: Sequence[Job], *, shared: bool
) -> list[LaunchSpec]:
    """Return the jobs of a file, with an option that was given in the place of what the file says.

    Of a shared array --slots are those of all jobs together: jobs with slots of their own get these behind
    them, one after the other. An exclusive job's window is half its slots, whichever of the two is given.
    """
    specs = []
    if shared:
        first_own = overrides.slots or 0
        for entry in map(replace(overrides, slots=None).of, entries):
            if entry.slots is None:
                specs.append(spec_of(common, entry, slots=overrides.slots))
            else:
                specs.append(spec_of(common, entry, slots=entry.slots, first_slot=first_own))
                first_own += entry.slots
        return specs
    for entry in map(overrides.of, entries):
        window = entry.window if overrides.slots is None else None
        slots = 2 * window if entry.slots is None and window else entry.slots
        specs.append(spec_of(common, replace(entry, window=window), slots=slots))
    return specs


def spec_of(common: LaunchSpec, entry: Job, *, slots: int | None, first_slot: int = 0) -> LaunchSpec:
    """Return the job of an entry: `common`, with what entries say, and these slots."""
    return replace(
        common,
        name=entry.name,
        command=entry.command or common.command,
        workers=entry.workers,
        slots=slots,
        first_slot=first_slot,
        window=entry.window,
        preempt=entry.preempt,
        congestion=entry.congestion,
        priority=entry.priority,
        numbers=entry.numbers,
        start_s=entry.arrival_s,
    )
