"""Lucid in the simulator, and the parts that only its policy uses."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.schedulers.lucid import make_jobs
from controller.policies.scheduling import BadSpec, Decision, Group, JobState, Policy, Submission, View
from controller.policies.scheduling.lucid.family import (
    Config,
    Pair,
    PairSpeed,
    config_by_columns,
    make_pairs,
    make_usages,
)
from controller.policies.scheduling.lucid.policy import (
    DividedNodes,
    LucidOptions,
    LucidPolicy,
    ProfileQueue,
    Sharing,
)
from controller.policies.scheduling.lucid.usage import GpuUsage, Size, grow, sizes_from_pairs
from controller.simulator import measure, simulate
from controller.vocabulary import Cluster, Server
from tests import effort
from tests.controller.core.driver import Deciding

CLUSTER = Cluster.uniform(4, 8)
KNOWN = LucidOptions(gpu_memory_mb=24_000, profiler_nodes=0)
PROFILED = LucidOptions(gpu_memory_mb=24_000, profile_s=100.0)
USAGES = {
    "tiny": GpuUsage(5, 2, 2000),
    "medium": GpuUsage(50, 25, 4000),
    "jumbo": GpuUsage(95, 70, 9000),
    "vast": GpuUsage(5, 2, 23_000),
}
SIZES = {"tiny": Size.TINY, "medium": Size.MEDIUM, "jumbo": Size.JUMBO, "vast": Size.TINY}
PAIRS = [
    Pair(
        Config(a, "d", 0, False), Config(b, "d", 0, False), *(1 - 0.15 * max(0, SIZES[x] - 0) for x in (b, a))
    )
    for a in USAGES
    for b in USAGES
]
SPEED = PairSpeed(PAIRS, lambda spec: Config(spec.model, "d", 0, False))


def job(name: str, model: str, *, at: float = 0, gpus: int = 1, lasts_s: float = 1000) -> Submission:
    return Submission(name, at, gpus, lasts_s, 1.0, model=model)


def lucid(options: LucidOptions = KNOWN, **more: object) -> LucidPolicy:
    return LucidPolicy(
        options,
        **{
            "estimate": lambda j: j.spec.duration_s,
            "measure": lambda j: USAGES[j.spec.model],
            "analyse": lambda usage: next(SIZES[m] for m, u in USAGES.items() if u == usage),
            **more,
        },  # type: ignore[arg-type]
    )


class Watched:
    """Passes on decisions, after checking the binder's rules on what shares, and keeps them."""

    def __init__(self, policy: Policy) -> None:
        self.name, self.policy = policy.name, policy
        self.decisions: list[tuple[float, Decision]] = []

    def decide(self, view: View) -> Decision:
        decision = self.policy.decide(view)
        for group in decision.groups:
            assert len(group.jobs) <= 2
            assert len({j.spec.gpus for j in group.jobs}) == 1
            if len(group.jobs) == 2:
                assert sum(USAGES[j.spec.model].memory_mb for j in group.jobs) < KNOWN.gpu_memory_mb
                assert sum(SIZES[j.spec.model] for j in group.jobs) <= 2
                assert group.jobs[0].spec.gpus <= KNOWN.node_gpus
        groups = list(decision.groups)  # the simulator goes on with the list itself
        self.decisions.append((view.now_s, Decision(groups, notes=decision.notes)))
        return decision


@st.composite
def traces(draw: st.DrawFn) -> list[Submission]:
    jobs = draw(
        st.lists(
            st.tuples(
                st.sampled_from(sorted(USAGES)),
                st.integers(0, 2000),
                st.sampled_from([1, 1, 2, 4, 8, 16]),
                st.integers(1, 3000),
            ),
            min_size=1,
            max_size=25,
        )
    )
    return [job(str(i), m, at=t, gpus=g, lasts_s=s) for i, (m, t, g, s) in enumerate(jobs)]


