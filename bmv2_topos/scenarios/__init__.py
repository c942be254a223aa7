"""Scenarios: jobs, faults and checks on a topology, as data; and the runners that any of them runs on.

A scenario is a file (`read`), of which some come along (`shipped`). It runs in virtual time, or as processes
on loopback, in network namespaces or in Mininet, with embedded switches or with BMv2::

    scenario = find_scenario("straggler")
    outcome = runner_of("virtual").run(scenario)
    assert all(verdict.good for verdict in verdicts(scenario, outcome))
"""

from bmv2_topos.scenarios.live import Live, live_runner
from bmv2_topos.scenarios.model import (
    Check,
    JobOutcome,
    Kill,
    LinkFault,
    Outcome,
    Scenario,
    Verdict,
    verdicts,
)
from bmv2_topos.scenarios.read import find_scenario, load_scenario, parse_scenario, shipped
from bmv2_topos.scenarios.runners import RUNNERS, Runner, runner_of

__all__ = [
    "RUNNERS",
    "Check",
    "JobOutcome",
    "Kill",
    "LinkFault",
    "Live",
    "Outcome",
    "Runner",
    "Scenario",
    "Verdict",
    "find_scenario",
    "live_runner",
    "load_scenario",
    "parse_scenario",
    "runner_of",
    "shipped",
    "verdicts",
]
