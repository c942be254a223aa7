"""GPU types, failures, cancellations and deadlines, on the one engine."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.policies.family import SimulationConfig
from controller.policies.registry import dress
from controller.policies.scheduling import BadSpec, BadTrace, Submission
from controller.policies.scheduling.deadlines import Slack, edf
from controller.policies.scheduling.faults import Evacuate, FaultOptions, Faulty, Outages
from controller.policies.scheduling.kinds import ByKind, KindSpeed, speeds_by_kind
from controller.policies.scheduling.speed import Exclusive
from controller.simulator import simulate
from controller.simulator.generate import generate
from controller.simulator.policy_run import make
from controller.simulator.traces import read
from controller.simulator.traces.neutral import write
from controller.vocabulary import Cluster, Server
from tests import effort

ONE = Cluster.uniform(1, 1)
TWO = Cluster.uniform(2, 1)


def ends(result) -> dict[str, float]:  # type: ignore[no-untyped-def]
    return {job.spec.name: job.finish_s for job in result.jobs}


class Planned:
    """Outages that are given: one server's, from and until."""

    def __init__(self, node: int, *spans: tuple[float, float]) -> None:
        self._node, self._spans = node, spans

    def down(self, now_s: float) -> dict[int, float]:
        begun = [begin for begin, end in self._spans if begin <= now_s < end]
        return dict.fromkeys([self._node] * len(begun), max(begun, default=0.0))

    def next_s(self, now_s: float) -> float:
        times = [at_s for span in self._spans for at_s in span if at_s > now_s]
        return min(times, default=float("inf"))


def test_a_job_goes_on_from_its_checkpoint_when_its_server_is_back() -> None:
    outages = Planned(0, (250, 400))
    speed = Faulty(Exclusive(), ONE, FaultOptions(checkpoint_s=100.0, cancelled=0.0), outages)
    job = Submission("a", 0, 1, 1000, 1.0, restart_s=10)
    (done,) = simulate([job], ONE, edf(), speed).jobs
    # starts in 10 s and has worked 240 s when the server goes: 40 s are lost, and starting takes 10 s again
    assert done.finish_s == pytest.approx(400 + 10 + 40 + 1000 - 240)


def test_a_job_leaves_a_server_that_is_down() -> None:
    outages = Planned(0, (250, 5000))
    speed = Faulty(Exclusive(), TWO, FaultOptions(checkpoint_s=100.0, cancelled=0.0), outages)
    job = Submission("a", 0, 1, 1000, 1.0, restart_s=10)
    (done,) = simulate([job], TWO, Evacuate(outages), speed, verify=True).jobs
    assert done.finish_s == pytest.approx(250 + 10 + 40 + 1000 - 240)
    (waits,) = simulate(
        [job], TWO, edf(), Faulty(Exclusive(), TWO, FaultOptions(cancelled=0.0), outages)
    ).jobs
    assert waits.finish_s > 5000


def test_users_cancel_their_jobs_as_they_run() -> None:
    faults = FaultOptions(mtbf_h=0.0, cancelled=1.0, seed=3)
    specs = [Submission(str(n), 0, 1, 100) for n in range(20)]
    result = simulate(specs, ONE, edf(), Faulty(Exclusive(), ONE, faults, Outages(faults, 1)))
    assert len(result.jobs) == 20
    assert not any(job.completed for job in result.jobs)
    assert all(0 < job.attained_s < 100 for job in result.jobs)


@settings(max_examples=effort.cases(15), deadline=None)
@given(st.integers(0, 10_000))
def test_outages_are_as_they_say(seed: int) -> None:
    faults = FaultOptions(mtbf_h=5000 / 3600, repair_s=700.0, seed=seed)
    outages, again = Outages(faults, 8), Outages(faults, 8)
    now_s, changes = 0.0, 0
    while now_s < 30_000:
        later_s = outages.next_s(now_s)
        assert later_s > now_s
        assert set(outages.down(now_s)) == set(outages.down((now_s + later_s) / 2))
        assert outages.down(later_s) == again.down(later_s)
        assert set(outages.down(later_s)) != set(outages.down(now_s))
        now_s, changes = later_s, changes + 1
    assert changes > 5


