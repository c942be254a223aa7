"""A policy that is asked every period: what it is shown, what its answers change, and what ends the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from bmv2_topos.faults import RemoveJob, RestartJob
from bmv2_topos.testbeds.virtual import (
    Policy,
    Reallocation,
    Report,
    RunningJob,
    TestbedError,
    VirtualSettings,
    VirtualTestbed,
    build,
)
from controller import SwitchSession
from controller.errors import BadJob
from controller.switches import names
from controller.switches.jobs import TABLES, job_row
from controller.vocabulary import Link, Region
from tests.bmv2_topos.beds import SMALL, check_exact, elements, job
from tests.controller.failing import Failing, Fault

PERIOD_S = 0.0002
HALVES = Region(0, 128), Region(128, 128)


def run(
    policy: Policy,
    settings: VirtualSettings = SMALL,
    *,
    faults: tuple[RemoveJob | RestartJob, ...] = (),
    link: Link | None = None,
    period_s: float = PERIOD_S,
    shape: tuple[int, ...] = (2, 2),
) -> Report:
    """Run two jobs on two racks, the second of which comes later; switches between only pass packets."""
    jobs = [job("a", 4, iterations=16), job("b", 4, iterations=16, arrival_s=0.0005)]
    topology, placements = build(jobs, shape, servers=True, link=link, transit=range(1, len(shape) - 1))
    allocation = Reallocation(policy, period_s)
    report = VirtualTestbed(topology, jobs, placements, settings, faults, allocation=allocation).run()
    for entry, of in zip(jobs, report.jobs, strict=True):
        if of.fate == "done" and not of.restarts:
            assert of.checked_elements == elements(entry)
    return report


Jobs = Mapping[str, RunningJob]


def nothing(time_s: float, jobs: Jobs) -> Mapping[str, Region]:
    return {}


def swap(time_s: float, jobs: Jobs) -> Mapping[str, Region]:
    """Give two jobs each the half that the other has had."""
    first, second = HALVES if round(time_s / PERIOD_S) % 2 else reversed(HALVES)
    return {name: region for name, region in (("a", first), ("b", second)) if name in jobs}


def test_a_policy_is_asked_every_period_and_shown_the_jobs_that_are_there() -> None:
    seen: list[tuple[float, list[str]]] = []

    def policy(time_s: float, jobs: Jobs) -> Mapping[str, Region]:
        assert all(of.regions == dict.fromkeys(("s1", "s2", "s3"), Region(0, 256)) for of in jobs.values())
        seen.append((time_s, [*jobs]))
        return {}

    restart = RestartJob(0.0005, "a", down_s=0.0003)
    report = run(policy, faults=(restart,))
    times = [time_s for time_s, _ in seen]
    assert times == pytest.approx([PERIOD_S * (n + 1) for n in range(len(times))], abs=6e-6)
    assert times[-1] + PERIOD_S > report.duration_s - 1e-5
    assert (seen[0][1], seen[-1][1]) == (["a"], ["b"])  # the other has not come, or has left
    assert ["a", "b"] in [names for _, names in seen]
    away = [names for time_s, names in seen if 0.0005 < time_s < 0.0008]
    assert away
    assert not any("a" in names for names in away)


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_two_jobs_swap_their_halves_every_period_and_every_sum_is_exact(loss: float) -> None:
    seen = []

    def watched_swap(time_s: float, jobs: Jobs) -> Mapping[str, Region]:
        seen.append({name: set(shown.regions.values()) for name, shown in jobs.items()})
        return swap(time_s, jobs)

    report = run(watched_swap, link=Link("a", "b", loss=loss))
    assert [of.fate for of in report.jobs] == ["done", "done"]
    both = [view for view in seen if len(view) == 2][1:]
    assert len(both) > 5
    for view in both:
        assert sorted(map(str, view["a"] | view["b"])) == sorted(map(str, HALVES))
    assert {str(view["a"]) for view in both} == {str({half}) for half in HALVES}


def test_a_policy_may_treat_switches_differently() -> None:
    last: dict[str, Region] = {}

    def policy(time_s: float, jobs: Jobs) -> Mapping[str, Mapping[str, Region]]:
        last.update(jobs["b" if "b" in jobs else "a"].regions)
        return {name: {"s2": Region(0, 0), "s3": Region(7, 9)} for name in jobs}

    report = run(policy)
    assert last == {"s1": Region(0, 256), "s2": Region(0, 0), "s3": Region(7, 9)}
    assert all(of.outcomes["bypassed"] > 0 for of in report.jobs)


def test_taking_all_slots_sends_everything_to_the_fallback_servers() -> None:
    report = run(lambda time_s, jobs: dict.fromkeys(jobs, Region(0, 0)), period_s=1e-5)
    for of in report.jobs:
        assert of.outcomes["bypassed"] > 5 * of.outcomes["aggregated"]


def test_a_policy_that_changes_nothing_changes_nothing() -> None:
    assert run(lambda time_s, jobs: dict.fromkeys(jobs, Region(0, 256))) == run(nothing)


def test_an_error_in_a_policy_ends_the_run_with_its_traceback() -> None:
    def fails(time_s: float, jobs: Jobs) -> Mapping[str, Region]:
        raise ZeroDivisionError(f"at {time_s:.4f}")

    with pytest.raises(ZeroDivisionError, match=r"at 0\.0002") as raised:
        run(fails)
    assert raised.traceback[-1].name == "fails"


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ({"c": Region(0, 1)}, TestbedError, "gives slots to 'c'; want one of the jobs on the switches: 'a'"),
        ({"b": Region(0, 1)}, TestbedError, "gives slots to 'b'; want one of the jobs on the switches: 'a'"),
        (
            {"a": {"s9": Region(0, 1)}},
            TestbedError,
            "slots of 's9'; want switches that sum for the job: s1, s2, s3",
        ),
        ({"a": Region(200, 57)}, BadJob, "the region of 57 slots from 200 exceeds the memory"),
    ],
)
def test_answers_that_cannot_be_end_the_run(
    answer: Mapping[str, Region], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(lambda time_s, jobs: answer)


def test_a_switch_that_only_passes_packets_has_no_slots_to_give() -> None:
    with pytest.raises(TestbedError, match=r"gives job 'a' slots of 's2'; want .* for the job: s1, s4, s5"):
        run(lambda time_s, jobs: {"a": {"s2": Region(0, 0)}}, shape=(2, 1, 2))


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(TestbedError, match="period_s is 0, must be a microsecond or more"):
        Reallocation(swap, 0.0)
    with pytest.raises(
        TestbedError, match="an allocation policy needs shared slots, and the program exclusive has exclusive"
    ):
        run(swap, dataclasses.replace(SMALL, program="exclusive"))


# ---------------------------------------------------------------------------
# The controller in virtual time: what it takes back and sweeps up while jobs run.


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
    check_exact(bed.run(), (of.entry for of in bed.jobs.values()))
    assert empty(bed)
