"""Bad input through the command line: status 2, the line and the column named, and nothing half-read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.controller.simulator.commands import schedule

CSV = "name,arrival_s,duration_s,gpus"
MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
    "resource_time_0,resource_time_1,resource_time_2,priority"
)
TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster"
HELIOS = "job_id,user,vc,gpu_num,submit_time,duration"
STAGES = CSV + ",storage_s,cpu_s,gpu_s,network_s"
NOON = "2017-10-03 12:00:00"

CASES = [
    # missing columns
    ("name,arrival_s,gpus\n1,0,1\n", ":1: column duration_s: missing"),
    (MURI.replace(",iteration_time", "") + "\n", ":1: column iteration_time: missing"),
    (TIRESIAS.replace(",model_name", "") + "\n", ":1: column model_name: missing"),
    (PHILLY.replace(",cluster", "") + "\n", ":1: column cluster: missing"),
    (HELIOS.replace("user,", "") + "\n", ":1: column user: missing"),
    (CSV + ",cpu_s\n1,0,5,1,2\n", ":1: column storage_s: missing, though cpu_s is there"),
    (CSV + ",gpus\n1,0,5,1,2\n", ":1: column gpus: there twice"),
    # negative or zero durations
    (CSV + "\n1,0,0,1\n", ":2: column duration_s: 0 must be positive"),
    (CSV + "\n1,0,-3,1\n", ":2: column duration_s: -3 must be positive"),
    (CSV + "\n1,0,inf,1\n", ":2: column duration_s: inf is not a finite number"),
    (MURI + "\n7,4,0,0,a2c,64,9,0,500,4,1,2,1\n", ":2: column iterations: 0 must be positive"),
    (MURI + "\n7,4,0,9,a2c,64,9,0,-1,4,1,2,1\n", ":2: column iteration_time: -1 must be positive"),
    (TIRESIAS + "\n0,8,30,100,vgg19,0,3\n", ":2: column duration: 0 must be positive"),
    (PHILLY + f"\n{NOON},-1,1,1,a\n", ":2: column duration: -1 must not be negative"),
    (HELIOS + f"\n1,u,v,1,{NOON},0\n", ": no job is left: 1 that took no time"),
    ("0,alexnet,0,0,1\n", ":1: column iterations: 0 must be positive"),
    # jobs larger than the cluster
    (CSV + "\n1,0,5,1\n2,0,5,65\n", ":3: column gpus: job '2' asks for 65 GPUs; the cluster has 64"),
    (MURI + "\n7,65,0,9,a2c,64,9,0,5,4,1,2,1\n", ":2: column num_gpu: job '7' asks for 65 GPUs"),
    (PHILLY + f"\n{NOON},1,65,1,a\n", ":2: column num_gpus: job '2' asks for 65 GPUs"),
    (HELIOS + f"\n1,u,v,65,{NOON},1\n", ":2: column gpu_num: job '1' asks for 65 GPUs"),
    ("0,alexnet,0,9,65\n", ":1: column gpus: job '0' asks for 65 GPUs"),
    # GPUs that are no number of GPUs
    (CSV + "\n1,0,5,0\n", ":2: column gpus: 0 must be a whole number of at least 1"),
    (CSV + "\n1,0,5,1.5\n", ":2: column gpus: 1.5 must be a whole number"),
    (CSV + "\n1,0,5,all\n", ":2: column gpus: 'all' is not a number"),
    # unknown models
    ("0,alexnet,0,9,1\n1,unheard,1,9,1\n", ":2: column model: 'unheard' is unknown"),
    # names that recur
    (CSV + "\na,0,5,1\nb,1,5,1\na,2,5,1\n", ":4: column name: job 'a' was on line 2 already"),
    (TIRESIAS + "\n0,8,3,10,vgg,5,3\n0,8,4,10,vgg,5,3\n", ":3: column job_id: job '0' was on line 2 already"),
    ("0,alexnet,0,9,1\n0,alexnet,1,9,1\n", ":2: column id: job '0' was on line 1 already"),
    # times that go back
    (CSV + "\n1,9,5,1\n2,8,5,1\n", ":3: column arrival_s: job '2' comes before"),
    (MURI + "\n7,4,5,9,a2c,64,9,0,5,4,1,2,1\n8,4,4,9,a2c,64,9,0,5,4,1,2,1\n", ":3: column submit_time: job"),
    ("0,alexnet,5,9,1\n1,alexnet,4,9,1\n", ":2: column arrival_s: job '1' comes before"),
    # stages of no length
    (STAGES + "\n1,0,5,1,0,0,0,0\n", ":2: column storage_s: all stage times are 0"),
    (STAGES + "\n1,0,5,1,1,-1,0,0\n", ":2: column cpu_s: -1 must not be negative"),
    (MURI + "\n7,4,0,9,a2c,64,9,0,5,0,0,0,1\n", ":2: column resource_time_0: all stage times are 0"),
    # no job, and files that are not what they should be
    ("", ":1: empty"),
    (CSV + "\n", ": no jobs in it"),
    (CSV + "\n1,0,5\n", ":2: 3 cells in a table of 4 columns"),
    (CSV + "\n1,0,5,\n", ":2: column gpus: empty"),
    (CSV + '\n1,0,5,"1\n', ":2: unexpected end of data"),
    (CSV + "\n1,soon,5,1\n", ":2: column arrival_s: 'soon' is not a number"),
    (PHILLY + "\nyesterday,1,1,1,a\n", ":2: column timestamp: 'yesterday' is not a date and time"),
]


@pytest.mark.parametrize(("text", "complaint"), CASES)
@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_a_trace_is_refused_by_line_and_column(
    tmp_path: Path, command: str, text: str, complaint: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    option = "--trace" if command == "simulate" else "--jobs"
    ran = schedule(command, option, path, "--nodes", 8, "--gpus", 8, "--policy", "fifo")
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith(f"{path}{complaint}")


TOML = '[[job]]\nname = "a"\nworkers = 1\nduration_s = 5\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (TOML + '[[job]]\nname = "b"\n', ":5: job 'b': workers is missing"),
        (TOML + TOML, ":6: job 'a': an earlier job has this name"),
        (TOML + TOML.replace("5", "-5").replace('"a"', '"b"'), ":8: job 'b': duration_s = -5: want"),
        (TOML + "gpu_s = 1\n", ":5: job 'a': gpu_s is not a key: want stages_s = [storage, cpu, gpu, "),
        (TOML + "user = ['u']\n", ":5: job 'a': user = "),
        (TOML + "[cluster]\nnodes = 1\n", ":5: unknown key 'cluster'"),
        ("job = 5\n", ":1: job: want a list of tables"),
        ("[[job]]\njob_id = 'a'\nworkers = 1\n", ":2: job 'job1': job_id is not a key: want name"),
        ("[[job]]\nname = 'a'\nworkers = 1000\n", ":1: job 'a' asks for 1000 GPUs"),
        ("[[job]\n", ": not TOML"),
    ],
)
def test_a_toml_file_is_refused_by_table(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    ran = schedule("plan", "--jobs", path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith(f"{path}{complaint}")


def test_files_that_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, tmp_path / "binary.csv", tmp_path / "binary.toml"):
        ran = schedule("simulate", "--trace", path, "--policy", "fifo")
        assert ran.code == 2
        assert ran.complaint.startswith(f"{path}: cannot be read")


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ("[]", "want an object of objects"),
        ('{"v100": 5}', "want an object of objects"),
        ('{"k80": {}}', "column v100: no such GPU; there are k80"),
        ("{", "not JSON"),
        ('{"v100": {"(\'LM\', 2)": {"null": 1e999}}}', "x.trace:1: column type: 'LM' is not in"),
        (f'{{"v100": {{"x": {"9" * 5000}}}}}', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"v100": {}}', "x.trace:1: column type: 'LM' is not in"),
        ('{"v100": {"(\'LM\', 2)": {}}}', "x.trace:1: column type: 'LM' is not in"),
        ('{"v100": {"(\'LM\', 2)": {"null": "fast"}}}', "x.trace:1: column type: 'LM' is not in"),
    ],
)
def test_gavel_needs_its_table_of_throughputs(tmp_path: Path, table: str, complaint: str) -> None:
    (tmp_path / "simulation_throughputs.json").write_text(table)
    path = tmp_path / "x.trace"
    path.write_text("LM\tcmd\t-n\t1\t200\t3.5\t2\n")
    ran = schedule("simulate", "--trace", path, "--policy", "fifo")
    assert ran.code == 2
    assert complaint in ran.complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--policy", "synergy:fifo+tune", "--cpus-per-gpu", "0.5"], "does not run with its GPU's share"),
        (["--policy", "synergy:fifo+opt", "--memory-per-gpu", "-1"], ""),
        (["--policy", "lucid:lucid", "--nodes", "1"], "the profiler takes 1 of 1 nodes"),
    ],
)
def test_what_no_cluster_can_serve(arguments: list[str], complaint: str) -> None:
    pytest.importorskip("sklearn")
    ran = schedule("simulate", "--generate", 5, "--processes", 1, *arguments)
    assert ran.code == 2
    assert complaint in ran.complaint


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("matrix", "model,cpu\n", "there is no column 'cpu_gpu_ratio_dir'"),
        ("profiles", "model\n", "profiles.csv:1: column "),
        ("pairs", "model1\n", "pairs.csv:1: column "),
    ],
)
def test_files_of_measurements(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    files = {each: tmp_path / f"{each}.csv" for each in ("matrix", "profiles", "pairs")}
    files["profiles"].write_text(
        "model,dataset,batchsize,amp,gpu_util,gmem_util,gmem\nnet,data,1,0,50,20,1000\n"
    )
    files["pairs"].write_text("x")
    files[name].write_text(text)
    options = ["--policy", "synergy:fifo+tune", "--matrix", files["matrix"]]
    if name != "matrix":
        options = ["--policy", "lucid:fifo", "--profiles", files["profiles"], "--pairs", files["pairs"]]
    ran = schedule("simulate", "--generate", 5, "--processes", 1, *options)
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.complaint


PLAIN = ("fifo", "sjf", "srsf", "las", "tiresias", "qssf", "muri-s", "muri-l", "weave-s", "weave-l")


@pytest.mark.parametrize("jobs", [1, 2, 9])
def test_one_job_and_equal_jobs_are_no_trouble(tmp_path: Path, jobs: int) -> None:
    path = tmp_path / "equal.csv"
    rows = "".join(f"{number},0,100,1,.25,.25,.25,.25\n" for number in range(jobs))
    path.write_text(f"{STAGES}\n{rows}")
    ran = schedule(
        "simulate", "--trace", path, "--nodes", 1, "--gpus", 2, "--policy", ",".join(PLAIN), "--verify",
        "--processes", 1, "--json",
    )  # fmt: skip
    assert {metrics["jobs"] for metrics in ran.json["metrics"].values()} == {jobs}
    planned = schedule("plan", "--jobs", path, "--nodes", 1, "--gpus", 2, "--json").json
    if jobs == 9:  # four equal jobs with equal stages fill every gap
        assert [group["gamma"] for group in planned["groups"]][:2] == [1.0, 1.0]


def test_json_is_whole_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"{CSV}\n1,0,5,1\n2,0,oops,1\n")
    ran = schedule("simulate", "--trace", path, "--policy", "fifo", "--json", "--output", tmp_path / "out")
    assert (ran.code, ran.out) == (2, "")
    assert not (tmp_path / "out").exists()
    path.write_text(f"{CSV}\n1,0,5,1\n")
    ran = schedule("simulate", "--trace", path, "--policy", "fifo", "--processes", 1, "--json")
    assert json.loads(ran.out)["setup"]["jobs"] == 1
