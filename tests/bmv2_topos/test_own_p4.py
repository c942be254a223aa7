"""Rules of one's own for slots and eviction, in P4: they run as they are, and no sum is wrong for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bmv2_topos.harness.simulation import Simulation
from bmv2_topos.testbeds.virtual import Report
from controller.vocabulary import Job, Straggler
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
    report = Simulation(jobs=jobs, program=str(program), slots=slots, **options).run()  # type: ignore[arg-type]
    for found in report.jobs:
        assert found.fate == "done"
        assert found.checked_elements == 3 * 3 * 5120, "every sum at every rank was compared"
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
    run(program)
    run(program, loss=0.01)


@pytest.mark.parametrize("rule", ["1", "0", "ina.psn[0:0]", "ina.job != slot.job ? 1w1 : 0"])
def test_whoever_has_to_leave_a_slot_the_sums_are_exact(tmp_path: Path, rule: str) -> None:
    program = tmp_path / "own.p4"
    program.write_text(EVICTION.replace("RULE", rule))
    evicted = outcome(run(program, slots=8), "evicted")
    assert (evicted > 0) == (rule != "0")
    run(program, slots=8, loss=0.01)
