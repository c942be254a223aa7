from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.policies.scheduling import BadSpec, Submission
from controller.policies.scheduling.gittins import Gittins, distribution, gittins_index
from controller.policies.scheduling.speed import Exclusive
from controller.simulator import simulate
from controller.vocabulary import Cluster

sizes_seen = st.lists(st.integers(1, 50), min_size=1, max_size=12)


@given(sizes_seen, st.integers(0, 60))
def test_the_index_is_the_best_ratio_over_all_ways_to_stop(sizes: list[int], attained: int) -> None:
    found = gittins_index(*distribution(sizes, ()), float(attained))
    alive = [size - attained for size in sizes if size > attained]
    ratios = [
        sum(need <= d for need in alive) / sum(min(need, d) for need in alive) for d in range(1, 51) if alive
    ]
    assert found == pytest.approx(max(ratios, default=0.0))


@given(sizes_seen, sizes_seen)
def test_without_others_the_estimate_is_what_was_seen_and_others_make_sizes_larger(
    ended: list[int], going: list[int]
) -> None:
    sizes, shares = distribution(ended, ())
    assert shares == pytest.approx([ended.count(size) / len(ended) for size in sizes])
    _, censored = distribution(ended, going)
    assert (np.cumsum(censored) <= np.cumsum(shares) + 1e-12).all()


def test_what_may_end_soon_goes_first() -> None:
    """Half of the jobs take 100 s: one that is beyond that yields to one that is not."""
    jobs = [Submission("long", 0, 1, 5000), Submission("short", 200, 1, 100)]
    known = simulate(jobs, Cluster.uniform(1, 1), Gittins([100, 5000]), Exclusive(), verify=True)
    assert {job.spec.name: job.finish_s for job in known.jobs} == {"short": 300, "long": 5100}


def test_it_learns_from_jobs_that_end() -> None:
    many = [Submission(f"s{number}", number * 200.0, 1, 100) for number in range(40)]
    jobs = [
        *many,
        Submission("long", 8000, 1, 50000),
        *(Submission(f"t{n}", 9000.0 + n, 1, 100) for n in range(5)),
    ]
    result = simulate(jobs, Cluster.uniform(1, 1), Gittins(), Exclusive(), verify=True)
    finish_s = {job.spec.name: job.finish_s for job in result.jobs}
    assert max(finish_s[f"t{number}"] for number in range(5)) < 10000 < finish_s["long"]


def test_sizes_must_be_positive() -> None:
    with pytest.raises(BadSpec, match="must be positive"):
        Gittins([5.0, 0.0])
