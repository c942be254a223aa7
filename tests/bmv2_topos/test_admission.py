"""The controller in virtual time: what it takes back and sweeps up while jobs run."""

from __future__ import annotations

import dataclasses

import pytest

from bmv2_topos.testbeds.virtual import VirtualTestbed, build
from controller import SwitchSession
from controller.switches import names
from controller.switches.jobs import TABLES, job_row
from tests.bmv2_topos.beds import SMALL, elements, job
from tests.controller.failing import Failing, Fault


def two_jobs() -> VirtualTestbed:
    jobs = [job("a"), job("b", arrival_s=0.0001)]
    network, placements = build(jobs, (2, 2), servers=True)
    return VirtualTestbed(network, jobs, placements, dataclasses.replace(SMALL, report_refusals=True))


def empty(bed: VirtualTestbed) -> bool:
    tables = (*TABLES, names.CHANGE)
    return not any(pipeline.entries(table) for pipeline in bed.fabric.pipelines.values() for table in tables)


@pytest.mark.parametrize("written", [0, 5, 50, 110])
def test_a_job_that_a_failing_write_keeps_out_leaves_another_its_sums(written: int) -> None:
    bed = two_jobs()
    fault = Fault("not answered", left=written)
    bed.fleet.controllers.update(
        {name: SwitchSession(Failing(target, fault)) for name, target in bed.fleet.targets.items()}
    )
    refused, other = bed.run().jobs
    assert (refused.refused or "").endswith("the switch does not answer")
    assert other.checked_elements == elements(bed.jobs["b"].entry)
    assert empty(bed)


def test_what_a_dead_controller_left_is_swept_up_and_jobs_get_their_sums() -> None:
    bed = two_jobs()
    left = bed.fleet.place(9, bed.jobs["b"].request)
    for name, on_switch in left.switches.items():
        bed.fleet.targets[name].write("DELETE", [job_row(on_switch)])
    report = bed.run()
    assert [of.checked_elements for of in report.jobs] == [elements(of.entry) for of in bed.jobs.values()]
    assert empty(bed)
