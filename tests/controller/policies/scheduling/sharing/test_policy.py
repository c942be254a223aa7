"""The policy in the simulator: what must hold whatever the jobs, and the patent's loop step by step."""

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.policies.scheduling import BadSpec, Decision, Group, JobState, Submission, View
from controller.policies.scheduling.sharing.forests import CoRunProfiler, choose, train
from controller.policies.scheduling.sharing.packing import Choose, Packer, best
from controller.policies.scheduling.sharing.pairs import (
    InterferenceSpeed,
    KindDemand,
    Load,
    MadeUpPairs,
    Scaling,
)
from controller.policies.scheduling.sharing.policy import Charges, SharingOptions, SharingPolicy
from controller.policies.scheduling.speed import PreemptionCost
from controller.simulator import measure, simulate
from controller.simulator.generate import generate
from controller.vocabulary import Cluster
from tests import effort
from tests.controller.policies.scheduling.sharing.cases import KINDS, LAW, PAIRS, spec, traces

CLUSTER = Cluster.uniform(2, 4)
FREE = PreemptionCost(0, 0, node_gpus=4)
ONE = Cluster.uniform(1, 1)


class Watched:
    """Passes on decisions, and works out from them alone how far each job has got."""

    def __init__(self, policy: SharingPolicy, speed: InterferenceSpeed) -> None:
        self.name, self._policy, self._speed = policy.name, policy, speed
        self._groups: list[Group] = []
        self._last_s = 0.0
        self.done: dict[str, float] = {}
        self.notes: list[tuple[float, str, str]] = []
        self.most = 0

    def decide(self, view: View) -> Decision:
        self.work(view.now_s)
        decision = self._policy.decide(view)
        self._groups = list(decision.groups)
        self.notes += [(view.now_s, *note) for note in decision.notes]
        jobs_on: dict[int, int] = {}
        for group in decision.groups:
            for gpu in group.gpus:
                jobs_on[gpu] = jobs_on.get(gpu, 0) + len(group.jobs)
        self.most = max([self.most, *jobs_on.values()])
        return decision

    def work(self, now_s: float) -> None:
        for group in self._groups:
            for job, iteration_s in zip(group.jobs, self._speed.iteration_s(group), strict=True):
                name = job.spec.name
                self.done[name] = self.done.get(name, 0.0) + (now_s - self._last_s) / iteration_s
        self._last_s = now_s


def run(
    specs: list[Submission], cluster: Cluster = CLUSTER, cost: PreemptionCost = FREE, **options: Any
) -> tuple[dict[str, tuple[float, float]], Watched]:
    speed = InterferenceSpeed(LAW, cost=cost)
    packer, ledger = options.pop("packer", Packer(LAW)), options.pop("ledger", None)
    chosen = SharingOptions(**{"cost": cost, "profile_s": 0.0, **options})
    watched = Watched(SharingPolicy(packer, chosen, ledger), speed)
    result = simulate(specs, cluster, watched, speed, verify=True)
    watched.work(result.end_s)
    return {j.spec.name: (j.start_s, j.finish_s) for j in result.jobs}, watched


@settings(max_examples=effort.cases(60), deadline=None)
@given(
    traces(),
    st.sampled_from([best, random.Random(0).choice]),
    st.booleans(),
    st.sampled_from([100.0, 1000.0]),
)
def test_work_is_conserved_and_no_gpu_has_three_jobs(
    specs: list[Submission], choose: Choose, shares: bool, interval_s: float
) -> None:
    packer = Packer(LAW, choose=choose) if shares else None
    ends, watched = run(specs, packer=packer, interval_s=interval_s)
    assert ends.keys() == {s.name for s in specs}
    for s in specs:
        assert watched.done[s.name] == pytest.approx(s.iterations, rel=1e-6)
    assert watched.most <= (2 if shares else 1)


def test_jobs_share_only_when_there_is_no_room() -> None:
    _, watched = run([spec("a"), spec("b", at=1)], Cluster.uniform(1, 2))
    assert watched.most == 1
    ends, watched = run([spec("a", "compute"), spec("b", "host", at=0)], ONE)
    assert watched.most == 2
    assert ends["b"][0] == 0
    assert watched.notes[0][:2] == (0, "b")
    assert watched.notes[0][2].startswith("beside a: ")


def test_speeds_beside_a_partner_and_after_it_are_as_measured() -> None:
    ends, _ = run([spec("a", "compute", lasts_s=1000), spec("b", "host", lasts_s=100)], ONE)
    b_s = 100 / PAIRS.beside("host", "compute")
    assert ends["b"] == (0, pytest.approx(b_s))
    assert ends["a"][1] == pytest.approx(b_s + 1000 - b_s * PAIRS.beside("compute", "host"))


def test_small_jobs_share_part_of_a_large_one_and_across_nodes() -> None:
    specs = [spec("wide", "memory", gpus=8), spec("s", "host", at=1), spec("t", "host", at=1, gpus=4)]
    ends, watched = run(specs)
    assert ends["s"][0] == ends["t"][0] == 1
    assert watched.most == 2


def test_bad_partners_wait() -> None:
    ends, watched = run([spec("a", "rude"), spec("b", "frail", at=1)], ONE, interval_s=1e6)
    assert PAIRS.beside("frail", "rude") < 0.5
    assert ends["b"][0] == pytest.approx(1000)
    assert watched.most == 1


