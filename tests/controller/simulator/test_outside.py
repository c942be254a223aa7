"""Policies that are not the project's own, in every command."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.policies.family import SimulationConfig
from controller.policies.registry import check_settings, settings_of
from controller.policies.scheduling import BadDecision, BadSpec, Policy, Submission
from controller.simulator.generate import generate
from controller.simulator.policy_run import PolicyRun, make
from controller.vocabulary import Cluster
from tests.controller.simulator.commands import schedule

CLUSTER = Cluster.uniform(1, 2)
CONFIG = SimulationConfig(CLUSTER)
EXAMPLE = Path(__file__).parents[3] / "examples/schedule/shortest.py"

SOURCE = """
from controller.policies.scheduling import Decision, Group
from controller.simulator.policy_run import PolicyRun
from controller.policies.scheduling.speed import Exclusive
from controller.policies.scheduling.baselines import fifo

class Broken:
    name = "broken"
    def decide(self, view):
        return 1 / 0

class Twice:
    name = "twice"
    def decide(self, view):
        return Decision([Group((job,), (0,)) for job in view.jobs.values()])

class Nothing(Broken):
    def decide(self, view):
        return None

class Nameless:
    def decide(self, view):
        return Decision([])

def slow(factor=2.0, fair=True, steps=3):
    return PolicyRun(fifo(), Exclusive(restart_scale=factor))

def refuses():
    raise ValueError("no")

def decide(view, now_s):
    return Decision([])

NUMBER = 3
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("Broken", BadDecision, r"broken, asked at 0 s: ZeroDivisionError: .*mine.py:10"),
        ("Twice", BadDecision, "GPU 0 goes to"),
        ("Nothing", BadDecision, "returns NoneType; want a Decision"),
        ("Nameless", BadSpec, "want a name and a method decide"),
        ("refuses", BadSpec, r"ValueError: no \(.*mine.py:"),
        ("NUMBER", BadSpec, "is int; want a class"),
        (
            "decide",
            BadSpec,
            "is not made without view, now_s; want a class, or a function that makes a policy",
        ),
        ("Brocken", BadSpec, "did you mean 'Broken'"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said(mine: str, name: str, kind: type[Exception], said: str) -> None:
    jobs = [Submission("a", 0, 1, 10), Submission("b", 0, 1, 10)]
    with pytest.raises(kind, match=said):
        make(f"{mine}:{name}", CONFIG).run(jobs, CLUSTER)


def test_numbers_for_defaults_are_settings_and_a_speed_model_comes_along(mine: str) -> None:
    name = f"{mine}:slow"
    assert settings_of(name, CONFIG) == {"factor": 2.0, "fair": 1.0, "steps": 3.0}
    check_settings([("factor", 0.5)], [name])
    with pytest.raises(BadSpec, match="want a whole number"):
        check_settings([("steps", 0.5)], [name])
    chosen: PolicyRun = make(name, SimulationConfig(CLUSTER, settings=(("factor", 3.0),)))
    result = chosen.run([Submission("a", 0, 1, 10, restart_s=5)], CLUSTER)
    assert result.end_s == 10 + 3 * 5


def test_the_example_is_sjf_where_nobody_waits_long() -> None:
    jobs = generate(60, CLUSTER, load=2, seed=1, longest_s=3600)
    policy: Policy = make(f"{EXAMPLE}:Shortest", CONFIG).policy
    assert policy.name == "shortest"
    patient = SimulationConfig(CLUSTER, settings=(("patience_s", 1e9),))
    ends = [
        [(job.spec.name, job.finish_s) for job in make(name, config).run(jobs, CLUSTER, verify=True).jobs]
        for name, config in ((f"{EXAMPLE}:Shortest", patient), ("sjf", CONFIG))
    ]
    assert len(ends[0]) == len(ends[1]) == 60


def test_every_command_takes_it(tmp_path: Path) -> None:
    own = f"{EXAMPLE}:Shortest"
    few = ["--generate", "20", "--nodes", "1", "--json"]
    simulated = schedule("simulate", "--policy", f"{own},sjf", *few, "--processes", "1").json
    assert list(simulated["metrics"]) == [own, "sjf"]
    swept = schedule("sweep", "--policy", own, "--seeds", "0-1", *few).json
    assert swept["points"][0]["policy"] == own
    tuned = schedule("tune", "--policy", own, "--try", "patience_s=10,100", *few).json
    assert tuned["setup"]["policy"] == own
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("name,arrival_s,duration_s,gpus\na,0,30,1\nb,0,20,1\n")
    planned = schedule("plan", "--policy", own, "--jobs", jobs, "--gpus", "1", "--json").json
    assert planned["waiting"] == ["a"]
    assert planned["groups"][0]["reason"] == "20 s, the shortest that fits"
    live = tmp_path / "live.toml"
    live.write_text("[[job]]\nname = 'a'\nworkers = 1\nduration_s = 1\ncommand = 'true'\n")
    ended = schedule("live", "--policy", f"{own}x", "--jobs", live)
    assert (ended.code, "did you mean 'Shortest'" in ended.complaint) == (2, True)
