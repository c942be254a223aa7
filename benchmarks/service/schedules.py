"""The page of random schedules of the service in virtual time: what happened in how many, what was wrong.

``python -m benchmarks.service.schedules RUN.json … --output docs/results`` adds up runs, each the file of one
``python -m tests.ina.service.schedules --schedules N --seed S --json RUN.json``. Several shorter runs are as
good as a long one, as long as no seed is in two of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.fill import asked, check, option, publish
from benchmarks.soak import BadRun, in_order
from bmv2_topos.harness.rows import markdown

NAME = "service-schedules"


@dataclass(frozen=True, slots=True)
class Run:
    """One run; `happened`, `died_after` and `jobs` count by mishap, fault point ("": between) and state."""

    seed: int
    schedules: int
    wrong: tuple[str, ...]
    happened: Mapping[str, int]
    died_after: Mapping[str, int]
    jobs: Mapping[str, int]
    sums: int
    steps: int
    wall_s: float
    cpu_s: float


def read(path: Path) -> Run:
    """Return the run in a file. Raises BadRun."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Run(**{**found, "wrong": tuple(found["wrong"])})
    except OSError as error:
        raise BadRun(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadRun(f"{path}: want a file of tests.ina.service.schedules --json: {error!r}") from error


def tables(runs: Sequence[Run]) -> str:
    """Return runs, what was wrong and what happened as Markdown."""
    schedules = sum(run.schedules for run in runs)
    wrong = [each for run in runs for each in run.wrong]
    jobs, deaths, happened = (_total(runs, name) for name in ("jobs", "died_after", "happened"))
    sums = sum(run.sums for run in runs)
    parts = [
        f"**{schedules:,} schedules with {jobs.total():,} jobs and {deaths.total():,} deaths of the daemon;"
        f" {len(wrong) or 'none'} went wrong; {sums:,} sums in packets, all right.**",
        markdown(
            ["seeds", "schedules", "wrong", "steps of the daemon", "processor time, s"],
            [
                [
                    f"{run.seed}..{run.seed + run.schedules - 1}",
                    f"{run.schedules:,}",
                    str(len(run.wrong)),
                    f"{run.steps:,}",
                    f"{run.cpu_s:,.0f}",
                ]
                for run in runs
            ],
        ),
        *(f"- seed {each}" for each in wrong),
        *(
            f"### {title}\n\n" + _counts(counts)
            for title, counts in (
                ("Mishaps", happened),
                (
                    "The daemon died after",
                    Counter({name or "none of these": n for name, n in deaths.items()}),
                ),
                ("Jobs ended", jobs),
            )
        ),
    ]
    return "\n\n".join(parts)


def _total(runs: Sequence[Run], name: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for run in runs:
        total.update(getattr(run, name))
    return total


def _counts(counts: Counter[str]) -> str:
    return markdown(["", "times"], [[name, f"{number:,}"] for name, number in counts.most_common()])


def main(arguments: Sequence[str] | None = None) -> None:
    """Add up runs, and write the page."""
    given = asked(
        __doc__,
        option("runs", nargs="+", type=Path, metavar="RUN.json"),
        option("--output", type=Path, required=True, help=f"folder of {NAME}.md and {NAME}.json"),
        words=arguments,
    )
    try:
        check(given.output / f"{NAME}.md")
        runs = in_order([read(path) for path in given.runs])
    except (BadRun, ValueError) as error:
        raise SystemExit(f"benchmarks.service.schedules: {error}") from None
    publish(given.output, NAME, tables(runs), [asdict(run) for run in runs])


if __name__ == "__main__":
    main()
