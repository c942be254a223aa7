"""Simulations of policies by name, as data that can be sent to another process.

If a cluster is divided into virtual clusters, a policy runs in each of them.

Expected durations may come from a file, a predictor's output for the jobs of a trace. The file is a CSV with
the columns ``name`` and ``estimate_s``, in seconds, or ``job_id`` and ``priority``, as Lucid's predictors
write it. An estimate of less than one second counts as one second.
"""

from __future__ import annotations

import csv
import json
import math
import statistics
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from controller.errors import ControllerError
from controller.policies import registry
from controller.policies.family import SimulationConfig
from controller.policies.registry import complete_jobs, family, find_family, is_user_defined
from controller.policies.scheduling.errors import BadSpec, BadTrace, SchedulingError
from controller.policies.scheduling.policy import Group, JobState, Submission
from controller.simulator.engine import Curves, EndedJob, Metrics, PolicyRun, SimulationResult, measure
from controller.simulator.generate import generate
from controller.simulator.traces import read
from controller.simulator.traces.rows import JobCheck, TraceRow, read_rows
from controller.vocabulary import Cluster
from controller.vocabulary.documents import brief
from controller.vocabulary.lists import by_key

if TYPE_CHECKING:
    from controller.policies.scheduling.lucid.estimates import DurationModel, JobFacts

COLUMNS = ("name", "estimate_s")
OF_LUCID = ("job_id", "priority")


def read_estimates(path: Path) -> dict[str, float]:
    """Return each job's expected duration, in seconds.

    Raises BadTrace for an unreadable file, or a job that appears twice.
    """
    rows = read_rows(path, (), what="estimates")
    columns = list(rows[0].cells)
    of_lucid = {*OF_LUCID} <= {*columns} and not {*COLUMNS} & {*columns}
    name, seconds = OF_LUCID if of_lucid else COLUMNS
    if name not in columns and "job_id" in columns:
        raise BadTrace(str(path), 1, "job_id", "is no column: want name")
    if missing := [column for column in (name, seconds) if column not in columns]:
        raise BadTrace(str(path), 1, missing[0], f"missing; the columns are {', '.join(columns)}")
    found: dict[str, float] = {}
    for row in rows:
        job = row.text(name)
        if job in found:
            raise row.fail(name, f"job {job!r} appears twice")
        found[job] = max(1.0, _seconds(row, seconds))
    return found


def expect(specs: Iterable[Submission], path: Path | None) -> list[Submission]:
    """Return the jobs, with the estimates in the file `path`; None: there is no file.

    Jobs that the file does not name keep their own estimates.

    Raises BadTrace if the file is unreadable or names none of the jobs.
    """
    jobs = list(specs)
    if path is None:
        return jobs
    estimates = read_estimates(path)
    if jobs and not any(spec.name in estimates for spec in jobs):
        raise BadTrace(str(path), 0, "name", f"names none of the trace's jobs, such as {jobs[0].name!r}")
    return [replace(spec, estimate_s=estimates.get(spec.name, spec.estimate_s)) for spec in jobs]


def _seconds(row: TraceRow, column: str) -> float:
    text = row.text(column)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise row.fail(column, f"{brief(repr(text))} is not a number of seconds")
    return value


# ---------------------------------------------------------------------------
# Expected durations, learned from jobs that have ended (Lucid's workload estimate model).


def learn(ended: Sequence[Submission], config: SimulationConfig) -> DurationModel:
    """Return a model of the durations of jobs like `ended`.

    Raises BadSample for too few jobs, ExtraMissing without the packages that train it.
    """
    from controller.policies.scheduling.lucid.estimates import LONG, train_durations

    submissions = [facts_of(spec, config) for spec in ended]
    return train_durations(submissions, [spec.duration_s for spec in ended], replace(LONG, seed=config.seed))


