"""``ina alloc``, ``place``, ``route`` and ``explain``: the page's commands, and what they refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.errors import BadSpec
from controller.vocabulary.topology import MAX_RATE_BPS
from ina.cli import job_files, options
from ina.cli.command import Failure
from ina.cli.commands import app
from ina.cli.errors import verdict

ROOT = Path(__file__).parents[2]
PAGE = "".join(
    (ROOT / "docs" / page).read_text()
    for page in ("guides/allocation.md", "reference/allocation-policies.md")
)
COMMANDS = re.findall(r"^ina .*$", PAGE, flags=re.MULTILINE)
FILES = ("--jobs", str(ROOT / "examples/allocation/jobs.toml"))
RACK = ("--cluster", str(ROOT / "examples/allocation/rack.toml"))
CLUSTER = ("cluster", "simulate", "--jobs", str(ROOT / "examples/cluster/jobs.toml"))
CLUSTER += ("--cluster", str(ROOT / "examples/cluster/racks.toml"))
GOODPUT = 256 / (256 + 70)
"""Part of a link's rate that is gradients, with packets of 64 lanes."""
SHOWN = (
    "10 jobs on 32 GPUs",
    "train-3 arrived at 10 s",
    "impossible has ended",
    "22.1 Gb/s",
    "netpack",
    "grid",
    "standing",
    "Root",
    "own.py:first_fit",
)


