"""What is foreseen of a decision, beside what comes of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.policies.grouping.worth import Rounds
from controller.policies.scheduling import Decision, Group, Submission, View
from controller.policies.scheduling.baselines import srsf
from controller.policies.scheduling.outlook import Outlook, Positions, fill
from controller.policies.scheduling.placement import Slots
from controller.policies.scheduling.speed import Exclusive, Interleaved
from controller.policies.scheduling.weave import Weave
from controller.simulator import measure, simulate
from controller.simulator.generate import generate
from controller.vocabulary import Cluster
from tests import effort
from tests.twins import outlook as twin
from tests.twins.outlook import Ahead


def alone(gpus: int, iterations: float, restart_s: float = 0.0) -> Ahead:
    return Ahead(0, gpus, iterations, 1.0, restart_s)


def round_s(kinds: tuple[int, ...]) -> float:
    return 1.5 * len(kinds) / 2


def ends_s(
    jobs: Sequence[Ahead], running: Sequence[Positions], starting: Sequence[Positions], gpus: int
) -> list[float]:
    """What is foreseen, by the compiled part and by its twin."""
    runs = [True] * len(running) + [False] * len(starting)
    found = Outlook(jobs, gpus, Rounds(round_s, 4)).ends_s([*running, *starting], runs).tolist()
    assert found == twin.ends_s(jobs, running, starting, gpus, round_s)
    return found


@settings(deadline=None, max_examples=effort.cases(200))
@given(st.data())
def test_what_is_foreseen_is_what_the_twin_foresees(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 40))
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 4]), min_size=count, max_size=count))
    lengths = st.sampled_from([0.0, 1.0, 2.5, 3.0, 7.0])  # many end at the same time
    jobs = [
        Ahead(data.draw(st.integers(0, 2)), size, data.draw(lengths), 1.0 + size / 4, data.draw(lengths))
        for size in sizes
    ]
    left = data.draw(st.permutations(range(count)))
    groups: list[Positions] = []
    for position in left[: data.draw(st.integers(0, count))]:
        if (
            groups
            and len(groups[-1]) < 4
            and sizes[groups[-1][0]] == sizes[position]
            and data.draw(st.booleans())
        ):
            groups[-1] = (*groups[-1], position)
        else:
            groups.append((position,))
    split = data.draw(st.integers(0, len(groups)))
    gpus = sum(sizes[group[0]] for group in groups) + data.draw(st.integers(0, 4))
    ends_s(jobs, groups[:split], groups[split:], gpus)


def test_a_draft_costs_what_its_jobs_ends_come_to() -> None:
    outlook = Outlook([alone(1, 10), alone(1, 30), alone(1, 0.25)], 1, Rounds(round_s, 4))
    ages, factors = [5.0, 2.0, 0.5], [1.0, 2.0, 3.0]
    # ends after 10, 40 and 40.25 s
    assert outlook.cost([(0,)], [True], ages, factors, 1.0) == 15 + 2 * 42 + 3 * 40.75
    assert outlook.cost([(0,)], [True], ages, factors, 2.0) == 15**2 + 2 * 42**2 + 3 * 40.75**2
    assert outlook.cost([(2,)], [True], [0.0] * 3, [0.0, 0.0, 1.0], 1.0) == 1.0, "a second at least"


def test_who_waits_starts_when_gpus_are_free_in_order_of_the_queue() -> None:
    jobs = [alone(1, 10), alone(2, 10), alone(1, 5), alone(1, 30)]
    assert ends_s(jobs, [], [(0,)], 2) == [10, 45, 5, 35]


def test_a_member_that_ends_leaves_its_partner_faster() -> None:
    assert ends_s([alone(1, 10), alone(1, 30)], [(0, 1)], [], 1) == [15, 35]


def test_groups_that_start_pay_for_all_members_and_those_that_run_for_none() -> None:
    jobs = [alone(1, 10, 4.0), alone(1, 10, 5.0)]
    assert ends_s(jobs, [], [(0, 1)], 1) == [24, 24]
    assert ends_s(jobs, [(0,)], [], 1) == [10, 25]


def test_those_that_fit_are_taken_in_order() -> None:
    assert fill([8, 4, 16, 2], range(4), 14) == [(0,), (1,), (3,)]


def test_what_is_foreseen_comes_to_pass() -> None:
    cluster, speed = Cluster.uniform(1, 2), Interleaved()
    lengths = [(1, 40), (2, 30), (1, 70), (1, 20), (2, 10)]
    specs = [Submission(f"j{n}", 0, gpus, its, restart_s=3.0) for n, (gpus, its) in enumerate(lengths)]

    class InOrder:
        name = "in-order"

        def decide(self, view: View) -> Decision:
            slots, groups = Slots(view.cluster), list(view.groups)
            for group in groups:
                slots.keep(group.gpus)
            for job in view.jobs.values():
                if job.group is None and (gpus := slots.take(job.spec.gpus)):
                    groups.append(Group((job,), gpus))
            return Decision(groups)

    found = {job.spec.name: job.finish_s for job in simulate(specs, cluster, InOrder(), speed).jobs}
    foreseen = ends_s([alone(gpus, its, 3.0) for gpus, its in lengths], [], [], 2)
    assert [found[spec.name] for spec in specs] == pytest.approx(foreseen)


def test_weave_is_no_worse_than_srsf_where_a_large_job_waits_for_small_ones() -> None:
    cluster = Cluster.uniform(2, 8)
    jobs = generate(80, cluster, load=1.2, seed=1)
    told = Interleaved(contention=(1.0,) * 4)
    alone_s = measure(simulate(jobs, cluster, srsf(), Exclusive())).avg_jct_s
    foreseen_s, by_worth_s = (
        measure(simulate(jobs, cluster, Weave(told, trust=trust), Interleaved())).avg_jct_s
        for trust in (0.25, 0.0)
    )
    assert foreseen_s < alone_s < by_worth_s
