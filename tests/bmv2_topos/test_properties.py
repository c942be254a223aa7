"""Properties of the testbed's small parts."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bmv2_topos.faults import ChangeRegion, Fault, LinkFault, RemoveJob, RestartFallback, RestartJob, Straggle
from bmv2_topos.testbeds.virtual import build
from bmv2_topos.testbeds.virtual.network import segments
from bmv2_topos.testbeds.virtual.placement import branches
from bmv2_topos.testbeds.virtual.worker import ExactGradients
from controller.switches.layout import Deployment, lay_out
from controller.vocabulary import BadSpec, Job, Topology, parse_jobs
from hostlib.wire import encodings
from hostlib.wire.tree import Tree
from tests.twins import quantize

# ---------------------------------------------------------------------------
# Schedules of faults drawn from a seed.


def random_faults(
    seed: int,
    jobs: Sequence[Job],
    topology: Topology,
    *,
    count: int,
    until_s: float,
    slots: int,
    max_loss: float = 0.1,
) -> tuple[Fault, ...]:
    """Draw `count` faults of all kinds before `until_s`; the same seed gives the same.

    At least one job is left to the end. `slots` are a switch's.
    """
    draw = random.Random(seed)
    left = [job.name for job in jobs]
    faults: list[Fault] = []
    for at_s in sorted(draw.uniform(0, until_s) for _ in range(count)):
        job = draw.choice([job for job in jobs if job.name in left])
        kind = draw.choices(
            (RestartJob, RestartFallback, ChangeRegion, LinkFault, Straggle, RemoveJob),
            weights=(3, 3, 3, 4, 2, 1),
        )[0]
        if kind is RestartJob:
            faults.append(RestartJob(at_s, job.name, draw.choice((0.0, draw.uniform(0, 0.002)))))
        elif kind is RestartFallback:
            faults.append(RestartFallback(at_s, job.name, draw.choice((0.0, draw.uniform(0, 0.002)))))
        elif kind is ChangeRegion:
            offset = draw.randrange(slots + 1)
            faults.append(ChangeRegion(at_s, job.name, offset, draw.randrange(slots - offset + 1)))
        elif kind is LinkFault:
            link = draw.choice(topology.links)
            loss = draw.choice((0.0, draw.uniform(0, max_loss)))
            faults.append(LinkFault(at_s, (link.a, link.b), "loss", loss))
        elif kind is Straggle:
            compute_s = job.compute_s * draw.uniform(0, 4)
            faults.append(Straggle(at_s, job.name, draw.randrange(job.workers), compute_s))
        elif len(left) > 1:
            left.remove(job.name)
            faults.append(RemoveJob(at_s, job.name))
    return tuple(faults)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_segments_are_the_frames_in_their_order(lengths: list[int]) -> None:
    data = bytearray(np.random.default_rng(0).bytes(sum(lengths)))
    found = []
    joined = b""
    for segment, length in segments(data, lengths):
        assert len(segment) % length == 0
        found += [length] * (len(segment) // length)
        joined += segment.tobytes()
    assert found == lengths
    assert joined == data


@given(
    workers=st.integers(1, 1024),
    tensors=st.lists(st.integers(1, 50), min_size=1, max_size=4).map(tuple),
    iteration=st.integers(0, 10_000),
    seed=st.integers(0, 100),
)
def test_totals_are_the_sums_of_contributions_and_fit_the_fixed_scale(
    workers: int, tensors: tuple[int, ...], iteration: int, seed: int
) -> None:
    gradients = ExactGradients(workers, tensors, scale_bits=20, seed=seed)
    layer = iteration % len(tensors)
    parts = [gradients.contribution(rank, iteration, layer) for rank in range(workers)]
    assert np.array_equal(np.sum(parts, axis=0, dtype=np.float64), gradients.total(iteration, layer))
    assert max(abs(part).max() for part in parts) * 2**20 <= (2**31 - 1) // workers


@given(numbers=st.sampled_from(encodings.BLOCKS), data=st.data(), seed=st.integers(0, 100))
def test_contributions_in_few_bits_have_the_totals_as_their_sums(
    numbers: encodings.Block, data: st.DataObject, seed: int
) -> None:
    """In packets with and without the largest of them, and where no whole number travels exactly."""
    workers, fields = data.draw(st.integers(1, encodings.most_ranks(numbers))), encodings.per_lane(numbers)
    gradients = ExactGradients(workers, (64,), numbers=numbers, scale_bits=20, seed=seed)
    packets = np.stack([gradients.contribution(rank, 0, 0) for rank in range(workers)]).reshape(
        workers, 4, 16
    )
    exponent = np.max([quantize.exponents(of) for of in packets], axis=0)
    lanes = [quantize.pack(of, exponent, workers, fields) for of in packets]
    total = np.sum(lanes, axis=0, dtype=np.int64).astype(np.int32)
    found = quantize.unpack(total, exponent, workers, fields).reshape(-1)
    assert np.array_equal(found, gradients.total(0, 0))


@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=3),
    shape=st.sampled_from([None, (8,), (2, 4), (4, 2), (2, 2, 2)]),
    transit=st.sets(st.integers(1, 2)),
)
def test_every_job_gets_hosts_of_its_own_and_a_tree_with_all_its_ranks(
    sizes: list[int], shape: tuple[int, ...] | None, transit: set[int]
) -> None:
    jobs = [Job(name=f"j{number}", workers=size) for number, size in enumerate(sizes)]
    topology, placements = build(jobs, shape, servers=True, transit=sorted(transit))
    used = [host for placement in placements for host in (*placement.workers, placement.server)]
    assert len(set(used)) == len(used) == sum(sizes) + len(jobs)
    for job, placement in zip(jobs, placements, strict=True):
        tree = Deployment(branches(topology, placement), 2)
        nodes = lay_out(tree, max_members=32)
        assert (
            sum(member.rank is not None for part in nodes.values() for member in part.members) == job.workers
        )


@given(st.text(max_size=60))
def test_any_text_is_a_job_file_or_a_job_file_error(text: str) -> None:
    with contextlib.suppress(BadSpec):
        assert parse_jobs(text, source="file")


def test_trees_of_one_switch_are_stars() -> None:
    topology, (placement,) = build([Job(name="a", workers=3)], servers=False)
    (part,) = lay_out(Deployment(branches(topology, placement), 2), max_members=32).values()
    assert Tree.star(3).nodes == {0: tuple(member.rank for member in part.members)}
