"""One allreduce by SwitchML's published program and by ``exclusive``, on the same links in virtual time.

``python -m benchmarks.p4.switchml.compare FOLDER [--page docs/results/switchml.md]``: FOLDER is
``dev_root/p4`` of github.com/p4lang/p4app-switchML. Both have packets of 64 values, the same window, and two
cells for each packet under way. Without the folder nothing is done, and the exit status is 2.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.fill import check, console, fill
from benchmarks.p4.switchml.links import Outcome, Setting, allreduce, opened
from benchmarks.p4.switchml.session import hosts
from benchmarks.p4.switchml.worker import VALUES, Worker
from hostlib.wire import FRAME_PREFIX_BYTES, HEADER_DTYPE

_LOSSES = (0.0, 0.001, 0.01)
_SEEDS = 3
_BYTES_OF_A_SLOT = {"SwitchML": 2 * (4 * VALUES + 4 + 1 + 2), "exclusive": 2 * (4 * VALUES + 21)}
"""Of the two cells of a packet under way: values, bitmap, count, exponents; see docs/tofino.md for ours."""


@dataclass(frozen=True, slots=True)
class Row:
    """An allreduce of one system."""

    system: str
    loss: float
    outcomes: tuple[Outcome, ...]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="benchmarks.p4.switchml.compare", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--values", type=int, default=Setting().values, help="int32 values of each worker")
    parser.add_argument("--page", type=Path, help="write the tables between this page's marks")
    args = parser.parse_args()
    if not (args.folder / "switchml.p4").is_file():
        parser.error(f"{args.folder} has no switchml.p4: it is dev_root/p4 of p4lang/p4app-switchML")
    if args.page:
        check(args.page)
    setting = Setting(values=args.values)
    rows = [row for loss in _LOSSES for row in _rows(args.folder, replace(setting, loss=loss))]
    tables = f"{_setting(setting)}\n\n{_table(rows, setting)}\n\n{_speed(args.folder)}"
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
    """Return the same allreduce by this project's program: by ``ina sim``, whose hosts answer at once."""
    job = (
        f'[[job]]\nname = "one"\nworkers = {setting.workers}\nmodel_bytes = {4 * setting.values}\n'
        "iterations = 1\ncompute_s = 0.0\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.toml"
        file.write_text(job)
        command = [sys.executable, "-m", "ina", "sim", str(file), "--program", "exclusive", "--json"]
        for name, value in (
            *(("lanes", VALUES), ("slots", 2 * setting.window), ("window", setting.window)),
            *(("rate", setting.rate_bps), ("delay", setting.delay_s), ("loss", setting.loss)),
            *(("coalesce", 1), ("seed", setting.seed)),
        ):
            command += [f"--{name}", str(value)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    job_ = found["jobs"]["one"]
    length = FRAME_PREFIX_BYTES + HEADER_DTYPE.itemsize + 4 * VALUES
    sent, resent = job_["sent_packets"], job_["resent_packets"]
    right = job_["wrong_elements"] == 0
    return Outcome(job_["iteration_mean_s"], sent, resent, sent, length, right)


def _setting(setting: Setting) -> str:
    return (
        f"{setting.workers} workers, {setting.values} int32 values each, {setting.window} packets of "
        f"{VALUES} values under way, links of {setting.rate_bps / 1e9:g} Gb/s and "
        f"{setting.delay_s * 1e6:g} µs each way; means of {_SEEDS} seeds."
    )


def _table(rows: Sequence[Row], setting: Setting) -> str:
    lines = [
        "| system | loss | time, ms | packets sent | again | bytes of a packet | MB sent "
        "| passes of ingress | cells for the window, KB | exact |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        time_s, sent, resent, passes = (
            sum(getattr(outcome, name) for outcome in row.outcomes) / len(row.outcomes)
            for name in ("time_s", "sent", "resent", "passes")
        )
        length = row.outcomes[0].frame_bytes
        exact = "yes" if all(outcome.exact for outcome in row.outcomes) else "NO"
        memory = _BYTES_OF_A_SLOT[row.system] * setting.window / 1e3
        lines.append(
            f"| {row.system} | {row.loss:.1%} | {1e3 * time_s:.2f} | {sent:.0f} | {resent:.0f} | {length} | "
            f"{sent * length / 1e6:.2f} | {passes:.0f} | {memory:.1f} | {exact} |"
        )
    return "\n".join(lines)


def _speed(folder: Path) -> str:
    """Return packets a second of processor time through SwitchML's program in memory, without links."""
    places, window, chunks = hosts(4), 64, 16384
    values = np.zeros(chunks * VALUES, np.int32)
    frames = []
    for host in places:
        worker = Worker(host, values, chunks, 1 << 40)
        frames.append(worker.frames(window))
    with ExitStack() as stack:
        switch = opened(stack, folder, places, {})[0]
        started = time.process_time()
        for start in range(0, chunks, window):
            for host, own in zip(places, frames, strict=True):
                switch.inject(host.port, own[start : start + window], 1)
            for host in places:
                switch.drain_batch(host.port)
        took = time.process_time() - started
    rate = len(places) * chunks / took / 1e6
    return (
        f"In memory, one core, without links: {rate:.2f} million packets of workers, and a fourth of that "
        "recirculated, in a second of processor time (with other work on the machine)."
    )


if __name__ == "__main__":
    main()
