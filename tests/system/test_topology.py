"""Where workers are plugged in and which switches a job needs; how throughput is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.switches.layout import Branch, Deployment, deployment_of, lay_out
from controller.vocabulary import Job, Tree
from controller.vocabulary.topology import spread
from ina.cli.command import Failure
from ina.cli.options import parse_numbers
from ina.cli.run_options import parse_tree
from ina.errors import BadRun
from ina.run.switches.topology import plan

shapes = st.lists(st.integers(1, 3), min_size=1, max_size=3)


def grown(shape: list[int], workers: int) -> Branch:
    topology = plan(shape, [workers], fallback=False)
    up = topology.towards(topology.root)
    tree = Tree(topology.root, up, frozenset({topology.root, *up}))
    job = Job(name="", workers=workers, servers=spread(topology, workers, ()), mode="exclusive")
    return deployment_of(topology, job, tree).root


@given(shapes)
def test_a_full_tree_has_every_rank_once_and_as_many_children_as_asked(shape: list[int]) -> None:
    workers = 1
    for fan_out in shape:
        workers *= fan_out
    jobs = lay_out(Deployment(grown(shape, workers), slots=2), max_members=32)
    ranks = [m.rank for job in jobs.values() for m in job.members if m.rank is not None]
    assert sorted(ranks) == list(range(workers))
    assert jobs["s1"].fan_in == shape[0]
    assert all(job.fan_in in shape for job in jobs.values())


def test_switches_without_workers_of_the_job_are_left_out() -> None:
    assert [link.child.name for link in grown([3, 4], 2).links] == ["s2", "s3"]


@pytest.mark.parametrize(("text", "fan_outs"), [("4", (4,)), ("2x4", (2, 4)), ("2x2x2", (2, 2, 2))])
def test_trees_are_read(text: str, fan_outs: tuple[int, ...]) -> None:
    assert parse_tree(text) == fan_outs


@pytest.mark.parametrize("text", ["", "x", "2x", "0x4", "2x33", "-2x4", "2 x 4", "²x4"])
def test_what_is_no_tree_is_refused(text: str) -> None:
    with pytest.raises(Failure, match="want numbers from 1 to 32 joined by x"):
        parse_tree(text)


@pytest.mark.parametrize(
    ("shape", "workers", "why"),
    [
        ((2, 4), [4, 9], "9 workers: a tree of 2x4 has 8 machines"),
        ((32,), [32] * 16, "510 ports"),
    ],
)
def test_jobs_for_which_a_tree_has_no_place_are_refused(
    shape: tuple[int, ...], workers: list[int], why: str
) -> None:
    with pytest.raises(BadRun, match=why):
        plan(shape, workers, fallback=True)


def test_numbers_and_ranges_are_read() -> None:
    assert parse_numbers("--ports", "1-3,7") == (1, 2, 3, 7)
    for text in ("", "1-", "3-1", "a", "1,,2"):
        with pytest.raises(Failure, match="want numbers and ranges"):
            parse_numbers("--ports", text)