@settings(max_examples=effort.cases(40), deadline=None)
@given(traces(), st.sampled_from(Sharing), st.sampled_from([KNOWN, PROFILED]))
def test_every_job_ends_within_the_rules(
    specs: list[Submission], sharing: Sharing, options: LucidOptions
) -> None:
    policy = Watched(lucid(options, sharing=lambda now, idle: sharing))
    result = simulate(specs, CLUSTER, policy, SPEED, verify=True)
    assert len(result.jobs) == len(specs)
    for ended in result.jobs:
        assert ended.attained_s >= ended.spec.duration_s - 1e-6
        assert ended.preemptions <= options.profiler_nodes
        if options.profiler_nodes and ended.spec.gpus <= 8 and ended.spec.duration_s <= 100:
            assert ended.preemptions == 0  # it ended while it was profiled
    if sharing is Sharing.OFF:
        assert all(len(g.jobs) == 1 for _, d in policy.decisions for g in d.groups)


def test_the_profiled_begin_anew_and_the_short_are_done() -> None:
    specs = [job("short", "tiny", lasts_s=60), job("long", "tiny", lasts_s=500)]
    ends = {j.spec.name: j.finish_s for j in simulate(specs, CLUSTER, lucid(PROFILED), SPEED).jobs}
    assert ends["short"] == 60
    assert ends["long"] == pytest.approx(100 + 500)


def test_priority_is_expected_time_times_gpus() -> None:
    cluster = Cluster.uniform(1, 8)
    specs = [
        job("first", "jumbo", gpus=8, lasts_s=100),
        job("wide", "jumbo", at=1, gpus=8, lasts_s=100),
        job("narrow", "jumbo", at=2, gpus=4, lasts_s=150),
    ]
    starts = {j.spec.name: j.start_s for j in simulate(specs, cluster, lucid(), SPEED).jobs}
    assert starts == {"first": 0, "narrow": 100, "wide": 250}


def test_jobs_share_only_when_there_is_no_room() -> None:
    policy = Watched(lucid(KNOWN))
    simulate([job("a", "tiny"), job("b", "tiny", at=1)], Cluster.uniform(1, 2), policy, SPEED)
    assert max(len(g.jobs) for _, d in policy.decisions for g in d.groups) == 1


def test_a_partner_gets_its_speed_back() -> None:
    cluster = Cluster.uniform(1, 1)
    specs = [job("a", "medium"), job("b", "medium", at=100, lasts_s=85)]
    ends = {j.spec.name: j.finish_s for j in simulate(specs, cluster, lucid(), SPEED).jobs}
    # b runs at 0.85 beside a, for 100 s; a loses 15 s of work meanwhile
    assert ends["b"] == pytest.approx(200)
    assert ends["a"] == pytest.approx(1015)


def test_with_sharing_off_the_head_of_the_queue_blocks() -> None:
    cluster = Cluster.uniform(2, 1)
    specs = [
        job("a", "tiny"),
        job("b", "tiny", at=1, gpus=2, lasts_s=10),
        job("c", "tiny", at=1, lasts_s=900),
    ]
    policy = lucid(sharing=lambda now, idle: Sharing.OFF)
    starts = {j.spec.name: j.start_s for j in simulate(specs, cluster, policy, SPEED).jobs}
    assert starts["b"] == 1000
    assert starts["c"] >= 1000


def test_an_unstable_pair_is_parted_and_the_newcomer_begins_anew_alone() -> None:
    cluster = Cluster.uniform(1, 1)
    policy = lucid()
    varies: dict[str, str] = {}
    late = replace(job("b", "tiny", at=10), extra=varies)
    specs = [job("a", "tiny"), late, job("tick", "jumbo", at=50, gpus=1, lasts_s=5000)]

    def decide(view: View) -> Decision:
        if view.now_s >= 50:
            varies["gpu_util_cv"] = "0.5"
        return policy.decide(view)

    watched = Watched(Deciding(decide))
    result = simulate(specs, cluster, watched, SPEED, verify=True)
    ended = {j.spec.name: j for j in result.jobs}
    assert ended["a"].finish_s == pytest.approx(1000)
    assert ended["b"].preemptions == 1
    assert ended["b"].finish_s == pytest.approx(2000)  # from zero, when a has ended
    notes = [note for _, decision in watched.decisions for note in decision.notes]
    assert ("b", "evicted: the usage of its GPUs is unstable") in notes


