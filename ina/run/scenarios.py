"""Runners of scenarios, by name: they run a scenario in virtual time, or as processes on a testbed.

The testbed uses loopback, network namespaces or Mininet.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bmv2_topos.faults import Kill
from bmv2_topos.scenarios.model import JobOutcome, Outcome, Scenario
from bmv2_topos.scenarios.runners import Runner, Virtual
from bmv2_topos.testbeds.netns import Unsupported, slug
from bmv2_topos.testbeds.netns.commands import EMBEDDED
from controller.vocabulary import Job
from hostlib.launch import command_line
from ina.run.launch.job_run import JobEnd
from ina.run.launch.spec import LaunchSpec, metrics
from ina.run.live import WorkerOptions, run_on
from ina.run.switches.testbeds import live_runner


class Processes:
    """Runs scenarios as processes on testbeds made by `live_runner`, with switches of the kind `target`."""

    def __init__(self, name: str, target: str) -> None:
        self._name, self._target = name, target
        self._live = live_runner(name)

    def check(self, scenario: Scenario) -> None:
        """Raise Unsupported or NetnsError if a scenario cannot run on a testbed of this runner."""
        for fault in scenario.happening:
            if not isinstance(fault, Kill):
                raise Unsupported(f"{fault}: only virtual time has such faults while jobs run")
        self._live.check(scenario.network, scenario.program(self._target))

    def run(self, scenario: Scenario, on_step: Callable[[str], None] = lambda text: None) -> Outcome:
        """Make a testbed for a scenario, run the scenario on it, and return the outcome.

        `on_step` is called with a text about each step of making the testbed.
        """
        self.check(scenario)
        began = time.perf_counter()
        outputs: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        network, program = scenario.network, scenario.program(self._target)
        name = f"{slug(scenario.name)[:20]}-{os.getpid()}"
        how = WorkerOptions(
            on_output=lambda spec, rank, data, is_error: outputs[spec.name, rank].append(data)
        )
        with self._live.opened(name, network, program, on_step) as fabric:
            ends = run_on(fabric, [_launch(scenario, entry) for entry in scenario.jobs], how)
        jobs = tuple(_of_end(end, outputs) for end in ends)
        elapsed_s = time.perf_counter() - began
        return Outcome(runner=self._name, target=self._target, jobs=jobs, elapsed_s=elapsed_s)


def runner_of(name: str, target: str = EMBEDDED) -> Runner:
    """Return the runner of scenarios called `name`: virtual, loopback, netns or mininet.

    Raises Unsupported if this runner has no switches of the kind `target`.
    """
    if name != "virtual":
        return Processes(name, target)
    if target != EMBEDDED:
        raise Unsupported(f"{target} does not run in virtual time: want embedded")
    return Virtual()


def _launch(scenario: Scenario, entry: Job) -> LaunchSpec:
    steps: dict[str, Any] = {
        "iterations": entry.iterations,
        "tensors": list(entry.tensors),
        "compute_s": entry.compute_s,
    }
    if entry.straggler:
        steps["straggler"] = {"rank": entry.straggler.rank, "compute_s": entry.straggler.compute_s}
    for fault in scenario.faults:
        if isinstance(fault, Kill) and fault.job == entry.name:
            steps["kill"] = {"rank": fault.rank, "iteration": fault.iteration}
    command = command_line.module("hostlib.demos.steps", json.dumps(steps))
    return LaunchSpec(job=replace(entry, command=tuple(command)), timeout_s=scenario.settings.limit_s)


def _of_end(end: JobEnd, outputs: Mapping[tuple[str, int], Sequence[bytes]]) -> JobOutcome:
    spec, failure = end.spec, end.failure()
    times = [_times(outputs.get((spec.name, rank), ())) for rank in range(spec.job.workers)]
    slowest = [max(of_ranks) for of_ranks in zip(*times, strict=False)]
    return JobOutcome(
        name=spec.name,
        failure=None if failure is None else str(failure),
        iterations=len(slowest),
        iteration_s=statistics.median(slowest) if slowest else 0.0,
        metrics=metrics(end.result) if end.result else {},
    )


def _times(output: Sequence[bytes]) -> list[float]:
    """Return the iteration times, in s, from the last line of a rank's output; []: it has no such line.

    `output` has the pieces of the output, in order.
    """
    last = b"".join(output).decode(errors="replace").strip().rpartition("\n")[2]
    try:
        times: list[float] = json.loads(last)["iteration_s"]
    except (ValueError, TypeError, KeyError):
        return []
    return times
