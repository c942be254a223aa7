"""The virtual testbed: whole jobs in virtual time. Every sum in here is compared with the exact one."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable

import pytest

from bmv2_topos.faults import ChangeRegion, Fault, LinkFault, RemoveJob, RestartFallback, RestartJob, Straggle
from bmv2_topos.testbeds.virtual import (
    Flow,
    Report,
    Stalled,
    TestbedError,
    VirtualSettings,
    VirtualTestbed,
    WrongSum,
    build,
)
from bmv2_topos.testbeds.virtual.settings import COMPILED, Cores
from bmv2_topos.testbeds.virtual.worker import Training, TrainingWorker
from controller.vocabulary import BadSpec, Link, Straggler, float32_bytes
from hostlib._native import NativeKernel
from hostlib.core.congestion import Aimd, Limits, Round
from hostlib.core.driver import Arrivals
from hostlib.core.state import NEVER
from hostlib.wire.encodings import ENCODINGS
from tests import effort
from tests.bmv2_topos.beds import SMALL, elements, job, run, sending
from tests.bmv2_topos.test_properties import random_faults


def test_sums_for_which_numbers_have_no_room_are_refused() -> None:
    with pytest.raises(
        TestbedError, match="'a': block4 has room for the sum of at most 7 ranks, and there are 8"
    ):
        run([job("a", 8, numbers="block4")])


@pytest.mark.parametrize("workers", [4, 5, 7])
def test_sums_in_four_bits_are_checked_with_all_ranks_that_there_is_room_for(workers: int) -> None:
    """From five on, not even 1 travels exactly."""
    entry = job("a", workers, numbers="block4")
    (of,) = run([entry], dataclasses.replace(SMALL, slots=4096)).jobs
    assert of.checked_elements == elements(entry)


def exclusive(settings: VirtualSettings = SMALL) -> VirtualSettings:
    return dataclasses.replace(settings, program="exclusive")


@pytest.mark.parametrize("program", ["shared", "exclusive"])
@pytest.mark.parametrize("numbers", ENCODINGS)
def test_every_sum_of_every_rank_is_checked(program: str, numbers: str) -> None:
    jobs = [job("a", numbers=numbers), job("b", 3, numbers=numbers)]
    report = run(jobs, dataclasses.replace(SMALL, program=program, slots=4096))  # type: ignore[arg-type]
    for entry, of in zip(jobs, report.jobs, strict=True):
        assert of.checked_elements == elements(entry)
        assert of.iterations == entry.iterations
        assert of.jct_s == pytest.approx(sum(of.iteration_s))
        assert of.aggregated_share > 0.9


def test_without_memory_everything_goes_through_the_fallback_servers() -> None:
    report = run([job("a"), job("b")], dataclasses.replace(SMALL, slots=0))
    for of in report.jobs:
        assert of.checked_elements == elements(job())
        assert of.aggregated_share == 0
        assert of.outcomes["bypassed"] == of.sent_packets
        assert of.fallback["results"] > 0
        assert of.fallback_bytes > 0


def test_too_little_memory_makes_collisions_and_an_array_to_take_from_makes_evictions() -> None:
    jobs = [job("low", 4, priority=1), job("high", 4, priority=200, preempt=True)]
    report = run(jobs, dataclasses.replace(SMALL, slots=8, max_age_s=0.5))
    low, high = report.jobs
    assert low.outcomes["collided"] > 0
    assert low.evictions > 0
    assert high.outcomes["preempted"] > 0
    assert high.aggregated_share > low.aggregated_share


@pytest.mark.parametrize("program", ["shared", "exclusive"])
def test_two_levels_with_loss_between_the_switches(program: str) -> None:
    settings = dataclasses.replace(SMALL, program=program)  # type: ignore[arg-type]
    trunk = Link("a", "b", loss=0.05, delay_s=3e-6)
    report = run([job("a", 8)], settings, shape=(2, 4), trunk=trunk)
    (of,) = report.jobs
    assert of.checked_elements == elements(job(workers=8))
    assert report.lost_packets > 0
    assert of.outcomes["stored"] > 0


@pytest.mark.parametrize("program", ["shared", "exclusive"])
def test_a_level_that_only_passes_packets_on(program: str) -> None:
    settings = dataclasses.replace(SMALL, program=program)  # type: ignore[arg-type]
    report = run([job("a", 4)], settings, shape=(2, 2, 1), transit=[1])
    assert report.jobs[0].checked_elements == elements(job())
    assert report.slots == SMALL.slots * 5


def test_all_that_links_can_do() -> None:
    link = Link("a", "b", loss=0.03, duplicate=0.03, reorder=0.05, queue_packets=32)
    report = run([job("a", congestion="a2tp"), job("b", 8)], link=link)
    assert [of.checked_elements for of in report.jobs] == [elements(job()), elements(job(workers=8))]
    assert all(of.resent_packets for of in report.jobs)


def test_the_same_seed_gives_the_same_report_and_another_seed_another() -> None:
    link = Link("a", "b", loss=0.02, reorder=0.02)
    jobs = [job("a"), job("b")]

    def once(seed: int) -> Report:
        return run(jobs, dataclasses.replace(SMALL, slots=32, seed=seed), link=link)

    first = once(1)
    assert once(1) == first
    assert once(2) != first


@pytest.mark.parametrize("program", ["exclusive", "shared"])
@pytest.mark.parametrize("rate_bps", [5e8, 1e8, 1e7])
def test_what_waits_on_slow_links_is_not_sent_again(program: str, rate_bps: float) -> None:
    settings = dataclasses.replace(SMALL, program=program)
    report = run([sending("a", 2, window=None)], settings, link=Link("a", "b", rate_bps=rate_bps))
    assert [of.resent_packets for of in report.jobs] == [0]


@pytest.mark.parametrize("program", ["exclusive", "shared"])
@pytest.mark.parametrize("rate_bps", [100.0, 1e4])
def test_rates_that_let_no_window_through_are_refused_before_anything_is_sent(
    program: str, rate_bps: float
) -> None:
    """They were simulated for minutes, or refused by an error about a fallback server's settings."""
    settings = dataclasses.replace(SMALL, program=program)
    with pytest.raises(BadSpec, match=rf"through a link of {rate_bps:g} b/s.*100 Gb/s is 100e9"):
        run([sending("a", 2, window=None)], settings, link=Link("a", "b", rate_bps=rate_bps))