@dataclass(frozen=True)
class Commands:
    """Runs commands in this process, which is much faster than one for each."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> str:
        app(list(words), standalone_mode=False)
        return self.capsys.readouterr().out


@pytest.fixture
def ina(capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(capsys)


def test_the_pages_commands_run_one_after_the_other(
    ina: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    output = "".join(ina(*command.split()[1:]) for command in COMMANDS)
    assert len(COMMANDS) >= 9
    assert [shown for shown in SHOWN if shown not in output] == []


def test_numbers_are_there_for_programs(ina: Commands) -> None:
    found = json.loads(ina("alloc", *FILES, *RACK, "--json"))
    assert found["metrics"] == {"deadline_granted": 2, "deadline_shared": 3, "deadline_ended": 1}
    assert found["jobs"]["launch"]["regions"] == {"s1": {"offset": 0, "size": 718}}
    assert found["jobs"]["impossible"]["demand"]["estimate_s"] > 400


def test_memory_policies_are_compared(ina: Commands) -> None:
    own = f"{ROOT}/examples/allocation/own.py:by_size"
    output = ina("alloc", *FILES, *RACK, "--policy", f"static,{own}")
    assert f"memory by {own}" in output
    assert re.search(r"│ static +│ +6 │ +0 │ +0 │", output)
    found = json.loads(ina("alloc", *FILES, *RACK, "--policy", "deadline,static", "--json"))
    assert found["setup"]["policies"] == ["deadline", "static"]
    assert found["metrics"]["deadline_ended"] == 1
    assert found["metrics"]["static_granted"] == 6


def test_jobs_that_wait_are_one_line(ina: Commands, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.json"
    table = {"workers": 2, "gpus_per_worker": 8, "model_bytes": 4000}
    jobs.write_text(json.dumps({"job": [{"name": f"j{at}", **table} for at in range(30)]}))
    output = ina("place", "--jobs", str(jobs), "--cluster", "leaf-spine:1x2x3")
    assert (
        "too few GPUs are free for 27 jobs: j3, j4, j5, j6, j7, j8, j9, j10, j11, j12 and 17 more" in output
    )
    assert "waits" not in output


def test_a_wrong_policy_is_told_of_those_that_packages_offer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "mine-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[ina.memory]\nmy-own = examples:by_size\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadSpec, match="did you mean 'my-own'"):
        app(["alloc", *FILES, *RACK, "--policy", "my-owm"], standalone_mode=False)


def test_clusters_may_be_topologies_of_the_testbeds(
    ina: Commands, tmp_path: Path, write_file: Callable[[str, str], Path]
) -> None:
    batch = ("--jobs", str(ROOT / "examples/allocation/batch.yaml"))
    found = json.loads(ina("place", *batch, "--cluster", "leaf-spine:2x3x4", "--json"))
    assert found["jobs"]["text-2"]["rate_bps"] == pytest.approx(10e9 * GOODPUT)
    (tmp_path / "net.yaml").write_text("switch: [s1]\nserver: [{name: h, count: 2, gpus: 8, switch: s1}]\n")
    jobs = write_file("jobs.toml", '[[job]]\nname = "a"\nworkers = 12\nmodel_bytes = 1e6\ncompute_s = 0.1\n')
    found = json.loads(ina("place", "--jobs", str(jobs), "--cluster", str(tmp_path / "net.yaml"), "--json"))
    assert sorted(set(found["jobs"]["a"]["servers"])) == ["h1", "h2"]


def test_pictures_are_drawn(ina: Commands, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    cluster = ("--cluster", str(ROOT / "examples/allocation/fabric.toml"))
    batch = ("--jobs", str(ROOT / "examples/allocation/batch.yaml"))
    placed = tmp_path / "placed.json"
    for name, command in {
        "memory.svg": ("alloc", *FILES, *RACK),
        "place.svg": ("place", *batch, *cluster, "--write", str(placed)),
        "trees.svg": ("route", "--jobs", str(placed), *cluster),
        "run.svg": (*CLUSTER, "--memory", "deadline"),
    }.items():
        ina(*command, "--plot", str(tmp_path / name))
        assert "</svg>" in (tmp_path / name).read_text()
    assert "vision-2: 39.3 Gb/s" in (tmp_path / "trees.svg").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("alloc", *FILES, *RACK, "--policy", "statik"), "memory 'statik': did you mean 'static'?"),
        (("alloc", *FILES, *RACK, "--policy", "gone.py:f"), "gone.py: No such file"),
        (("alloc", *FILES, *RACK, "--now", "200"), "job 'launch' is due at 190 s, not after --now 200"),
        (("alloc", *FILES, *RACK, "--now", "inf"), "--now inf: want a finite number"),
        (("alloc", *FILES, *RACK, "--plot", "a.doc"), "want a name that ends in"),
        (("alloc", *FILES, "--cluster", "gone.toml"), "gone.toml: cannot be read"),
        (("alloc", *FILES, "--cluster", "leafspine"), "unknown topology 'leafspine'; did you mean"),
        (("place", *FILES, *RACK, "--write", "a.toml"), "--write a.toml: want a name that ends in .json"),
        (
            ("place", *FILES, *RACK, "--policy", "netpack,netpack"),
            "want different names, separated by commas",
        ),
        (("alloc", "--explain", "contes", *FILES, *RACK), "job 'contes': did you mean 'contest'?"),
        ((*CLUSTER[:3], RACK[1], *CLUSTER[4:]), f"{RACK[1]}: no jobs; want at least one"),
        ((*CLUSTER, "--scheduler", "srfs"), "policy 'srfs' is unknown"),
        (
            (*CLUSTER, "--scheduler", "benchmarks.replicas.muri:srtf"),
            "is a replica with its own simulator",
        ),
        ((*CLUSTER, "--placement", "netpak"), "placement 'netpak': did you mean 'netpack'?"),
        (
            (*CLUSTER, "--memory", "static,static"),
            "--memory static,static: want different names, separated by commas",
        ),
        ((*CLUSTER, "--margin", "inf"), "--margin inf: want a finite number"),
        ((*CLUSTER, "--period", "-1"), "a period of -1 s; want 0 or more"),
        ((*CLUSTER, "--set", "gone=1"), "setting 'gone' is unknown"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(ina: Commands, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - what is said of it, and how it ends, is below
        ina(*words)
    message, code = verdict(raised.value)
    assert said in message
    assert "\n" not in message
    assert code == 2


def test_what_became_of_the_jobs_of_a_cluster(ina: Commands, tmp_path: Path) -> None:
    rows = tmp_path / "jobs.csv"
    names = ("--scheduler", "fifo-backfill,srsf", "--memory", "shared,deadline", "--processes", "2")
    found = json.loads(ina(*CLUSTER, *names, "--jobs-csv", str(rows), "--json"))
    assert list(found["metrics"])[-1] == "srsf + netpack + deadline + shortest-path"
    assert all(each["jobs"] == 10 and each["deadlines"] == 4 for each in found["metrics"].values())
    lines = rows.read_text().splitlines()
    assert len(lines) == 1 + 4 * 10
    assert lines[0].startswith("scheduler,placement,memory,routing,name,")
    objects = tmp_path / "jobs.json"
    ina(*CLUSTER, *names, "--jobs-csv", str(objects))
    read = json.loads(objects.read_text())
    assert [list(map(str, each.values())) for each in read] == [line.split(",") for line in lines[1:]]


def racks_at(folder: Path, rate_bps: float) -> str:
    """Write the example's cluster with links of this rate; return the file."""
    text = (ROOT / "examples/cluster/racks.toml").read_text()
    changed, count = re.subn(r"(?m)^(rate_bps|trunk_bps) = .*", rf"\1 = {rate_bps:g}", text)
    assert count == 2
    (folder / "racks.toml").write_text(changed)
    return str(folder / "racks.toml")


