"""The pages of random schedules: counts of their events, and their failures.

``python -m benchmarks.soak RUN.json … --output docs/results`` adds up runs: each the output of one ``ina soak
--schedules N --seed S --json``, for soak.md, or each the file of one ``python -m tests.ina.run.schedules
--schedules N --seed S --json RUN.json``, for service-schedules.md. Several shorter runs are as good as a long
one, if no seed is in two of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.fill import check, fill, option, parse_options
from bmv2_topos.harness.rows import markdown
from bmv2_topos.soak.checks import KINDS

Run = Mapping[str, Any]
SOAK, SERVICE = "soak", "service-schedules"
NEEDED: Final = {
    SOAK: {
        *("seed", "schedules", "failures", "wall_time_s", "recoveries", "happened"),
        *("recovery_round_trips_per_packet_median", "recovery_round_trips_per_packet_worst"),
        "recovery_largest_share_of_allowed",
    },
    SERVICE: {"seed", "schedules", "wrong", "happened", "died_after", "jobs", "sums", "steps", "cpu_s"},
}
"""Keys of a run, by page."""
TITLES: Final = {
    "kind": "Schedules",
    "event": "Events",
    "link": "Packets on links",
    "switch": "Packets at switches, by outcome",
    "worker": "At workers",
    "server": "At fallback servers",
    "recovery": "Recoveries after the last fault",
}
"""Headings of `KINDS`."""


class BadRun(Exception):
    """A file is no output of a run, or two runs share seeds."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Add up runs, and fill their page."""
    options = parse_options(
        __doc__,
        option("runs", nargs="+", type=Path, metavar="RUN.json"),
        option("--output", type=Path, required=True, help=f"folder of {SOAK}.md and {SERVICE}.md"),
        words=arguments,
    )
    try:
        name, runs = in_order([read(path) for path in options.runs])
        page = options.output / f"{name}.md"
        check(page)
    except (BadRun, ValueError) as error:
        raise SystemExit(f"benchmarks.soak: {error}") from None
    fill(page, tables(runs) if name == SOAK else service_tables(runs))


def read(path: Path) -> tuple[str, Run]:
    """Return the page of the run in a file, and the run. Raises BadRun."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if "metrics" in document:
            document = {**document["setup"], **document["metrics"]}
        names = [name for name, needed in NEEDED.items() if needed <= document.keys()]
    except OSError as error:
        raise BadRun(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError):
        names = []
    if not names:
        raise BadRun(f"{path}: want the output of ina soak --json or of tests.ina.run.schedules --json")
    return names[0], document


def in_order(runs: Sequence[tuple[str, Run]]) -> tuple[str, list[Run]]:
    """Return the page of runs, and the runs by seed. Raises BadRun if a seed is in two of them."""
    ordered = sorted((run for _, run in runs), key=lambda run: run["seed"])
    if len({name for name, _ in runs}) > 1:
        raise BadRun("the runs are of two kinds; they must all be of ina soak, or of the service")
    for one, other in pairwise(ordered):
        if other["seed"] < one["seed"] + one["schedules"]:
            raise BadRun(f"the runs from seed {one['seed']} and {other['seed']} have schedules in common")
    return runs[0][0], ordered


def _seeds(run: Run) -> list[str]:
    return [f"{run['seed']}..{run['seed'] + run['schedules'] - 1}", f"{run['schedules']:,}"]


def _total(runs: Sequence[Run], name: str) -> Counter[str]:
    return sum((Counter(run[name]) for run in runs), Counter[str]())


def tables(runs: Sequence[Run]) -> str:
    """Return runs of ``ina soak``, failures and counts of events as Markdown."""
    happened = _total(runs, "happened")
    schedules = sum(run["schedules"] for run in runs)
    failures = [failure for run in runs for failure in run["failures"]]
    heads = [
        "seeds",
        "schedules",
        "failed",
        "per second",
        "recoveries",
        "median",
        "longest",
        "of the allowed",
    ]
    lines = [
        [
            *_seeds(run),
            str(len(run["failures"])),
            f"{run['schedules'] / run['wall_time_s']:.0f}",
            f"{run['recoveries']:,}",
            f"{run['recovery_round_trips_per_packet_median']:.1f}",
            f"{run['recovery_round_trips_per_packet_worst']:,.1f}",
            f"{run['recovery_largest_share_of_allowed']:.0%}",
        ]
        for run in runs
    ]
    parts = [
        f"**{schedules:,} schedules, {len(failures)} of which broke an invariant.**",
        markdown(heads, lines),
        *(f"- seed {failure['seed']}: {failure['reason']}" for failure in failures),
    ]
    for group, names in KINDS.items():
        counts = [(name, happened[f"{group}: {name}"]) for name in names]
        mix = [[name, f"{number:,}", f"{1000 * number / schedules:,.1f}"] for name, number in counts]
        parts.append(f"### {TITLES[group]}\n\n{markdown(['', 'count', 'in 1,000 schedules'], mix)}")
    return "\n\n".join(parts)


def service_tables(runs: Sequence[Run]) -> str:
    """Return runs of the service's schedules, failures and counts of events as Markdown."""
    wrong = [each for run in runs for each in run["wrong"]]
    jobs, deaths, happened = (_total(runs, name) for name in ("jobs", "died_after", "happened"))
    schedules, sums = (sum(run[name] for run in runs) for name in ("schedules", "sums"))
    lines = [
        [*_seeds(run), str(len(run["wrong"])), f"{run['steps']:,}", f"{run['cpu_s']:,.0f}"] for run in runs
    ]
    after = Counter({name or "none of these": number for name, number in deaths.items()})
    counted = {"Mishaps": happened, "The daemon died after": after, "Jobs ended": jobs}
    parts = [
        f"**{schedules:,} schedules with {jobs.total():,} jobs and {deaths.total():,} deaths of the daemon;"
        f" {len(wrong) or 'none'} went wrong; {sums:,} sums in packets, all right.**",
        markdown(["seeds", "schedules", "wrong", "steps of the daemon", "processor time, s"], lines),
        *(f"- seed {each}" for each in wrong),
    ]
    for title, counts in counted.items():
        table = markdown(["", "times"], [[name, f"{number:,}"] for name, number in counts.most_common()])
        parts.append(f"### {title}\n\n{table}")
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
