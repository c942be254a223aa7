"""Which collective comes next: what rank 0 answers, in whatever order it hears of what ranks submit."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from hostlib.horovod.negotiation import Coordinator, Request


def sum_of(name: str, process_set: int, what: str = "sum of 4 float32") -> Request:
    return Request(name, "allreduce", what, process_set)


def test_a_rank_may_submit_to_a_process_set_before_rank_0_has_made_it() -> None:
    at = Coordinator(3)
    assert at.submit(1, sum_of("a", 1), 0.0) == []
    (announced,) = at.add_set(1, [1])
    assert (announced.name, announced.process_set, announced.error) == ("a", 1, "")


def test_what_waits_for_a_process_set_names_rank_0_when_it_stalls_and_when_that_leaves() -> None:
    at = Coordinator(2)
    at.submit(1, sum_of("a", 1), 0.0)
    (said,) = at.stalled(9.0, 5.0)
    assert said == "allreduce 'a' has waited for 9 s: submitted by rank 1, missing from rank 0"
    (announced,) = at.leave(0, "has shut down")
    assert announced.error == "allreduce 'a': rank 0 has shut down"


@pytest.mark.parametrize("number", [0, 1])
def test_all_ranks_of_a_set_are_waited_for_and_what_they_differ_in_is_named(number: int) -> None:
    at = Coordinator(2)
    at.add_set(1, [0, 1])
    assert at.submit(1, sum_of("a", number), 0.0) == []
    (announced,) = at.submit(0, sum_of("a", number, "sum of 5 float32"), 0.0)
    assert announced.error == (
        "'a' is allreduce sum of 5 float32 at rank 0, but allreduce sum of 4 float32 at rank 1"
    )
