"""Calls that are alike have one plan; what a plan depends on tells calls apart."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from hostlib.torch.calls import MOST, Plan, Plans
from hostlib.torch.describe import likeness


def options(kind: str = "BroadcastOptions", **values: object) -> object:
    found = getattr(dist, kind)()
    for name, value in values.items():
        setattr(found, name, value)
    return found


def test_calls_are_alike_whose_tensors_differ_in_contents_alone() -> None:
    call = likeness(([torch.zeros(3, 4)], options()))
    assert call == likeness(([torch.ones(3, 4)], options()))
    assert hash(call) == hash(likeness(([torch.ones(3, 4)], options())))


@pytest.mark.parametrize(
    "other",
    [
        ([torch.zeros(4, 3)], options()),
        ([torch.zeros(3, 4, dtype=torch.int32)], options()),
        ([torch.zeros(3, 4).to_sparse()], options()),
        ([torch.zeros(3, 4, device="meta")], options()),
        ([torch.zeros(3, 4), torch.zeros(3, 4)], options()),
        (torch.zeros(3, 4), options()),
        ([torch.zeros(3, 4)], options(rootRank=1)),
        ([torch.zeros(3, 4)], options(asyncOp=True)),
        ([torch.zeros(3, 4)], options("AllreduceOptions")),
        ([torch.zeros(3, 4)], options("AllreduceOptions", reduceOp=dist.ReduceOp.AVG)),
    ],
)
def test_calls_differ_in_shape_type_layout_device_number_root_operation_and_waiting(other: tuple) -> None:  # type: ignore[type-arg]
    one = likeness(([torch.zeros(3, 4)], options(asyncOp=False)))
    assert likeness(other) != one


def test_a_program_whose_sizes_never_repeat_keeps_no_more_plans_than_the_most() -> None:
    kept = Plans()
    for size in range(MOST + 10):
        kept["allreduce", (size,)] = Plan("allreduce", why_not="sum")
    assert len(kept) == 10
    assert kept["allreduce", (MOST + 9,)].why_not == "sum"