def test_jobs_too_large_for_the_profiler_are_read_while_they_run() -> None:
    cluster = Cluster.uniform(2, 8)
    specs = [job("wide", "tiny", gpus=8), job("next", "tiny", at=10, gpus=8), job("x", "tiny", at=500)]
    lucids = lucid(replace(PROFILED, node_gpus=1))
    policy = Watched(lucids)
    simulate(specs, cluster, policy, SPEED)
    assert lucids._known == {}
    assert 100 in [now for now, _ in policy.decisions]  # when it is read
    shared = [d for _, d in policy.decisions if any(len(g.jobs) == 2 for g in d.groups)]
    assert not shared  # the other one was never measured before it started


def test_decisions_are_explained() -> None:
    policy = lucid()
    jobs = {n: JobState(job(n, "tiny"), i, 1.0, 0.0) for i, n in enumerate("ab")}
    decision = policy.decide(View(0, Cluster.uniform(1, 1), jobs, list(jobs.values()), [], []))
    assert decision.notes == [("b", "shares with a: Tiny beside Tiny")]
    assert policy.explain(jobs["a"]) == "Tiny; expected to run 1000 s, so its priority is 1000 GPU s"


@pytest.mark.parametrize(
    ("options", "specs", "message"),
    [
        (replace(PROFILED, profiler_nodes=4), [job("a", "tiny")], "takes 4 of 4 nodes"),
        (
            replace(PROFILED, node_gpus=9),
            [job("a", "tiny")],
            "jobs of 9 GPUs cannot be profiled on 1 nodes with 8",
        ),
        (PROFILED, [job("huge", "tiny", gpus=25)], "'huge' asks for 25 GPUs; the profiler leaves 24"),
    ],
)
def test_impossible_divisions_are_refused(
    options: LucidOptions, specs: list[Submission], message: str
) -> None:
    with pytest.raises(BadSpec, match=message):
        simulate(specs, CLUSTER, lucid(options), SPEED)


def test_the_profiler_grows_hurries_and_shrinks_with_its_queue() -> None:
    rules = LucidOptions(profiler_nodes=2, profile_s=200.0, lent_nodes=1, burst_s=80.0, busy_gpus=50.0)
    assert [rules.time_s(queue) for queue in (0, 10, 11)] == [200, 200, 80]
    assert rules.wanted_nodes(11, 2) == 3
    assert rules.wanted_nodes(11, 3) == 3
    assert rules.wanted_nodes(7, 3) == 3
    assert rules.wanted_nodes(4, 3) == 2
    assert rules.wanted_nodes(4, 3, [60, 60]) == 3  # more is to come
    assert rules.wanted_nodes(4, 2) == 2


def test_the_profiler_borrows_a_node_in_a_burst_and_gives_it_back() -> None:
    specs = [job(str(i), "tiny", gpus=4, lasts_s=300) for i in range(30)] + [job("late", "tiny", at=20_000)]
    policy = lucid(replace(PROFILED, lent_nodes=2))
    sizes: list[int] = []

    def decide(view: View) -> Decision:
        decision = policy.decide(view)
        assert policy._nodes is not None
        sizes.append(policy._nodes.profiler_nodes)
        return decision

    simulate(specs, CLUSTER, Watched(Deciding(decide)), SPEED, verify=True)
    assert max(sizes) > 1
    assert sizes[-1] == 1


def test_least_gpus_first_and_the_head_blocks() -> None:
    queue = ProfileQueue()
    for order, gpus in enumerate((4, 1, 2, 1)):
        queue.add(JobState(job(str(order), "tiny", gpus=gpus), order, 1.0, 0.0))
    assert [j.order for j in queue] == [1, 3, 2, 0]
    free = [1, 1, None, 4]
    started = queue.start(lambda gpus: None if (room := free.pop(0)) is None else tuple(range(room)))
    assert [j.order for j, _ in started] == [1, 3]
    assert [j.order for j in queue] == [2, 0]


