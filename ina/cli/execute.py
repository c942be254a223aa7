"""Runs jobs on a switch fabric, shows their output and progress, and prints their results."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from ina.cli.command import Failure, Listing, Reply, Result, by_column, count, plural, rate, say, seconds
from ina.cli.declared import print_reply
from ina.cli.errors import Interrupted, verdict
from ina.cli.screen import screen
from ina.run.launch.job_run import JobEnd
from ina.run.launch.spec import (
    NAMELESS,
    FabricSpec,
    LaunchSpec,
    Metrics,
    RankReports,
    by_switch,
    metrics,
    refusals,
    total,
)
from ina.run.switches.fabric import SwitchFabric, open_fabric

if TYPE_CHECKING:
    from ina.run.live import RunReport


def print_output(spec: LaunchSpec, rank: int, data: bytes, is_error: bool) -> None:
    """Print the output of a worker of a benchmark, which prints only errors, to standard error.

    Args:
        spec: The worker's job.
        rank: The worker's rank.
        data: The output.
        is_error: Whether the worker wrote it to standard error; ignored.
    """
    for line in data.decode(errors="replace").splitlines():
        say(f"[{spec.name}:{rank}] {line}")


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

    def update(self, reports: Mapping[str, RankReports]) -> None:
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


def execute(
    fabric: FabricSpec,
    specs: Sequence[LaunchSpec],
    *,
    switch: str,
    as_json: bool,
    opened: AbstractContextManager[SwitchFabric] | None = None,
    unused_keys: Sequence[str] | None = None,
) -> None:
    """Run the jobs and print the summary.

    Args:
        fabric: The switches.
        specs: The jobs.
        switch: The switch as the user named it, for messages and the result.
        as_json: Print one JSON object instead of tables.
        opened: Switches to use; None: the switches of `fabric` are started, or connected to.
        unused_keys: See `Result`.

    Raises Failure with the exit code of the first job that failed, or of the signal that interrupted the run.
    """
    began_s = time.monotonic()
    if opened is None:
        children = [spec.children for spec in specs]
        opened = open_fabric(fabric, children, on_listening=_announce, meanwhile=_imported_run)
    with Live({spec.name: spec.job.workers for spec in specs}, quiet=as_json) as live:
        live.doing(_starting(fabric, switch))
        with opened as switches:
            live.doing(f"starting {plural(sum(spec.job.workers for spec in specs), 'worker')}")
            report = _imported_run()(switches, specs, on_output=live.output, on_progress=live.update)
    interrupted, elapsed_s = report.interrupt, time.monotonic() - began_s
    answer = Reply(_result(fabric, specs, switch, report, elapsed_s, unused_keys), _parts(fabric, report))
    with contextlib.suppress(OSError) if interrupted else contextlib.nullcontext():  # terminal may be gone
        print_reply(answer, json=as_json)
    if interrupted is not None and not isinstance(interrupted, Interrupted):
        raise interrupted  # not one of the signals that end a command
    _fail(report.ends, interrupted, elapsed_s)


def _imported_run() -> Callable[..., RunReport]:
    """Import and return the function that runs jobs.

    The slow import is made while the switches start, and is not needed for --help.
    """
    from ina.run.live import run

    return run


def _starting(fabric: FabricSpec, switch: str) -> str:
    if fabric.attached:
        return f"loading the switch program into {switch}"
    return "compiling the switch program and starting the switch" + ("es" if fabric.tree else "")


def _announce(switch: str, address: str) -> None:
    say(f"ina: P4Runtime of {switch} at {address}")


def _result(
    fabric: FabricSpec,
    specs: Sequence[LaunchSpec],
    switch: str,
    report: RunReport,
    elapsed_s: float,
    unused_keys: Sequence[str] | None,
) -> Result:
    """Return the object that ``--json`` prints."""
    results = {end.spec.name: end.result for end in report.ends if end.result}
    jobs = {name: metrics(result) for name, result in results.items()}
    numbers = jobs.get(NAMELESS) or {"time_s": elapsed_s} | total(jobs.values())
    return Result(
        "run",
        _setup(fabric, specs, switch),
        numbers | refusals(report.refused),
        None if specs[0].job.name == NAMELESS else jobs,
        by_switch(results.values()) if fabric.tree else None,
        unused_keys,
    )


def _parts(fabric: FabricSpec, report: RunReport) -> Iterator[Listing]:
    """Yield the tables for people: a table of jobs and, for a tree, a table of packets by switch."""
    results = {end.spec.name: end.result for end in report.ends if end.result}
    if not results:
        return
    yield summary({name: metrics(result) | refusals(report.refused) for name, result in results.items()})
    if fabric.tree and (switches := by_switch(results.values())):
        keys = dict.fromkeys(key for of in switches.values() for key, value in of.items() if value)
        rows = [[_words(key), *(count(of.get(key, 0.0)) for of in switches.values())] for key in keys]
        yield Listing("by switch", ["packets", *switches], rows)


def _fail(ends: Sequence[JobEnd], interrupted: Interrupted | None, elapsed_s: float) -> None:
    """Raise Failure for the first failed job or an interrupt; print messages for the other failed jobs."""
    first = _first_failure([end for end in ends if not end.interrupted])
    for end in ends:
        if (end is first and not interrupted) or end.interrupted:
            continue
        if failure := end.failure():
            message, _ = verdict(failure)
            say(f"ina: {_of(end)}{message}")
    if interrupted:
        raise Failure(_what_ended(ends, interrupted, elapsed_s), exit_code=interrupted.code)
    if first and (failure := first.failure()):
        message, code = verdict(failure)
        raise Failure(f"{_of(first)}{message}", exit_code=code)


def _first_failure(ends: Sequence[JobEnd]) -> JobEnd | None:
    """Return the job that failed first; None: none failed."""
    failed = [end for end in ends if end.failure()]
    # The other workers of a failed job notice later.
    return min(failed, key=lambda end: ((end.result and end.result.failure) or end).at_s, default=None)


def _of(end: JobEnd) -> str:
    return "" if end.spec.name == NAMELESS else f"job {end.spec.name}: "


def _what_ended(ends: Sequence[JobEnd], interrupted: Interrupted, elapsed_s: float) -> str:
    began = [end for end in ends if end.interrupted]
    text = f"interrupted by {interrupted.signal} after {seconds(elapsed_s)}"
    if began:
        text += f"; ended {plural(sum(end.spec.job.workers for end in began), 'worker')}"
        if began[0].spec.name != NAMELESS:
            text += f" of {', '.join(end.spec.name for end in began)}"
    return text


def _setup(fabric: FabricSpec, specs: Sequence[LaunchSpec], switch: str) -> dict[str, object]:
    common: dict[str, object] = {
        "program": fabric.program,
        "lanes": fabric.lanes,
        "switch": switch,
        "tree": "x".join(map(str, fabric.tree)),
        "impairments": fabric.impairments,
        "link_impairments": fabric.link_impairments,
        "seed": fabric.seed,
    }
    of_jobs = [
        {
            "workers": spec.job.workers,
            "slots": spec.job.slots,
            "window": spec.job.window,
            "preempt": spec.job.preempt,
            "congestion": spec.job.congestion,
            "numbers": spec.job.numbers,
            "priority": spec.job.priority,
            "command": list(spec.job.command or ()),
        }
        for spec in specs
    ]
    if specs[0].job.name == NAMELESS:
        return common | of_jobs[0]
    return common | {"jobs": {spec.name: of for spec, of in zip(specs, of_jobs, strict=True)}}


# --------------------------------------------------------------------------- the table of a run

WHERE: Final = {"switch": "in the switch", "fallback": "fallback", "refused": "of no job"}
MOMENTARY: Final = {"fallback_entries", "fallback_unfinished", "fallback_pieces"}
"""Metrics about the last moment of a run, which are not in the table: most users do not need them."""


def summary(jobs: Mapping[str, Metrics]) -> Listing:
    """Return the summary of a run as a table with a column for each job."""
    columns = list(jobs.values())
    cells: list[tuple[str, Callable[[Metrics], str]]] = [
        ("time", lambda of: seconds(of["time_s"])),
        ("allreduces", lambda of: count(of["allreduces"])),
        (
            "packets sent, sent again",
            lambda of: f"{count(of['sent_packets'])}, {count(of['resent_packets'])}",
        ),
    ]
    if any(of["summed_bytes"] for of in columns):
        cells[2:2] = [
            ("summed per worker", _summed),
            ("goodput per worker", lambda of: rate(of["goodput_bps"]) if of["summed_bytes"] else "-"),
        ]
    rows = by_column(cells, columns)
    # keys in the order of their first appearance
    keys = dict.fromkeys(key for of in columns for key, value in of.items() if value and key not in MOMENTARY)
    for where, words in WHERE.items():
        for key in keys:
            if key.startswith(f"{where}_"):
                name = _words(key.removeprefix(f"{where}_"))
                rows.append([f"{words}: {name}", *(count(of.get(key, 0.0)) for of in columns)])
    headings = [name or "value" for name in jobs] if len(jobs) > 1 else ["value"]
    return Listing("summary", ["", *headings], rows)


def _summed(of: Metrics) -> str:
    if not of["summed_bytes"]:
        return "-"
    return f"{of['summed_bytes'] / 1e6:,.1f} MB in {seconds(of['allreduce_time_s'])}"


def _words(key: str) -> str:
    return key.removesuffix("_packets").replace("_", " ")