def test_a_straggler_keeps_its_job_waiting_and_no_other() -> None:
    slow = job("slow", straggler=Straggler(2, 2e-3), jitter=0.0)
    report = run([slow, job("well", jitter=0.0)])
    assert report.jobs[0].mean_iteration_s > 2e-3
    assert report.jobs[1].mean_iteration_s < 5e-4


def test_slots_in_use_are_sampled_evenly_over_the_whole_run() -> None:
    report = run([job("a", straggler=Straggler(0, 1e-3)), job("late", arrival_s=0.02, workers=1)])
    assert 8 <= len(report.occupancy) <= 16
    times = [sample.time_s for sample in report.occupancy]
    assert times == pytest.approx([place * times[1] for place in range(len(times))])
    assert times[-1] + 2 * times[1] > report.duration_s
    held = [sample.slots["a"] for sample in report.occupancy]
    assert max(held) > 10  # three ranks wait for the fourth most of the time
    assert held[-1] == 0
    a, late = report.jobs
    assert report.mean_occupancy(a) > 0.4 * max(held)
    assert report.mean_occupancy(late) == 0  # a single worker's packets are sums at once


def test_a_packet_takes_as_long_as_its_way() -> None:
    settings = dataclasses.replace(SMALL, coalesce_us=1)
    host, trunk = Link("a", "b", rate_bps=0, delay_s=2e-6), Link("a", "b", rate_bps=0, delay_s=7e-6)
    of = job("a", 2, layers_bytes=float32_bytes((1,)), iterations=1, compute_s=0.0, numbers="fixed")
    report = run([of], settings, shape=(2, 1), link=host, trunk=trunk)
    (took_s,) = report.jobs[0].iteration_s
    assert took_s == pytest.approx(2 * (2e-6 + 7e-6) + 1e-6)  # the first tick is after a microsecond


