"""What people see while jobs run: the workers' lines, above one line of progress on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from controller.cli.output import count, err, out
from controller.cli.spec import JobSpec, Reports


def print_line(job: JobSpec, rank: int, text: str, is_error: bool) -> None:
    """Show a line that a worker of a benchmark wrote: a complaint, then."""
    err.print(f"[{job.name}:{rank}] {text}", markup=False, highlight=False, soft_wrap=True)


class Live:
    """Shows lines of workers and how far their jobs are; a context manager."""

    def __init__(self, workers: Mapping[str, int], *, quiet: bool = False) -> None:
        """`workers` is the size of each job, by name; `quiet` keeps standard output free."""
        self._workers = workers
        self._console = err if quiet else out
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=err,
            transient=True,
        )
        self._task = self._progress.add_task(f"{sum(workers.values())} workers starting")

    def line(self, job: JobSpec, rank: int, text: str, is_error: bool) -> None:
        """Show a line of a worker's output, with what tells it from others': rank, or job and rank."""
        console = err if is_error else self._console
        target = self._progress.console if console is err else console
        several = len(self._workers) > 1
        prefix = f"[{job.name}:{rank}] " if several else f"[{rank}] " if job.workers > 1 else ""
        target.print(prefix + text, markup=False, highlight=False, soft_wrap=True)

    def update(self, reports: Mapping[str, Reports]) -> None:
        """Show how far the slowest worker of each job is."""
        parts = []
        resent = 0.0
        for name, of in reports.items():
            if len(of) < self._workers[name]:
                continue
            slowest = min(of.values(), key=lambda report: report.get("elements", 0))
            resent += sum(report.get("packets_resent", 0) for report in of.values())
            done = f"{count(slowest.get('collectives', 0))} allreduces"
            if len(self._workers) == 1:
                parts.append(f"{done}, {slowest.get('elements', 0) * 4 / 1e6:,.1f} MB summed")
            else:
                parts.append(f"{name}: {done}")
        if parts:
            parts.append(f"{count(resent)} packets sent again")
            self._progress.update(self._task, description=", ".join(parts))

    def __enter__(self) -> Self:
        if err.is_terminal:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if err.is_terminal:  # it ends with an empty line even if it never began
            self._progress.stop()
