"""The commands in the hands of somebody who wishes them ill: one line and a status, or a whole result."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import replicas
from benchmarks.schedulers.trace_files import SAMPLE as TRACE
from controller.policies.registry import FAMILIES, find_family, full_name
from tests.controller.simulator.commands import Ran, schedule

ROOT = Path(__file__).parents[3]
JOBS = ROOT / "examples" / "schedule" / "jobs.toml"
FEW = ("--generate", 5, "--processes", 1, "--policy", "fifo")


def strict(text: str) -> Any:
    """Read JSON that has no NaN and no Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def refused(ran: Ran, complaint: str, code: int = 2) -> None:
    assert (ran.code, ran.out) == (code, "")
    assert complaint in ran.complaint
    assert "\n" not in ran.complaint.strip()


WRONG = [
    (("simulate", *FEW, "--load", "1e-320"), "a load of 9.99989e-321; want 1e-06 to 1e+06"),
    (("simulate", *FEW, "--nodes", 10**20), "a cluster has at most 1,000,000 GPUs"),
    (
        ("simulate", *FEW, "--gpus", 10**9),
        "8 servers of 1000000000 GPUs; a cluster has at most 1,000,000 GPUs",
    ),
    (("simulate", *FEW, "--cpus-per-gpu", "0"), "servers of 0 CPUs; want more than 0"),
    (("simulate", *FEW, "--load", "1e300"), "a load of 1e+300; want 1e-06 to 1e+06"),
    (("simulate", *FEW, "--format", "muri"), "format 'muri' without a trace"),
    (
        ("simulate", *FEW, "--estimates", TRACE),
        f"estimates {TRACE} without a trace; generated jobs have none",
    ),
    (("simulate", *FEW, "--output", TRACE), f"--output {TRACE}: not a directory"),
    (("simulate", *FEW, "--output", TRACE / "deep"), f"{TRACE} is not a directory"),
    (("simulate", *FEW, "--output", "/dev/null/x"), "/dev/null is not a directory"),
    (("simulate", "--policy", "best"), "policy 'best' is unknown"),
    (("simulate", "--policy", "fifo,fifo"), "--policy: 'fifo' is given twice"),
    (("simulate", "--policy", ","), "no policy"),
    (("simulate", "--trace", TRACE, "--nodes", "1"), "asks for 16 GPUs; the cluster has 8"),
    (("simulate", "--trace", TRACE, "--format", "xml"), "format 'xml' is unknown"),
    (("simulate", "--load", "0"), "a load of 0; it must be positive"),
    (("simulate", "--profiles", TRACE), "--profiles and --pairs need each other"),
    (
        ("simulate", "--policy", "benchmarks.replicas.muri:srtf,lucid:fifo"),
        "policies of benchmarks.replicas.muri and of lucid need different",
    ),
    (
        ("simulate", "--policy", "synergy:fifo+tune", "--trace", TRACE, "--nodes", "2"),
        "has no sensitivity matrix",
    ),
    (("simulate", "--policy", "lucid:lucid", "--trace", TRACE, "--nodes", "2"), "has no column 'dataset'"),
    (("simulate", "--policy", "synergy:fifo+tune", "--matrix", "nowhere.csv"), "nowhere.csv"),
    (("simulate", "--cluster", "nowhere.toml"), "--cluster nowhere.toml: No such file or directory"),
    (("simulate", "--generate", "0"), ""),
    (("simulate", "--nodes", "0"), ""),
    (("simulate", "--processes", "-1"), ""),
    (("sweep", *FEW, "--seeds", "3-1"), "--seeds '3-1': want numbers and ranges"),
    (("sweep", *FEW, "--seeds", "0-99999999999"), "--seeds: 99999999999 has more than 6 digits"),
    (("sweep", *FEW, "--seeds", "9" * 5000), "(5000 characters) has more than 6 digits"),
    (
        ("sweep", *FEW, "--seeds", "0-999999"),
        "1,000,000 simulations, of each policy, load and seed; want at most 100,000",
    ),
    (("sweep", *FEW, "--loads", "0"), "a load of 0; it must be positive"),
    (("sweep", *FEW, "--loads", "nan"), "a load of nan; it must be positive"),
    (("sweep", *FEW, "--loads", "1e400"), "a load of inf; it must be positive"),
    (("sweep", *FEW, "--loads", "1,1.0"), "a load appears twice: 1.0"),
    (("sweep", *FEW, "--loads", ","), "no load to sweep over"),
    (("sweep", *FEW, "--ray-address", "ray://head:10001"), "--ray-address needs --ray"),
    (("sweep", *FEW, "--output", ROOT), f"--output {ROOT}: a directory"),
    (("sweep", *FEW, "--output", TRACE / "x"), "is not a directory"),
    (("sweep", *FEW, "--plot", TRACE / "x.svg"), "is not a directory"),
    (("sweep", *FEW, "--format", "csv"), "format 'csv' without a trace"),
    (("sweep", "--loads", "many"), "--loads 'many': want numbers"),
    (("sweep", "--loads", ""), "no load to sweep over"),
    (("sweep", "--loads", "1,1"), "a load appears twice"),
    (("sweep", "--loads", "-1"), "a load of -1"),
    (("sweep", "--seeds", "a"), "--seeds 'a'"),
    (("sweep", "--seeds", "1,1"), "a seed appears twice"),
    (("sweep", "--trace", TRACE, "--nodes", 2, "--seeds", "0-4"), "nothing in a trace is random"),
    (("sweep", "--policy", "best"), "policy 'best' is unknown"),
    (("sweep", "--plot", "x.txt"), "want a name that ends in .svg"),
    (
        ("simulate", *FEW[:-1], "muri-s", "--set", "noise"),
        "setting 'noise': want NAME=NUMBER, such as interval_s=600",
    ),
    (("simulate", *FEW[:-1], "muri-s", "--set", "noise=much"), "setting 'noise=much': want NAME=NUMBER"),
    (("simulate", *FEW[:-1], "muri-s", "--set", "noise=nan"), "setting noise=nan: want 0 to 0.99"),
    (("simulate", *FEW[:-1], "muri-s", "--set", "noise=1"), "setting noise=1: want 0 to 0.99"),
    (
        ("simulate", *FEW[:-1], "muri-s", "--set", "capacity=1"),
        "setting 'capacity' is unknown here; known are estimate_error, in_order, interval_s",
    ),
    (("tune", "--policy", "muri-s", "--try", "noise=0.1,x"), "setting 'noise=x': want NAME=NUMBER"),
    (("tune", "--policy", "muri-s", "--try", "low=1"), "setting 'low' is unknown here"),
    (
        ("tune", "--policy", "muri-s", "--try", "noise=0.1", "--metric", "beauty"),
        "--metric beauty: want one of avg_jct_s",
    ),
    (("tune", "--try", "noise=0.1", "--policy", "fifo,srtf"), "--policy fifo,srtf: want one"),
    (("tune", "--policy", "muri-s", "--try", "noise=0.1", "--min-gain", "2"), "a minimal gain of 2"),
    (("tune", "--policy", "muri-s", "--try", "noise=0.1", "--trace", "nowhere.csv"), "nowhere.csv"),
    (("plan", "--jobs", JOBS, "--policy", "fifo,srtf"), "want one"),
    (("plan", "--jobs", JOBS, "--shapes", "x.svg"), "--shapes needs --history"),
    (("plan", "--jobs", JOBS, "--history", JOBS, "--shapes", "x.bmp"), "want a name that ends in .svg"),
    (("plan", "--jobs", JOBS, "--plot", "plan.bmp"), "want a name that ends in .svg"),
    (("plan", "--jobs", JOBS, "--policy", "benchmarks.replicas.muri:muri-s"), "3 are needed"),
    (("plan", "--jobs", JOBS, "--gpus", 1), "asks for 2 GPUs; the cluster has 1"),
    (("plan",), ""),
    (
        ("simulate", *FEW[:-1], "synergy:fifo+tune", "--cpus-per-gpu", "0.5"),
        "does not run with its GPU's share",
    ),
    (("simulate", *FEW[:-1], "synergy:fifo+opt", "--memory-per-gpu", "-1"), ""),
    (("simulate", *FEW[:-1], "lucid:lucid", "--nodes", "1"), "the profiler takes 1 of 1 nodes"),
    (
        ("simulate", *FEW[:-1], "lucid:lucid", "--set", "profiler_nodes=0.5"),
        "profiler_nodes=0.5: want a whole number",
    ),
    *(
        ((*command, "--seed", seed), "Invalid value for '--seed'")
        for command in (("simulate",), ("plan", "--jobs", JOBS))
        for seed in ("-1", 2**32, "x")
    ),
    *((("simulate", "--generate", count), "Invalid value for '--generate'") for count in (10**9, "1e3")),
]


