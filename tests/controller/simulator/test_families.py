"""Policies by family: that each can be made and run, and that the replicas are the public simulators'."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from controller.policies.family import SimulationConfig
from controller.policies.registry import FAMILIES, complete_jobs, family, find_family, full_name, known
from controller.policies.scheduling import BadSpec, BadTrace, ExtraMissing, Submission
from controller.simulator.engine import measure
from controller.simulator.runs import (
    SimulationFailed,
    SimulationTask,
    Source,
    expect,
    kind_for,
    make,
    read_estimates,
    run,
)
from controller.vocabulary import Cluster
from tests.controller.simulator.commands import schedule

SMALL = Cluster.uniform(4, 8, cpus=24, memory_gb=500)
NEW = ("benchmarks.replicas.synergy", "benchmarks.replicas.lucid", "sharing")
KNOWN = (("speeds_known", 1.0), ("profile_s", 0.0))
UNCHECKED = ("benchmarks.replicas.synergy:fifo+opt", "benchmarks.replicas.synergy:srtf+opt")
"""They grant what no server has, as they do there."""


def average_s(policy: str, config: SimulationConfig, *, jobs: int = 60, load: float = 3.0) -> float:
    source = Source(count=jobs, load=load, seed=config.seed, kind=kind_for([policy]))
    return run(SimulationTask(policy, source, config, verify=policy not in UNCHECKED)).metrics.avg_jct_s


def test_names_are_unique_and_lead_to_their_families() -> None:
    names = known()
    assert len(set(names)) == len(names)
    for kind, each in FAMILIES.items():
        assert each.about
        for policy in each.policies:
            assert family(full_name(kind, policy)) == kind


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("best", "is unknown; 'ina schedule policies --all' lists the known ones"),
        (":fifo", "is unknown; 'ina schedule policies --all' lists the known ones"),
        ("nobody:fifo", "module nobody: ModuleNotFoundError"),
        ("sharing:best", "family 'sharing' has no policy 'best'; it has .*fifo"),
        ("synergy:best", "family 'synergy' has no policy 'best'; it has .*fifo"),
        (
            "benchmarks.replicas.lucid:best",
            "family 'benchmarks.replicas.lucid' has no policy 'best'; it has .*fifo",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(BadSpec, match=reason):
        make(name, SimulationConfig(SMALL))


@pytest.mark.parametrize("kind", NEW)
def test_every_policy_ends_all_jobs_and_passes_the_check(kind: str) -> None:
    for package in ("sklearn", "scipy"):
        pytest.importorskip(package)
    for policy in find_family(kind).policies:
        assert average_s(full_name(kind, policy), SimulationConfig(SMALL, seed=1), jobs=40) > 0


def test_a_setup_is_fresh() -> None:
    one, other = (make("benchmarks.replicas.lucid:fifo", SimulationConfig(SMALL)) for _ in range(2))
    assert one.policy is not other.policy


@pytest.mark.parametrize(
    "policy", ["sharing:sharing", "benchmarks.replicas.lucid:lucid", "benchmarks.replicas.synergy:srtf+tune"]
)
def test_figures_depend_on_the_seed_only(policy: str) -> None:
    pytest.importorskip("sklearn")
    one, again, other = (average_s(policy, SimulationConfig(SMALL, seed=seed)) for seed in (1, 1, 2))
    assert one == again != other


def test_families_that_dress_jobs_alike_run_on_the_same() -> None:
    assert kind_for(["fifo", "lucid:fifo", "benchmarks.replicas.lucid:fifo"]) == "benchmarks.replicas.lucid"
    assert (
        kind_for(["synergy:fifo+tune", "benchmarks.replicas.synergy:fifo+tune"])
        == "benchmarks.replicas.synergy"
    )
    with pytest.raises(BadSpec, match="policies of lucid and of sharing need different generated jobs"):
        kind_for(["lucid:fifo", "sharing:fifo"])
    config = SimulationConfig(SMALL, seed=3)
    jobs = Source(count=20).jobs(config)
    assert (
        complete_jobs(jobs, "lucid", config)
        == complete_jobs(jobs, "benchmarks.replicas.lucid", config)
        != jobs
    )


# Time in steps.


def test_a_job_of_synergys_has_ended_when_its_round_is_over() -> None:
    setup = make("benchmarks.replicas.synergy:fifo+fair", SimulationConfig(SMALL))
    specs = [Submission("a", 10.0, 1, 700, 0.5, model="text-recurrent")]  # 600 of 700 iterations in a round
    (job,) = setup.run(specs, SMALL).jobs
    assert (job.finish_s, job.jct_s) == (900.0, 890.0)


def test_a_job_of_lucids_ends_at_a_second_and_is_counted_down_to_zero() -> None:
    specs = [Submission("a", 10.0, 1, 100.4)]
    ends = {}
    for name in ("fifo", "srtf"):
        (job,) = make(f"benchmarks.replicas.lucid:{name}", SimulationConfig(SMALL)).run(specs, SMALL).jobs
        ends[name] = job.finish_s
    assert ends == {"fifo": 111, "srtf": 112}


@pytest.mark.parametrize("seed", [0, 1])
def test_tune_finds_room_for_jobs_of_made_up_models(seed: int) -> None:
    assert (
        average_s("benchmarks.replicas.synergy:fifo+tune", SimulationConfig(SMALL, seed=seed), jobs=120) > 0
    )


# Files.

PROFILES = (
    "model,dataset,batchsize,amp,gpu_util,gmem_util,gmem{}\nnet,d,1,0,50,20,1000{}\nold,d,1,0,9,9,900{}\n"
)
PAIRS = (
    "model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2\n"
    "net,d,1,0,.6,old,d,1,0,.9\nnet,d,1,0,.5,net,d,1,0,.5\nold,d,1,0,.95,old,d,1,0,.95\n"
)
LOG = (
    "job_id,user,vc,gpu_num,submit_time,duration,model,batchsize,dataset,amp\n"
    "1,u,v,1,2020-01-01 00:00:00,1000,old,1,d,0\n2,u,v,1,2020-01-01 00:00:00,900,net,1,d,0\n"
)


def files(folder: Path, *, labels: tuple[str, str, str] = ("", "", "")) -> SimulationConfig:
    for name, text in (("profiles", PROFILES.format(*labels)), ("pairs", PAIRS), ("log", LOG)):
        (folder / f"{name}.csv").write_text(text)
    return SimulationConfig(
        Cluster.uniform(3, 1), profiles=folder / "profiles.csv", pairs=folder / "pairs.csv"
    )


def test_lucids_own_sharing_scores_count_if_there_are_any(tmp_path: Path) -> None:
    averages = []
    for labels in ((",label", ",1", ",0"), (",label", ",2", ",2")):
        task = SimulationTask(
            "benchmarks.replicas.lucid:lucid", Source(tmp_path / "log.csv"), files(tmp_path, labels=labels)
        )
        averages.append(run(task).metrics.avg_jct_s)
    # the only GPU that does not profile: both at once, at 0.9 and 0.6, or one after the other
    assert averages == [(math.ceil(1001 / 0.9) + math.ceil(901 / 0.6)) / 2, (1001 + 1001 + 901) / 2]
    files(tmp_path, labels=(",label", ",1", ",3"))
    with pytest.raises(
        SimulationFailed, match=r"profiles.csv:3: column label: 3; a sharing score is 0, 1 or 2"
    ):
        run(task)


def test_profiles_and_pairs_belong_together_but_sharing_needs_pairs_only(tmp_path: Path) -> None:
    both = files(tmp_path)
    with pytest.raises(BadSpec, match="need each other"):
        SimulationConfig(SMALL, profiles=both.profiles)
    pairs = SimulationConfig(SMALL, pairs=both.pairs)
    for name in ("lucid:fifo", "benchmarks.replicas.lucid:lucid"):
        with pytest.raises(BadSpec, match="need each other"):
            make(name, pairs)
    assert average_s("sharing:no-sharing", pairs) > 0


def test_sharing_knows_configurations_and_says_which_job_it_does_not(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    config = files(tmp_path)
    task = SimulationTask("sharing:sharing", Source(tmp_path / "log.csv"), replace(config, cluster=SMALL))
    assert run(task).metrics.jobs == 2
    (tmp_path / "log.csv").write_text(LOG.replace("old,1,d", "odd,1,d"))
    (tmp_path / "other.csv").write_text(LOG.replace("old,1,d", "odd,1,d"))
    with pytest.raises(
        SimulationFailed, match="job '1' trains 'odd/d/1/fp', for which --pairs lacks some pairs"
    ) as caught:
        run(replace(task, source=Source(tmp_path / "other.csv")))
    assert caught.value.exit_code == 2


def test_sharing_reads_gavels_pairs(write_file: Callable[[str, str], Path]) -> None:
    table = {
        "('A', 1)": {"null": 2.0, "('A', 1)": [1.2, 1.2], "('B', 1)": [1.0, 3.0]},
        "('B', 1)": {"null": 4.0, "('A', 1)": [3.0, 1.0], "('B', 1)": [2.4, 2.4]},
    }
    pairs = write_file("throughputs.json", json.dumps({"v100": table}))
    trace = write_file("jobs.csv", "name,arrival_s,duration_s,gpus,model\n1,0,3000,1,A\n2,0,3000,1,B\n")
    config = SimulationConfig(Cluster.uniform(1, 1), pairs=pairs, settings=KNOWN)
    found = run(SimulationTask("sharing:sharing", Source(trace), config)).metrics
    # B at 0.75 ends at 4,000 s; A at 0.5 has done 2,000 s by then
    assert found.avg_jct_s == pytest.approx((4000 + 5000) / 2)
    pairs.write_text("[]")
    with pytest.raises(SimulationFailed, match="not a table of Gavel's throughputs") as caught:
        run(SimulationTask("sharing:fifo", Source(trace), replace(config, seed=1)))
    assert caught.value.exit_code == 2


def test_without_pairs_any_model_is_a_made_up_one() -> None:
    specs = [Submission(str(number), 0, 1, 3000, model="unheard-of") for number in range(2)]
    setup = make("sharing:sharing", SimulationConfig(Cluster.uniform(1, 1), settings=KNOWN))
    assert len(setup.run(specs, Cluster.uniform(1, 1)).jobs) == 2


def test_only_what_predicts_needs_sklearn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    config = SimulationConfig(SMALL, seed=77)  # nothing is trained for this seed yet
    for name in ("no-sharing", "tiresias"):
        assert average_s(f"sharing:{name}", config, jobs=20) > 0
    assert average_s("sharing:sharing", replace(config, settings=KNOWN), jobs=20) > 0
    with pytest.raises(ExtraMissing, match=r"training forests needs scikit-learn: pip install"):
        make("sharing:sharing", config)


def test_a_family_is_imported_when_it_is_asked_for_only() -> None:
    code = """
