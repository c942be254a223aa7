"""Whether rehashing on collisions, as ATP does it, would help here: the model of `rehash_model`, swept.

``python -m bmv2_topos.experiments.rehash`` writes rows, table and plot to ``docs/results``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bmv2_topos.experiments.harness import RESULTS, Row, averaged, markdown, number
from bmv2_topos.experiments.plots import PlotsMissing, draw_lines
from bmv2_topos.experiments.rehash_model import SCHEMES, ModelJob, Outcome, Scheme, simulate, slot_of

SLOTS: Final = (64, 128, 256, 512, 1024)
SEEDS: Final = (1, 2, 3)
FAN_IN: Final = 8

_JOB: Final = ModelJob(skew=40.0, packets=8192)
_HOLDER: Final = ModelJob(window=128, skew=8000.0, compute=2000.0, packets=1024)
"""It waits for a straggler: its sums stay in their slots a hundred times as long as those of others."""

CASES: Final[Mapping[str, tuple[tuple[ModelJob, ...], int]]] = {
    "1 job": ((_JOB,), 1),
    "4 equal jobs": ((_JOB,) * 4, 4),
    "beside a straggling job": ((_JOB, _HOLDER), 1),
}
"""Jobs, and how many of them, from the first, are looked at."""

TITLE: Final = "Rehashing on collisions: would it help?"
COMMAND: Final = "python -m bmv2_topos.experiments.rehash"

QUESTION: Final = """
A packet that finds its slot taken goes to the fallback server. ATP (NSDI'21) ties a slot to each position
of a job's window, and lets a position that collided have another (rehashing). Here the slot follows from
`crc32(job, psn, 0)`, and every packet has a PSN of its own, so no position keeps a bad slot; nor does any
keep a good one. Do collisions persist here, and would rehashing make jobs faster?
"""

ABOUT: Final = f"""
A model (`bmv2_topos/experiments/rehash_model.py`) with the switch's real hash compares:

| scheme | slot of a packet |
| --- | --- |
| fresh | `crc32(job, psn, 0)`: this project |
| random | drawn anew for every packet by a hash without structure |
| kept | `crc32(job, position)`, position = PSN modulo the window: ATP without rehashing |
| rehashed | the same with a salt per position, which goes up when the position collides: ATP |

*Collided* is the share of packets that found their slot taken, *persistent* the same of those packets
whose position had collided a window before; if that is no more than *collided*, collisions do not
persist. *Time* is relative to the same jobs without any collision. A packet that collides costs {FAN_IN}
packet times on its job's fallback link, one per worker; first come first served; windows of
{_JOB.window} packets in flight, the straggling job's {_HOLDER.window}; means of {len(SEEDS)} seeds.
"""

LIMITS: Final = """
The model has neither losses nor reminders, and no sum that is partly in the switch and partly at the
server. It shows how often packets collide, and what that costs a link; not a whole system's completion
times.
"""


def run(quick: bool = False) -> list[Row]:
    """Return a row for each case, slots, seed and scheme; `quick`: few and short ones."""
    rows: list[Row] = []
    for case, (full, watched) in CASES.items():
        jobs = tuple(replace(job, packets=job.packets // 4) for job in full) if quick else full
        for seed in SEEDS[:1] if quick else SEEDS:
            ideal = _time(simulate(jobs, "random", slots=1 << 40, fan_in=FAN_IN, seed=seed)[:watched])
            for slots in SLOTS[2:4] if quick else SLOTS:
                for scheme in SCHEMES:
                    outcomes = simulate(jobs, scheme, slots=slots, fan_in=FAN_IN, seed=seed)[:watched]
                    rows.append(_row(case, slots, seed, scheme, outcomes, ideal))
    return rows


def _row(case: str, slots: int, seed: int, scheme: Scheme, outcomes: Sequence[Outcome], ideal: float) -> Row:
    after = sum(outcome.after for outcome in outcomes)
    return {
        "case": case,
        "slots": slots,
        "seed": seed,
        "scheme": scheme,
        "collided": sum(outcome.collided for outcome in outcomes) / sum(o.packets for o in outcomes),
        "persistent": sum(outcome.again for outcome in outcomes) / after if after else None,
        "time": _time(outcomes) / ideal,
    }


def _time(outcomes: Sequence[Outcome]) -> float:
    return sum(outcome.duration for outcome in outcomes) / len(outcomes)


def tables(rows: Sequence[Row]) -> str:
    """Return a table per case."""
    means = averaged(rows, ("case", "slots", "scheme"))
    parts = []
    for case in dict.fromkeys(str(row["case"]) for row in means):
        lines = []
        for slots in dict.fromkeys(row["slots"] for row in means if row["case"] == case):
            of = {row["scheme"]: row for row in means if (row["case"], row["slots"]) == (case, slots)}
            collided = [_collided(of[scheme]) for scheme in SCHEMES]
            times = [f"{number(of[scheme], 'time'):.2f}" for scheme in SCHEMES]
            lines.append([f"{slots}", *collided, *times])
        columns = [f"collided (persistent), {SCHEMES[0]}", *SCHEMES[1:], f"time, {SCHEMES[0]}", *SCHEMES[1:]]
        parts.append(f"### {case.capitalize()}\n\n{markdown(['slots', *columns], lines)}")
    return "\n\n".join(parts)


def _collided(row: Row) -> str:
    share = f"{number(row, 'collided'):.1%}"
    return share if row["persistent"] is None else f"{share} ({number(row, 'persistent'):.0%})"


def gains(rows: Sequence[Row], case: str) -> dict[int, float]:
    """Return how many times faster a case is with rehashing than with fresh slots, by slots."""
    means = averaged([row for row in rows if row["case"] == case], ("slots", "scheme"))
    time = {(row["slots"], row["scheme"]): number(row, "time") for row in means}
    slots = dict.fromkeys(int(number(row, "slots")) for row in means)
    return {at: time[at, "fresh"] / time[at, "rehashed"] for at in slots}


def findings(rows: Sequence[Row]) -> str:
    """Say what the rows show."""
    parts = []
    for case in dict.fromkeys(str(row["case"]) for row in rows):
        by_slots = gains(rows, case)
        best = max(by_slots, key=lambda slots: by_slots[slots])
        least = min(by_slots, key=lambda slots: by_slots[slots])
        parts.append(
            f"- {case}: rehashing makes it {by_slots[best]:.2f} times as fast at best ({best} slots),"
            f" {by_slots[least]:.2f} times at worst ({least} slots)."
        )
    return "\n".join([*parts, _linearity(), _CONCLUSION.strip()])


def _linearity() -> str:
    """Say how many slots a window of consecutive PSNs can use at all."""
    distinct = {slots: len({slot_of(1, psn, slots) for psn in range(_JOB.window)}) for slots in SLOTS}
    return (
        f"- A CRC is linear, so how many slots {_JOB.window} consecutive PSNs (from a multiple of that) have"
        " between them does not depend on job or PSN: "
        + ", ".join(f"{count} of {slots}" for slots, count in distinct.items())
        + f". Where it is {_JOB.window}, a window hardly meets itself."
    )


_CONCLUSION: Final = """
- That makes *fresh* better than *random* among jobs whose sums leave their slots soon. Beside slots that
  are held it makes it worse: runs of PSNs meet them together. *Persistent* beyond *collided* is mostly
  this.
- Among equal jobs rehashing learns little that lasts: a collision is over with its packet.
- Beside a job that sits on its slots, rehashing does help first come first served: positions that have
  found a slot which nobody holds keep it, where fresh slots run into held ones again and again. *Kept* is
  a gamble: no position meets a held slot, or the same ones do for good, which is the problem that ATP's
  rehashing was made for.

Conclusion: not built. It would pay for a healthy job beside one that holds slots, first come first
served. There [preemption](preemption.md) takes the held slots at once, no position needs a first
collision to learn from, and it also works with less memory than all windows need together.
"""


def write(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Write rows, page and plot; return the files. Without matplotlib there is no plot."""
    directory.mkdir(parents=True, exist_ok=True)
    page, data, plot = (directory / f"rehash.{suffix}" for suffix in ("md", "json", "svg"))
    document = {"name": "rehash", "command": COMMAND, "rows": [dict(row) for row in rows]}
    data.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    parts = [
        f"# {TITLE}",
        QUESTION.strip(),
        f"## Setting\n\n{ABOUT.strip()}",
        f"## Results\n\n{tables(rows)}",
        f"## What it shows\n\n{findings(rows)}",
        f"## Limits\n\n{LIMITS.strip()}",
        f"## Again\n\n```\n{COMMAND}\n```\n\nmakes this page; the rows are in [{data.name}]({data.name}).",
    ]
    files = [data, page]
    try:
        _draw(rows, plot)
        parts[3] += f"\n\n![{plot.stem}]({plot.name})"
        files.append(plot)
    except PlotsMissing as error:
        print(f"no plot: {error}", file=sys.stderr)
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return files


def _draw(rows: Sequence[Row], path: Path) -> None:
    means = averaged([row for row in rows if row["case"] == "beside a straggling job"], ("slots", "scheme"))
    used = list(dict.fromkeys(int(number(row, "slots")) for row in means))
    lines: dict[str, list[tuple[float, float]]] = {
        scheme: [
            (float(used.index(int(number(row, "slots")))), number(row, "time"))
            for row in means
            if row["scheme"] == scheme
        ]
        for scheme in SCHEMES
    }
    ticks = [(float(place), f"{slots}") for place, slots in enumerate(used)]
    draw_lines(
        lines, path, x="slots", y="time (1: no collisions)", title="beside a straggling job", x_ticks=ticks
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=TITLE)
    parser.add_argument("--quick", action="store_true", help="few runs, to try it out")
    parser.add_argument(
        "--output", type=Path, default=RESULTS, metavar="DIR", help="where files go (default docs/results)"
    )
    parser.add_argument("--json", action="store_true", help="print the rows, and write no files")
    options = parser.parse_args(arguments)
    rows = run(options.quick)
    if options.json:
        print(json.dumps([dict(row) for row in rows], indent=1))
        return 0
    for path in write(rows, options.output):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
