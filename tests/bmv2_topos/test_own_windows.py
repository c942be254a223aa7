"""Congestion controls from outside, in virtual time: found by name, held to one rule, worth their while."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bmv2_topos.testbeds.virtual import Report, TestbedError, VirtualSettings, VirtualTestbed, build
from controller.vocabulary import Link, read_jobs

ROOT = Path(__file__).parents[2]
DCTCP = f"{ROOT / 'examples/windows/dctcp.py'}:Dctcp"

OWN = """
import random

class Alone:
    def start(self, window):
        return window

    def on_round(self, outcome):
        return random.randint(1, 100)

class Divides(Alone):
    def on_round(self, outcome):
        return 1 // 0
"""


def run(congestion: str) -> Report:
    entries = read_jobs(ROOT / "examples/windows/jobs.toml")
    jobs = [replace(entry, iterations=4, congestion=congestion) for entry in entries]
    topology, placements = build(jobs, servers=True, link=Link("a", "b", queue_packets=256))
    return VirtualTestbed(topology, jobs, placements, VirtualSettings(slots=32)).run()


def test_the_example_needs_less_time_than_a_fixed_window_where_queues_are_short() -> None:
    """And its sums are exact, or the run would have ended."""
    fixed, dctcp = run("fixed"), run(DCTCP)
    assert dctcp.mean_jct_s < 0.8 * fixed.mean_jct_s
    assert dctcp.dropped_packets < fixed.dropped_packets / 2


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("Alone", r"two ranks that were told the same until round \d+ got \d+ and \d+ packets in flight"),
        ("Divides", "own.py:Divides raised ZeroDivisionError"),
        ("Missing", "job 'first': congestion .*own.py:Missing: there is no 'Missing' to call"),
    ],
)
def test_a_rule_that_cannot_be_used_ends_the_run_by_name(tmp_path: Path, name: str, complaint: str) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(TestbedError, match=complaint):
        run(f"{tmp_path}/own.py:{name}")