import sys
from controller.policies.scheduling import Cluster
from controller.policies.registry import SimulationConfig
from controller.simulator.runs import make
make("muri-l", SimulationConfig(Cluster.uniform(1, 8)))
room = "controller.policies.scheduling"
print(*(part for part in ("lucid", "sharing", "synergy") if f"{room}.{part}" in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_optional_packages_are_loaded_when_they_are_needed_only() -> None:
    code = """
import sys
for name in ("sklearn", "scipy", "interpret", "rapidfuzz", "matplotlib", "ray"):
    sys.modules[name] = None
from controller.policies.scheduling import Cluster
from controller.policies.registry import SimulationConfig
from controller.policies.registry import known
from controller.simulator.runs import make
config = SimulationConfig(Cluster.uniform(4, 8, cpus=24, memory_gb=500))
replicas = ("benchmarks.replicas.lucid:lucid", "benchmarks.replicas.synergy:fifo+fair")
for name in (*replicas, "lucid:fifo", "synergy:fifo+drf", "sharing:no-sharing"):
    make(name, config)
print(len(known()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(known())


# Expected durations.


def test_estimates_are_read_by_job(write_file: Callable[[str, str], Path]) -> None:
    path = write_file("estimates.csv", "job_id,priority\na,12.5\nb,-3\n")
    specs = [Submission(name, 0, 1, 5, estimate_s=7.0) for name in "abc"]
    assert [spec.estimate_s for spec in expect(specs, path)] == [12.5, 1.0, 7.0]
    assert expect(specs, None) == specs
    path.write_text("name,estimate_s,priority\na,4,5\n")
    assert read_estimates(path) == {"a": 4.0}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name,estimate\na,1\n", ":1: column estimate_s: missing; the columns are name, estimate"),
        ("job_id,estimate_s\na,1\n", ":1: column job_id: is no column: want name"),
        ("estimate_s\n1\n", ":1: column name: missing; the columns are estimate_s"),
        ("name,estimate_s\na,1\na,2\n", ":3: column name: job 'a' appears twice"),
        ("name,estimate_s\na,soon\n", ":2: column estimate_s: 'soon' is not a number of seconds"),
        (
            f"name,estimate_s\na,{'9x' * 50}\n",
            f":2: column estimate_s: '{'9x' * 29}9… (102 characters) is not a number of seconds",
        ),
        ("name,estimate_s\na,nan\n", ":2: column estimate_s: 'nan' is not a number of seconds"),
        ("name,estimate_s\nz,1\n", ": column name: names none of the trace's jobs, such as 'a'"),
    ],
)
def test_estimates_are_refused_by_line(
    write_file: Callable[[str, str], Path], text: str, complaint: str
) -> None:
    path = write_file("estimates.csv", text)
    with pytest.raises(BadTrace) as caught:
        expect([Submission("a", 0, 1, 5)], path)
    assert str(caught.value) == f"{path}{complaint}"


def test_a_trace_gets_the_estimates_of_its_background(tmp_path: Path) -> None:
    trace, estimates = tmp_path / "jobs.csv", tmp_path / "estimates.csv"
    trace.write_text("name,arrival_s,duration_s,gpus\na,0,100,1\nb,0,100,1\nc,0,10,1\n")
    estimates.write_text("name,estimate_s\na,50\nb,60\nc,70\n")
    cluster = Cluster.uniform(1, 1)
    plain = run(SimulationTask("qssf", Source(trace), SimulationConfig(cluster)))
    told = run(SimulationTask("qssf", Source(trace), SimulationConfig(cluster, estimates=estimates)))
    assert plain.metrics.avg_jct_s == pytest.approx((10 + 110 + 210) / 3)
    assert told.metrics.avg_jct_s == pytest.approx((100 + 200 + 210) / 3)


# The commands.


def test_a_plan_says_why_two_jobs_share(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    jobs = tmp_path / "jobs.csv"
    rows = "".join(f"{number},0,3000,{1 + number % 2},net{number % 30}\n" for number in range(12))
    jobs.write_text(f"name,arrival_s,duration_s,gpus,model\n{rows}")
    ran = schedule(
        "plan",
        "--jobs",
        jobs,
        "--gpus",
        8,
        "--policy",
        "sharing:sharing",
        "--set",
        "profile_s=0",
        "--explain",
        "--json",
    )
    reasons = [group["reason"] for group in ran.json["groups"]]
    assert all(reasons)
    assert any("gain" in reason for reason in reasons)
    noted = [lines[0] for lines in ran.json["explain"].values() if lines[0].startswith("beside")]
    assert noted


def test_policies_are_listed_with_what_they_are() -> None:
    ran = schedule("policies", "--all")
    for kind, each in FAMILIES.items():
        assert f"{kind or 'plain'}: {each.about}" in ran.out
    lines = [line.split() for line in ran.out.splitlines() if line.startswith("  ")]
    about = {words[0]: " ".join(words[1:]) for words in lines if words[0] != "--set"}
    assert list(about) == known()
    assert all(about.values())
    assert about["sharing:no-sharing"] == FAMILIES["sharing"].policies["no-sharing"]
    listed = schedule("policies", "--json").json["policies"]
    assert [name for names in listed.values() for name in names] == known()


def test_a_dozen_or_two_are_listed_first() -> None:
    out = schedule("policies").out
    names = [line.split()[0] for line in out.splitlines() if line.startswith("  ") and "--set" not in line]
    assert 12 <= len(names) <= 24
    assert {"fifo", "muri-s", "synergy:srtf+tune", "lucid:lucid", "sharing:sharing"} <= {*names} <= {*known()}
    assert f"--all lists {len(known()) - len(names)} more" in out


# The public traces.

LUCID = {
    "fifo": (127_493, 954_596),
    "sjf": (26_583, 907_352),
    "srtf": (18_987, 947_131),
    "tiresias": (27_935, 929_741),
    "lucid": (20_568, 896_924),
}
SYNERGY = {"fifo+fair": 82_004.906, "srtf+fair": 17_765.906, "srtf+tune": 16_202.306, "las+fair": 32_700.806}
traces = pytest.mark.skipif("INA_TRACES" not in os.environ, reason="INA_TRACES names no folder of traces")


@traces
def test_lucids_figures_on_c1000() -> None:
    folder = Path(os.environ["INA_TRACES"])
    log = folder / "common" / "c1000" / "lucid"
    config = SimulationConfig(
        Cluster.uniform(8, 8),
        profiles=folder / "lucid" / "single_data.csv",
        pairs=folder / "lucid" / "colocate_info.csv",
        estimates=log / "Philly_ebm.csv",
    )
    source = Source(log / "cluster_full_log.csv")
    for name, figures in LUCID.items():
        found = run(SimulationTask(f"benchmarks.replicas.lucid:{name}", source, config, verify=True)).metrics
        assert (found.avg_jct_s, found.makespan_s) == (pytest.approx(figures[0], abs=0.5), figures[1])
    other = replace(config, estimates=log / "Philly_lgb.csv")
    assert (
        round(run(SimulationTask("benchmarks.replicas.lucid:qssf", source, other)).metrics.avg_jct_s)
        == 23_717
    )


@traces
def test_synergys_figures_on_c1000() -> None:
    folder = Path(os.environ["INA_TRACES"])
    config = SimulationConfig(
        Cluster.uniform(8, 8, cpus=24, memory_gb=500), matrix=folder / "synergy" / "sensitivity_matrix.csv"
    )
    for name, average in SYNERGY.items():
        setup = make(f"benchmarks.replicas.synergy:{name}", config)
        specs = Source(folder / "common" / "c1000" / "synergy.csv").jobs(config)
        found = measure(setup.run(specs, config.cluster, verify=True))
        assert found.avg_jct_s == pytest.approx(average, abs=0.001)
