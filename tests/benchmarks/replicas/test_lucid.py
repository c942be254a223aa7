"""The public simulator's rules, on cases worked out by hand."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.replicas.lucid.rules import (
    HeadOfLine,
    LucidReplica,
    LucidReplicaSpeed,
    Profiling,
    Quota,
    Scored,
    StopOverhead,
    counting_down,
    remaining_with_overhead,
    two_queues,
)
from benchmarks.replicas.steps import SteppedRun
from controller.policies.scheduling import BadSpec, Decision, Submission, View
from controller.policies.scheduling.lucid.family import Config, Pair
from controller.policies.scheduling.lucid.usage import Size
from controller.policies.scheduling.policy import JobState
from controller.policies.scheduling.speed import ExclusiveSpeed
from controller.simulator import simulate
from controller.vocabulary import Cluster
from tests import effort

STEP_S = 1


def overhead_s(gpus: int) -> float:
    return 40.0 if gpus <= 8 else 60.0


def job(name: str, at: float, lasts_s: float, gpus: int = 1, model: str = "a") -> Submission:
    return Submission(name, at, gpus, lasts_s, 1.0, model=model)


def run(
    specs: list[Submission], policy: object, speed: object, gpus: int = 1, nodes: int = 1
) -> dict[str, float]:
    setup = SteppedRun(policy, speed, STEP_S)  # type: ignore[arg-type]
    result = setup.run(specs, Cluster.uniform(nodes, gpus), verify=True)
    return {j.spec.name: j.finish_s for j in result.jobs}


def test_the_head_of_the_queue_blocks() -> None:
    specs = [job("a", 0, 10, 2), job("wide", 1, 10, 4), job("small", 2, 10, 1)]
    fifo = HeadOfLine("fifo", lambda j: j.order)
    assert run(specs, fifo, ExclusiveSpeed(), gpus=4) == {"a": 10, "wide": 20, "small": 30}


def test_jobs_go_to_the_fullest_node_that_holds_them() -> None:
    specs = [job("a", 0, 50, 3), job("b", 1, 50, 1), job("c", 2, 50, 4)]
    assert run(specs, HeadOfLine("fifo", lambda j: j.order), ExclusiveSpeed(), gpus=4, nodes=2)["c"] == 52


def test_qssf_ranks_by_gpus_while_all_that_wait_are_new() -> None:
    estimates = {"x": 100.0, "y": 1.0, "z": 50.0}
    specs = [job("first", 0, 10, 2), job("y", 10, 10, 2), job("x", 10, 10, 1), job("z", 11, 10, 2)]
    policy = HeadOfLine(
        "qssf", lambda j: estimates.get(j.spec.name, 0) * j.spec.gpus, rank_new=lambda j: j.spec.gpus
    )
    # at 10 s, y and x are new: x first, though y is expected to be done sooner; then y blocks z
    assert run(specs, policy, ExclusiveSpeed(), gpus=2) == {"first": 10, "x": 20, "y": 30, "z": 40}


@pytest.mark.parametrize(
    ("jobs", "gpus", "ends"),
    [
        # a stopped job pays when it runs again
        ([job("long", 0, 100), job("short", 20, 10)], 1, {"short": 20 + 11, "long": 31 + 81 + 40}),
        # one that is stopped while it pays owes the rest, too: long runs 0-20 and pays 31-41; at 41 it owes
        # 30, and 40 more, and has 81 s of work left
        (
            [job("long", 0, 100), job("b", 20, 10), job("c", 41, 10)],
            1,
            {"b": 31, "c": 52, "long": 52 + 70 + 81},
        ),
        # two GPUs: a (1) and wide (2) come at 0; wide is shorter and runs; then a, without an event
        ([job("a", 0, 100, 1), job("wide", 0, 50, 2)], 2, {"wide": 51, "a": 152}),
    ],
    ids=["stopped", "stopped while it pays", "overtakes"],
)
def test_shortest_first_pays_for_stops(jobs: list[Submission], gpus: int, ends: dict[str, float]) -> None:
    policy = Quota("srtf", remaining_with_overhead(overhead_s))
    assert run(counting_down(jobs), policy, StopOverhead(overhead_s), gpus=gpus) == ends


def test_tiresias_decides_every_minute_and_demotes_by_service() -> None:
    specs = counting_down([job("old", 0, 500), job("new", 70, 100)])
    policy = Quota("tiresias", two_queues(100), running_first=True, period_s=60)
    # at 120 s old has had 120 GPU s and is behind new, which runs until 221, seen at 240
    ends = run(specs, policy, StopOverhead(overhead_s))
    assert ends["new"] == 120 + 101
    assert ends["old"] == 240 + 40 + 501 - 120


def test_after_an_idle_time_tiresias_waits_for_a_whole_minute() -> None:
    specs = counting_down([job("a", 0, 10), job("b", 130, 10), job("c", 180, 10, 1), job("d", 300, 5)])
    policy = Quota("tiresias", two_queues(100), running_first=True, period_s=60)
    ends = run(specs, policy, StopOverhead(overhead_s))
    assert ends == {"a": 11, "b": 191, "c": 240 + 11, "d": 306}


PAIRS = [Pair(Config("a", "", 0, False), Config("b", "", 0, False), 0.8, 0.5)]


def lucid(specs: list[Submission], gpus: int = 1) -> dict[str, float]:
    scored = {s.name: Scored(s.duration_s * s.gpus, Size.TINY, 1000) for s in specs}
    speed = LucidReplicaSpeed(PAIRS, lambda spec: Config(spec.model, "", 0, False))
    return run(counting_down(specs), LucidReplica(lambda j: scored[j.spec.name]), speed, gpus=gpus)


def test_a_host_gets_its_speed_back_and_its_guest_does_not() -> None:
    ends = lucid([job("host", 0, 100, model="a"), job("guest", 20, 20, model="b")])
    # the guest runs at 0.5 for 42 s; the host at 0.8 meanwhile, then at 1
    assert ends["guest"] == 62
    assert ends["host"] == math.ceil(101 + 42 * 0.2)
    ends = lucid([job("host", 0, 60, model="a"), job("guest", 20, 100, model="b")])
    assert ends["host"] == math.ceil(20 + 41 / 0.8)
    assert ends["guest"] == 20 + 202  # at 0.5 to its end, though it is alone


def test_a_guest_that_is_left_alone_cannot_be_joined() -> None:
    specs = [job("host", 0, 60, model="a"), job("guest", 20, 100, model="b"), job("late", 100, 5, model="a")]
    assert lucid(specs)["late"] == 20 + 202 + 6


def test_packing_comes_before_free_gpus() -> None:
    ends = lucid([job("host", 0, 100, model="a"), job("guest", 20, 20, model="b")], gpus=2)
    assert ends["guest"] == 62


def test_a_job_joins_only_a_partner_of_half_its_priority_or_more() -> None:
    ends = lucid([job("host", 0, 40, model="a"), job("guest", 10, 81, model="b")])
    assert ends == {"host": 41, "guest": 41 + 82}


def scored(job: JobState) -> Scored:
    return Scored(job.spec.duration_s * job.spec.gpus, Size.TINY, 1000)


def speed() -> LucidReplicaSpeed:
    return LucidReplicaSpeed(PAIRS, lambda spec: Config(spec.model, "", 0, False))


def test_jobs_that_are_short_end_in_the_profiler_and_others_hold_its_gpus() -> None:
    specs = [job("long", 0, 500), job("short", 1, 50), job("wide", 0, 10, 2)]
    policy = LucidReplica(scored, profiling=Profiling(nodes=1, limit_s=80, max_gpus=1))
    # one node of two GPUs profiles; long and short have one each; long holds its own until 80
    ends = run([*specs, job("third", 2, 60), job("fourth", 3, 5)], policy, speed(), gpus=2, nodes=2)
    assert ends == {"wide": 10, "long": 510, "short": 51, "third": 51 + 60, "fourth": 80 + 5}


def in_two_phases(specs: list[Submission], nodes: int, rules: Profiling) -> dict[str, float]:
    """The oracle: the profiler by itself, with all jobs cut, and then the rest by itself, as there."""
    small = [replace(s, iterations=min(s.duration_s, 80), model="alone") for s in specs if s.gpus <= 4]
    first = run(small, HeadOfLine("profiler", lambda j: j.spec.gpus), ExclusiveSpeed(), gpus=4, nodes=2)
    ends = {s.name: first[s.name] for s in specs if rules.ends(s)}
    rest = counting_down([s for s in specs if not rules.ends(s)])
    return ends | run(rest, LucidReplica(scored), speed(), gpus=4, nodes=nodes - 2)


@pytest.mark.parametrize("seed", range(8))
def test_profiler_and_main_cluster_together_are_both_by_themselves(seed: int) -> None:
    rng = random.Random(seed)
    specs = [
        job(str(i), rng.randint(0, 900), rng.choice((20, 60, 80, 81, 300, 900)), rng.choice((1, 1, 2, 4, 8)),
            rng.choice("ab"))
        for i in range(60)
    ]  # fmt: skip
    rules = Profiling(nodes=2, limit_s=80, max_gpus=4)
    counted = [s if rules.ends(s) else counting_down([s])[0] for s in specs]
    ends = run(counted, LucidReplica(scored, profiling=rules), speed(), gpus=4, nodes=5)
    assert ends == in_two_phases(specs, 5, rules)


def test_what_the_profiler_leaves_must_suffice() -> None:
    policy = LucidReplica(scored, profiling=Profiling(nodes=2))
    with pytest.raises(BadSpec, match="the profiler takes 2 of 2 nodes"):
        run([job("a", 0, 5)], policy, speed(), gpus=4, nodes=2)
    policy = LucidReplica(scored, profiling=Profiling(nodes=2))
    with pytest.raises(BadSpec, match="'a' asks for 8 GPUs; beside the profiler's nodes are 4"):
        run([job("a", 0, 5, 8)], policy, speed(), gpus=4, nodes=3)


def test_decisions_have_reasons() -> None:
    specs = [job("host", 0, 100, model="a"), job("guest", 0, 90, model="b"), job("wide", 0, 10, 2)]
    jobs = {spec.name: JobState(spec, order, 1.0, 0.0) for order, spec in enumerate(specs)}
    view = View(0.0, Cluster.uniform(1, 2), jobs, list(jobs.values()), (), ())
    decision = LucidReplica(scored).decide(view)
    assert [group.reason[:5] for group in decision.groups] == ["alone"]
    view = View(0.0, Cluster.uniform(1, 3), jobs, list(jobs.values()), (), ())
    (shared, _) = sorted(LucidReplica(scored).decide(view).groups, key=lambda group: len(group.gpus))
    assert shared.reason.startswith("shares with guest")


def test_fractions_of_seconds_come_to_an_end() -> None:
    specs = counting_down([job("a", 0, 100.5, 1), job("wide", 0.25, 50.25, 2), job("c", 3.7, 9.9, 1)])
    ends = run(specs, Quota("srtf", remaining_with_overhead(overhead_s)), StopOverhead(overhead_s), gpus=2)
    assert set(ends) == {"a", "wide", "c"}


@settings(max_examples=effort.cases(25), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 500), st.integers(1, 400), st.sampled_from([1, 1, 2, 4])),
        min_size=1,
        max_size=15,
    )
)
def test_work_is_conserved(jobs: list[tuple[int, int, int]]) -> None:
    specs = counting_down([job(str(i), at, lasts, gpus) for i, (at, lasts, gpus) in enumerate(jobs)])
    for policy in (
        Quota("srtf", remaining_with_overhead(overhead_s)),
        Quota("tiresias", two_queues(300), running_first=True, period_s=60),
    ):
        result = simulate(
            specs, Cluster.uniform(2, 4), policy, StopOverhead(overhead_s), interval_s=STEP_S, verify=True
        )
        assert len(result.jobs) == len(specs)
        for ended in result.jobs:
            assert ended.attained_s == pytest.approx(ended.spec.duration_s + 40 * ended.preemptions)


class EverySecond(Quota):
    """The oracle: it looks at all jobs in each second, as the public simulator does."""

    def decide(self, view: View) -> Decision:
        decision = super().decide(view)
        return Decision(decision.groups, view.now_s + 1 if view.jobs else None)


@pytest.mark.parametrize("seed", range(8))
def test_looking_only_when_something_can_change_misses_nothing(seed: int) -> None:
    rng = random.Random(seed)
    specs = counting_down(
        [
            job(str(i), rng.randint(0, 400), rng.randint(20, 900), rng.choice((1, 2, 2, 3, 4)))
            for i in range(25)
        ]
    )
    rank, ends = remaining_with_overhead(lambda gpus: 60.0), []
    for policy in (Quota("srtf", rank), EverySecond("srtf", rank)):
        speed = StopOverhead(lambda gpus: 60.0)
        result = SteppedRun(policy, speed, STEP_S).run(specs, Cluster.uniform(2, 4))
        ends.append({j.spec.name: j.finish_s for j in result.jobs})
    assert ends[0] == ends[1]
