"""``ina schedule tune``: better settings of a policy, by replaying a trace with others."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from controller.policies.registry import check_settings, parse_setting, settings_of
from controller.policies.scheduling.lucid.tuner import Settings, Tuned, tune_settings
from controller.simulator.files import whole
from controller.simulator.runs import Task, run, write_rows
from ina.cli import job_files, options
from ina.cli.errors import USAGE, Failure
from ina.cli.output import Bar, err
from ina.cli.plain import count, plural
from ina.cli.schedule import common, inputs

EPILOG = """Examples:

  ina schedule tune --generate 200 --try profile_s=40,80,160 --try capacity=0,1,2

  ina schedule tune --policy muri-s --trace lastweek.csv --try interval_s=180,360,720 --metric p99_jct_s

  ina schedule policies   (lists what can be set)
"""

METRICS = (
    *("avg_jct_s", "median_jct_s", "p99_jct_s", "makespan_s", "avg_wait_s"),
    *("avg_slowdown", "p99_slowdown"),
)


def tune(
    *,
    choices: Annotated[
        list[str],
        typer.Option(
            "--try",
            metavar="NAME=VALUES",
            help="Try these comma-separated values of a setting. Repeatable.",
        ),
    ],
    policy: inputs.Policy = "lucid:lucid",
    settings: inputs.Settings = None,
    metric: Annotated[str, typer.Option(help=f"Minimise this metric: {', '.join(METRICS)}.")] = METRICS[0],
    rounds: Annotated[
        int, typer.Option(min=1, max=100, help="Make at most this many rounds through all settings.")
    ] = 3,
    min_gain: Annotated[
        float, typer.Option(help="Keep a change only if it lowers the metric by at least this share, 0 to 1.")
    ] = 0.0,
    workload: inputs.JobOptions,
    load: inputs.Load = None,
    seed: inputs.Seed = 0,
    cluster: inputs.ClusterOptions,
    models: inputs.ModelOptions,
    jobs_csv: inputs.JobsCsv = None,
    json: options.Json = False,
) -> None:
    """Simulate the same jobs with other settings, and keep settings that lower a metric.

    Tunes like Lucid's system tuner: tries the values of one setting after the other, with the best values so
    far of the others, until a round through all settings gains nothing.
    """
    name = inputs.parse_policy(policy)
    if metric not in METRICS:
        raise Failure(f"--metric {metric}: want one of {', '.join(METRICS)}", USAGE)
    servers = cluster.servers()
    around = models.config(servers, [name], settings, seed=seed)
    tried = parse_choices(choices, name)
    source, jobs = workload.offered([name], around, load=load, seed=seed)
    unused_keys = job_files.note("schedule tune", workload.trace, cluster.cluster)
    there = settings_of(name, around)
    start = {setting: there[setting] for setting in tried}
    most = 1 + rounds * sum(map(len, tried.values()))
    with Bar() as bar:
        done = 0

        def replay(chosen: Settings) -> float:
            nonlocal done
            bar.show(done / most, " ".join(_said(chosen)))
            done += 1
            config = replace(around, settings=(*around.settings, *chosen.items()))
            outcome = run(Task(name, source, config))
            return float(getattr(outcome.metrics, metric))

        found = tune_settings(tried, start, replay, rounds=rounds, min_gain=min_gain)
    if jobs_csv is not None:
        config = replace(around, settings=(*around.settings, *found.best.settings.items()))
        with whole(jobs_csv) as draft:
            write_rows(draft, [run(Task(name, source, config, rows=True))])
    document = as_json(found, name, metric, jobs)
    document["setup"]["unused_keys"] = unused_keys
    if json:
        print(json_module.dumps(document, indent=2))
        return
    show(found, f"{name}: {metric} of {plural(jobs, 'job')} on {plural(servers.gpus, 'GPU')}", metric)


def parse_choices(texts: list[str], policy: str) -> dict[str, list[float]]:
    """Turn ``NAME=1,2,3`` into values by name. Raises BadSpec for an unknown setting or an invalid value."""
    found: dict[str, list[float]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        for value in values.split(","):
            parsed = parse_setting(f"{name}={value}")
            check_settings([parsed], [policy])
            found.setdefault(parsed[0], []).append(parsed[1])
    return found


def as_json(found: Tuned, policy: str, metric: str, jobs: int) -> dict[str, Any]:
    """Return the object that ``--json`` prints.

    Args:
        found: The trials.
        policy: Name of the policy.
        metric: Name of the metric.
        jobs: Number of jobs.
    """
    start = found.trials[0]
    return {
        "name": "schedule tune",
        "setup": {"policy": policy, "metric": metric, "jobs": jobs, "start": dict(start.settings)},
        "best": dict(found.best.settings),
        "metrics": {"start": start.cost, "best": found.best.cost, "trials": len(found.trials)},
        "trials": [{"settings": dict(trial.settings), metric: trial.cost} for trial in found.trials],
    }


def show(found: Tuned, title: str, metric: str) -> None:
    """Print all trials in order, and the best one."""
    start = found.trials[0]
    rows = [
        (
            *(f"{value:g}" for value in trial.settings.values()),
            count(trial.cost),
            f"{100 * (trial.cost / start.cost - 1):+.1f} %" if start.cost else "-",
            "best" if trial is found.best else "start" if trial is start else "",
        )
        for trial in found.trials
    ]
    common.table(title, [*start.settings, metric, "to start", ""], rows)
    if found.best is start:
        err.print("no setting is better than the initial one", highlight=False)
    else:
        err.print(" ".join(f"--set {said}" for said in _said(found.best.settings)), highlight=False)


def _said(chosen: Mapping[str, float]) -> list[str]:
    return [f"{name}={value:g}" for name, value in chosen.items()]
