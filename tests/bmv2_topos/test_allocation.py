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
    SlotView,
    TestbedError,
    VirtualSettings,
    VirtualTestbed,
    build,
)
from controller import SwitchSession
from controller.errors import BadJob
from controller.switches import names
from controller.switches.jobs import TABLES, job_row
from controller.vocabulary import Link, Region, Straggler
from tests.bmv2_topos.beds import SMALL, elements, job
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
) -> Report:
    """Run two jobs on two racks, the second of which comes later."""
    jobs = [job("a", 4, iterations=16), job("b", 4, iterations=16, arrival_s=0.0005)]
    topology, placements = build(jobs, (2, 2), servers=True, link=link)
    allocation = Reallocation(policy, period_s)
    report = VirtualTestbed(topology, jobs, placements, settings, faults, allocation=allocation).run()
    for entry, of in zip(jobs, report.jobs, strict=True):
        if of.fate == "done" and not of.restarts:
            assert of.checked_elements == elements(entry)
    return report


class Watcher:
    """Changes nothing and keeps what it was shown."""

    def __init__(self) -> None:
        self.views: list[SlotView] = []

    def __call__(self, view: SlotView) -> Mapping[str, Region]:
        self.views.append(view)
        return {}


def swap(view: SlotView) -> Mapping[str, Region]:
    """Give two jobs each the half that the other has had."""
    first, second = HALVES if round(view.time_s / PERIOD_S) % 2 else reversed(HALVES)
    return {name: region for name, region in (("a", first), ("b", second)) if name in view.jobs}


def test_a_policy_is_asked_every_period_and_shown_how_things_are() -> None:
    watcher = Watcher()
    report = run(watcher)
    times = [view.time_s for view in watcher.views]
    assert times == pytest.approx([PERIOD_S * (n + 1) for n in range(len(times))], abs=6e-6)
    assert times[-1] + PERIOD_S > report.duration_s - 1e-5
    first, last = watcher.views[0], watcher.views[-1]
    assert list(first.jobs) == ["a"]  # the other has not come
    assert ["a", "b"] in [list(view.jobs) for view in watcher.views]
    assert list(last.jobs) == ["b"]  # the first has left
    assert first.slots == SMALL.slots
    of = first.jobs["a"]
    assert (len(of.placement.workers), of.window, of.job.iterations) == (4, 64, 16)
    assert of.regions == dict.fromkeys(("s1", "s2", "s3"), Region(0, 256))


def test_slots_that_wait_for_a_straggler_are_in_use() -> None:
    watcher = Watcher()
    jobs = [job("a", straggler=Straggler(2, 2e-3)), job("well", 1)]
    topology, placements = build(jobs, servers=True)
    VirtualTestbed(topology, jobs, placements, SMALL, allocation=Reallocation(watcher, PERIOD_S)).run()
    held = [view.jobs["a"].slots_in_use for view in watcher.views if "a" in view.jobs]
    assert max(held) == 64  # the window of the ranks that wait
    assert sum(of > 50 for of in held) > len(held) / 2
    assert all(view.jobs["well"].slots_in_use == 0 for view in watcher.views if "well" in view.jobs)


def test_iterations_are_counted_as_the_report_counts_them() -> None:
    watcher = Watcher()
    report = run(watcher)
    for of in report.jobs:
        seen = [(view.time_s, view.jobs[of.name]) for view in watcher.views if of.name in view.jobs]
        done = [job.iterations_done for _, job in seen]
        assert done == sorted(done)
        assert 0 < done[-1] < of.iterations
        for time_s, shown in seen:
            count, mean_s = shown.iterations_done, shown.mean_iteration_s
            if count:
                assert mean_s == pytest.approx(sum(of.iteration_s[:count]) / count)
            else:
                assert mean_s is None
            assert of.start_s + sum(of.iteration_s[:count]) <= time_s + 1e-9


def test_outcomes_are_those_since_the_last_call() -> None:
    watcher = Watcher()
    a = run(watcher).jobs[0]
    total: dict[str, int] = {}
    for view in watcher.views:
        if "a" in view.jobs:
            for counts in view.jobs["a"].outcomes.values():
                for name, count in counts.items():
                    assert count >= 0
                    total[name] = total.get(name, 0) + count
    assert 0 < total["completed"] < a.outcomes["completed"]  # but for those after the last call
    assert total["completed"] > 0.8 * a.outcomes["completed"]


