"""``ina schedule simulate``, ``sweep`` and ``tune``: compare policies, loads and seeds, or settings."""

from __future__ import annotations

import itertools
import json as json_module
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from controller.figures import PlotsMissing, check
from controller.policies.registry import check_settings, family, parse_setting, settings_of
from controller.policies.scheduling.lucid.family import Settings, TuningResult, tune_settings
from controller.simulator.files import file_in_errors, whole
from controller.simulator.plots import draw_jcts, draw_utilisation
from controller.simulator.pool import run_all, run_on_ray
from controller.simulator.runs import (
    Point,
    SimulationOutcome,
    SimulationTask,
    points_of,
    run,
    sweep_tasks,
    write_rows,
)
from controller.vocabulary.documents import brief
from controller.vocabulary.lists import by_key
from ina.cli import options
from ina.cli import schedule_inputs as inputs
from ina.cli.command import (
    USAGE,
    Aside,
    Declared,
    Failure,
    Listing,
    Reply,
    count,
    plural,
    refuse,
    say,
    seconds,
)
from ina.cli.declared import check_output
from ina.cli.output import Bars, check_plots

NUMBERS = ("metrics.json", "curves.json", "jobs.csv")
PLOTS = ("jct.svg", "utilisation.svg")


def simulate(
    *,
    policy: inputs.Policies = "fifo,srtf,muri-s",
    load: inputs.Load = None,
    seed: inputs.Seed = 0,
    given: inputs.ScheduleInputs,
    processes: inputs.Processes = 0,
    verify: inputs.Verify = False,
    output: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="DIR",
            help=f"Write {', '.join(NUMBERS)} and, with matplotlib, {' and '.join(PLOTS)} into this "
            "directory.",
        ),
    ] = None,
) -> Reply:
    """Simulate policies on the same jobs, and compare the results.

    The jobs come from a trace or are generated. Times are in seconds. Policies run in parallel on several
    cores, which does not change the figures. --output writes all its files at the end, or none.

    Examples:
        ina schedule simulate --generate 500 --policy fifo,srtf,muri-s

        ina schedule simulate --trace trace3.csv --policy srtf,muri-s --json

        ina schedule simulate --cluster examples/schedule/cluster.toml --load 0.8 --seed 1 --output results

        ina schedule simulate --policy synergy:fifo+proportional,synergy:fifo+tune --nodes 4 --cpus-per-gpu 4
    """
    names = inputs.parse_policies(policy)
    if output is not None:
        for name in (*NUMBERS, *PLOTS):
            check_output("--output ", output / name)
    around = given.config(names, seed=seed)
    source, jobs = given.workload.offered(names, around, load=load, seed=seed)
    unused_keys = given.note("schedule simulate")
    rows = output is not None or given.jobs_csv is not None
    tasks = [
        SimulationTask(name, source, around, curves=output is not None, verify=verify, rows=rows)
        for name in names
    ]
    with Bars([task.policy for task in tasks]) as bars:
        outcomes = run_all(tasks, processes=processes, report=bars.reports)
    document = _document(outcomes, jobs, unused_keys)
    if output is not None:
        _write(output, outcomes, document)
    given.keep(outcomes)
    servers = around.cluster
    title = (
        f"{plural(jobs, 'job')} on {plural(servers.gpus, 'GPU')} in {plural(len(servers.servers), 'server')}"
    )
    return Reply(document, _outcomes(outcomes, title))


def _document(
    outcomes: Sequence[SimulationOutcome], jobs: int, unused_keys: Sequence[str]
) -> dict[str, object]:
    """Return the object that ``--json`` prints."""
    task = outcomes[0].task
    source, cluster = task.source, task.config.cluster
    setting = {
        "jobs": jobs,
        "servers": len(cluster.servers),
        "gpus": cluster.gpus,
        "trace": str(source.trace or "generated"),
        "load": source.load,
        "seed": source.seed,
        "settings": dict(task.config.settings),
        "unused_keys": unused_keys,
    }
    metrics = {o.task.policy: {**asdict(o.metrics), "wall_s": o.wall_s} for o in outcomes}
    return {"name": "schedule simulate", "setup": setting, "metrics": metrics}


