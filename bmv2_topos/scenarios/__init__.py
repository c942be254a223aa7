"""Scenarios: jobs, faults and checks on a topology, as data; and runners, each of which can run any scenario.

A scenario is a file (`read`); some are part of this package (`shipped`). It runs in virtual time here, or as
processes on loopback, in network namespaces or in Mininet (`ina.run.scenarios`)::

    scenario = find_scenario("straggler")
    outcome = Virtual().run(scenario)
    assert all(result.good for result in check_results(scenario, outcome))
"""

from bmv2_topos.scenarios.model import (
    Check,
    CheckResult,
    JobOutcome,
    Outcome,
    Scenario,
    check_results,
)
from bmv2_topos.scenarios.read import find_scenario, load_scenario, parse_scenario, shipped
from bmv2_topos.scenarios.runners import Runner, Virtual

__all__ = [
    "Check",
    "CheckResult",
    "JobOutcome",
    "Outcome",
    "Runner",
    "Scenario",
    "Virtual",
    "check_results",
    "find_scenario",
    "load_scenario",
    "parse_scenario",
    "shipped",
]