@pytest.mark.parametrize(("depth", "marks"), [(8, True), (2000, False)])
def test_queues_mark_packets_and_workers_are_told(
    depth: int, marks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[Round] = []

    def on_round(aimd: Aimd, outcome: Round) -> Limits:
        rounds.append(outcome)
        return aimd._limits()

    monkeypatch.setattr(Aimd, "on_round", on_round)
    run([job("a", 8, congestion="aimd")], dataclasses.replace(SMALL, slots=0, ecn_depth=depth))
    assert sum(outcome.results for outcome in rounds) > 0
    assert (sum(outcome.marked for outcome in rounds) > 0) == marks


def test_a_rate_limits_and_a_full_queue_drops() -> None:
    fast, slow = (run([job("a")], link=Link("a", "b", rate_bps=rate)) for rate in (10e9, 1e9))
    assert slow.jobs[0].mean_iteration_s > 1.5 * fast.jobs[0].mean_iteration_s
    incast = dataclasses.replace(SMALL, slots=0)
    assert run([job("a", 8)], incast, link=Link("a", "b", queue_packets=16)).dropped_packets > 0


FAULTS: list[Fault] = [
    RestartJob(0.0002, "a", 0.0001),
    RestartFallback(0.0003, "b", 0.0002),
    ChangeRegion(0.0004, "a", 5, 11),
    ChangeRegion(0.0004, "b", 0, 0),
    LinkFault(0.0005, ("h1", "s1"), "loss", 0.2),
    Straggle(0.0005, "b", 1, 5e-4),
    LinkFault(0.0008, ("h1", "s1"), "loss", 0.0),
    RestartJob(0.0009, "b"),
    RemoveJob(0.001, "c"),
]


def test_faults_of_every_kind_at_once_leave_every_sum_exact() -> None:
    jobs = [job(name, iterations=8) for name in "abc"]
    report = run(jobs, dataclasses.replace(SMALL, slots=64), faults=FAULTS)
    a, b, c = report.jobs
    assert (a.restarts, b.restarts) == (1, 1)
    assert a.iterations == b.iterations == 8
    assert a.checked_elements >= elements(jobs[0])
    assert c.jct_s is None
    assert c.iterations < 8


@pytest.mark.parametrize("seed", range(effort.cases(8)))
def test_schedules_of_faults_drawn_from_a_seed(seed: int) -> None:
    jobs = [job("a", 3, iterations=6), job("b", 5, iterations=6, preempt=True)]
    link = Link("a", "b", loss=0.01, duplicate=0.01, reorder=0.02)
    shape = (None, (2, 4))[seed % 2]
    topology, placements = build(jobs, shape, servers=True, link=link)
    faults = random_faults(seed, jobs, topology, count=6, until_s=0.002, slots=32)
    assert faults == random_faults(seed, jobs, topology, count=6, until_s=0.002, slots=32)
    settings = dataclasses.replace(SMALL, slots=32, seed=seed, samples=0)
    report = VirtualTestbed(topology, jobs, placements, settings, faults).run()
    assert any(of.iterations == 6 for of in report.jobs)


def test_a_wrong_sum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    topology, placements = build([job()], servers=True)
    testbed = VirtualTestbed(topology, [job()], placements, SMALL)
    gradients = testbed.jobs["a"].gradients
    gradients._sum[150] += 1
    with pytest.raises(WrongSum, match=r"rank \d on h\d, iteration \d, tensor \d: 1 of \d+ elements"):
        testbed.run()


def test_a_job_that_cannot_go_on_is_not_waited_for() -> None:
    settings = dataclasses.replace(exclusive(), patience_s=0.5)
    faults = [LinkFault(0.0002, ("h2", "s1"), "loss", 1.0)]
    with pytest.raises(Stalled, match=r"job 'a' rank 0 waits for PSN .* without rank 1"):
        run([job("a")], settings, faults=faults)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: run([job("a", 9)], shape=(2, 4)), "job 'a' has 9 workers; a tree of 2x4 has 8 hosts"),
        (
            lambda: run([job("a"), job("b")], exclusive(dataclasses.replace(SMALL, slots=3))),
            "job 'a': 1 private slots; a job of the program exclusive needs 2",
        ),
        (lambda: run([job("a"), job("b"), job("a")]), "two jobs are called 'a'"),
        (lambda: run([job("a")], faults=[RemoveJob(0.0, "x")]), "unknown job 'x'"),
    ],
)
def test_what_cannot_run_is_refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises((BadSpec, TestbedError), match=why):
        call()