def _write(directory: Path, outcomes: Sequence[SimulationOutcome], document: Mapping[str, object]) -> None:
    """Write the files of ``--output``; if one cannot be written, none is."""
    curves = {
        o.task.policy: {
            "jct_s": sorted(o.jcts_s),
            "time_s": list(o.curves.time_s),
            "queue": list(o.curves.queue),
            "gpus": list(o.curves.gpus),
            "blocking": list(o.curves.blocking),
            "busy": {name: list(values) for name, values in o.curves.busy.items()},
        }
        for o in outcomes
        if o.curves is not None
    }
    with ExitStack() as stack:
        metrics_file, curves_file, jobs_file = (
            stack.enter_context(whole(directory / name)) for name in NUMBERS
        )
        with file_in_errors(metrics_file):
            metrics_file.write_text(json_module.dumps(document, indent=2) + "\n", encoding="utf-8")
        with file_in_errors(curves_file):
            curves_file.write_text(json_module.dumps(curves) + "\n", encoding="utf-8")
        with file_in_errors(jobs_file):
            write_rows(jobs_file, outcomes)
        try:
            check()
        except PlotsMissing as error:
            say(f"ina: no plots: {error}")
            return
        jct_file, utilisation_file = (stack.enter_context(whole(directory / name)) for name in PLOTS)
        with file_in_errors(jct_file):
            draw_jcts({o.task.policy: o.jcts_s for o in outcomes}, jct_file)
        curved = {o.task.policy: (o.curves, o.end_s) for o in outcomes if o.curves is not None}
        with file_in_errors(utilisation_file):
            draw_utilisation(curved, utilisation_file)


FOR_DEADLINES = ("edf", "on-time", "joint")
"""Policies for deadlines. If one of them is simulated, the table has a column with the number of deadlines
met."""


def _outcomes(outcomes: Sequence[SimulationOutcome], title: str) -> Iterator[Listing | str]:
    due = any(o.task.policy in FOR_DEADLINES for o in outcomes)
    columns = [
        *("policy", "avg JCT s", "median s", "p99 s", "makespan s", "slowdown"),
        *("in time",) * due,
        *("queue", "GPUs", "restarts", "took"),
    ]
    rows = [
        (
            o.task.policy,
            count(o.metrics.avg_jct_s),
            count(o.metrics.median_jct_s),
            count(o.metrics.p99_jct_s),
            count(o.metrics.makespan_s),
            f"{o.metrics.avg_slowdown:.2f}",
            *(f"{o.metrics.deadlines_met} of {o.metrics.deadlines}",) * due,
            f"{o.metrics.avg_queue:.1f}",
            f"{o.metrics.gpu_busy:.1%}",
            count(o.metrics.restarts),
            seconds(o.wall_s),
        )
        for o in outcomes
    ]
    yield Listing(title, columns, rows)
    families = {family(o.task.policy) for o in outcomes}
    if len(families) > 1:
        kinds = ", ".join(name or "plain" for name in sorted(families))
        yield (f"Speed models differ between {kinds}: compare results only within one family.")


# --------------------------------------------------------------------------- loads and seeds

SEED_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    """Options of 'ina schedule sweep': policies, loads and seeds, where simulations run, and output files."""

    policy: inputs.Policies = "fifo,srtf,muri-s"
    loads: Annotated[
        str,
        Declared(
            metavar="FACTORS",
            help="Simulate these comma-separated loads: for generated jobs, the offered load "
            "relative to the cluster's capacity; for a trace, a factor on the rate at which jobs "
            "arrive.",
        ),
    ] = "1"
    seeds: Annotated[
        str,
        Declared(
            metavar="SEEDS", help="Generate jobs with each of these seeds: numbers and ranges, such as 0-4,7."
        ),
    ] = "0"
    given: inputs.ScheduleInputs
    processes: inputs.Processes = 0
    ray: Annotated[
        bool, Declared("--ray", help="Run on a Ray cluster; files must have the same paths there.")
    ] = False
    ray_address: Annotated[
        str,
        Declared(
            metavar="ADDRESS",
            help="With --ray: connect to this cluster. Default: RAY_ADDRESS, else a new cluster on "
            "this machine.",
        ),
    ] = ""
    output: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="FILE",
            help="Write the JSON object to this file, too: the means, and the results of each simulation.",
        ),
    ] = None
    plot: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="FILE",
            help="Draw completion times by load: .svg, .png or .pdf. Needs matplotlib.",
        ),
    ] = None