@pytest.mark.parametrize(("arguments", "complaint"), WRONG)
def test_wrong_usage_says_what_is_wrong(arguments: tuple[object, ...], complaint: str) -> None:
    for package in ("matplotlib", "sklearn"):
        pytest.importorskip(package)
    ran = schedule(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.complaint
    by_parser = not complaint or complaint.startswith("Invalid value")
    assert by_parser or "\n" not in ran.complaint.strip(), "what the parser refuses has its usage above"


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        (
            "c.toml",
            "[[server]]\nname = 'a'\ngpus = 1000000000\n",
            ":3: server 'a': gpus = 1000000000: want a whole number, 0 to 65536",
        ),
        (
            "c.toml",
            "[[server]]\nname = 'a'\ngpus = 8\ncount = 1000000000000\n",
            ":4: server 'a': count = 1000000000000: want a whole number, 1 to 1000000",
        ),
        (
            "c.toml",
            "[[server]]\nname = 'a'\ngpus = 60000\ncount = 10\n"
            "[[server]]\nname = 'b'\ngpus = 60000\ncount = 10\n",
            ":7: server 'b': 10 servers of 60000 GPUs; a cluster has at most 1,000,000 GPUs and servers",
        ),
        (
            "c.toml",
            "[[server]]\nname = 'a'\ngpus = 0\ncount = 600000\n"
            "[[server]]\nname = 'b'\nrole = 'fallback'\ncount = 600000\n",
            ":8: server 'b': 600000 servers of 0 GPUs; a cluster has at most 1,000,000 GPUs and servers",
        ),
        (
            "c.toml",
            "[[server]]\nname = 'a'\ngpus = inf\n",
            ":3: server 'a': gpus = inf: want a whole number, 0 to 65536",
        ),
        (
            "c.toml",
            "[[server]]\nname = 'a'\ngpus = 2\ncpus = nan\n",
            ":4: server 'a': cpus = nan: want cores, above 0 to 1e+09",
        ),
        (
            "c.toml",
            '[[server]]\ngpus = 2\nname = "\\u001b"\n',
            ":3: server '\\x1b': name = \"\\u001b\": want 1 to 200 printable characters in quotes",
        ),
        ("c.csv", "gpus,count\n1,1e12\n", ":2: column gpus: 1000000000000 servers of 1 GPU"),
        ("c.csv", "gpus,gpus\n1,1\n", ":1: column gpus: there twice"),
        ("c.csv", 'gpus\n"1\n', ":2: unexpected end of data"),
        ("c.csv", "", ": no nodes in it"),
        ("c.toml", "[[server]]\nname = 'a'\n[[server]]\nname = 'a'\n", ":4: two servers are called 'a'"),
        ("c.toml", "[[server]]\ncpus = 2\n", ":1: server 0: name is missing"),
        ("c.toml", "[[server]]\nname = 'a'\nwheels = 4\n", ":3: server 'a': unknown key 'wheels'"),
        ("c.toml", "[[node]]\ngpus = 1\n", ":1: node is not a key: want server"),
        ("c.toml", "gpus = 2\n", ":1: unknown key 'gpus'"),
        ("c.toml", "[[node]\n", ": not TOML"),
        ("c.toml", "", ": a cluster needs at least one server"),
        ("c.csv", "name,gpus\na,2\na,2\n", ":3: column name: node 'a' was on line 2 already"),
        ("c.csv", "name,gpus,memory_gb\na,2,-1\n", ":2: column memory_gb: -1 must be positive"),
        ("c.csv", "name,gpus\n", ": no nodes in it"),
    ],
)
def test_clusters_that_are_none(
    write_file: Callable[[str, str], Path], name: str, text: str, complaint: str
) -> None:
    path = write_file(name, text)
    refused(schedule("simulate", *FEW, "--cluster", path), f"{path}{complaint}")


