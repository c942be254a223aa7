"""Random schedules of mishaps in virtual time: the daemon is killed at its steps, and so is all around it.

    python -m tests.ina.run.schedules --schedules 10000 --seed 1 --json RUN.json

prints what went wrong, by seed; each is repeated with ``--schedules 1 --seed N``. What happens in a schedule
is in `mishaps`. When all has been mended every job is over, done once if it completed, with a sum that is
right, and nothing is left: no row of a switch, run, slot, or row of the store.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tests.ina.run.schedule import Schedule, play

WRITTEN_EVERY = 25
"""Schedules after which the file of a run is written anew."""


@dataclass
class Played:
    """What many schedules came to: the first seed, how many, and sums over those that went well."""

    seed: int
    schedules: int = 0
    wrong: list[str] = field(default_factory=list)
    """Seed and reason of those that went wrong."""
    happened: Counter[str] = field(default_factory=Counter)
    """Mishaps, by name."""
    died_after: Counter[str] = field(default_factory=Counter)
    """Steps after which the daemon died, by fault point."""
    jobs: Counter[str] = field(default_factory=Counter)
    """By how they ended."""
    sums: int = 0
    steps: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def add(self, schedule: Schedule) -> None:
        """Add one that went well."""
        self.happened += schedule.mishaps.happened
        self.died_after += schedule.died_after
        self.jobs.update(state for state, _ in schedule.ends.values())
        self.sums += schedule.world.sums
        self.steps += len(schedule.passed)

    def plain(self) -> dict[str, Any]:
        """Return it as numbers, strings, lists and dicts."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}

    def __str__(self) -> str:
        deaths = self.died_after.total()
        return (
            f"{self.schedules} schedules, {self.jobs.total()} jobs, {deaths} deaths of the daemon,"
            f" {self.sums} sums; {self.wall_s:.0f} s, {self.cpu_s:.0f} s of a processor:"
            f" {len(self.wrong)} wrong"
        )


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Counter) else value


def main() -> int:
    """Play schedules, and print what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first; the next ones have the next numbers"
    )
    parser.add_argument("--json", type=Path, help="file for what it came to, written again and again")
    options = parser.parse_args()
    gc.freeze()
    played = Played(options.seed)
    wall_s, cpu_s = time.monotonic(), time.process_time()
    for seed in range(options.seed, options.seed + options.schedules):
        try:
            played.add(play(seed))
        except Exception as error:
            played.wrong.append(f"{seed}: {type(error).__name__}: {error}")
            print(f"seed {played.wrong[-1][:600]}", flush=True)
        played.schedules += 1
        played.wall_s, played.cpu_s = time.monotonic() - wall_s, time.process_time() - cpu_s
        if options.json and (played.schedules % WRITTEN_EVERY == 0 or played.schedules == options.schedules):
            options.json.write_text(json.dumps(played.plain(), indent=1) + "\n")
    print(played)
    return 1 if played.wrong else 0


if __name__ == "__main__":
    logging.disable()
    sys.exit(main())
