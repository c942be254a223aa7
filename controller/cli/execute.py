"""Runs the jobs of ``ina run`` on their cluster, prints what came of them, and fails as they did."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence

from controller import ControllerError
from controller.cli.cluster import Cluster, open_cluster
from controller.cli.errors import Failure, Interrupted
from controller.cli.jobs import JobEnd, first_failure, run_jobs
from controller.cli.live import Live
from controller.cli.output import Result, plural, say, seconds
from controller.cli.spec import NAMELESS, ClusterSpec, JobSpec
from controller.cli.summary import by_switch, metrics, refusals, show, show_switches, total


def execute(cluster_spec: ClusterSpec, specs: Sequence[JobSpec], *, as_json: bool) -> None:
    """Run the jobs, print the summary, and fail as the first that failed, or because of an interrupt."""
    started = time.monotonic()
    ends = [JobEnd(spec) for spec in specs]
    interrupted: Interrupted | None = None
    with Live({spec.name: spec.workers for spec in specs}, quiet=as_json) as live:
        live.doing(_starting(cluster_spec))
        with open_cluster(cluster_spec, [spec.workers for spec in specs]) as cluster:
            live.doing(f"starting {plural(sum(spec.workers for spec in specs), 'worker')}")
            try:
                run_jobs(cluster, ends, on_output=live.output, on_progress=live.update)
            except Interrupted as error:
                interrupted = error
            refused = _refused(cluster)
    elapsed_s = time.monotonic() - started
    with contextlib.suppress(OSError) if interrupted else contextlib.nullcontext():  # a terminal that is gone
        _summarize(cluster_spec, ends, refused, elapsed_s, as_json=as_json)
    _fail(ends, interrupted, elapsed_s)


def _starting(cluster: ClusterSpec) -> str:
    if cluster.switch != "embedded":
        return f"loading the switch program into {cluster.switch}"
    return "compiling the switch program and starting the switch" + ("es" if cluster.tree else "")


def _summarize(
    cluster_spec: ClusterSpec,
    ends: Sequence[JobEnd],
    refused: Mapping[str, int],
    elapsed_s: float,
    *,
    as_json: bool,
) -> None:
    specs = [end.spec for end in ends]
    results = {end.spec.name: end.result for end in ends if end.result}
    jobs = {name: metrics(result) for name, result in results.items()}
    switches = by_switch(results.values()) if cluster_spec.tree else None
    if as_json:
        numbers = jobs.get(NAMELESS) or {"time_s": elapsed_s} | total(jobs.values())
        setup = _setup(cluster_spec, specs)
        of_jobs = None if specs[0].name == NAMELESS else jobs
        Result("run", setup, numbers | refusals(refused), of_jobs, switches).print_json()
    elif jobs:
        show({name: numbers | refusals(refused) for name, numbers in jobs.items()})
        if switches:
            show_switches(switches)


def _fail(ends: Sequence[JobEnd], interrupted: Interrupted | None, elapsed_s: float) -> None:
    """Tell which jobs failed, and fail as the first of them; if interrupted, tell that, too."""
    first = first_failure([end for end in ends if not end.interrupted])
    for end in ends:
        if (end is first and not interrupted) or end.interrupted:
            continue
        if failure := end.failure():
            say(f"ina: {_of(end)}{failure}")
    if interrupted:
        raise Failure(_what_ended(ends, interrupted, elapsed_s), exit_code=interrupted.code)
    if first and (failure := first.failure()):
        raise Failure(f"{_of(first)}{failure}", exit_code=failure.exit_code)


def _of(end: JobEnd) -> str:
    return "" if end.spec.name == NAMELESS else f"job {end.spec.name}: "


def _what_ended(ends: Sequence[JobEnd], interrupted: Interrupted, elapsed_s: float) -> str:
    began = [end for end in ends if end.interrupted]
    text = f"interrupted by {interrupted.signal} after {seconds(elapsed_s)}"
    if began:
        text += f"; ended {plural(sum(end.spec.workers for end in began), 'worker')}"
        if began[0].spec.name != NAMELESS:
            text += f" of {', '.join(end.spec.name for end in began)}"
    return text


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