def test_a_cluster_file_from_another_system(tmp_path: Path) -> None:
    for name, text in (
        ("c.toml", "\ufeff[[server]]\r\nname = 'a'\r\ngpus = 2\r\n"),
        ("c.csv", '\ufeff"gpus"\r\n"2"\r\n'),
    ):
        path = tmp_path / name
        path.write_bytes(text.encode())
        ran = schedule("plan", "--jobs", JOBS, "--cluster", path, "--json")
        assert ran.json["setup"]["gpus"] == 2


def test_names_are_no_markup(tmp_path: Path) -> None:
    """In square brackets they would be styles, between dollars formulas; an underscore would hide them."""
    pytest.importorskip("matplotlib")
    jobs, servers = tmp_path / "jobs.csv", tmp_path / "cluster.csv"
    names = ["[/x]", "$\\frac{$", "_hidden", "[bold]b[/bold]", "x" * 3000]
    rows = "".join(f"{name},0,{100 + number},1,.4,.3,.2,.1\n" for number, name in enumerate(names))
    jobs.write_text(f"name,arrival_s,duration_s,gpus,storage_s,cpu_s,gpu_s,network_s\n{rows}")
    servers.write_text("name,gpus\n[/y],2\n")
    plot = tmp_path / "plan.svg"
    ran = schedule("plan", "--jobs", jobs, "--cluster", servers, "--plot", plot)
    assert ran.code == 0
    assert "[/x]" in ran.out
    assert "[/y]:0" in ran.out
    assert "[bold]b[/bold]" in ran.out
    assert r"$\frac{$" in plot.read_text()
    assert schedule("sweep", "--trace", jobs, "--policy", "fifo", "--processes", 1).code == 0


