from __future__ import annotations

from itertools import pairwise

import pytest

from controller.policies.scheduling import BadSpec, Decision, JobState, Submission, View
from controller.policies.scheduling.lucid.binder import BinderRules, ProfilerRules, Sharing
from controller.policies.scheduling.lucid.online import Arrivals, OnlineLucid, OnlineRules
from controller.policies.scheduling.lucid.usage import Size, Usage
from controller.policies.scheduling.speed import Exclusive
from controller.simulator import Result, measure, simulate
from controller.vocabulary import Cluster
from tests.controller.policies.scheduling.lucid.made_up import make_counts, make_history
from tests.extras import needs

pytestmark = needs("interpret")

HOUR_S, DAY_S = 3600.0, 86_400.0
USAGE = Usage(90.0, 60.0, 8000.0, False)


def habits(count: int, *, gap_s: float) -> list[Submission]:
    """Jobs of users who submit the same few jobs again and again."""
    jobs, durations_s = make_history(count, seed=1)
    return [
        Submission(str(n), n * gap_s, job.gpus, duration_s, 1.0, user=job.user, extra={"jobname": job.name})
        for n, (job, duration_s) in enumerate(zip(jobs, durations_s, strict=True))
    ]


def lucid(rules: OnlineRules, *, profiler: ProfilerRules | None = None) -> OnlineLucid:
    return OnlineLucid(
        rules,
        measure=lambda job: USAGE,
        analyse=lambda usage: Size.JUMBO,
        binder=BinderRules(24_000, 8),
        profiler=profiler,
    )


def run(specs: list[Submission], policy: OnlineLucid, nodes: int = 2) -> Result:
    return simulate(specs, Cluster.uniform(nodes, 8), policy, Exclusive(), verify=True)


def test_what_is_learned_shortens_completion_times() -> None:
    specs = habits(250, gap_s=600.0)
    means_only = measure(run(specs, lucid(OnlineRules(minimum=10_000))))
    learned = measure(run(specs, lucid(OnlineRules(minimum=40, period_s=12 * HOUR_S))))
    assert learned.avg_jct_s < 0.9 * means_only.avg_jct_s


def test_jobs_of_more_gpus_can_be_expected_to_run_no_shorter() -> None:
    falling: list[bool] = []

    class Shapes(OnlineLucid):
        def decide(self, view: View) -> Decision:
            model = self._durations.model(view.now_s)
            if model is not None:
                scores = [score for _, score in model.model.shape("gpus")]
                falling.append(any(b < a - 1e-9 for a, b in pairwise(scores)))
            return super().decide(view)

    def shapes(*, monotone: bool) -> list[bool]:
        falling.clear()
        policy = Shapes(
            OnlineRules(minimum=40, period_s=DAY_S, monotone=monotone),
            measure=lambda job: USAGE,
            analyse=lambda usage: Size.JUMBO,
            binder=BinderRules(24_000, 8),
        )
        run(habits(80, gap_s=600.0), policy)
        return list(falling)

    assert any(shapes(monotone=False))
    found = shapes(monotone=True)
    assert found
    assert not any(found)


def test_it_is_deterministic() -> None:
    specs = habits(150, gap_s=300.0)
    rules = OnlineRules(minimum=50, period_s=6 * HOUR_S)
    ends = [[job.finish_s for job in run(specs, lucid(rules)).jobs] for _ in range(2)]
    assert ends[0] == ends[1]


def test_a_profiled_job_is_estimated_with_its_usage() -> None:
    said: set[str] = set()

    class Asking(OnlineLucid):
        def decide(self, view: View) -> Decision:
            decision = super().decide(view)
            said.update(line for job in view.jobs.values() for line in self.explain(job))
            return decision

    policy = Asking(
        OnlineRules(minimum=20, period_s=HOUR_S),
        measure=lambda job: USAGE,
        analyse=lambda usage: Size.JUMBO,
        binder=BinderRules(24_000, 8),
        profiler=ProfilerRules(1, 60.0, 8),
    )
    run(habits(40, gap_s=900.0), policy)
    assert any(line.startswith("gpu_util = None") for line in said)
    assert any(line.startswith(f"gpu_util = {USAGE.gpu_util}") for line in said)


def test_a_prediction_is_explained() -> None:
    explained: list[list[str]] = []

    class Asking(OnlineLucid):
        def decide(self, view: View) -> Decision:
            decision = super().decide(view)
            explained.extend(self.explain(job) for job in view.arrived)
            return decision

    policy = Asking(
        OnlineRules(minimum=30, period_s=12 * HOUR_S),
        measure=lambda job: USAGE,
        analyse=lambda usage: Size.JUMBO,
        binder=BinderRules(24_000, 8),
    )
    run(habits(120, gap_s=600.0), policy)
    assert explained[0][0].startswith("Jumbo; expected to run 3600 s")
    assert any(line.startswith("user = ") for line in explained[-1])
    assert explained[-1][-1].startswith("together: ")


def arrivals(counts: list[int], *, interval_s: int = 600) -> Arrivals:
    found = Arrivals(OnlineRules(interval_s=interval_s, ahead=3), lambda job: 1)
    for interval, count in enumerate(counts):
        for number in range(count):
            submit_s = (interval + number / (count + 1)) * interval_s
            found.count(JobState(Submission(f"{interval}-{number}", submit_s, 1, 1), 0, 1.0, submit_s))
    return found


def test_arrivals_are_counted_by_interval() -> None:
    seen = arrivals([2, 0, 0, 5, 1])
    assert seen.latest(4 * 600 + 1) == 5
    assert seen.latest(5 * 600) == 1
    assert seen.latest(7 * 600) == 0
    assert seen.forecast(7 * 600) == []


def test_a_gap_of_centuries_is_refused() -> None:
    with pytest.raises(BadSpec, match=r"arrivals until 1e\+10 s: at most 1,048,576 intervals"):
        arrivals([1]).latest(1e10)


def test_after_two_days_arrivals_are_expected() -> None:
    counts = [round(count) for count in make_counts(3, seed=2)]
    expected = arrivals(counts).forecast(3 * DAY_S)
    assert len(expected) == 3
    assert all(0 <= count <= max(counts) for count in expected)


def test_sharing_ends_when_nothing_comes_and_gpus_are_idle() -> None:
    seen: list[Sharing] = []

    class Watched(OnlineLucid):
        def _sharing(self, now_s: float, idle: float) -> Sharing:
            seen.append(super()._sharing(now_s, idle))
            return seen[-1]

    policy = Watched(
        OnlineRules(),
        measure=lambda job: USAGE,
        analyse=lambda usage: Size.TINY,
        binder=BinderRules(24_000, 8),
    )
    quiet = habits(40, gap_s=2 * HOUR_S)
    run(quiet, policy)
    assert seen[0] is Sharing.DEFAULT
    assert Sharing.OFF in seen


@pytest.mark.parametrize(
    "wrong", [{"unknown_s": 0.0}, {"ahead": 0}, {"low": 1.0, "very_low": 2.0}, {"very_low": -1.0}]
)
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadSpec):
        OnlineRules(**wrong)  # type: ignore[arg-type]
