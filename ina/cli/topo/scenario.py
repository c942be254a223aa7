"""``ina scenario``: runs scenarios, files with jobs, faults and checks, on any runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from controller.vocabulary import documents
from ina.cli import job_files
from ina.cli.command import Declared, Json, Listing, Reply, Result, say, seconds
from ina.cli.output import table
from ina.cli.topo.topology import TargetKind, TargetOption

if TYPE_CHECKING:
    from bmv2_topos.scenarios import CheckResult, Outcome, Scenario


def list_() -> Reply:
    """List the included scenarios, and the files to copy for your own.

    Examples:
        ina scenario list
    """
    from bmv2_topos.scenarios import load_scenario, shipped

    rows = {name: (load_scenario(path), path) for name, path in shipped().items()}
    of = {
        name: {"summary": each.summary, "topology": each.network.name, "file": str(path)}
        for name, (each, path) in rows.items()
    }
    table = Listing(
        "Scenarios",
        ["name", "topology", "program", "what happens"],
        [[name, each.network.name, each.settings.program, each.summary] for name, (each, _) in rows.items()],
    )
    return Reply(Result("scenario list", {}, {"scenarios": len(rows)}, of), [table])


def run(
    *,
    scenarios: Annotated[
        list[str],
        Declared(
            argument=True,
            metavar="SCENARIO…",
            help="Run these scenarios of 'ina scenario list', or files that end in .toml.",
        ),
    ],
    runner: Annotated[
        Literal["virtual", "loopback", "netns", "mininet"],
        Declared(
            help="Run in virtual time (virtual), as processes of this user (loopback), or in network "
            "namespaces as root (netns, mininet)."
        ),
    ] = "virtual",
    target: TargetOption = "embedded",
    json: Json = False,
) -> Reply:
    """Run scenarios one after the other, and check their outcome; exit with status 1 if a check fails.

    A scenario that the runner does not support is refused before anything starts, with the reason.

    Examples:
        ina scenario run straggler

        ina scenario run straggler two-jobs --runner loopback

        ina scenario run killed-worker --runner mininet

        ina scenario run my.toml --runner netns --target bmv2 --json
    """
    from bmv2_topos.scenarios import check_results, find_scenario
    from ina.run.scenarios import runner_of

    found = [find_scenario(name) for name in scenarios]
    unused_keys = _unused(scenarios)
    scenario_runner = runner_of(runner, target)
    for scenario in found:
        scenario_runner.check(scenario)
    results: dict[str, tuple[Outcome, list[CheckResult]]] = {}
    for scenario in found:
        outcome = scenario_runner.run(scenario, lambda text, name=scenario.name: _step(name, text, json))  # type: ignore[misc]
        results[scenario.name] = outcome, check_results(scenario, outcome)
        if not json:
            _show(scenario, *results[scenario.name])
    failed = [name for name, (_, of) in results.items() if not all(verdict.good for verdict in of)]
    result = _result(runner, target, results, failed)
    failure = f"{', '.join(failed)}: checks have failed" if failed else ""
    return Reply(replace(result, unused_keys=unused_keys), failure=failure)


def _unused(scenarios: Sequence[str]) -> list[str]:
    """Report and return the unused keys of scenarios' files, and of the topology files that they name."""
    files = [path for name in scenarios if (path := Path(name)).suffix in documents.FORMATS]
    topologies = [Path(documents.read(path).data["topology"]) for path in files]
    return [*dict.fromkeys(job_files.note("scenario", *files) + job_files.note("topo", *topologies))]


def _step(name: str, text: str, quiet: bool) -> None:
    if not quiet:
        say(f"ina: {name}: {text}")


def _show(scenario: Scenario, outcome: Outcome, found: list[CheckResult]) -> None:
    times = ", ".join(f"{job.name} {seconds(job.iteration_s)}" for job in outcome.jobs)
    table(
        f"{scenario.name} on {outcome.runner}, {outcome.target}: {seconds(outcome.elapsed_s)} in all;"
        f" time per iteration: {times}",
        ["", "check", "found"],
        [["good" if verdict.good else "FAILED", verdict.check, verdict.found] for verdict in found],
    )


def _result(
    runner: str,
    target: TargetKind,
    results: dict[str, tuple[Outcome, list[CheckResult]]],
    failed: list[str],
) -> Result:
    checks = [verdict for _, of in results.values() for verdict in of]
    numbers = {"scenarios": len(results), "failed_scenarios": len(failed), "checks": len(checks)}
    return Result(
        "scenario run",
        {"runner": runner, "target": target},
        numbers,
        {name: _of(outcome, found) for name, (outcome, found) in results.items()},
    )


def _of(outcome: Outcome, found: list[CheckResult]) -> dict[str, object]:
    jobs = {
        job.name: {
            "failure": job.failure,
            "iterations": job.iterations,
            "iteration_s": job.iteration_s,
            **job.metrics,
        }
        for job in outcome.jobs
    }
    checks = [{"check": each.check, "good": each.good, "found": each.found} for each in found]
    return {"time_s": outcome.elapsed_s, "checks": checks, "jobs": jobs}