def test_unlimited_links_are_as_the_fastest_that_a_file_may_have(ina: Commands, tmp_path: Path) -> None:
    jobs = ("--jobs", str(ROOT / "examples/cluster/jobs.toml"))
    found = []
    for rate_bps in (0, 1e15):
        cluster = ("--cluster", racks_at(tmp_path, rate_bps))
        shown = ina("cluster", "simulate", "--json", *jobs, *cluster)
        (metrics,) = json.loads(shown)["metrics"].values()
        found.append(metrics["avg_jct_s"])
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_nothing_limits_jobs_on_unlimited_links(ina: Commands, tmp_path: Path) -> None:
    cluster = ("--cluster", racks_at(tmp_path, 0))
    placed = ("--jobs", str(tmp_path / "placed.json"))
    jobs = ("--jobs", str(ROOT / "examples/cluster/jobs.toml"), "--write", placed[1])
    shown = json.loads(ina("place", "--json", "--policy", "netpack", *jobs, *cluster))
    assert shown["metrics"]["netpack_gpus_computing"] == pytest.approx(32.0)
    assert {job["rate_bps"] for job in shown["jobs"].values()} == {None}
    assert "unlimited" in ina("route", "--policy", "grid", *placed, *cluster)
    assert "Nothing limits its rate" in ina("route", "--explain", "train-1", *placed, *cluster)
    assert "unlimited" in ina("alloc", "--policy", "deadline,preemptive", *placed, *cluster)
    assert "Infinity" not in ina("alloc", "--json", "--policy", "preemptive", *placed, *cluster)


def test_grid_weighs_limited_links_beside_unlimited_ones(
    ina: Commands, tmp_path: Path, write_file: Callable[[str, str], Path]
) -> None:
    file = tmp_path / "net.toml"
    links = [f'[[link]]\na = "s{n}"\nb = "h{n}"\nrate_bps = 0\n' for n in (1, 2)]
    links += ['[[link]]\na = "s1"\nb = "s2"\nrate_bps = 1e9\n']
    nodes = [f'[[switch]]\nname = "s{n}"\n[[server]]\nname = "h{n}"\n' for n in (1, 2)]
    file.write_text("\n".join(nodes + links))
    jobs = write_file(
        "jobs.toml", '[[job]]\nname = "a"\nworkers = 2\nlayers_bytes = [1000]\nservers = ["h1", "h2"]\n'
    )
    shown = ina("route", "--json", "--policy", "grid", "--jobs", str(jobs), "--cluster", str(file))
    assert json.loads(shown)["jobs"]["a"]["rate_bps"] == pytest.approx(1e9 * GOODPUT)