def facts_of(spec: Submission, config: SimulationConfig) -> JobFacts:
    """Return a job's features before it runs, with its GPU usage if there are measurements of it."""
    from controller.policies.scheduling.lucid.estimates import submission as described
    from controller.policies.scheduling.lucid.family import usage_of

    try:
        return described(spec, usage_of(spec, config))
    except BadSpec:  # it has no profile
        return described(spec)


def predict(specs: Sequence[Submission], model: DurationModel, config: SimulationConfig) -> list[Submission]:
    """Return the jobs with the model's predictions as their estimates."""
    return [replace(spec, estimate_s=model.predict_s(facts_of(spec, config))) for spec in specs]


# ---------------------------------------------------------------------------
# Clusters that are divided into virtual clusters: each has its own nodes and its own queue.
#
# They share nothing, so each is a separate simulation; their results are combined.


@dataclass(frozen=True, slots=True)
class PartitionedRun(PolicyRun):
    """One policy run for each virtual cluster; `policy` and `speed` belong to the first virtual cluster.

    Attributes:
        parts: The policy runs, by virtual cluster.
    """

    parts: Mapping[str, PolicyRun] = field(default_factory=dict)

    def run(
        self,
        specs: Sequence[Submission],
        cluster: Cluster,
        *,
        detail: bool = False,
        verify: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> SimulationResult:
        """Simulate the jobs of each virtual cluster on the servers of this cluster; see `PolicyRun.run`.

        Raises BadSpec also for a job whose virtual cluster does not exist.
        """
        divided: dict[str, list[Submission]] = {name: [] for name in self.parts}
        for spec in specs:
            if spec.vc not in divided:
                there = ", ".join(sorted(divided))
                raise BadSpec(
                    f"job {spec.name!r} is of virtual cluster {spec.vc!r}; the cluster is divided into"
                    f" {there}"
                )
            divided[spec.vc].append(spec)
        results: list[SimulationResult] = []
        ended = 0
        for name, part in self.parts.items():
            if not divided[name]:
                continue
            results.append(part.run(divided[name], cluster.part(name), detail=detail, verify=verify))
            ended += len(divided[name])
            if progress is not None:
                progress(ended, len(specs))
        return merged(results, cluster, self.policy.name)


def merged(results: Sequence[SimulationResult], cluster: Cluster, policy: str) -> SimulationResult:
    """Combine the results of parts of a cluster."""
    curves = [(result.cluster.gpus, result.curves) for result in results if result.curves is not None]
    return SimulationResult(
        policy=policy,
        cluster=cluster,
        jobs=sorted((job for result in results for job in result.jobs), key=lambda job: job.finish_s),
        begin_s=min((result.begin_s for result in results), default=0.0),
        end_s=max((result.end_s for result in results), default=0.0),
        queue_integral=math.fsum(result.queue_integral for result in results),
        gpu_integral=math.fsum(result.gpu_integral for result in results),
        decisions=sum(result.decisions for result in results),
        curves=_merged_curves(curves, cluster.gpus) if curves else None,
    )


def _merged_curves(parts: Sequence[tuple[int, Curves]], gpus: int) -> Curves:
    """Combine the curves of parts, which are pairs of number of GPUs and curves.

    Counts are added. Busy fractions are weighted by the parts' GPUs. Blocking is the mean over all parts.
    """
    time_s = sorted({at_s for _, part in parts for at_s in part.time_s})

    def total(weighed: Iterable[tuple[float, Sequence[float], Sequence[float]]]) -> list[float]:
        sums = [0.0] * len(time_s)
        for weight, at_s, values in weighed:
            for number, now_s in enumerate(time_s):
                place = bisect_right(at_s, now_s)
                sums[number] += weight * values[place - 1] if place else 0.0
        return sums

    return Curves(
        time_s,
        total((1.0, part.time_s, part.queue) for _, part in parts),
        total((1.0, part.time_s, part.gpus) for _, part in parts),
        total((1 / len(parts), part.time_s, part.blocking) for _, part in parts),
        {
            name: total((size / gpus, part.time_s, part.busy[name]) for size, part in parts)
            for name in parts[0][1].busy
        },
    )


# ---------------------------------------------------------------------------
# Simulations of policies by name.


def make(name: str, config: SimulationConfig) -> PolicyRun:
    """Return a new run of a policy, with one run for each virtual cluster if the cluster is divided.

    Raises the errors of `controller.policies.registry.make`.
    """
    cluster = config.cluster
    if not cluster.virtual:
        return PolicyRun.of(registry.make(name, config))
    registry.check_known(name)
    parts = {vc: make(name, replace(config, cluster=cluster.part(vc))) for vc in cluster.virtual}
    first = parts[cluster.virtual[0]]
    return PartitionedRun(first.policy, first.speed, first.interval_s, parts=parts)


# ---------------------------------------------------------------------------
# The result of each job, as CSV or JSON: one line or object for each job of each simulation.


JOB_COLUMNS = (
    "name",
    "arrival_s",
    "start_s",
    "finish_s",
    "jct_s",
    "waited_s",
    "alone_s",
    "slowdown",
    "gpus",
    "starts",
    "preemptions",
)

Row = Sequence[str | float]


def row_of(job: EndedJob) -> Row:
    """Return a job's row, with the columns `JOB_COLUMNS`."""
    return (
        job.spec.name,
        job.spec.arrival_s,
        job.start_s,
        job.finish_s,
        job.jct_s,
        job.waited_s,
        job.alone_s,
        job.slowdown,
        job.spec.gpus,
        job.starts,
        job.preemptions,
    )


def write_jobs(path: Path, runs: Iterable[tuple[Mapping[str, str | float], Iterable[Row]]]) -> None:
    """Write the rows of all runs; each row begins with the columns that identify its run.

    Writes CSV, or a list of objects if the file's name ends in .json.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".json":
            found = (
                {**run, **dict(zip(JOB_COLUMNS, row, strict=True))} for run, rows in runs for row in rows
            )
            file.write("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")
            return
        writer = csv.writer(file, lineterminator="\n")
        header: Sequence[str] = ()
        for run, rows in runs:
            if not header:
                header = (*run, *JOB_COLUMNS)
                writer.writerow(header)
            writer.writerows((*run.values(), *row) for row in rows)


MOST_JOBS = 1_000_000
"""Maximum number of jobs that can be generated: all are kept in memory."""

LEAST_LOAD = 1e-6
"""Minimum load; 1 / `LEAST_LOAD` is the maximum. At other loads, rounding would change times of submission
too much."""

LARGEST_SEED = 2**32 - 1
"""Largest seed that all random generators accept, including scikit-learn's."""

Progress = Callable[[int, int], None]
"""Function that is called with the number of ended jobs and of all jobs."""


class SimulationFailed(SchedulingError):
    """A simulation failed; `exit_code` is 2 if the inputs are the reason, else 1. Can be pickled."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message, exit_code)
        self.exit_code = exit_code

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Source:
    """Source of jobs: a trace file, or the generator.

    Attributes:
        trace: The file; None: jobs are generated.
        format: Format of the file; "": detected from its first line.
        count: Number of generated jobs.
        load: For generated jobs, the offered load as a multiple of the cluster's capacity. For a trace, the
            factor by which jobs arrive faster than in the file.
        seed: Seed of generated jobs.
        kind: The family of policies that generated jobs are for (`kind_for`).
    """

    trace: Path | None = None
    format: str = ""
    count: int = 500
    load: float = 1.0
    seed: int = 0
    kind: str = ""

    def __post_init__(self) -> None:
        if not (self.load > 0 and math.isfinite(self.load)):
            raise BadSpec(f"a load of {self.load:g}; it must be positive")
        if not LEAST_LOAD <= self.load <= 1 / LEAST_LOAD:
            raise BadSpec(f"a load of {self.load:g}; want {LEAST_LOAD:g} to {1 / LEAST_LOAD:g}")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise BadSpec(f"a seed of {self.seed}; it must be at least 0 and at most {LARGEST_SEED}")
        if self.format and self.trace is None:
            raise BadSpec(f"format {self.format!r} without a trace; generated jobs have no format")

    def jobs(self, config: SimulationConfig, known: JobCheck | None = None) -> list[Submission]:
        """Return the jobs; `known` checks each job of a trace. Raises BadTrace or BadSpec."""
        cluster = config.cluster
        if self.trace is None:
            if config.estimates is not None:
                raise BadSpec(f"estimates {config.estimates} without a trace; generated jobs have none")
            specs = generate(
                self.count,
                cluster,
                load=self.load,
                seed=self.seed,
                three_stages=find_family(self.kind).three_stages,
            )
            return complete_jobs(specs, self.kind, config)
        specs = expect(read(self.trace, cluster, known, format=self.format), config.estimates)
        if self.load == 1:
            return specs
        return [replace(spec, arrival_s=spec.arrival_s / self.load) for spec in specs]


@dataclass(frozen=True, slots=True)
class SimulationTask:
    """One simulation.

    `curves` requests utilisation over time, `verify` a check of every decision, and `rows` the result of each
    job.
    """

    policy: str
    source: Source
    config: SimulationConfig
    curves: bool = False
    verify: bool = False
    rows: bool = False


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """Result of a task.

    `wall_s` and `cpu_s` are the elapsed time and the processor time of the simulation, without reading jobs.
    `rows` has a row for each job (`row_of`) in the order in which jobs ended, if the task requests rows.
    """

    task: SimulationTask
    metrics: Metrics
    jcts_s: Sequence[float]
    end_s: float
    curves: Curves | None
    wall_s: float
    cpu_s: float
    rows: Sequence[Row] = ()


def kind_for(policies: Iterable[str]) -> str:
    """Return a `Source.kind` whose generated jobs all these policies can run.

    Raises BadSpec if there is none: most families need jobs with their own profiles.
    """
    families = sorted({family(name) for name in policies} - {""})
    if len({find_family(each).complete_jobs for each in families}) > 1:
        raise BadSpec(
            f"policies of {' and of '.join(families)} need different generated jobs; run them one after the"
            " other, or give a trace with the columns that all of them need"
        )
    return families[0] if families else ""


def known_to(policies: Iterable[str], config: SimulationConfig) -> JobCheck:
    """Return a function that checks that the speed of a job alone is known, and raises an error if not.

    The speed has to be known to the speed model of each of these policies. Raises the errors of `make`.
    """
    # one speed model for each family; user-defined policies may bring their own
    of_families = {name if is_user_defined(name) else family(name): name for name in policies}
    speeds = [make(name, config).speed for name in of_families.values()]

    def known(spec: Submission) -> None:
        alone = Group((JobState(spec, 0, spec.iteration_s, 0.0),), tuple(range(spec.gpus)), (1.0,), (1.0,))
        for speed in speeds:
            speed.iteration_s(alone)

    return known


@contextmanager
def refusals(name: str = "") -> Iterator[None]:
    """Convert ControllerError and OSError to SimulationFailed, with `name` before the message."""
    try:
        yield
    except SimulationFailed:
        raise
    except (ControllerError, OSError) as error:
        raise SimulationFailed(
            f"{name}: {error}" if name else str(error), getattr(error, "exit_code", 1)
        ) from error


def run(task: SimulationTask, progress: Progress | None = None) -> SimulationOutcome:
    """Run a task's simulation. Raises SimulationFailed, with the policy's name in the message."""
    with refusals():
        specs = _jobs(task.source, task.config)
    with refusals(task.policy):
        policy_run = make(task.policy, task.config)
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        result = policy_run.run(
            specs,
            task.config.cluster,
            detail=task.curves,
            verify=task.verify,
            progress=progress,
        )
        wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    jcts_s = tuple(job.jct_s for job in result.jobs)
    rows = [row_of(job) for job in result.jobs] if task.rows else []
    return SimulationOutcome(task, measure(result), jcts_s, result.end_s, result.curves, wall_s, cpu_s, rows)


def write_rows(path: Path, outcomes: Iterable[SimulationOutcome]) -> None:
    """Write the result of each job of each outcome to a CSV or JSON file. Raises OSError."""
    named: Iterator[tuple[Mapping[str, str | float], Sequence[Row]]] = (
        ({"policy": o.task.policy, "load": o.task.source.load, "seed": o.task.source.seed}, o.rows)
        for o in outcomes
    )
    write_jobs(path, named)


@lru_cache(maxsize=2)
def _jobs(source: Source, config: SimulationConfig) -> list[Submission]:
    """Read or generate jobs once for all policies that a process runs on them."""
    return source.jobs(config)


# ---------------------------------------------------------------------------
# Sweeps: the same policies over several loads and seeds, and means over the seeds.


MEASURES = (
    *("avg_jct_s", "median_jct_s", "p99_jct_s", "makespan_s", "avg_slowdown", "p99_slowdown"),
    *("avg_queue", "gpu_busy", "fairness"),
)
"""Metrics that are averaged over seeds."""

MOST_TASKS = 100_000
"""Maximum number of simulations in one sweep, because the outcomes of all are kept until its end."""


@dataclass(frozen=True, slots=True)
class Point:
    """Metrics of a policy at a load: means over the seeds, and `spread`, their standard deviations."""

    policy: str
    load: float
    seeds: int
    mean: dict[str, float]
    spread: dict[str, float]


def sweep_tasks(
    policies: Sequence[str],
    source: Source,
    config: SimulationConfig,
    *,
    loads: Sequence[float],
    seeds: Sequence[int],
    rows: bool = False,
) -> list[SimulationTask]:
    """Return a task for each policy, load and seed.

    Args:
        policies: Names of the policies.
        source: Source of the jobs; its load and seed are replaced.
        config: Configuration of all simulations.
        loads: The loads to simulate.
        seeds: The seeds to simulate.
        rows: Whether to return the result of each job.

    Raises BadSpec for a load that is not positive, no load, no seed, several seeds for a trace (in which
    nothing is random), a duplicate value, or more than `MOST_TASKS` tasks.
    """
    for name, values in (("load", loads), ("seed", seeds)):
        if not values:
            raise BadSpec(f"no {name} to sweep over")
        if len(set(values)) != len(values):
            raise BadSpec(f"a {name} appears twice: {Counter(values).most_common(1)[0][0]}")
    if source.trace is not None and len(seeds) > 1:
        raise BadSpec(f"{len(seeds)} seeds of {source.trace}: nothing in a trace is random; want one")
    if (wanted := len(policies) * len(loads) * len(seeds)) > MOST_TASKS:
        raise BadSpec(f"{wanted:,} simulations, of each policy, load and seed; want at most {MOST_TASKS:,}")
    return [
        SimulationTask(policy, replace(source, load=load, seed=seed), replace(config, seed=seed), rows=rows)
        for load in loads
        for seed in seeds
        for policy in policies
    ]


def points_of(outcomes: Sequence[SimulationOutcome]) -> list[Point]:
    """Return a point for each pair of policy and load, in the order of first occurrence."""
    groups = by_key(((each.task.source.load, each.task.policy), each) for each in outcomes)
    return [_point(policy, load, group) for (load, policy), group in groups.items()]


def _point(policy: str, load: float, outcomes: Sequence[SimulationOutcome]) -> Point:
    values = {name: [float(getattr(o.metrics, name)) for o in outcomes] for name in MEASURES}
    return Point(
        policy,
        load,
        len(outcomes),
        {name: statistics.fmean(found) for name, found in values.items()},
        {name: statistics.stdev(found) if len(found) > 1 else 0.0 for name, found in values.items()},
    )