def test_of_many_groups_some_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("controller.simulator.plots.MOST_PANELS", 5)  # the layout of fifty takes ten seconds
    jobs, plot = tmp_path / "jobs.csv", tmp_path / "plan.svg"
    rows = "".join(f"j{number},0,100,1,.4,.3,.2,.1\n" for number in range(24))
    jobs.write_text(f"name,arrival_s,duration_s,gpus,storage_s,cpu_s,gpu_s,network_s\n{rows}")
    ran = schedule("plan", "--jobs", jobs, "--nodes", 1, "--plot", plot, "--json")
    assert len(ran.json["groups"]) == 6
    assert "group 5," in plot.read_text()
    assert "group 6," not in plot.read_text()


@pytest.mark.parametrize("kind", [*FAMILIES, *replicas.TABLES.values()])
@pytest.mark.parametrize("jobs", [1, 2])
def test_one_or_two_jobs_are_no_trouble_for_any_policy(kind: str, jobs: int) -> None:
    for package in ("scipy", "sklearn"):
        pytest.importorskip(package)
    names = [full_name(kind, policy) for policy in find_family(kind).policies]
    ran = schedule(
        "simulate", "--generate", jobs, "--nodes", 3, "--processes", 1, "--verify", "--json", "--policy",
        ",".join(names),
    )  # fmt: skip
    assert ran.code == 0, ran.complaint
    metrics = strict(ran.out)["metrics"]
    assert [*metrics] == names
    assert {each["jobs"] for each in metrics.values()} == {jobs}


