"""One simulation as data for another process: jobs by their source, policy by name."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from controller.errors import ControllerError
from controller.policies.family import SimulationConfig
from controller.policies.registry import dress, family, find_family, is_outside
from controller.policies.scheduling.errors import BadSpec, SchedulingError
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.policy import Group, JobState
from controller.simulator.by_name import make
from controller.simulator.estimates import expect
from controller.simulator.generate import generate
from controller.simulator.job_table import Row, row_of, write_jobs
from controller.simulator.metrics import Metrics, measure
from controller.simulator.record import Curves
from controller.simulator.traces import read
from controller.simulator.traces.rows import JobCheck

MOST_JOBS = 1_000_000
"""Most jobs that are generated: all are kept in memory."""

LEAST_LOAD = 1e-6
"""A millionth, and a million at most: beyond, times of submission are nothing that clocks can tell apart."""

LARGEST_SEED = 2**32 - 1
"""Largest seed that all random generators take, scikit-learn's among them."""

Progress = Callable[[int, int], None]
"""Called with the number of ended jobs and of all jobs."""


class RunFailed(SchedulingError):
    """A simulation failed; with exit code 2, because of its inputs. It survives pickling."""

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
        load: Offered load of generated jobs, as a multiple of the cluster's capacity; a trace's jobs arrive
            this many times as fast.
        seed: Of generated jobs.
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
        """Return the jobs; those of a trace must be `known`. Raises BadTrace or BadSpec."""
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
            return dress(specs, self.kind, config)
        specs = expect(read(self.trace, cluster, known, format=self.format), config.estimates)
        if self.load == 1:
            return specs
        return [replace(spec, arrival_s=spec.arrival_s / self.load) for spec in specs]


@dataclass(frozen=True, slots=True)
class Task:
    """One simulation.

    `curves` asks for utilisation over time, `verify` for a check of every decision, `rows` for the result of
    each job.
    """

    policy: str
    source: Source
    config: SimulationConfig
    curves: bool = False
    verify: bool = False
    rows: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a task; `wall_s` and `cpu_s` (processor time) are of the simulation, without reading jobs.

    `rows` are those of `controller.simulator.job_table`, by end, if the task asks for them.
    """

    task: Task
    metrics: Metrics
    jcts_s: Sequence[float]
    end_s: float
    curves: Curves | None
    wall_s: float
    cpu_s: float
    rows: Sequence[Row] = ()


def kind_for(policies: Iterable[str]) -> str:
    """Return the `Source.kind` whose generated jobs all these policies can run.

    Raises BadSpec if there is none: most families have profiles of their own.
    """
    families = sorted({family(name) for name in policies} - {""})
    if len({find_family(each).dress for each in families}) > 1:
        raise BadSpec(
            f"policies of {' and of '.join(families)} need different generated jobs; run them one after the"
            " other, or give a trace that has what all of them need"
        )
    return families[0] if families else ""


def known_to(policies: Iterable[str], config: SimulationConfig) -> JobCheck:
    """Return a check whether these policies' speed models know a job: its speed alone.

    Raises as `make`.
    """
    # one speed model each; those from outside may bring their own
    of_families = {name if is_outside(name) else family(name): name for name in policies}
    speeds = [make(name, config).speed for name in of_families.values()]

    def known(spec: Submission) -> None:
        alone = Group((JobState(spec, 0, spec.iteration_s, 0.0),), tuple(range(spec.gpus)), (1.0,), (1.0,))
        for speed in speeds:
            speed.iteration_s(alone)

    return known


@contextmanager
def refusals(name: str = "") -> Iterator[None]:
    """Turn errors of the schedulers' parts into RunFailed, with `name` before the message."""
    try:
        yield
    except RunFailed:
        raise
    except (ControllerError, OSError) as error:
        raise RunFailed(f"{name}: {error}" if name else str(error), getattr(error, "exit_code", 1)) from error


def run(task: Task, progress: Progress | None = None) -> Outcome:
    """Simulate. Raises RunFailed, with the policy's name in the message."""
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
    return Outcome(task, measure(result), jcts_s, result.end_s, result.curves, wall_s, cpu_s, rows)


def write_rows(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Write the result of each job of each outcome to a CSV file. Raises OSError."""
    named: Iterator[tuple[Mapping[str, str | float], Sequence[Row]]] = (
        ({"policy": o.task.policy, "load": o.task.source.load, "seed": o.task.source.seed}, o.rows)
        for o in outcomes
    )
    write_jobs(path, named)


@lru_cache(maxsize=2)
def _jobs(source: Source, config: SimulationConfig) -> list[Submission]:
    """Read or generate jobs once for all policies that a process runs on them."""
    return source.jobs(config)
