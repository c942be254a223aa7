"""Servers, matrices and demands for the tests, hand-made or drawn."""

from hypothesis import strategies as st

from controller.policies.scheduling.synergy.allocators import SharePlan
from controller.policies.scheduling.synergy.demand import Demand, Sensitivity, ServerShape, demand

SHAPE = ServerShape(gpus=4, cpus=12, memory_gb=100)
"""A fair share is 3 CPUs and 25 GB."""

HUNGRY = Sensitivity.build([1, 3, 6], [25, 50], [[1, 1], [3, 3], [6, 6]])
MODEST = Sensitivity.build([1, 3, 6], [25, 50], [[2, 2], [2, 2], [2, 2]])
LEAN = Sensitivity.build([1], [10], [[1]])
CACHING = Sensitivity.build([1, 3, 6], [25, 50, 75], [[1, 1, 1], [1, 2, 4], [1, 2, 4]])


def job(name: str, matrix: Sensitivity, gpus: int = 1, shape: ServerShape = SHAPE) -> Demand:
    return demand(name, gpus, matrix, shape)


@st.composite
def matrices(draw: st.DrawFn) -> Sensitivity:
    """A grid that has points within the fair share of SHAPE, so that every job can run."""
    cpus = sorted(draw(st.sets(st.sampled_from([2, 4, 5, 6, 8, 12]), max_size=3)) | {draw(st.integers(1, 3))})
    memory = sorted(
        draw(st.sets(st.sampled_from([30, 40, 60, 100]), max_size=2)) | {draw(st.integers(5, 25))}
    )
    speeds = st.floats(0.1, 5)
    return Sensitivity.build(cpus, memory, [[draw(speeds) for _ in memory] for _ in cpus])


@st.composite
def queues(draw: st.DrawFn, max_jobs: int = 14, max_gpus: int = 6) -> list[Demand]:
    pool = draw(st.lists(matrices(), min_size=1, max_size=4))
    picks = draw(
        st.lists(st.tuples(st.sampled_from(pool), st.integers(1, max_gpus)), min_size=1, max_size=max_jobs)
    )
    return [demand(index, gpus, matrix, SHAPE) for index, (matrix, gpus) in enumerate(picks)]


def check_capacity(plan: SharePlan, servers: int, shape: ServerShape) -> None:
    """No server gives more than it has, and every job has its GPUs."""
    gpus, cpus, memory = [0] * servers, [0.0] * servers, [0.0] * servers
    for grant in plan.grants:
        assert sum(g for _, g in grant.split) == grant.demand.gpus
        assert len({s for s, _ in grant.split}) == len(grant.split)
        for server, here in grant.split:
            assert here > 0
            gpus[server] += here
            cpus[server] += here * grant.option.cpus
            memory[server] += here * grant.option.memory_gb
    assert max(gpus) <= shape.gpus
    assert max(cpus) <= shape.cpus + 1e-5
    assert max(memory) <= shape.memory_gb + 1e-5
