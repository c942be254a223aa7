"""The page of the soak: what happened in how many random schedules, from the output of ``ina soak --json``.

``python -m benchmarks.soak RUN.json … --output docs/results`` adds up runs, each the output of one
``ina soak --schedules N --seed S --json``, and writes page and rows. Several shorter runs are as good as a
long one, as long as no seed is in two of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeVar

from benchmarks.fill import asked, check, option, publish
from bmv2_topos.harness.rows import markdown
from bmv2_topos.soak.checks import KINDS


class BadRun(Exception):
    """A file that is not what a run has written, or seeds that two runs share."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the soak."""

    seed: int
    """Of its first schedule; the next ones have the following numbers."""
    schedules: int
    failures: tuple[str, ...]
    """Seed and reason of each schedule that broke an invariant."""
    wall_time_s: float
    recoveries: int
    median_round_trips: float
    """Round trips per packet that the median recovery took after the last fault."""
    worst_round_trips: float
    largest_share: float
    """The most that a recovery took of the time that it might take."""
    happened: Mapping[str, int]
    """Occurrences by "group: name"."""


def main() -> None:
    """Add up runs, and write the page."""
    given = asked(
        __doc__,
        option("runs", nargs="+", type=Path, metavar="RUN.json"),
        option("--output", type=Path, required=True, help="folder of soak.md and soak.json"),
    )
    try:
        check(given.output / "soak.md")
        runs = in_order([read(path) for path in given.runs])
    except (BadRun, ValueError) as error:
        raise SystemExit(f"benchmarks.soak: {error}") from None
    publish(given.output, "soak", tables(runs), [asdict(run) for run in runs])


def read(path: Path) -> Run:
    """Return the run in a file. Raises BadRun."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        setup, metrics = document["setup"], document["metrics"]
        return Run(
            seed=int(setup["seed"]),
            schedules=int(metrics["schedules"]),
            failures=tuple(f"{each['seed']}: {each['reason']}" for each in metrics["failures"]),
            wall_time_s=float(metrics["wall_time_s"]),
            recoveries=int(metrics["recoveries"]),
            median_round_trips=float(metrics["recovery_round_trips_per_packet_median"]),
            worst_round_trips=float(metrics["recovery_round_trips_per_packet_worst"]),
            largest_share=float(metrics["recovery_largest_share_of_allowed"]),
            happened={str(name): int(number) for name, number in metrics["happened"].items()},
        )
    except OSError as error:
        raise BadRun(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRun(f"{path}: want the output of ina soak --json: {error!r}") from error


class Seeded(Protocol):
    """A run of `schedules` seeds, from `seed` on."""

    @property
    def seed(self) -> int:
        """The first seed."""

    @property
    def schedules(self) -> int:
        """The number of seeds."""


SomeRun = TypeVar("SomeRun", bound=Seeded)


def in_order(runs: Sequence[SomeRun]) -> list[SomeRun]:
    """Return the runs by seed. Raises BadRun if a seed is in two of them."""
    ordered = sorted(runs, key=lambda run: run.seed)
    for one, other in pairwise(ordered):
        if other.seed < one.seed + one.schedules:
            raise BadRun(f"the runs from seed {one.seed} and {other.seed} have schedules in common")
    return ordered


def tables(runs: Sequence[Run]) -> str:
    """Return runs, failures and what happened as Markdown."""
    happened: Counter[str] = Counter()
    for run in runs:
        happened.update(run.happened)
    schedules = sum(run.schedules for run in runs)
    failures = [failure for run in runs for failure in run.failures]
    parts = [
        f"**{schedules:,} schedules, {len(failures)} of which broke an invariant.**",
        markdown(_HEADS, [_row(run) for run in runs]),
        *(f"- seed {failure}" for failure in failures),
        *(_mix(group, names, happened, schedules) for group, names in KINDS.items()),
    ]
    return "\n\n".join(parts)


_HEADS = ["seeds", "schedules", "failed", "per second", "recoveries", "median", "longest", "of the allowed"]
_TITLES = {
    "kind": "Schedules",
    "event": "Events",
    "link": "Packets on links",
    "switch": "Packets at switches, by outcome",
    "worker": "At workers",
    "server": "At fallback servers",
    "recovery": "Recoveries after the last fault",
}
"""Headings of `KINDS`."""


def _row(run: Run) -> list[str]:
    return [
        f"{run.seed}..{run.seed + run.schedules - 1}",
        f"{run.schedules:,}",
        str(len(run.failures)),
        f"{run.schedules / run.wall_time_s:.0f}",
        f"{run.recoveries:,}",
        f"{run.median_round_trips:.1f}",
        f"{run.worst_round_trips:,.1f}",
        f"{run.largest_share:.0%}",
    ]


def _mix(group: str, names: Sequence[str], happened: Mapping[str, int], schedules: int) -> str:
    rows = [
        [name, f"{number:,}", f"{1000 * number / schedules:,.1f}"]
        for name in names
        for number in (happened.get(f"{group}: {name}", 0),)
    ]
    return f"### {_TITLES[group]}\n\n" + markdown(["", "count", "in 1,000 schedules"], rows)


if __name__ == "__main__":
    main()
