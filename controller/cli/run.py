"""``ina run``: one training job, its gradients summed in a switch."""

from __future__ import annotations

from types import TracebackType
from typing import Annotated, Self

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from controller.cli import options
from controller.cli.job import JobResult, JobSpec, Reports, run_job
from controller.cli.output import Result, count, err, out, rate, seconds, table
from hostlib import DEFAULT_SLOTS

EPILOG = """Examples:

  ina run -np 4 -- python examples/digits.py

  ina run -np 4 --loss 0.05 --seed 7 -- python examples/digits.py

  ina run -np 2 --switch grpc://127.0.0.1:9559 --json -- python train.py
"""


class Live:
    """The workers' output line by line, above one line of progress (on a terminal)."""

    def __init__(self, workers: int, *, quiet: bool = False) -> None:
        self._workers = workers
        self._console = err if quiet else out
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=err,
            transient=True,
        )
        self._task = self._progress.add_task(f"{workers} workers starting")

    def line(self, rank: int, text: str, is_error: bool) -> None:
        """Show a line of a worker's output; with several workers after its rank."""
        console = err if is_error else self._console
        target = self._progress.console if console is err else console
        prefix = f"[{rank}] " if self._workers > 1 else ""
        target.print(prefix + text, markup=False, highlight=False, soft_wrap=True)

    def update(self, reports: Reports) -> None:
        """Show how far the slowest worker is."""
        if len(reports) < self._workers:
            return
        slowest = min(reports.values(), key=lambda report: report.get("elements", 0))
        resent = sum(report.get("packets_resent", 0) for report in reports.values())
        self._progress.update(
            self._task,
            description=f"{count(slowest.get('collectives', 0))} allreduces, "
            f"{slowest.get('elements', 0) * 4 / 1e6:,.1f} MB summed, {count(resent)} packets sent again",
        )

    def __enter__(self) -> Self:
        if err.is_terminal:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if err.is_terminal:  # it ends with an empty line even if it never began
            self._progress.stop()


def metrics(result: JobResult) -> dict[str, float]:
    """Return the numbers of a job, flat, SI units in the keys."""
    reports = list(result.reports.values())

    def total(name: str) -> float:
        return sum(report.get(name, 0.0) for report in reports)

    summed = max((report.get("elements", 0.0) for report in reports), default=0.0) * 4
    busy = max((report.get("time_s", 0.0) for report in reports), default=0.0)
    numbers = {
        "time_s": result.time_s,
        "allreduces": max((report.get("collectives", 0.0) for report in reports), default=0.0),
        "summed_bytes": summed,
        "allreduce_time_s": busy,
        "goodput_bps": summed * 8 / busy if busy else 0.0,
        "sent_packets": total("packets_sent"),
        "resent_packets": total("packets_resent"),
    }
    numbers |= {f"switch_{name}_packets": value for name, value in result.counters.items()}
    numbers |= {f"refused_{name}_packets": value for name, value in result.refused.items()}
    return numbers


def show(numbers: dict[str, float]) -> None:
    """Print the summary table."""
    rows = [
        ("time", seconds(numbers["time_s"])),
        ("allreduces", count(numbers["allreduces"])),
        (
            "summed per worker",
            f"{numbers['summed_bytes'] / 1e6:,.1f} MB in {seconds(numbers['allreduce_time_s'])}",
        ),
        ("goodput per worker", rate(numbers["goodput_bps"])),
        ("packets sent, sent again", f"{count(numbers['sent_packets'])}, {count(numbers['resent_packets'])}"),
    ]
    for key, value in numbers.items():
        if value and key.startswith(("switch_", "refused_")):
            kind, _, name = key.removesuffix("_packets").partition("_")
            rows.append(
                (
                    f"{'in the switch' if kind == 'switch' else 'of no job'}: {name.replace('_', ' ')}",
                    count(value),
                )
            )
    table("summary", ["", "value"], rows)


def run(
    command: Annotated[
        list[str], typer.Argument(help="The worker program, after --.", metavar="-- COMMAND...")
    ],
    workers: Annotated[int, typer.Option("-np", "--workers", help="Number of workers, 1 to 32.")] = 1,
    program: options.Program = "exclusive",
    lanes: options.Lanes = 256,
    slots: Annotated[
        int, typer.Option(min=2, help="Aggregator slots asked for; half of them is the window.")
    ] = DEFAULT_SLOTS,
    switch: Annotated[
        str, typer.Option(help="'embedded' starts one; grpc://host:port uses one that runs.")
    ] = "embedded",
    udp_base: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="With grpc://: port p of that switch is this UDP port plus p."
        ),
    ] = "127.0.0.1:47000",
    loss: options.Loss = 0.0,
    duplicate: options.Duplicate = 0.0,
    reorder: options.Reorder = 0.0,
    corrupt: options.Corrupt = 0.0,
    delay: options.Delay = 0.0,
    rate_bps: options.Rate = 0.0,
    queue: options.Queue = 64,
    seed: options.Seed = 0,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Silence after which a worker gives up.")
    ] = 8.0,
    straggler_timeout: Annotated[
        float,
        typer.Option(
            min=0.1, metavar="SECONDS", help="The same for a rank that is known to live, only slow."
        ),
    ] = 600.0,
    json: options.Json = False,
) -> None:
    """Run a training job whose gradients are summed inside a P4 switch.

    Starts (or attaches to) a switch, admits the job, starts the workers with their place in the job in the
    environment variable INA_JOB, and takes everything down again. Fails as the first worker that fails.
    """
    spec = JobSpec(
        command=command,
        workers=workers,
        program=program,
        lanes=lanes,
        slots=slots,
        switch=switch,
        udp_base=udp_base,
        impairments=options.impairments(
            loss=loss,
            duplicate=duplicate,
            reorder=reorder,
            corrupt=corrupt,
            delay=delay,
            rate=rate_bps,
            queue=queue,
        ),
        seed=seed,
        timeout_s=timeout,
        straggler_timeout_s=max(timeout, straggler_timeout),
    )
    with Live(workers, quiet=json) as live:
        result = run_job(spec, on_line=live.line, on_progress=live.update)
    finish(spec, result, as_json=json)


def finish(spec: JobSpec, result: JobResult, *, as_json: bool) -> None:
    """Print the summary and fail as the job did."""
    numbers = metrics(result)
    if as_json:
        setup = {
            "workers": spec.workers,
            "program": spec.program,
            "lanes": spec.lanes,
            "slots": spec.slots,
            "switch": spec.switch,
            "impairments": spec.impairments,
            "seed": spec.seed,
            "command": list(spec.command),
        }
        Result("run", setup, numbers).print_json()
    else:
        show(numbers)
    result.raise_failure()
