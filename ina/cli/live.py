"""Output while jobs run: the output of workers and, on a terminal, a line of progress below it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from ina.cli.plain import plural, say
from ina.cli.screen import screen
from ina.launch.spec import LaunchSpec, Reports


def print_output(spec: LaunchSpec, rank: int, data: bytes, is_error: bool) -> None:
    """Print the output of a worker of a benchmark, which prints only errors, to standard error.

    Args:
        spec: The worker's job.
        rank: The worker's rank.
        data: The output.
        is_error: Whether the worker wrote it to standard error; ignored.
    """
    for line in data.decode(errors="replace").splitlines():
        say(f"[{spec.job.name}:{rank}] {line}")


class Live:
    """Shows the output of workers and the progress of their jobs; a context manager."""

    def __init__(self, workers: Mapping[str, int], *, quiet: bool = False) -> None:
        """Prepare to show jobs. `workers` has each job's number of workers, by the job's name.

        With `quiet`, print to standard error alone.
        """
        self._workers = workers
        self._quiet = quiet
        self._began = time.monotonic()
        self._done = ""

    def output(self, spec: LaunchSpec, rank: int, data: bytes, is_error: bool) -> None:
        """Print the output of a worker, its lines prefixed by its rank, or by job and rank.

        Args:
            spec: The worker's job.
            rank: The worker's rank.
            data: The output.
            is_error: Whether the worker wrote it to standard error.
        """
        several, job = len(self._workers) > 1, spec.job
        prefix = f"[{job.name}:{rank}] " if several else f"[{rank}] " if job.workers > 1 else ""
        source = (job.name, rank, is_error)
        screen.forward(source, prefix.encode(), data, to_stderr=is_error or self._quiet)

    def doing(self, what: str) -> None:
        """Show a step of the preparation as the line of progress."""
        self._done = what
        screen.progress(f"{what} …")

    def update(self, reports: Mapping[str, Reports]) -> None:
        """Show the progress of the slowest worker of each job."""
        parts = []
        resent = 0.0
        for name, of in reports.items():
            if len(of) < self._workers[name]:
                continue
            slowest = min(of.values(), key=lambda report: report.get("elements", 0))
            resent += sum(report.get("packets_resent", 0) for report in of.values())
            done = plural(slowest.get("collectives", 0), "allreduce")
            if len(self._workers) == 1:
                parts.append(f"{done}, {slowest.get('elements', 0) * 4 / 1e6:,.1f} MB summed")
            else:
                parts.append(f"{name}: {done}")
        if parts:
            parts.append(f"{plural(resent, 'packet')} sent again")
            self._done = ", ".join(parts)
        elapsed = int(time.monotonic() - self._began)
        screen.progress(f"{self._done} {elapsed // 3600}:{elapsed // 60 % 60:02}:{elapsed % 60:02}")

    def __enter__(self) -> Self:
        self.doing(f"{plural(sum(self._workers.values()), 'worker')} starting")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        screen.finish()
