"""Runs the jobs of ``ina run`` on a switch fabric, prints their results, and fails as they did."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager

from ina.cli.errors import Failure, Interrupted, verdict
from ina.cli.live import Live
from ina.cli.plain import Result, plural, say, seconds
from ina.runtime.fabric import SwitchFabric
from ina.runtime.jobs import first_failure
from ina.runtime.launch import JobRun
from ina.runtime.metrics import by_switch, metrics, refusals, total
from ina.runtime.run import RunReport, run
from ina.runtime.spec import NAMELESS, FabricSpec, LaunchSpec


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

    If jobs fail, or the command is interrupted, fails with the exit code of the first failure.

    Args:
        fabric: The switches.
        specs: The jobs.
        switch: The user's name of the switch.
        as_json: Print one JSON object instead of tables.
        opened: Switches to use instead; see `ina.runtime.run.run`.
        unused_keys: See `Result.print_json`.
    """
    with Live({spec.job.name: spec.job.workers for spec in specs}, quiet=as_json) as live:
        live.doing(_starting(fabric, switch))
        report = run(
            fabric,
            specs,
            on_output=live.output,
            on_progress=live.update,
            on_listening=_announce,
            opened=opened,
            on_ready=lambda: live.doing(
                f"starting {plural(sum(spec.job.workers for spec in specs), 'worker')}"
            ),
        )
    interrupted = report.interrupt
    with contextlib.suppress(OSError) if interrupted else contextlib.nullcontext():  # a terminal that is gone
        if as_json:
            _result(fabric, specs, switch, report).print_json(unused_keys=unused_keys)
        else:
            _show(fabric, report)
    if interrupted is not None and not isinstance(interrupted, Interrupted):
        raise interrupted  # by none of the signals that ask the command to end
    _fail(report.ends, interrupted, report.elapsed_s)


def _starting(fabric: FabricSpec, switch: str) -> str:
    if fabric.attached:
        return f"loading the switch program into {switch}"
    return "compiling the switch program and starting the switch" + ("es" if fabric.tree else "")


def _announce(switch: str, address: str) -> None:
    say(f"ina: P4Runtime of {switch} at {address}")


def _result(fabric: FabricSpec, specs: Sequence[LaunchSpec], switch: str, report: RunReport) -> Result:
    """Return the object that ``--json`` prints."""
    results = {end.spec.job.name: end.result for end in report.ends if end.result}
    jobs = {name: metrics(result) for name, result in results.items()}
    numbers = jobs.get(NAMELESS) or {"time_s": report.elapsed_s} | total(jobs.values())
    return Result(
        "run",
        _setup(fabric, specs, switch),
        numbers | refusals(report.refused),
        None if specs[0].job.name == NAMELESS else jobs,
        by_switch(results.values()) if fabric.tree else None,
    )


def _show(fabric: FabricSpec, report: RunReport) -> None:
    results = {end.spec.job.name: end.result for end in report.ends if end.result}
    if not results:
        return
    # Imported here, because a run that fails, or answers in JSON, lays out no tables.
    from ina.cli.summary import show, show_switches

    show({name: metrics(result) | refusals(report.refused) for name, result in results.items()})
    if fabric.tree and (switches := by_switch(results.values())):
        show_switches(switches)


def _fail(ends: Sequence[JobRun], interrupted: Interrupted | None, elapsed_s: float) -> None:
    """Report the jobs that failed, and fail as the first of them; also report an interrupt."""
    first = first_failure([end for end in ends if not end.interrupted])
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


def _of(end: JobRun) -> str:
    return "" if end.spec.job.name == NAMELESS else f"job {end.spec.job.name}: "


def _what_ended(ends: Sequence[JobRun], interrupted: Interrupted, elapsed_s: float) -> str:
    began = [end for end in ends if end.interrupted]
    text = f"interrupted by {interrupted.signal} after {seconds(elapsed_s)}"
    if began:
        text += f"; ended {plural(sum(end.spec.job.workers for end in began), 'worker')}"
        if began[0].spec.job.name != NAMELESS:
            text += f" of {', '.join(end.spec.job.name for end in began)}"
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
    return common | {"jobs": {spec.job.name: of for spec, of in zip(specs, of_jobs, strict=True)}}
