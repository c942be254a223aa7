from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.replicas.muri.themis import Floats, ThemisReplica, shares
from controller.policies.scheduling import Submission
from controller.policies.scheduling.speed import Exclusive
from controller.simulator import simulate
from controller.simulator.generate import generate
from controller.vocabulary import Cluster

positive = st.floats(1e-2, 1e6)
jobs = st.lists(
    st.tuples(st.floats(0, 1e6), positive, positive, st.sampled_from([1, 2, 4, 8])), min_size=1, max_size=12
)


def fractions(x: Floats, age_s: Floats, left_s: Floats, alone: Floats) -> Floats:
    return (age_s + left_s / x) / alone


@given(jobs, st.integers(1, 64))
def test_no_share_can_be_better_without_making_one_worse_that_is_as_bad(
    given: list[tuple[float, float, float, int]], capacity: int
) -> None:
    age_s, left_s, alone, gpus = (np.array(values, dtype=np.float64) for values in zip(*given, strict=True))
    x = shares(age_s, left_s, alone, gpus, capacity)
    assert (x > 0).all()
    assert (x <= 1).all()
    assert gpus @ x <= capacity * (1 + 1e-9)
    if gpus.sum() <= capacity:
        assert (x == 1).all()
        return
    # who could have more (x < 1) is equally badly off, the others are not worse off, and no GPU is left over
    worse = fractions(x, age_s, left_s, alone)[x < 1 - 1e-12]
    if len(worse):
        assert gpus @ x == pytest.approx(capacity, rel=1e-6)
        assert worse == pytest.approx(worse.max(), rel=1e-6)


def test_a_rest_that_is_nothing_beside_its_age_has_a_share_too() -> None:
    age_s, left_s, alone = np.array([1e7, 10, 20]), np.array([1e-10, 5, 7]), np.array([1.0, 50, 30])
    x = shares(age_s, left_s, alone, np.ones(3), 2.0)
    assert x[0] == 1
    assert (x > 0).all()
    assert x.sum() == pytest.approx(2)


def test_who_has_never_run_comes_first() -> None:
    first = Submission("first", 0, 1, 1000)
    second = Submission("second", 10, 1, 1000)
    result = simulate([first, second], Cluster.uniform(1, 1), ThemisReplica(), Exclusive(), verify=True)
    ends = {job.spec.name: job.finish_s for job in result.jobs}
    assert ends == {"second": 1010, "first": 2000}


def test_decisions_hold_on_a_crowded_cluster() -> None:
    cluster = Cluster.uniform(2, 8)
    specs = generate(80, cluster, load=1.5, seed=3)
    result = simulate(specs, cluster, ThemisReplica(), Exclusive(), verify=True)
    assert len(result.jobs) == 80
    assert max(job.preemptions for job in result.jobs) > 0