def test_a_job_that_starts_anew_is_counted_anew() -> None:
    watcher = Watcher()
    a = run(watcher, faults=(RestartJob(0.0005, "a", down_s=0.0003),)).jobs[0]
    assert a.restarts == 1
    away = [view for view in watcher.views if 0.0005 < view.time_s < 0.0008]
    assert away
    assert all("a" not in view.jobs for view in away)
    epochs = {view.jobs["a"].admitted.generation for view in watcher.views if "a" in view.jobs}
    assert len(epochs) == 2
    for view in watcher.views:
        for shown in view.jobs.values():
            assert min(count for counts in shown.outcomes.values() for count in counts.values()) >= 0


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_two_jobs_swap_their_halves_every_period_and_every_sum_is_exact(loss: float) -> None:
    seen = []

    def watched_swap(view: SlotView) -> Mapping[str, Region]:
        seen.append({name: set(shown.regions.values()) for name, shown in view.jobs.items()})
        return swap(view)

    report = run(watched_swap, link=Link("a", "b", loss=loss))
    assert [of.fate for of in report.jobs] == ["done", "done"]
    both = [view for view in seen if len(view) == 2][1:]
    assert len(both) > 5
    for view in both:
        assert sorted(map(str, view["a"] | view["b"])) == sorted(map(str, HALVES))
    assert {str(view["a"]) for view in both} == {str({half}) for half in HALVES}


def test_a_policy_may_treat_switches_differently() -> None:
    def only_in_racks(view: SlotView) -> Mapping[str, Mapping[str, Region]]:
        return {name: {"s2": Region(0, 0), "s3": Region(7, 9)} for name in view.jobs}

    watcher = Watcher()

    def policy(view: SlotView) -> Mapping[str, Mapping[str, Region]]:
        watcher(view)
        return only_in_racks(view)

    report = run(policy)
    wanted = {"s1": Region(0, 256), "s2": Region(0, 0), "s3": Region(7, 9)}
    assert watcher.views[-1].jobs["b"].regions == wanted
    assert all(of.outcomes["bypassed"] > 0 for of in report.jobs)


def test_taking_all_slots_sends_everything_to_the_fallback_servers() -> None:
    late: dict[str, Mapping[str, int]] = {}

    def take_all(view: SlotView) -> Mapping[str, Region]:
        for name, shown in view.jobs.items():
            if shown.iterations_done >= shown.job.iterations - 2:
                late[name] = shown.outcomes["s2"]
        return dict.fromkeys(view.jobs, Region(0, 0))

    run(take_all)
    assert late.keys() == {"a", "b"}
    assert all(outcomes["bypassed"] > 0 == outcomes["aggregated"] for outcomes in late.values())


def test_a_policy_that_changes_nothing_changes_nothing() -> None:
    watched = run(Watcher())
    kept = run(lambda view: dict.fromkeys(view.jobs, Region(0, 256)))
    assert kept == watched


def test_an_error_in_a_policy_ends_the_run_with_its_traceback() -> None:
    def fails(view: SlotView) -> Mapping[str, Region]:
        raise ZeroDivisionError(f"at {view.time_s:.4f}")

    with pytest.raises(ZeroDivisionError, match=r"at 0\.0002") as raised:
        run(fails)
    assert raised.traceback[-1].name == "fails"


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ({"c": Region(0, 1)}, TestbedError, "the policy gives slots to 'c'; jobs on the switches are 'a'"),
        ({"b": Region(0, 1)}, TestbedError, "the policy gives slots to 'b'; jobs on the switches are 'a'"),
        ({"a": {"s9": Region(0, 1)}}, TestbedError, "gives 'a' slots of 's9'; it has some at s1, s2, s3"),
        ({"a": Region(200, 57)}, BadJob, "the region of 57 slots from 200 exceeds the memory"),
    ],
)
def test_answers_that_cannot_be_end_the_run(
    answer: Mapping[str, Region], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(lambda view: answer)


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
    report = bed.run()
    assert [of.checked_elements for of in report.jobs] == [elements(of.entry) for of in bed.jobs.values()]
    assert empty(bed)
