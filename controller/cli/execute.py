"""Runs the jobs of ``ina run`` on their cluster, prints what came of them, and fails as they did."""

from __future__ import annotations

import time
from collections.abc import Sequence

from controller import ControllerError
from controller.cli.cluster import Cluster, open_cluster
from controller.cli.errors import Failure
from controller.cli.jobs import JobEnd, first_failure, run_jobs
from controller.cli.live import Live
from controller.cli.output import Result, err
from controller.cli.spec import NAMELESS, ClusterSpec, JobSpec
from controller.cli.summary import by_switch, metrics, refusals, show, show_switches, total


def execute(cluster_spec: ClusterSpec, specs: Sequence[JobSpec], *, as_json: bool) -> None:
    """Run the jobs, print the summary, and fail as the first that failed."""
    started = time.monotonic()
    with open_cluster(cluster_spec, [spec.workers for spec in specs]) as cluster:
        with Live({spec.name: spec.workers for spec in specs}, quiet=as_json) as live:
            ends = run_jobs(cluster, specs, on_line=live.line, on_progress=live.update)
        refused = _refused(cluster)
    results = {end.spec.name: end.result for end in ends if end.result}
    jobs = {name: metrics(result) for name, result in results.items()}
    switches = by_switch(results.values()) if cluster_spec.tree else None
    if as_json:
        numbers = jobs.get(NAMELESS) or {"time_s": time.monotonic() - started} | total(jobs.values())
        setup = _setup(cluster_spec, specs)
        of_jobs = None if specs[0].name == NAMELESS else jobs
        Result("run", setup, numbers | refusals(refused), of_jobs, switches).print_json()
    elif jobs:
        show({name: numbers | refusals(refused) for name, numbers in jobs.items()})
        if switches:
            show_switches(switches)
    _fail(ends)


def _fail(ends: Sequence[JobEnd]) -> None:
    """Tell which jobs failed, and fail as the first of them."""
    first = first_failure(ends)
    if first is None:
        return
    for end in ends:
        if (failure := end.failure()) and end is not first:
            err.print(f"ina: job {end.spec.name}: {failure}", markup=False, highlight=False, soft_wrap=True)
    if first.spec.name == NAMELESS:
        first.check()
    if failure := first.failure():
        raise Failure(f"job {first.spec.name}: {failure}", exit_code=failure.exit_code)


def _refused(cluster: Cluster) -> dict[str, int]:
    """Return the packets of no job; nothing if the switches are gone."""
    try:
        return {} if cluster.switch_ended() else cluster.refused()
    except ControllerError:
        return {}


def _setup(cluster: ClusterSpec, specs: Sequence[JobSpec]) -> dict[str, object]:
    common: dict[str, object] = {
        "program": cluster.program,
        "lanes": cluster.lanes,
        "switch": cluster.switch,
        "tree": "x".join(map(str, cluster.tree)),
        "impairments": cluster.impairments,
        "link_impairments": cluster.link_impairments,
        "seed": cluster.seed,
    }
    of_jobs = [
        {
            "workers": spec.workers,
            "slots": spec.slots,
            "window": spec.window,
            "preempt": spec.preempt,
            "congestion": spec.congestion,
            "numbers": spec.numbers,
            "priority": spec.priority,
            "command": list(spec.command),
        }
        for spec in specs
    ]
    if specs[0].name == NAMELESS:
        return common | of_jobs[0]
    return common | {"jobs": {spec.name: of for spec, of in zip(specs, of_jobs, strict=True)}}