STAGES = {
    "equal": (0.25, 0.25, 0.25, 0.25),
    "one stage": (0.0, 0.0, 1.0, 0.0),
    "short": (1e-9, 1e-9, 0.0, 1e-9),
    "long and short": (1e9, 1e-9, 0.0, 0.0),
}


@pytest.mark.parametrize("stages", STAGES.values(), ids=STAGES)
def test_profiles_at_the_edges_are_no_trouble_for_any_policy(
    tmp_path: Path, stages: tuple[float, ...]
) -> None:
    path = tmp_path / "jobs.csv"
    columns = "name,arrival_s,duration_s,gpus,storage_s,cpu_s,gpu_s,network_s"
    rows = "".join(f"{each},0,100,{1 + each % 2},{','.join(map(repr, stages))}\n" for each in range(9))
    path.write_text(f"{columns}\n{rows}")
    options = ("--nodes", 2, "--gpus", 2)
    for name in FAMILIES[""].policies:
        ran = schedule("plan", "--jobs", path, *options, "--policy", name, "--json")
        assert (ran.code, strict(ran.out)["setup"]["policy"]) == (0, name)
    ran = schedule(
        "simulate", "--trace", path, *options, "--processes", 1, "--verify", "--json",
        "--policy", ",".join(FAMILIES[""].policies),
    )  # fmt: skip
    assert {each["jobs"] for each in strict(ran.out)["metrics"].values()} == {9}


@pytest.mark.parametrize("stages", ["25,25,50", "0,0,100", "0.000001,0,99"])
def test_profiles_of_three_stages_at_the_edges(tmp_path: Path, stages: str) -> None:
    path = tmp_path / "jobs.csv"
    columns = (
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
        "resource_time_0,resource_time_1,resource_time_2,priority"
    )
    rows = "".join(f"{each},1,0,90,a2c,64,9000,0,100,{stages},{each % 2}\n" for each in range(9))
    path.write_text(f"{columns}\n{rows}")
    names = [
        full_name("benchmarks.replicas.muri", policy)
        for policy in find_family("benchmarks.replicas.muri").policies
    ]
    if stages.startswith("0,0"):
        names.remove("benchmarks.replicas.muri:antman")
        ran = schedule(
            "simulate",
            "--trace",
            path,
            "--nodes",
            2,
            "--gpus",
            2,
            "--policy",
            "benchmarks.replicas.muri:antman",
        )
        refused(
            ran,
            "muri:antman: job '0' has one stage only: it leaves its GPUs to no opportunistic job",
        )
    ran = schedule(
        "simulate", "--trace", path, "--nodes", 2, "--gpus", 2, "--processes", 1, "--verify", "--json",
        "--policy", ",".join(names),
    )  # fmt: skip
    assert {each["jobs"] for each in strict(ran.out)["metrics"].values()} == {9}


def test_a_linear_program_that_the_solver_refuses_fails_the_run(tmp_path: Path) -> None:
    """No shares of Synergy's can be infeasible by themselves: every job may fall back to its fair share, and
    all fair shares fit. What a solver cannot do is count in numbers as large as these.
    """
    pytest.importorskip("scipy")
    output = tmp_path / "out"
    ran = schedule(
        "simulate", *FEW[:-1], "synergy:fifo+opt", "--memory-per-gpu", "1e15", "--json", "--output", output
    )
    refused(ran, "synergy:fifo+opt: no shares for 1 jobs on 8 servers: ", code=1)
    assert not output.exists()


def test_writing_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """A directory where the draft of the second file would be."""
    (tmp_path / f".ina-{os.getpid()}-curves.json").mkdir()
    ran = schedule("simulate", *FEW, "--output", tmp_path)
    assert ran.code == 1
    assert [path.name for path in tmp_path.iterdir()] == [f".ina-{os.getpid()}-curves.json"]


