"""What the daemon does next, by what is to be and what is held."""

from __future__ import annotations

from dataclasses import replace

from controller.core import Desired, Place, Run
from controller.vocabulary import Region, Tree
from ina.service.steps import Held, Resize, Start, Stop, steps

TREE = Tree("s1", {}, frozenset({"s1"}))
HERE = Place(("h1", "h2"), TREE, "h3", {"s1": Region(0, 64)})
RUN = Run(1, ("a",), (0, 1), (0,))


def desired(*runs: Run, **places: Place) -> Desired:
    return Desired(0.0, runs, places)


def test_what_is_to_run_and_is_not_held_is_started() -> None:
    assert steps(desired(RUN, a=HERE), {}) == [Start(RUN, {"a": HERE})]


def test_what_is_held_as_it_should_be_is_left_alone() -> None:
    assert steps(desired(RUN, a=HERE), {1: Held(RUN, {"a": HERE}, "running")}) == []


def test_nobody_starts_on_gpus_that_somebody_is_still_to_leave() -> None:
    other = Run(2, ("b",), (1, 2), (0,))
    held = {1: Held(RUN, {"a": HERE}, "running")}
    (stop,) = steps(desired(other, b=HERE), held)
    assert isinstance(stop, Stop)
    assert stop.number == 1
    stopping = {1: replace(held[1], stage="stopping", busy=True)}
    assert steps(desired(other, b=HERE), stopping) == []
    assert steps(desired(other, b=HERE), {}) == [Start(other, {"b": HERE})]


def test_a_job_does_not_start_elsewhere_before_its_workers_have_ended() -> None:
    """Found by schedules: it ran twice at once if its start, or its end, took long as it got other GPUs."""
    moved = Run(2, ("a",), (2, 3), (0,))
    place = replace(HERE, servers=("h4", "h5"))
    starting = Held(RUN, {"a": HERE}, "preparing", busy=True)
    assert steps(desired(moved, a=place), {1: starting}) == []
    ended = replace(starting, stage="stopping", over=frozenset("a"))
    assert steps(desired(moved, a=place), {1: ended}) == [Start(moved, {"a": place})]


def test_runs_that_share_gpus_as_decided_do_not_wait_for_each_other() -> None:
    other = Run(2, ("b",), (0, 1), (0,))
    assert steps(desired(RUN, other, a=HERE, b=HERE), {1: Held(RUN, {"a": HERE}, "running")}) == [
        Start(other, {"b": HERE})
    ]


def test_a_stop_that_was_broken_off_goes_on() -> None:
    """Found by killing the daemon between the steps of a stop."""
    (stop,) = steps(desired(RUN, a=HERE), {1: Held(RUN, {"a": HERE}, "stopping")})
    assert isinstance(stop, Stop)


def test_nothing_is_begun_with_a_run_that_is_busy() -> None:
    assert steps(desired(), {1: Held(RUN, {"a": HERE}, "preparing", busy=True)}) == []


def test_other_slots_are_a_move_and_another_tree_a_stop() -> None:
    held = {1: Held(RUN, {"a": HERE}, "running")}
    moved = replace(HERE, regions={"s1": Region(64, 64)})
    assert steps(desired(RUN, a=moved), held) == [Resize(1, "a", moved)]
    bound = replace(HERE, in_flight=64)
    assert steps(desired(RUN, a=bound), held) == [Resize(1, "a", bound)]
    rerouted = replace(HERE, tree=Tree("s2", {}, frozenset({"s2"})))
    (stop,) = steps(desired(RUN, a=rerouted), held)
    assert isinstance(stop, Stop)
    assert "another tree" in stop.why


def test_a_job_that_has_ended_changes_nothing_for_the_others_of_its_group() -> None:
    both = Run(1, ("a", "b"), (0, 1), (0, 1))
    left = Run(1, ("b",), (0, 1), (1,))
    held = Held(both, {"a": HERE, "b": HERE}, "running", frozenset("a"))
    assert steps(desired(left, b=HERE), {1: held}) == []


def test_a_group_whose_member_is_cancelled_starts_again_without_it() -> None:
    """Found by cancelling one: its workers went on, for their run did."""
    both = Run(1, ("a", "b"), (0, 1), (0, 1))
    left = Run(1, ("b",), (0, 1), (1,))
    held = Held(both, {"a": HERE, "b": HERE}, "running")
    (stop,) = steps(desired(left, b=HERE), {1: held})
    assert stop == Stop(1, "job 'a' is not to run any more")
    assert steps(desired(left, b=HERE), {}) == [Start(left, {"b": HERE})]
