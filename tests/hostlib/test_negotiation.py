"""Which collective comes next: what rank 0 answers, in whatever order it hears of what ranks submit."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

from hostlib.horovod.negotiation import Announcement, Coordinator, Reduction, Request

SUM = Reduction("sum")


def sum_of(name: str, process_set: int, what: str = "float32 of 4", reduction: Reduction = SUM) -> Request:
    return Request(name, "allreduce", what, process_set, reduction)


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
    (announced,) = at.submit(0, sum_of("a", number, "float32 of 5"), 0.0)
    assert announced.error == (
        "'a' is allreduce sum float32 of 5 at rank 0, but allreduce sum float32 of 4 at rank 1"
    )


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (Reduction("average"), "allreduce average float32 of 4"),
        (Reduction("sum", prescale=0.1), "allreduce sum float32 of 4, scaled by 0.1 and 1.0"),
        (Reduction("sum", numbers="block16"), "allreduce sum float32 of 4 as block16"),
        (
            Reduction("sum", postscale=1.0000000001),
            "allreduce sum float32 of 4, scaled by 1.0 and 1.0000000001",
        ),
    ],
)
def test_ranks_that_reduce_in_different_ways_are_told_how(other: Reduction, told: str) -> None:
    at = Coordinator(2)
    at.submit(0, sum_of("a", 0), 0.0)
    (announced,) = at.submit(1, sum_of("a", 0, reduction=other), 0.0)
    assert announced.error == f"'a' is allreduce sum float32 of 4 at rank 0, but {told} at rank 1"


@pytest.mark.parametrize("reduction", [None, SUM, Reduction("average", 0.1, 3.0, "block16")])
def test_a_joined_rank_learns_the_reduction_as_data_whatever_names_and_descriptions_say(
    reduction: Reduction | None,
) -> None:
    misleading = Request("average of layer 1", "allreduce", "sum as block16", 0, reduction, (), [("f", [1])])
    at = Coordinator(2)
    at.join(0)
    (announced,) = at.submit(1, msgspec.convert(on_the_wire(misleading), Request), 0.0)
    assert msgspec.convert(on_the_wire(announced), Announcement, str_keys=True) == announced
    assert (announced.error, announced.reduction) == ("", reduction)


def on_the_wire(message: Request | Announcement) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(json.dumps(asdict(message)))
    return fields


def test_a_process_set_is_dropped_when_all_have_removed_it_and_no_rank_waits_for_one_that_has() -> None:
    at = Coordinator(3)
    at.add_set(1, [0, 1])
    assert at.remove_set(2, 1) == []  # it is no member: the others still use the set
    at.submit(0, sum_of("a", 1), 0.0)
    (announced,) = at.submit(1, sum_of("a", 1), 0.0)
    assert announced.error == ""
    at.submit(0, sum_of("b", 1), 0.0)
    (announced,) = at.remove_set(1, 1)
    assert announced.error == "allreduce 'b': rank 1 has removed the process set"
    (announced,) = at.submit(0, sum_of("c", 1), 0.0)
    assert announced.error == "allreduce 'c': rank 1 has removed the process set"
    (announced,) = at.remove_set(0, 1)
    assert (announced.set_removed, announced.process_set) == (True, 1)
