"""One allreduce by SwitchML's published program and by ``exclusive``, on the same links in virtual time.

``python -m benchmarks.p4.switchml.compare FOLDER [--page docs/results/switchml.md]``: FOLDER is
``dev_root/p4`` of github.com/p4lang/p4app-switchML. Both have packets of 64 values, the same window, and two
cells for each packet under way. Without the folder nothing is done, and the exit status is 2.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.fill import check, console, fill, option, parse_options
from benchmarks.p4.switchml.links import VALUES, Outcome, Setting, allreduce
from bmv2_topos.harness import Scenario, markdown
from bmv2_topos.testbeds.virtual import VirtualSettings
from controller.vocabulary import Job, Link
from hostlib.wire import FRAME_PREFIX_BYTES, HEADER_DTYPE

_LOSSES = (0.0, 0.001, 0.01)
_SEEDS = 3
_BYTES_OF_A_SLOT = {"SwitchML": 2 * (4 * VALUES + 4 + 1 + 2), "exclusive": 2 * (4 * VALUES + 21)}
"""The two cells of a packet under way: values, bitmap, count, exponent. Ours: docs/reference/tofino.md."""


@dataclass(frozen=True, slots=True)
class Row:
    """An allreduce of one system."""

    system: str
    loss: float
    outcomes: tuple[Outcome, ...]


def main() -> None:
    """Run the command."""
    args = parse_options(
        __doc__,
        option("folder", type=Path, metavar="FOLDER"),
        option("--values", type=int, default=Setting().values, help="int32 values of each worker"),
        option("--page", type=Path, help="write the tables between this page's marks"),
    )
    if not (args.folder / "switchml.p4").is_file():
        print(
            f"{args.folder} has no switchml.p4: it is dev_root/p4 of p4lang/p4app-switchML", file=sys.stderr
        )
        sys.exit(2)
    if args.page:
        check(args.page)
    setting = Setting(values=args.values)
    rows = [row for loss in _LOSSES for row in _rows(args.folder, replace(setting, loss=loss))]
    tables = f"{_setting(setting)}\n\n{_table(rows, setting)}"
    console().print(tables, markup=False, highlight=False)
    if args.page:
        fill(args.page, tables)
    if not all(outcome.exact for row in rows for outcome in row.outcomes):
        sys.exit(1)


def _rows(folder: Path, setting: Setting) -> list[Row]:
    settings = [replace(setting, seed=seed) for seed in range(_SEEDS)]
    return [
        Row("SwitchML", setting.loss, tuple(allreduce(folder, each) for each in settings)),
        Row("exclusive", setting.loss, tuple(_ours(each) for each in settings)),
    ]


def _ours(setting: Setting) -> Outcome:
    """Return the same allreduce by this project's program, in virtual time, whose hosts answer at once."""
    job = Job(
        name="one",
        workers=setting.workers,
        layers_bytes=(4 * setting.values,),
        iterations=1,
        compute_s=0.0,
        window=setting.window,
    )
    settings = VirtualSettings(
        program="exclusive",
        lanes=VALUES,
        slots=2 * setting.window,
        coalesce_us=1,
        seed=setting.seed,
        samples=0,
    )
    link = Link("a", "b", rate_bps=setting.rate_bps, delay_s=setting.delay_s, loss=setting.loss)
    (done,) = Scenario(jobs=(job,), settings=settings, link=link).run().jobs  # raises where a sum is wrong
    length = FRAME_PREFIX_BYTES + HEADER_DTYPE.itemsize + 4 * VALUES
    sent = done.sent_packets
    return Outcome(done.mean_iteration_s, sent, done.resent_packets, sent, length, exact=True)


def _setting(setting: Setting) -> str:
    return (
        f"{setting.workers} workers, {setting.values} int32 values each, {setting.window} packets of "
        f"{VALUES} values under way, links of {setting.rate_bps / 1e9:g} Gb/s and "
        f"{setting.delay_s * 1e6:g} µs each way; means of {_SEEDS} seeds."
    )


def _table(rows: Sequence[Row], setting: Setting) -> str:
    lines = []
    for row in rows:
        time_s, sent, resent, passes = (
            sum(getattr(outcome, name) for outcome in row.outcomes) / len(row.outcomes)
            for name in ("time_s", "sent", "resent", "passes")
        )
        length = row.outcomes[0].frame_bytes
        exact = "yes" if all(outcome.exact for outcome in row.outcomes) else "NO"
        memory = _BYTES_OF_A_SLOT[row.system] * setting.window / 1e3
        counts = [f"{sent:.0f}", f"{resent:.0f}", f"{length}", f"{sent * length / 1e6:.2f}", f"{passes:.0f}"]
        lines.append([row.system, f"{row.loss:.1%}", f"{1e3 * time_s:.2f}", *counts, f"{memory:.1f}", exact])
    heads = ["system", "loss", "time, ms", "packets sent", "again", "bytes of a packet", "MB sent"]
    return markdown([*heads, "passes of ingress", "cells for the window, KB", "exact"], lines)


if __name__ == "__main__":
    main()