def test_divided_nodes_consolidate_and_lend_only_what_is_idle() -> None:
    nodes = DividedNodes(Cluster.uniform(3, 4), profiler=1)
    first = nodes.allocate(3, profiler=False)
    assert first == (0, 1, 2)
    assert nodes.allocate(1, profiler=False) == (3,)  # the fullest that has room
    assert nodes.allocate(4, profiler=True) == (8, 9, 10, 11)
    assert nodes.allocate(1, profiler=True) is None
    assert nodes.idle_fraction() == 0.5
    nodes.lend(3)
    assert nodes.profiler_nodes == 2  # node 0 is in use
    assert nodes.allocate(4, profiler=True) == (4, 5, 6, 7)
    nodes.lend(1)
    assert nodes.profiler_nodes == 2  # both of its nodes are in use
    nodes.release(first)
    assert nodes.allocate(3, profiler=False) == first


def test_large_jobs_take_whole_nodes_and_the_rest_where_it_fits() -> None:
    nodes = DividedNodes(Cluster.uniform(3, 4), profiler=0)
    assert nodes.allocate(2, profiler=False) == (0, 1)
    assert nodes.allocate(6, profiler=False) == (4, 5, 6, 7, 2, 3)
    assert nodes.allocate(5, profiler=False) is None


def test_pairs_are_looked_up_both_ways() -> None:
    a, b = Config("a", "d", 0, False), Config("b", "d", 0, False)
    speed = PairSpeed([Pair(a, b, 0.5, 0.8)], lambda s: Config(s.model, "d", 0, False), unmeasured=0.9)
    jobs = [JobState(job(m, m), i, 2.0, 0.0) for i, m in enumerate("abc")]
    assert speed.iteration_s(Group((jobs[0], jobs[1]), (0,))) == [4.0, 2.5]
    assert speed.iteration_s(Group((jobs[1], jobs[0]), (0,))) == [2.5, 4.0]
    assert speed.iteration_s(Group((jobs[0], jobs[2]), (0,))) == pytest.approx([2 / 0.9, 2 / 0.9])
    assert speed.iteration_s(Group((jobs[0],), (0,))) == [2.0]
    with pytest.raises(BadSpec, match="3 jobs share GPUs"):
        speed.iteration_s(Group(tuple(jobs), (0,)))


def test_only_starting_again_costs_something() -> None:
    speed = PairSpeed([], lambda s: Config(s.model, "d", 0, False), restart_s=lambda gpus: 40.0 * gpus)
    fresh, old = (JobState(job(n, n, gpus=2), i, 1.0, 0.0) for i, n in enumerate("ab"))
    old.starts = 1
    assert speed.restart_s(Group((fresh, old), (0, 1))) == [0.0, 80.0]


def test_configurations_come_from_the_trace() -> None:
    spec = Submission("j", 0, 1, 1, model="m", batch=32, extra={"dataset": "d", "amp": "1"})
    assert config_by_columns(spec) == Config("m", "d", 32, True)
    with pytest.raises(BadSpec, match="job 'k' has no column 'dataset'"):
        config_by_columns(Submission("k", 0, 1, 1))


def test_all_of_lucid_beats_itself_without_sharing_on_a_made_up_trace() -> None:
    pytest.importorskip("sklearn")
    usages = make_usages(12, seed=4)
    pairs = make_pairs(usages, seed=4)
    sizes = sizes_from_pairs(pairs)
    tree = grow([(usages[c], sizes[c]) for c in usages])
    specs = make_jobs(400, usages, gap_s=120, seed=4)
    cluster = Cluster((Server(gpus=8), Server(gpus=8), Server(gpus=8)))
    jct = {}
    for sharing in (Sharing.OFF, Sharing.DEFAULT):
        policy = LucidPolicy(
            PROFILED,
            estimate=lambda j: j.spec.estimate_s or j.spec.duration_s,
            measure=lambda j: usages[config_by_columns(j.spec)],
            analyse=tree.predict,
            sharing=lambda now, idle, sharing=sharing: sharing,  # type: ignore[misc]
        )
        jct[sharing] = measure(simulate(specs, cluster, policy, PairSpeed(pairs), verify=True)).avg_jct_s
    assert jct[Sharing.DEFAULT] < 0.8 * jct[Sharing.OFF]
