"""Runners of scenarios: the interface, and the runner in virtual time.

Runners with real processes are in `ina.run.scenarios`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Protocol

from bmv2_topos.scenarios.model import JobOutcome, Outcome, Scenario
from bmv2_topos.testbeds.netns import Unsupported
from bmv2_topos.testbeds.netns.commands import EMBEDDED
from bmv2_topos.testbeds.virtual import JobReport, TestbedError, unsupported
from controller.vocabulary import Job


class Runner(Protocol):
    """A way to run scenarios."""

    def check(self, scenario: Scenario) -> None:
        """Raise MissingRequirement or Unsupported (a NetnsError) if this runner cannot run the scenario."""

    def run(self, scenario: Scenario, on_step: Callable[[str], None] = ...) -> Outcome:
        """Run a scenario to its end. Raises the errors of `check`; a job's failure is part of the outcome."""


class Virtual:
    """Runs scenarios in virtual time, with the same results on any machine."""

    def check(self, scenario: Scenario) -> None:
        """Raise Unsupported if virtual time does not support a fault of the scenario, such as `Kill`."""
        for fault in scenario.happening:
            if why := unsupported(fault):
                raise Unsupported(why)

    def run(self, scenario: Scenario, on_step: Callable[[str], None] = lambda text: None) -> Outcome:
        """Run a scenario in virtual time."""
        self.check(scenario)
        began = time.perf_counter()
        try:
            jobs = [_of_report(job) for job in scenario.run().jobs]
        except TestbedError as error:
            jobs = [_failed(entry, str(error)) for entry in scenario.jobs]
        return Outcome(
            runner="virtual", target=EMBEDDED, jobs=tuple(jobs), elapsed_s=time.perf_counter() - began
        )


def _of_report(job: JobReport) -> JobOutcome:
    counted = {f"switch_{name}_packets": float(number) for name, number in job.outcomes.items()}
    counted |= {f"fallback_{name}": float(number) for name, number in job.fallback.items()}
    counted |= {"sent_packets": float(job.sent_packets), "resent_packets": float(job.resent_packets)}
    return JobOutcome(
        name=job.name,
        failure=job.refused,
        iterations=job.iterations,
        iteration_s=statistics.median(job.iteration_s) if job.iteration_s else 0.0,
        metrics=counted,
    )


def _failed(entry: Job, why: str) -> JobOutcome:
    return JobOutcome(name=entry.name, failure=why, iterations=0, iteration_s=0.0, metrics={})