def test_preemption_waits_for_the_boundary_and_takes_the_one_served_most() -> None:
    cluster = Cluster.uniform(1, 2)
    specs = [
        spec("first", lasts_s=5000),
        spec("second", at=400, lasts_s=5000),
        spec("new", at=500, lasts_s=200),
    ]
    levels = Charges(first=500)
    ends, watched = run(specs, cluster, packer=None, interval_s=700, ledger=levels)
    assert ends["new"] == (700, 900)
    assert (700, "first", "preempted: others come first") in watched.notes
    assert ends["second"] == (400, 5400)


@pytest.mark.parametrize("packer", [None, Packer(LAW, least_gain=9.0)], ids=["alone", "no partner gains"])
def test_jobs_of_one_level_do_not_preempt_each_other(packer: Packer | None) -> None:
    specs = [spec("old", lasts_s=3000), spec("new", at=100, lasts_s=200)]
    starts = {}
    for first in (1000, 5000):
        ends, _ = run(specs, ONE, packer=packer, interval_s=700, ledger=Charges(first=first))
        starts[first] = ends["new"][0]
    assert starts == {1000: 1400, 5000: 3000}


def test_jobs_move_apart_when_it_is_worth_it() -> None:
    specs = [
        spec("a", "compute", lasts_s=5000),
        spec("b", "memory", lasts_s=5000),
        spec("long", "host", lasts_s=100),
        spec("c", "light", lasts_s=9000),
    ]
    cluster = Cluster.uniform(1, 2)
    for cost, moved in ((FREE, True), (PreemptionCost(4000, 4000, 8), False)):
        _, watched = run(specs, cluster, cost)
        assert any(note.startswith("alone: GPUs") for _, _, note in watched.notes) is moved


def test_a_new_kind_is_profiled_once_before_it_starts() -> None:
    ends, _ = run([spec("a"), spec("b", at=50), spec("c", "host", at=60)], profile_s=100)
    assert (ends["a"][0], ends["b"][0], ends["c"][0]) == (100, 100, 160)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: run([spec("a", gpus=9)]), "job 'a' asks for 9 GPUs; the cluster has 8"),
        (lambda: SharingOptions(profile_s=-1.0), r"setting profile_s=-1: want 0 to 1e\+06"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises(BadSpec, match=why):
        call()


def test_without_jobs_nothing_ends() -> None:
    assert run([])[0] == {}


def test_the_policy_itself_refuses_jobs_larger_than_the_cluster() -> None:
    large = JobState(spec("a", gpus=9), 0, 1.0, 0.0)
    with pytest.raises(BadSpec, match="job 'a' asks for 9 GPUs; the cluster has 8"):
        SharingPolicy(None).decide(View(0, CLUSTER, {"a": large}, [large], [], []))


def test_sharing_beats_itself_without_sharing_and_equal_sizes_only() -> None:
    cluster = Cluster.uniform(3, 4)
    jct: dict[str, list[float]] = {}
    for seed in range(4):
        drawn = generate(100, cluster, load=2.0, seed=seed, longest_s=20_000)
        specs = [dataclasses.replace(s, model=KINDS[n % len(KINDS)]) for n, s in enumerate(drawn)]
        for name, packer in (
            ("ours", Packer(LAW)),
            ("equal", Packer(LAW, mixed=False)),
            ("none", None),
        ):
            result = simulate(specs, cluster, SharingPolicy(packer), InterferenceSpeed(LAW), verify=True)
            jct.setdefault(name, []).append(measure(result).avg_jct_s)
    assert sum(jct["ours"]) < sum(jct["equal"])
    assert sum(jct["ours"]) < 0.85 * sum(jct["none"])


HOLDS = Scaling(
    MadeUpPairs({"big": KindDemand(0.1, 0.1, 0.1, held=0.7), "small": KindDemand(0.1, 0.1, 0.1, held=0.2)})
)


def test_jobs_that_do_not_fit_into_memory_do_not_share() -> None:
    assert HOLDS.speed(Load("big", 1), [Load("big", 1)]) == 0
    assert HOLDS.speed(Load("big", 4), [Load("small", 1), Load("big", 1)]) == 0
    speed = InterferenceSpeed(HOLDS)
    specs = [spec("a", "big"), spec("b", "big"), spec("c", "small")]
    jobs = simulate(specs, Cluster.uniform(1, 1), SharingPolicy(Packer(HOLDS)), speed, verify=True).jobs
    began = {job.spec.name: job.start_s for job in jobs}
    assert began["c"] == 0 < 1000 <= began["b"]  # a and c share, b waits for a GPU


def test_speeds_that_were_seen_are_believed() -> None:
    pytest.importorskip("sklearn")
    forests = train(CoRunProfiler(LAW, choose(LAW, 2)), sizes=(), samples=40, trees=5)
    rude = [Load("rude", 1)]
    forests.learn(Load("frail", 1), rude, 0.125)
    assert forests.speed(Load("frail", 1), rude) == 0.125
    assert forests.fresh().speed(Load("frail", 1), rude) != 0.125


def test_a_running_pair_is_noted() -> None:
    pytest.importorskip("sklearn")
    forests = train(CoRunProfiler(LAW, choose(LAW, 2)), sizes=(), samples=40, trees=5)
    truth = LAW.speed(Load("light", 1), [Load("host", 1)])
    believed = forests.fresh()
    specs = [spec("a", "light"), spec("b", "host"), spec("c", "host", at=10)]
    simulate(specs, Cluster.uniform(1, 1), SharingPolicy(Packer(believed)), InterferenceSpeed(LAW))
    assert forests.speed(Load("light", 1), [Load("host", 1)]) != pytest.approx(truth, rel=1e-9)
    assert believed.speed(Load("light", 1), [Load("host", 1)]) == pytest.approx(truth, rel=1e-9)
