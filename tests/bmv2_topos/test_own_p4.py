"""Rules of one's own for slots and eviction, in P4: they run as they are, and no sum is wrong for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bmv2_topos.harness.simulation import Simulation
from bmv2_topos.testbeds.virtual import Report, TestbedError, VirtualSettings, VirtualTestbed, build
from controller.vocabulary import Job, Link, Straggler, read_jobs
from tests.bmv2_topos.beds import check_exact
from tests.programs import P4SRC

EXAMPLES = Path(__file__).parents[2] / "examples/p4"
HEAD = "#include <core.p4>\n#include <v1model.p4>\n"
LOCATION = f"""{HEAD}
#define INA_LOCATION_P4
#include "{P4SRC}/include/headers.p4"
control Location(in ina_t ina, inout metadata_t meta) {{
    apply {{ meta.index = RULE; }}
}}
#include "{P4SRC}/shared.p4"
"""
EVICTION = f"""{HEAD}
#define INA_EVICTION_P4
#include "{P4SRC}/include/slot.p4"
control Eviction(in ina_t ina, in metadata_t meta, in slot_t slot, in bit<32> now,
                 out bit<1> aged, out bit<1> outranks) {{
    apply {{ aged = 0; outranks = RULE; }}
}}
#include "{P4SRC}/shared.p4"
"""


def job(name: str, **rest: object) -> Job:
    given = {"workers": 3, "iterations": 3, "layers_bytes": (16384, 4096), "compute_s": 5e-5, "jitter": 0.5}
    return Job(name=name, **{**given, **rest})  # type: ignore[arg-type]


def run(program: object = "shared", slots: int = 48, **options: object) -> Report:
    jobs = (job("first"), job("second", straggler=Straggler(1, 4e-4)))
    report = Simulation(jobs=jobs, program=str(program), slots=slots, lanes=32, **options).run()  # type: ignore[arg-type]
    check_exact(report, jobs)
    return report


def outcome(report: Report, name: str) -> int:
    return sum(found.outcomes.get(name, 0) for found in report.jobs)


def test_strides_are_another_rule_for_slots() -> None:
    own, shared = run(EXAMPLES / "strides.p4"), run()
    assert outcome(own, "aggregated") > 0
    assert outcome(own, "collided") != outcome(shared, "collided")


def test_who_is_impatient_takes_slots_from_sums_that_wait() -> None:
    assert outcome(run(), "reclaimed") == 0
    assert outcome(run(EXAMPLES / "impatient.p4"), "reclaimed") > 0


@pytest.mark.parametrize(
    "rule",
    [
        "meta.region_offset",  # one slot for all
        "meta.region_offset + ina.bitmap",  # ranks differ: no sum meets in a slot
        "ina.psn & 0x1f",  # slots that other jobs have
        "meta.region_offset + meta.region_size + (ina.psn & 0xff)",  # beyond the region
        "0xFFFFFFF0 + ina.psn",  # beyond the memory
    ],
)
def test_whatever_slot_a_packet_meets_the_sums_are_exact(tmp_path: Path, rule: str) -> None:
    program = tmp_path / "own.p4"
    program.write_text(LOCATION.replace("RULE", rule))
    run(program, loss=0.01)


@pytest.mark.parametrize("rule", ["1", "0", "ina.psn[0:0]", "ina.job != slot.job ? 1w1 : 0"])
def test_whoever_has_to_leave_a_slot_the_sums_are_exact(tmp_path: Path, rule: str) -> None:
    program = tmp_path / "own.p4"
    program.write_text(EVICTION.replace("RULE", rule))
    assert (outcome(run(program, slots=8, loss=0.01), "evicted") > 0) == (rule != "0")


# ---------------------------------------------------------------------------
# Congestion controls from outside, in virtual time: found by name, held to one rule, worth their while.


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


def run_by(congestion: str) -> Report:
    entries = read_jobs(ROOT / "examples/windows/jobs.toml")
    jobs = [replace(entry, iterations=4, congestion=congestion) for entry in entries]
    topology, placements = build(jobs, servers=True, link=Link("a", "b", queue_packets=256))
    return VirtualTestbed(topology, jobs, placements, VirtualSettings(slots=32)).run()


def test_the_example_needs_less_time_than_a_fixed_window_where_queues_are_short() -> None:
    """And its sums are exact, or the run_by would have ended."""
    fixed, dctcp = run_by("fixed"), run_by(DCTCP)
    assert dctcp.mean_jct_s < 0.8 * fixed.mean_jct_s
    assert dctcp.dropped_packets < fixed.dropped_packets / 2


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("Alone", r"two ranks with equal reports .* \d+ got different limits: \d+ and \d+ packets in flight"),
        ("Divides", "own.py:Divides raised ZeroDivisionError"),
        ("Missing", "job 'first': congestion .*own.py:Missing: there is no 'Missing' to call"),
    ],
)
def test_a_rule_that_cannot_be_used_ends_the_run_by_name(tmp_path: Path, name: str, complaint: str) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(TestbedError, match=complaint):
        run_by(f"{tmp_path}/own.py:{name}")