def sweep(asked: SweepSettings) -> Reply:
    """Simulate policies over several loads and seeds, and print means over the seeds.

    Runs one simulation for each policy, load and seed. Times are in seconds; ± is the standard deviation over
    the seeds. The results do not depend on where, or in how many processes, the simulations run.

    Examples:
        ina schedule sweep --policy srtf,tiresias,muri-s --loads 0.8,1,1.2 --seeds 0-4

        ina schedule sweep --trace trace3.csv --loads 0.5,1,2 --output sweep.json --plot sweep.svg

        ina schedule sweep --seeds 0-99 --ray --ray-address ray://head:10001
    """
    names = inputs.parse_policies(asked.policy)
    check_plots("--plot", asked.plot)
    refuse(asked.ray_address and not asked.ray, "--ray-address needs --ray: give both")
    given = asked.given
    around = given.config(names)
    source, _ = given.workload.offered(names, around, load=1.0)
    planned = sweep_tasks(
        names,
        source,
        around,
        loads=_loads(asked.loads),
        seeds=_seeds(asked.seeds),
        rows=given.jobs_csv is not None,
    )
    unused_keys = given.note("schedule sweep")
    with Bars([task.policy for task in planned], together=f"{len(planned)} simulations") as bars:
        if asked.ray:
            outcomes = run_on_ray(planned, address=asked.ray_address, report=bars.reports)
        else:
            outcomes = run_all(planned, processes=asked.processes, report=bars.reports)
    points = points_of(outcomes)
    document = _swept(planned, outcomes, points, unused_keys)
    if asked.output is not None:
        with whole(asked.output) as draft:
            draft.write_text(json_module.dumps(document, indent=2) + "\n", encoding="utf-8")
    given.keep(outcomes)
    if asked.plot is not None:
        with whole(asked.plot) as draft:
            _draw(points, draft)
    jobs = given.workload.generated if given.workload.trace is None else given.workload.trace
    title = f"{jobs} jobs on {plural(around.cluster.gpus, 'GPU')}, mean of seeds {asked.seeds}"
    return Reply(document, [_points(points, title)])


def _seeds(text: str) -> tuple[int, ...]:
    for number in re.findall(r"[0-9]+", text):
        # before a range of such numbers is made
        refuse(len(number) > SEED_DIGITS, f"--seeds: {brief(number)} has more than {SEED_DIGITS} digits")
    return options.parse_numbers("--seeds", text)