@pytest.mark.parametrize("congestion", ["fixed", "aimd", "a2tp"])
def test_turns_in_c_are_those_in_python(congestion: str, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: Counter[bool] = Counter()
    decide = TrainingWorker.decide

    def counted(worker: TrainingWorker, now: int, arrivals: Arrivals = ()) -> None:
        turns[quick] += 1
        decide(worker, now, arrivals)

    monkeypatch.setattr(TrainingWorker, "decide", counted)
    jobs = [sending("a", 4, congestion=congestion), job("b", 3, congestion=congestion)]
    link, trunk = Link("a", "b", loss=0.002, rate_bps=5e9), Link("a", "b", loss=0.01, duplicate=0.01)
    faults = [LinkFault(2e-4, ("h1", "s2"), "loss", 0.05), RestartJob(at_s=3e-4, job="b", down_s=1e-4)]
    flows = [Flow(source="h3", target="h1", rate_bps=1e9, arrivals="poisson", packet_bytes=200)]
    reports = []
    for quick in (True, False):
        kernel = COMPILED.kernel if quick else lambda: NativeKernel()
        settings = dataclasses.replace(SMALL, cores=Cores(kernel=kernel))
        reports.append(run(jobs, settings, shape=(4, 3), link=link, trunk=trunk, faults=faults, flows=flows))
    assert dataclasses.replace(reports[0], wall_s=0) == dataclasses.replace(reports[1], wall_s=0)
    assert 3 * turns[True] < 2 * turns[False]


# ---------------------------------------------------------------------------
# The model of what a rank computes when, by hand-made timelines.


def training(layers: int, iterations: int, compute_ns: int) -> Training:
    return Training(
        layers=layers,
        iterations=iterations,
        compute_ns=compute_ns,
        jitter=0.0,
        random=random.Random(0),
    )


def test_tensors_become_ready_back_to_front_during_the_backward_pass() -> None:
    model = training(layers=2, iterations=1, compute_ns=600)
    model.start(1000)
    ready = []
    for now in range(1000, 1700, 50):
        model.advance(now)
        ready += [(now, model.ready.popleft()) for _ in range(len(model.ready))]
    assert ready == [(1400, 1), (1600, 0)]  # forward 100 each, backward 200 each


def test_the_next_forward_pass_waits_for_each_layer_it_enters() -> None:
    model = training(layers=2, iterations=2, compute_ns=600)
    model.start(0)
    model.advance(600)
    assert list(model.ready) == [1, 0]
    assert model.due == NEVER
    model.summed(1, 700)
    assert model.due == NEVER  # the front layer is still missing
    model.summed(0, 800)
    assert model.done == 1
    assert model.due == 900
    model.advance(900)
    assert model.due == 1000  # layer 1 was summed long ago
    model.advance(10_000)
    assert list(model.ready) == [1, 0, 1, 0]


def test_the_last_iteration_ends_with_its_last_sum() -> None:
    model = training(layers=1, iterations=1, compute_ns=0)
    model.start(5)
    model.advance(5)
    assert list(model.ready) == [0]
    assert not model.finished
    model.summed(0, 9)
    assert model.finished
    assert model.due == NEVER


def test_a_restart_begins_with_the_first_iteration_that_is_not_done() -> None:
    model = training(layers=1, iterations=3, compute_ns=300)
    model.done = 2
    model.start(0)
    model.advance(300)
    model.summed(0, 400)
    assert model.finished
