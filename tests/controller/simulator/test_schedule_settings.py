"""Parameters of policies: `--set`, and `ina schedule tune`, which tries other settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.policies.family import SimulationConfig
from controller.policies.registry import FAMILIES, check_settings, settings_of
from controller.policies.scheduling import BadDecision, BadSpec, Policy, Submission
from controller.simulator.engine import PolicyRun
from controller.simulator.generate import generate
from controller.simulator.runs import make
from controller.vocabulary import Cluster
from tests.controller.simulator.commands import schedule

SMALL = ("--generate", 40, "--nodes", 1, "--processes", 1)


def metrics(policy: str, *settings: str, more: tuple[object, ...] = ()) -> Any:
    chosen = [word for text in settings for word in ("--set", text)]
    ran = schedule("simulate", *SMALL, "--policy", policy, *chosen, *more, "--verify", "--json")
    assert ran.code == 0, ran.complaint
    return ran.json["metrics"][policy]


def test_restarts_that_are_free_shorten_completion_times() -> None:
    free, usual, dear = (metrics("srtf", f"restart_scale={scale}")["avg_jct_s"] for scale in (0, 1, 50))
    assert free < usual < dear
    assert usual == metrics("srtf")["avg_jct_s"]


@pytest.mark.parametrize(
    ("policy", "setting"),
    [
        ("muri-s", "noise=0.5"),
        ("muri-s", "interval_s=3600"),
        ("las", "quantum_s=7200"),
        ("muri-s", "members=2"),
        ("muri-s", "worst_order=1"),
        ("muri-l", "in_order=1"),
        ("benchmarks.replicas.muri:muri-s", "unpack=0"),
        ("benchmarks.replicas.muri:muri-l", "members=2"),
        ("benchmarks.replicas.muri:muri-l", "worst_order=1"),
        ("benchmarks.replicas.muri:muri-l", "in_order=1"),
    ],
)
def test_a_setting_changes_what_comes_of_it(policy: str, setting: str) -> None:
    assert metrics(policy, setting)["avg_jct_s"] != metrics(policy)["avg_jct_s"]


def test_settings_are_part_of_the_result() -> None:
    ran = schedule("simulate", *SMALL, "--policy", "fifo", "--set", "quantum_s=60", "--json")
    assert ran.json["setup"]["settings"] == {"quantum_s": 60.0}


def test_policies_lists_what_can_be_set() -> None:
    listed = schedule("policies", "--all").out
    ran = schedule("policies", "--json")
    for kind, family in FAMILIES.items():
        assert set(ran.json["settings"][kind]) == set(family.settings)
        for name, setting in family.settings.items():
            assert f"--set {name}={setting.default:g} " in listed
            assert setting.least <= setting.default <= setting.most


class TestTune:
    def test_it_finds_what_is_best_one_setting_after_the_other(self) -> None:
        tried = ("--try", "restart_scale=2,0,1", "--try", "quantum_s=360,720")
        ran = schedule("tune", "--policy", "las", "--generate", 40, "--nodes", 1, *tried, "--json")
        assert ran.json["best"]["restart_scale"] == 0
        trials = ran.json["trials"]
        assert trials[0]["settings"] == ran.json["setup"]["start"] == {"restart_scale": 1, "quantum_s": 360}
        assert len(trials) == len({tuple(trial["settings"].items()) for trial in trials})
        assert ran.json["metrics"]["best"] == min(trial["avg_jct_s"] for trial in trials)
        by_hand = metrics("las", "restart_scale=0", more=("--load", 1.2))
        zero = next(trial for trial in trials if trial["settings"] == {"restart_scale": 0, "quantum_s": 360})
        assert zero["avg_jct_s"] == by_hand["avg_jct_s"]

    def test_the_table_says_how_to_ask_for_the_best(self) -> None:
        ran = schedule(
            "tune", "--policy", "srtf", "--generate", 30, "--nodes", 1, "--try", "restart_scale=0",
            "--metric", "makespan_s",
        )  # fmt: skip
        assert ran.code == 0
        assert "best" in ran.out
        assert "--set restart_scale=0" in ran.complaint

    def test_a_trace_is_replayed_at_the_load_that_is_asked_for(
        self, write_file: Callable[[str, str], Path]
    ) -> None:
        trace = write_file("jobs.csv", "name,arrival_s,duration_s,gpus\na,0,100,1\nb,100,100,1\n")
        costs = [
            schedule(
                "tune", "--policy", "fifo", "--trace", trace, "--nodes", 1, "--gpus", 1, *load,
                "--try", "noise=0", "--json",
            ).json["metrics"]["best"]
            for load in ((), ("--load", 2))
        ]  # fmt: skip
        assert costs == [100, 125]


class TestLucid:
    def lucid(self, *settings: str) -> Any:
        pytest.importorskip("sklearn")
        return metrics("lucid:lucid", *settings, more=("--nodes", 3))

    def test_more_nodes_profile_faster_and_leave_less(self) -> None:
        assert self.lucid("profiler_nodes=2")["avg_jct_s"] != self.lucid()["avg_jct_s"]


# ---------------------------------------------------------------------------
# Policies that are not the project's own, in every command.


CLUSTER = Cluster.uniform(1, 2)
CONFIG = SimulationConfig(CLUSTER)
EXAMPLE = Path(__file__).parents[3] / "examples/schedule/shortest.py"

SOURCE = """
from controller.policies.scheduling import Decision, Group
from controller.simulator.engine import PolicyRun
from controller.policies.scheduling.speed import ExclusiveSpeed
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
    return PolicyRun(fifo(), ExclusiveSpeed(restart_scale=factor))

