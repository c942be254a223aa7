"""``ina cluster simulate``: simulates and compares combinations of scheduler, placement, memory, routing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from controller.policies.registry import policies_of
from controller.simulator.files import whole
from controller.simulator.network.average import TOO_LONG
from controller.simulator.network.run import (
    NetworkMetrics,
    NetworkOutcome,
    NetworkSettings,
    NetworkTask,
    run_network,
)
from controller.simulator.pool import run_each
from controller.simulator.runs import Row, row_of, write_jobs
from ina.cli import schedule_inputs as inputs
from ina.cli.allocation import common
from ina.cli.command import Aside, Declared, Listing, Reply, Result, count, plural, seconds
from ina.cli.output import Bars, check_plots

OWN = (
    "or one of your own: path.py:NAME, or a name that an installed package offers. Compares "
    "several, separated by commas."
)
KINDS = ("scheduler", "placement", "memory", "routing")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicies:
    """Options for the policies that place jobs, divide slots and choose trees."""

    placement: Annotated[
        str,
        Declared(
            metavar="NAME,…",
            help="Place jobs by this policy: netpack, random, gpu-balance, least-fragmentation, locality, "
            f"locality-fast-links, optimus, or scheduler (the scheduler's own placement); {OWN}",
        ),
    ] = "netpack"
    memory: Annotated[
        str,
        Declared(
            metavar="NAME,…",
            help="Divide slots by this policy: shared, static, deadline, deadline-lazy, earliest, "
            f"preemptive; {OWN}",
        ),
    ] = "shared"
    routing: Annotated[
        str,
        Declared(
            metavar="NAME,…",
            help=f"Choose trees by this policy: shortest-path, tor-only, ecmp, ecmp-everywhere, grid; {OWN}",
        ),
    ] = "shortest-path"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSimulation(common.Deciding):
    """Options of 'ina cluster simulate': jobs and cluster, the compared policies, and the simulation."""

    scheduler: Annotated[
        str,
        Declared(
            metavar="NAME,…",
            help="Schedule jobs by this policy: one of 'ina schedule policies', or one of your "
            "own: path.py:NAME or package.module:NAME. Compares several, separated by commas.",
        ),
    ] = "fifo-backfill"
    policies: NetworkPolicies
    reading: common.Reading = "measured"
    period: Annotated[
        float,
        Declared(
            metavar="SECONDS",
            help="Divide switch memory again at this interval, besides at starts and ends of jobs; 0: only "
            "at starts and ends.",
        ),
    ] = 60.0
    margin: common.Margin = 0.05
    settings: inputs.Settings = None
    seed: inputs.Seed = 0
    processes: inputs.Processes = 0
    verify: inputs.Verify = False
    plot: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="FILE",
            help="Draw jobs, deadlines, slots and rates over time, for the last combination: "
            ".png, .svg or .pdf.",
        ),
    ] = None
    jobs_csv: inputs.JobsCsv = None

    def chosen(self) -> dict[str, list[str]]:
        """Return the names of the policies, by kind. Raises Failure."""
        return {
            "scheduler": inputs.parse_policies(self.scheduler),
            "placement": common.policies(self.policies.placement, "placement"),
            "memory": common.policies(self.policies.memory, "memory"),
            "routing": common.policies(self.policies.routing, "routing"),
        }


def simulate(asked: ClusterSimulation) -> Reply:
    """Simulate jobs that share a cluster's links and switch memory, and compare policies.

    Simulates each combination of the given policies. Times are in seconds, on the clock of the jobs'
    arrivals. A job that has servers in the file runs on these servers only, and waits until they are free.

    Examples:
        ina cluster simulate --jobs examples/cluster/jobs.toml --cluster examples/cluster/racks.toml

        ina cluster simulate --scheduler srsf,muri-s --placement random,netpack --jobs j.toml --cluster c.toml

        ina cluster simulate --memory shared,deadline --jobs jobs.toml --cluster racks.toml --plot run.svg
        --json

        ina cluster simulate --explain train-3 --memory deadline --jobs jobs.toml --cluster racks.toml
    """
    check_plots("--plot", asked.plot)
    chosen = asked.chosen()
    given = asked.load("cluster simulate")
    tasks = _tasks(asked, chosen, given)
    if asked.explain is not None:
        common.one_job(asked.explain, given.jobs)
    if asked.plot is not None or asked.explain is not None:
        tasks[-1] = replace(tasks[-1], keep_log=True)
    with Bars([" + ".join(task.names.values()) for task in tasks]) as bars:
        outcomes = run_each(run_network, tasks, processes=asked.processes, report=bars.reports)
    if asked.plot is not None:
        from controller.simulator.network.plots import draw

        draw(outcomes[-1].simulated, asked.plot)
    if asked.jobs_csv is not None:
        with whole(asked.jobs_csv) as draft:
            write_jobs(draft, (({**o.task.names}, _rows(o)) for o in outcomes))
    if asked.explain is not None:
        from controller.simulator.network.explain import explain

        lines = explain(outcomes[-1].simulated, asked.explain)
        return common.explained(
            lines, "cluster simulate", " + ".join(tasks[-1].names.values()), asked.explain
        )
    title = (
        f"{plural(len(given.jobs), 'job')} on {plural(given.topology.gpus, 'GPU')} in"
        f" {plural(sum(server.gpus > 0 for server in given.topology.servers), 'server')}"
    )
    doubts = [
        Aside(_doubt(outcome, crowded))
        for outcome in outcomes
        if (crowded := sorted(outcome.simulated.crowded))
    ]
    result = replace(_result(outcomes), unused_keys=asked.unused_keys("cluster simulate"))
    return Reply(result, [Listing(title, COLUMNS, [_cells(o) for o in outcomes]), *doubts])


def _tasks(
    simulation: ClusterSimulation, chosen: Mapping[str, Sequence[str]], given: common.Inputs
) -> list[NetworkTask]:
    """Return a task for each combination of policies, in the order of the options. Raises Failure."""
    around = NetworkSettings(
        reading=simulation.reading,
        period_s=simulation.period,
        margin=simulation.margin,
        seed=simulation.seed,
    )
    numbers = inputs.parse_settings(simulation.settings, chosen["scheduler"])
    tasks = []
    for scheduler, placement, memory, routing in itertools.product(*(chosen[kind] for kind in KINDS)):
        with_names = replace(around, placement=placement, memory=memory, routing=routing)
        policies_of(with_names)
        tasks.append(
            NetworkTask(
                jobs=given.jobs,
                topology=given.topology,
                scheduler=scheduler,
                settings=with_names,
                scheduler_settings=numbers,
                verify=simulation.verify,
            )
        )
    return tasks


COLUMNS = (
    *("scheduler", "placement", "memory", "routing", "avg JCT s", "median s", "p99 s", "makespan s"),
    *("slowdown", "missed", "GPUs", "took"),
)


def _cells(outcome: NetworkOutcome) -> tuple[str, ...]:
    found = outcome.metrics
    return (
        *outcome.task.names.values(),
        count(found.avg_jct_s),
        count(found.median_jct_s),
        count(found.p99_jct_s),
        count(found.makespan_s),
        f"{found.avg_slowdown:.2f}",
        _missed_of(found),
        f"{found.gpu_busy:.1%}",
        seconds(outcome.cpu_s),
    )


def _missed_of(found: NetworkMetrics) -> str:
    if not found.deadlines:
        return "-"
    broken = f", {found.broken} after losing a grant" if found.broken else ""
    return f"{found.missed} of {found.deadlines}{broken}"


def _rows(outcome: NetworkOutcome) -> Iterable[Row]:
    return [row_of(each) for each in outcome.simulated.result.jobs]


def _result(outcomes: Sequence[NetworkOutcome]) -> Result:
    task = outcomes[0].task
    setup = {
        "jobs": len(task.jobs),
        "servers": len(task.topology.servers),
        "gpus": task.topology.gpus,
        "cluster": task.topology.name,
        **{key: value for key, value in asdict(task.settings).items() if key not in task.settings.names},
        "settings": dict(task.scheduler_settings),
    }
    metrics = {
        " + ".join(o.task.names.values()): {
            **asdict(o.metrics),
            "cpu_s": o.cpu_s,
            "missed_jobs": _missed(o),
            "crowded_jobs": sorted(o.simulated.crowded),
        }
        for o in outcomes
    }
    return Result("cluster simulate", setup, metrics)


def _doubt(outcome: NetworkOutcome, crowded: Sequence[str]) -> str:
    some = ", ".join(crowded[:3]) + (", …" if len(crowded) > 3 else "")
    return (
        f"Note: with {' + '.join(outcome.task.names.values())}, {plural(len(crowded), 'job')} ({some}) shared"
        f" the slots of a switch, although one job alone could fill more than {TOO_LONG:g} times the switch's"
        " slots. Times of these jobs may be off by 60 %; 'ina sim' computes them packet by packet."
    )


def _missed(outcome: NetworkOutcome) -> list[str]:
    return sorted(each.spec.name for each in outcome.simulated.missed)