def start(*arguments: object, stderr: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ina", "schedule", *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        start_new_session=True,
    )


def read_terminal(terminal: int, *, until: str = "") -> str:
    """Read what a process writes to its terminal up to `until`, or to its end."""
    text = ""
    while not until or until not in text:
        assert select.select([terminal], [], [], 600)[0], f"silence after {text!r}"
        try:
            data = os.read(terminal, 4096)
        except OSError:  # EIO: the other side is closed
            return text
        text += data.decode(errors="replace")
    return text


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_a_simulation_without_half_a_result(
    tmp_path: Path, processes: int, number: signal.Signals
) -> None:
    output = tmp_path / "out"
    ours, theirs = pty.openpty()
    process = start(
        "simulate", "--generate", 20_000, "--policy", "las,themis", "--processes", processes,
        "--output", output, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    read_terminal(ours, until="themis")  # the bars are there, so it runs
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    said = read_terminal(ours)
    out, _ = process.communicate()
    os.close(ours)
    assert process.returncode == 128 + number
    assert out == ""
    assert "Traceback" not in said
    assert not output.exists()


@pytest.mark.parametrize("arguments", [("policies", "--json"), ("simulate", *FEW), ("plan", "--jobs", JOBS)])
def test_nobody_reads_the_output(arguments: tuple[object, ...]) -> None:
    with start(*arguments, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_an_older_output_stays(write_file: Callable[[str, str], Path]) -> None:
    output = write_file("sweep.json", "older")
    refused(schedule("sweep", *FEW, "--ray", "--output", output), "pip install ray", code=1)
    assert output.read_text() == "older"


@pytest.mark.parametrize("command", ["simulate", "sweep", "plan"])
@pytest.mark.parametrize("policy", ["synergy:fifo+tune", "synergy:srtf+opt", "synergy:las+proportional"])
def test_a_model_that_nobody_measured_is_named_by_line_and_column(
    tmp_path: Path, command: str, policy: str
) -> None:
    pytest.importorskip("scipy")
    trace, option = tmp_path / "jobs.csv", "--jobs" if command == "plan" else "--trace"
    trace.write_text("name,arrival_s,duration_s,gpus,model\na,0,50,1,image-small\nb,1,50,2,unheard\n")
    ran = schedule(command, option, trace, "--nodes", 2, "--policy", policy)
    refused(ran, f"{trace}:3: column model: job 'b' trains 'unheard', which has no sensitivity matrix")
    trace.write_text("name,arrival_s,duration_s,gpus\na,0,50,1\n")
    refused(schedule(command, option, trace, "--nodes", 2, "--policy", policy), f"{trace}:2: column model: ")
    trace.write_text("0,alexnet,0,9,1\n1,alexnet,1,9,1\n")
    refused(schedule(command, option, trace, "--policy", policy), f"{trace}:1: column model: job '0' trains")


@pytest.mark.parametrize("cell", ["x" * 200_000, "inf", "nan", "a\nb", "\xff"])
def test_measurements_that_cannot_be_read(tmp_path: Path, cell: str) -> None:
    matrix = tmp_path / "matrix.csv"
    columns = "cpu_gpu_ratio_dir,model,batch,iter_time_s,speedup,ideal_cpus,ideal_mem_gb,cpu,tput_mem62.5"
    matrix.write_text(f'{columns}\nmodels,alexnet_1,"{cell}",0.6,1,3,62.5,3,1\n', encoding="latin-1")
    simulate = ("simulate", *FEW[:-1], "synergy:fifo+tune", "--matrix")
    refused(schedule(*simulate, matrix), str(matrix))
    os.mkfifo(tmp_path / "pipe")
    refused(schedule(*simulate, tmp_path / "pipe"), "pipe: cannot be read: not a regular file")


# ---------------------------------------------------------------------------
# Bad input through the command line: status 2, the line and the column named, and nothing half-read.


CSV = "name,arrival_s,duration_s,gpus"
MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
    "resource_time_0,resource_time_1,resource_time_2,priority"
)
TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster"
HELIOS = "job_id,user,vc,gpu_num,submit_time,duration"
STAGED = CSV + ",storage_s,cpu_s,gpu_s,network_s"
NOON = "2017-10-03 12:00:00"

CASES = [
    # missing columns
    ("name,arrival_s,gpus\n1,0,1\n", ":1: column duration_s: missing"),
    (MURI.replace(",iteration_time", "") + "\n", ":1: column iteration_time: missing"),
    (TIRESIAS.replace(",model_name", "") + "\n", ":1: column model_name: missing"),
    (PHILLY.replace(",cluster", "") + "\n", ":1: column cluster: missing"),
    (HELIOS.replace("user,", "") + "\n", ":1: column user: missing"),
    (CSV + ",cpu_s\n1,0,5,1,2\n", ":1: column storage_s: missing, though cpu_s is there"),
    # columns of another name, and of files that are none
    ("job_id,submit_s,duration_s,gpus\n1,0,5,1\n", ":1: column job_id: is no column: want name"),
    ("name,submit_s,gpus\n1,0,1\n", ":1: column submit_s: is no column: want arrival_s"),
    (CSV + ",priority\n1,0,5,1,2\n", ":1: column priority: is no column: want opp"),
    (CSV + ",opportunistic\n1,0,5,1,2\n", ":2: column opportunistic: '2' must be 0 or 1"),
    ("name,time,application,num_replicas,batch_size\nx,1,bert,1,4\n", ":1: a Pollux workload: "),
    (CSV + ",gpus\n1,0,5,1,2\n", ":1: column gpus: there twice"),
    # negative or zero durations
    (CSV + "\n1,0,0,1\n", ":2: column duration_s: 0 must be positive"),
    (CSV + "\n1,0,-3,1\n", ":2: column duration_s: -3 must be positive"),
    (CSV + "\n1,0,inf,1\n", ":2: column duration_s: inf is not a finite number"),
    (CSV + "\n1,0,nan,1\n", ":2: column duration_s: nan is not a finite number"),
    (CSV + "\n1,0,,1\n", ":2: column duration_s: empty"),
    (CSV + "\n1,0,5,1\n2,-1,5,1\n", ":3: column arrival_s: -1 must not be negative"),
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
    (STAGED + "\n1,0,5,1,0,0,0,0\n", ":2: column storage_s: all stage times are 0"),
    (STAGED + "\n1,0,5,1,1,-1,0,0\n", ":2: column cpu_s: -1 must not be negative"),
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


TOML = '[[job]]\nname = "a"\nworkers = 1\nduration_s = 5\n'

TABLES = [
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
]


@pytest.mark.parametrize(
    ("option", "text", "complaint"),
    [(option, *case) for case in CASES for option in ("--trace", "--jobs")]
    + [("--toml", *case) for case in TABLES],
)
def test_a_file_of_jobs_is_refused_by_its_place(
    write_file: Callable[[str, str], Path], option: str, text: str, complaint: str
) -> None:
    path = write_file("jobs.toml" if option == "--toml" else "trace.csv", text)
    command = ("simulate", option) if option == "--trace" else ("plan", "--jobs")
    ran = schedule(*command, path, "--nodes", 8, "--gpus", 8, "--policy", "fifo")
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint.startswith(f"{path}{complaint}")


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
def test_gavel_needs_its_table_of_throughputs(
    tmp_path: Path, write_file: Callable[[str, str], Path], table: str, complaint: str
) -> None:
    (tmp_path / "simulation_throughputs.json").write_text(table)
    path = write_file("x.trace", "LM\tcmd\t-n\t1\t200\t3.5\t2\n")
    refused(schedule("simulate", "--trace", path, "--policy", "fifo"), complaint)


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
    refused(schedule("simulate", "--generate", 5, "--processes", 1, *options), complaint)