OWN = """
import sys
from controller.policies.memory.policy import MemoryDivision, SlotStatus

def nothing(*given):
    return None

def crash(*given):
    return 1 / 0

def leave(*given):
    sys.exit(3)

number = 3

def numbers(problem, job):
    return [1] * job.workers

def nans(problem, job):
    return ["h1", *[float("nan")] * (job.workers - 1)]

def text(problem, job):
    return "h1"

def no_standing(problem):
    return MemoryDivision({}, None)

def words(problem):
    names = [job.name for job in problem.jobs]
    return MemoryDivision({name: {} for name in names}, dict.fromkeys(names, "shared"))

def no_regions(problem):
    names = [job.name for job in problem.jobs]
    return MemoryDivision({name: {"s1": 1} for name in names}, dict.fromkeys(names, SlotStatus.SHARED))

def no_trees(problem):
    return {job.name: 3 for job in problem.jobs}

def no_number(problem):
    names = [job.name for job in problem.jobs]
    standing = dict.fromkeys(names, SlotStatus.SHARED)
    return MemoryDivision({name: {} for name in names}, standing, parts={names[0]: {"s1": 3}})
"""


@pytest.mark.parametrize(
    ("command", "name", "complaint"),
    [
        ("alloc", "nothing", "the policy's result is None; it must be a MemoryDivision"),
        ("alloc", "no_standing", "standing is None; it must be a mapping by job"),
        ("alloc", "words", "is of type str; it must be a SlotStatus"),
        ("alloc", "no_regions", "must have a Region for each switch"),
        ("alloc", "no_number", r"parts\['.*'\] is \{'s1': 3\}, must be 1 or more"),
        ("alloc", "number", "is of type int; it must be a function"),
        ("alloc", "crash", r"crash': ZeroDivisionError: division by zero \(.*own\.py:9\)"),
        ("alloc", "leave", r"leave': SystemExit: 3 \(.*own\.py:12\)"),
        ("route", "nothing", "the policy's result is None; it must be a mapping of trees by job"),
        ("route", "no_trees", "is of type int; it must be a Tree"),
        ("route", "crash", "crash': ZeroDivisionError"),
        ("route", "number", "is of type int; it must be a function"),
        (
            "place",
            "numbers",
            "has 1, of type int; it must be a list with the name of each worker's server, or",
        ),
        ("place", "nans", "has nan, of type float; it must be a list with the name of each worker's server"),
        ("place", "text", "is of type str; it must be a list with the name of each worker's server"),
        ("place", "leave", "leave': SystemExit: 3"),
        ("place", "number", "is of type int; it must be a function"),
    ],
)
def test_an_own_policys_fault_is_named(
    ina: Commands, tmp_path: Path, command: str, name: str, complaint: str
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    racks = CLUSTER[-2:]
    jobs = CLUSTER[2:4]
    if command != "place":
        jobs = ("--jobs", str(tmp_path / "placed.json"))
        ina("place", *CLUSTER[2:], "--write", jobs[1])
    with pytest.raises(BadSpec, match=complaint) as caught:
        ina(command, "--policy", f"{tmp_path}/own.py:{name}", *jobs, *racks)
    assert verdict(caught.value)[1] == 2


def test_a_public_log_in_json_has_no_keys_of_ours(
    write_file: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_file("cluster_job_log.json", '[{"status": "Pass"}]')
    assert job_files.note("schedule simulate", path) == []
    assert capsys.readouterr().err == ""


def test_values_that_seem_to_have_another_unit_are_said(
    ina: Commands, tmp_path: Path, write_file: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = write_file("jobs.toml", '[[job]]\nname = "a"\nworkers = 2\nmodel = "resnet50"\nhold_s = 40\n')
    app(["place", "--jobs", str(jobs), "--cluster", racks_at(tmp_path, 100)], standalone_mode=False)
    said = capsys.readouterr().err
    assert "jobs.toml: warning: job: hold_s = 40: it is in seconds (20 µs is 20e-6)" in said
    assert "racks.toml: warning: fabric: rate_bps = 100: it is in bits per second (100 Gb/s is 100e9)" in said
    app(["place", "--jobs", CLUSTER[3], "--cluster", racks_at(tmp_path, 0)], standalone_mode=False)
    assert "warning" not in capsys.readouterr().err


def test_rates_have_one_bound() -> None:
    from softswitch.engine.ports import MAX_RATE_BPS as OF_PORTS

    assert OF_PORTS == MAX_RATE_BPS
    assert options.FaultOptions(rate_bps=MAX_RATE_BPS).impairments()
    with pytest.raises(Failure, match=r"--rate 2e\+15: want 0 to 1e\+15 bits per second"):
        options.FaultOptions(rate_bps=2e15).impairments()