SPEEDS = {"deep": {"fast": 1.0, "slow": 0.1}, "wide": {"fast": 1.0, "slow": 0.8}}


def test_the_next_in_the_queue_takes_the_fastest_gpu_that_is_free() -> None:
    def speed_on(spec: Submission, kind: str) -> float:
        return SPEEDS[spec.model][kind]

    kinds = ("slow", "fast")
    speed = KindSpeed(kinds, TWO, speed_on, Exclusive())
    specs = [Submission(name, 0, 1, 100, 1.0, model=name, restart_s=1e3) for name in ("wide", "deep")]
    for fast, expected in ((True, {"wide": 1100, "deep": 2000}), (False, {"wide": 1125, "deep": 1100})):
        policy = ByKind(kinds, speed_on, fast=fast)
        assert ends(simulate(specs, TWO, policy, speed, verify=True)) == pytest.approx(expected)


def test_a_job_within_no_kind_is_refused() -> None:
    cluster = Cluster((Server(gpus=2, kind="v100"), Server(gpus=2, kind="k80")))
    run = make("types:fast-first", SimulationConfig(cluster))
    with pytest.raises(BadSpec, match="'j' asks for 3 GPUs of one kind; there are 2"):
        run.run([Submission("j", 0, 3, 10, model="net1")], cluster)


def test_measured_speeds_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    table = {
        "v100": {"('A', 1)": {"null": 4.0}, "('B', 1)": {"null": 2.0}},
        "k80": {"('A', 1)": {"null": 1.0}},
    }
    path.write_text(json.dumps(table))
    text = path.read_text()
    assert speeds_by_kind(text, ["k80", "v100"], source="t.json") == {"A": {"k80": 0.25, "v100": 1.0}}
    with pytest.raises(BadTrace, match="no such GPU; there are k80, v100"):
        speeds_by_kind(text, ["p100"], source="t.json")
    cluster = Cluster((Server(gpus=2, kind="v100"), Server(gpus=2, kind="k80")))
    config = SimulationConfig(cluster, pairs=path)
    specs = dress(generate(5, cluster), "types", config)
    assert {spec.model for spec in specs} == {"A"}
    assert len(make("types:fast-first", config).run(specs, cluster, verify=True).jobs) == 5


def test_a_deadline_that_would_be_missed_comes_first() -> None:
    late = Submission("late", 0, 1, 1000, deadline_s=1300)
    short = [Submission(f"s{n}", 0, 1, 100) for n in range(5)]
    found = ends(simulate([late, *short], ONE, Slack(margin=0.0), Exclusive()))
    assert found["late"] == pytest.approx(1300)  # three short ones were before it
    hopeless = Submission("late", 0, 1, 1000, deadline_s=900)
    found = ends(simulate([hopeless, *short], ONE, Slack(margin=0.0), Exclusive()))
    assert max(found, key=lambda name: found[name]) == "late"


def test_earliest_deadline_first() -> None:
    specs = [
        Submission("a", 0, 1, 100, deadline_s=900),
        Submission("b", 0, 1, 300, deadline_s=500),
        Submission("c", 0, 1, 1),
    ]
    found = ends(simulate(specs, ONE, edf(), Exclusive()))
    assert found == {"b": 300, "a": 400, "c": 401}


def test_deadlines_are_kept_in_traces_and_counted(tmp_path: Path) -> None:
    specs = [Submission("a", 0, 1, 100, deadline_s=150.5), Submission("b", 0, 1, 100, deadline_s=150.0)]
    write(tmp_path / "t.csv", specs)
    assert read(tmp_path / "t.csv") == specs
    result = simulate(specs, ONE, edf(), Exclusive())
    assert sorted(job.in_time for job in result.jobs) == [False, True]
    with pytest.raises(BadSpec, match="deadline_s is 0; it must be positive"):
        Submission("a", 0, 1, 1, deadline_s=0)