def refuses():
    raise ValueError("no")

def decide(view, now_s):
    return Decision([])

NUMBER = 3
"""


@pytest.fixture
def mine(write_file: Callable[[str, str], Path]) -> str:
    path = write_file("mine.py", SOURCE)
    return str(path)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("Broken", BadDecision, r"broken fails in the decision at 0 s: ZeroDivisionError: .*mine.py:10"),
        ("Twice", BadDecision, "GPU 0 goes to"),
        ("Nothing", BadDecision, "returns NoneType; want a Decision"),
        ("Nameless", BadSpec, "want a name and a method decide"),
        ("refuses", BadSpec, r"ValueError: no \(.*mine.py:"),
        ("NUMBER", BadSpec, "is int; want a class"),
        (
            "decide",
            BadSpec,
            "needs arguments: view, now_s; want a class, or a function that makes a policy",
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
    assert ends[0] == ends[1]
    assert len(ends[0]) == 60


def test_every_command_takes_it(write_file: Callable[[str, str], Path]) -> None:
    own = f"{EXAMPLE}:Shortest"
    few = ["--generate", "20", "--nodes", "1", "--json"]
    simulated = schedule("simulate", "--policy", f"{own},sjf", *few, "--processes", "1").json
    assert list(simulated["metrics"]) == [own, "sjf"]
    swept = schedule("sweep", "--policy", own, "--seeds", "0-1", *few).json
    assert swept["points"][0]["policy"] == own
    tuned = schedule("tune", "--policy", own, "--try", "patience_s=10,100", *few).json
    assert tuned["setup"]["policy"] == own
    jobs = write_file("jobs.csv", "name,arrival_s,duration_s,gpus\na,0,30,1\nb,0,20,1\n")
    planned = schedule("plan", "--policy", own, "--jobs", jobs, "--gpus", "1", "--json").json
    assert planned["waiting"] == ["a"]
    assert planned["groups"][0]["reason"] == "20 s, the shortest that fits"
    live = write_file("live.toml", "[[job]]\nname = 'a'\nworkers = 1\nduration_s = 1\ncommand = 'true'\n")
    ended = schedule("live", "--policy", f"{own}x", "--jobs", live)
    assert (ended.code, "did you mean 'Shortest'" in ended.complaint) == (2, True)