def _loads(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise Failure(f"--loads {brief(repr(text))}: want numbers, such as 0.8,1,1.2", USAGE) from None


def _swept(
    planned: Sequence[SimulationTask],
    outcomes: Sequence[SimulationOutcome],
    points: Sequence[Point],
    unused_keys: Sequence[str],
) -> dict[str, object]:
    first = planned[0]
    setting = {
        "trace": str(first.source.trace or "generated"),
        "servers": len(first.config.cluster.servers),
        "gpus": first.config.cluster.gpus,
        "unused_keys": unused_keys,
    }
    runs = [
        {"load": o.task.source.load, "seed": o.task.source.seed, **asdict(o.metrics), "policy": o.task.policy}
        for o in outcomes
    ]
    means = [asdict(point) for point in points]
    return {"name": "schedule sweep", "setup": setting, "points": means, "runs": runs}


def _points(points: Sequence[Point], title: str) -> Listing:
    columns = ["policy", "load", "avg JCT s", "±", "median s", "p99 s", "±", "slowdown", "queue", "GPUs"]
    rows = [
        (
            point.policy,
            f"{point.load:g}",
            count(point.mean["avg_jct_s"]),
            count(point.spread["avg_jct_s"]),
            count(point.mean["median_jct_s"]),
            count(point.mean["p99_jct_s"]),
            count(point.spread["p99_jct_s"]),
            f"{point.mean['avg_slowdown']:.2f}",
            f"{point.mean['avg_queue']:.1f}",
            f"{point.mean['gpu_busy']:.1%}",
        )
        for point in points
    ]
    return Listing(title, columns, rows)


def _draw(points: Sequence[Point], path: Path) -> None:
    from bmv2_topos.plots import draw_lines

    lines = by_key((each.policy, (each.load, each.mean["avg_jct_s"] / 3600)) for each in points)
    lines = {policy: sorted(found) for policy, found in lines.items()}
    draw_lines(lines, path, x="load", y="average completion time (h)")


# --------------------------------------------------------------------------- settings

METRICS = (
    *("avg_jct_s", "median_jct_s", "p99_jct_s", "makespan_s", "avg_wait_s"),
    *("avg_slowdown", "p99_slowdown"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """Options of 'ina schedule tune': settings to try, the metric to lower, and the jobs to simulate."""

    choices: Annotated[
        list[str],
        Declared(
            "--try",
            metavar="NAME=VALUES",
            help="Try these comma-separated values of a setting. Repeatable.",
        ),
    ]
    policy: inputs.Policy = "lucid:lucid"
    metric: Annotated[str, Declared(help=f"Minimise this metric: {', '.join(METRICS)}.")] = METRICS[0]
    rounds: Annotated[
        int, Declared(min=1, max=100, help="Make at most this many rounds through all settings.")
    ] = 3
    min_gain: Annotated[
        float, Declared(help="Keep a change only if it lowers the metric by at least this share, 0 to 1.")
    ] = 0.0
    given: inputs.ScheduleInputs
    load: inputs.Load = None
    seed: inputs.Seed = 0


def tune(asked: TuneSettings) -> Reply:
    """Simulate the same jobs with other settings, and keep settings that lower a metric.

    Tunes like Lucid's system tuner: tries the values of one setting after the other, while all other settings
    have their best values so far, until a round through all settings gains nothing.

    Examples:
        ina schedule tune --generate 200 --try profile_s=40,80,160 --try capacity=0,1,2

        ina schedule tune --policy muri-s --trace lastweek.csv --try interval_s=180,360,720 --metric p99_jct_s

        ina schedule policies   (lists what can be set)
    """
    name = inputs.parse_policy(asked.policy)
    refuse(asked.metric not in METRICS, f"--metric {asked.metric}: want one of {', '.join(METRICS)}")
    given = asked.given
    around = given.config([name], seed=asked.seed)
    tried = _choices(asked.choices, name)
    source, jobs = given.workload.offered([name], around, load=asked.load, seed=asked.seed)
    unused_keys = given.note("schedule tune")
    current = settings_of(name, around)
    start = {setting: current[setting] for setting in tried}
    most = 1 + asked.rounds * sum(map(len, tried.values()))

    def task(chosen: Settings, *, rows: bool = False) -> SimulationTask:
        return SimulationTask(
            name, source, replace(around, settings=(*around.settings, *chosen.items())), rows=rows
        )

    with Bars() as bar:
        done = itertools.count()

        def replay(chosen: Settings) -> float:
            bar.show(next(done) / most, " ".join(_assignments(chosen)))
            return float(getattr(run(task(chosen)).metrics, asked.metric))

        found = tune_settings(tried, start, replay, rounds=asked.rounds, min_gain=asked.min_gain)
    if given.jobs_csv is not None:
        given.keep([run(task(found.best.settings, rows=True))])
    setup = {"policy": name, "metric": asked.metric, "jobs": jobs, "unused_keys": unused_keys}
    title = f"{name}: {asked.metric} of {plural(jobs, 'job')} on {plural(around.cluster.gpus, 'GPU')}"
    return Reply(_tuned(found, setup), _trials(found, title, asked.metric))


def _choices(texts: list[str], policy: str) -> dict[str, list[float]]:
    """Return the values to try for each setting, from texts ``NAME=1,2,3``. Raises BadSpec."""
    found: dict[str, list[float]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        for value in values.split(","):
            parsed = parse_setting(f"{name}={value}")
            check_settings([parsed], [policy])
            found.setdefault(parsed[0], []).append(parsed[1])
    return found


def _tuned(found: TuningResult, setup: Mapping[str, object]) -> dict[str, object]:
    """Return the object that ``--json`` prints."""
    start = found.trials[0]
    metric = str(setup["metric"])
    return {
        "name": "schedule tune",
        "setup": {**setup, "start": dict(start.settings)},
        "best": dict(found.best.settings),
        "metrics": {"start": start.cost, "best": found.best.cost, "trials": len(found.trials)},
        "trials": [{"settings": dict(trial.settings), metric: trial.cost} for trial in found.trials],
    }


def _trials(found: TuningResult, title: str, metric: str) -> list[Listing | str]:
    """Return the parts of the reply: a table of all trials in order, and the best settings."""
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
    best = " ".join(f"--set {assignment}" for assignment in _assignments(found.best.settings))
    conclusion = "no setting is better than the initial one" if found.best is start else best
    return [Listing(title, [*start.settings, metric, "change", ""], rows), Aside(conclusion)]


def _assignments(chosen: Mapping[str, float]) -> list[str]:
    return [f"{name}={value:g}" for name, value in chosen.items()]
