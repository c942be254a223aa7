"""Ranks on four machines of two racks, found by name in a cluster file, with a fallback server on a fifth."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests import effort
from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler
from tests.system.clusters import PATIENCE_S, Cluster, arguments, cluster, until
from tests.system.command import TORCHRUN, succeed
from tests.system.test_machines import openmpi, slurm

REASON = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"
pytestmark = [pytest.mark.netns, pytest.mark.skipif(bool(REASON), reason=REASON)]

HOSTS = "h1:2,h2:2,h3:2,h4:2"
SUM = """
import json, numpy as np, hostlib as ina
ina.init()
n = ina.size()
total = ina.allreduce(np.arange(3000, dtype=np.int32) + ina.rank())
exact = bool((total == n * np.arange(3000) + n * (n - 1) // 2).all())
near = np.abs(ina.allreduce(np.linspace(-1, 1, 3000, dtype=np.float32)) / n - np.linspace(-1, 1, 3000)).max()
print(json.dumps([ina.rank(), exact, bool(near < 1e-2), ina.statistics()["packets_sent"] > 0]), flush=True)
ina.shutdown()
"""
LOOP = """
import numpy as np, hostlib as ina
ina.init()
for step in range(100000):
    ina.allreduce(np.ones(1000, np.float32))
    if step == 20:
        print("going", flush=True)
"""
STEPS = """
import numpy as np, hostlib as ina, sys
ina.init()
for step in range(400):
    total = ina.allreduce(np.full(2000, step + ina.rank(), np.int32))
    assert (total == ina.size() * step + sum(range(ina.size()))).all()
    if step == 20:
        print("going", flush=True)
print("all right", flush=True)
ina.shutdown()
"""
TRAIN = """
import json, os, torch, torch.distributed as dist, hostlib, hostlib.torch
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("ina")
torch.manual_seed(7)
model = DistributedDataParallel(torch.nn.Linear(20, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
losses = []
for step in range(5):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 20)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(round(loss.item(), 4))
open(os.environ["ANSWERS"] + f"/{dist.get_rank()}", "w").write(json.dumps(losses))
dist.destroy_process_group()
"""
ALONE = """
import json, sys, torch
ranks = int(sys.argv[1])
torch.manual_seed(7)
model = torch.nn.Linear(20, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.Generator().manual_seed(rank) for rank in range(ranks)]
losses = []
for step in range(5):
    optimizer.zero_grad()
    every = [model(torch.randn(8, 20, generator=batch)).square().mean() for batch in batches]
    (sum(every) / ranks).backward()
    optimizer.step()
    losses.append([round(loss.item(), 4) for loss in every])
print(json.dumps(list(zip(*losses))))
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INA_TESTBEDS", str(tmp_path_factory.mktemp("testbeds")))
        with cluster(tmp_path_factory.mktemp("cluster")) as made:
            yield made


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test ends with switches that serve no job."""
    yield
    made: Cluster = request.getfixturevalue("here")
    made.end_all()
    until(lambda: not made.jobs())


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, output, errors


def all_going(process: subprocess.Popen[str], ranks: int) -> None:
    """Wait until all ranks of `ina run` sum."""
    assert process.stdout is not None
    for _ in range(ranks):
        line = process.stdout.readline()
        assert "going" in line, (line, *process.communicate())


@pytest.mark.parametrize("options", [(), ("--preempt",), ("--numbers", "block16"), ("--slots", "0")])
def test_shared_slots_a_tree_and_ranks_summed_on_their_machines(
    here: Cluster, options: Sequence[str]
) -> None:
    here.serve_fallback()
    status, output, errors = ended(here.run_patiently(HOSTS, ["python", "-c", SUM], *options))
    assert status == 0, errors
    said = sorted(json.loads(text) for text in re.findall(r"\] (\[.*)", output))
    assert said == [[rank, True, True, rank % 2 == 0] for rank in range(8)]
    if options == ("--slots", "0"):
        assert "fallback: results" in output


@pytest.mark.parametrize(
    ("hosts", "options"),
    [
        (HOSTS, ("--slots", "0")),
        (HOSTS, ("--slots", "4")),
        (HOSTS, ("--preempt",)),
        ("h2:1,h4:1", ("--numbers", "fixed")),
        ("h1:2,h2:1", ()),
    ],
)
def test_a_fallback_server_beside_a_worker_at_one_port(
    here: Cluster, hosts: str, options: Sequence[str]
) -> None:
    with here.serving_on("h2"):
        here.serve_fallback("h2")
        status, output, errors = ended(here.run_patiently(hosts, ["python", "-c", SUM], *options))
    assert status == 0, errors
    said = sorted(json.loads(text)[:3] for text in re.findall(r"\] (\[.*)", output))
    assert said == [[rank, True, True] for rank in range(sum(int(each[-1]) for each in hosts.split(",")))]
    assert "fallback: results" in output


def test_a_fallback_server_beside_a_worker_is_killed_and_started_again(here: Cluster) -> None:
    with here.serving_on("h2"):
        service = here.serve_fallback("h2")
        run = here.run_patiently(HOSTS, ["python", "-c", STEPS])
        all_going(run, 8)
        for process in here.mentioning("h2", "--beside-workers"):
            os.kill(process, signal.SIGKILL)
        status, output, errors = ended(run)
    assert status == 0, errors
    assert output.count("all right") == 8
    service.terminate()
    assert "restarting it (1 of 5)" in ended(service)[2]


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_ranks_of_other_launchers_find_their_machine_by_name(here: Cluster, launcher: str) -> None:
    here.serve_fallback()
    ranks = []
    for rank in range(8):
        node, local = divmod(rank, 2)
        own = openmpi(rank, 8, local, 2) if launcher == "mpirun" else slurm(rank, 8, local, node, "2(x4)")
        variables = own | {"INA_MEETING": f"{here.state.topology.ip('h1')}:29600"}
        ranks.append(here.start(f"h{node + 1}", [sys.executable, "-c", SUM], variables))
    said = sorted(json.loads(output)[:3] for output in succeed(ranks, PATIENCE_S))
    assert said == [[rank, True, True] for rank in range(8)]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_torchrun_and_ina_run_give_the_losses_of_one_process(here: Cluster, tmp_path: Path) -> None:
    """Two ranks on a machine in each rack: more machines show no more of torch, which takes long to import.

    The process has the batches of all ranks: the mean of their gradients is what DDP makes of them.

    It is no gloo group beside ours: gloo's threads outlive the group, and may abort a process that has done
    all its work.
    """
    here.serve_fallback()
    machines, ranks = ("h1", "h3"), 4
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    launch = [*TORCHRUN, "--nnodes", "2", "--nproc-per-node", "2"]
    launch += ["--master-addr", here.state.topology.ip("h1"), "--master-port", "29611"]
    hosts = ",".join(f"{machine}:2" for machine in machines)
    run = [sys.executable, "-m", "ina", "run", "--hosts", hosts, "--launch-with", here.template, "--"]

    def trained(way: str, commands: Mapping[str, Sequence[str]]) -> list[list[float]]:
        """Run a command on each machine; return the losses of each rank."""
        (answers := tmp_path / way).mkdir()
        own = {"ANSWERS": str(answers)}
        succeed([here.start(machine, command, own) for machine, command in commands.items()], PATIENCE_S)
        return [json.loads((answers / str(rank)).read_text()) for rank in range(ranks)]

    agents = {machine: [*launch, f"--node-rank={node}", str(script)] for node, machine in enumerate(machines)}
    run += ["env", f"ANSWERS={tmp_path / 'ina run'}", sys.executable, str(script)]
    ways = {"torchrun": trained("torchrun", agents), "ina run": trained("ina run", {"h1": run})}
    [alone] = succeed([here.start("h1", [sys.executable, "-c", ALONE, str(ranks)])], PATIENCE_S)
    for way, losses in ways.items():
        assert losses == [pytest.approx(rank, abs=1e-3) for rank in json.loads(alone)], way


# --------------------------------------------------------------------------- faults


def test_a_fallback_server_that_is_killed_is_started_again(here: Cluster) -> None:
    service = here.serve_fallback()
    run = here.run_patiently(HOSTS, ["python", "-c", STEPS], "--slots", "0")
    all_going(run, 8)
    here.signal_machine("p1", signal.SIGKILL, but=[service.pid])
    status, output, errors = ended(run)
    assert status == 0, errors
    assert output.count("all right") == 8


def test_a_fallback_service_that_comes_back_in_time_goes_on(here: Cluster) -> None:
    here.serve_fallback()
    run = here.run_patiently(HOSTS, ["python", "-c", STEPS], "--slots", "0")
    all_going(run, 8)
    here.signal_machine("p1", signal.SIGKILL)
    here.serve_fallback()
    status, output, errors = ended(run)
    assert status == 0, errors
    assert output.count("all right") == 8


def test_the_fallback_servers_machine_dies(here: Cluster) -> None:
    here.serve_fallback()
    run = here.run(HOSTS, ["python", "-c", LOOP])
    all_going(run, 8)
    here.signal_machine("p1", signal.SIGKILL)
    status, _, errors = ended(run)
    assert status == 1
    why = r"the fallback server on p1 \(10\.0\.0\.5:9560\) has not answered for \d+ s"
    for rank in range(8):
        assert re.search(rf"\[{rank}\] hostlib\.errors\.JobFault: .*{why}", errors), errors
    assert re.search(f"ina: {why}", errors)


@pytest.mark.parametrize(
    ("machine", "number"),
    effort.some(itertools.product(("h3", "h2"), (signal.SIGKILL, signal.SIGSTOP)), every=3),
)
def test_a_machine_that_dies_or_hangs_is_named_on_all_ranks(
    here: Cluster, machine: str, number: signal.Signals
) -> None:
    """One in another rack dies, one in the first rank's hangs; with --thorough the other way round, too."""
    here.serve_fallback()
    run = here.run(HOSTS, ["python", "-c", LOOP])
    all_going(run, 8)
    here.signal_machine(machine, number)
    status, _, errors = ended(run)
    assert status == 1
    lost = [2 * (int(machine[1]) - 1), 2 * (int(machine[1]) - 1) + 1]
    for rank in {*range(8)} - {*lost}:
        assert re.search(rf"\[{rank}\] hostlib\.errors\.PeerLost: .*lost rank {lost[0]}", errors), errors
    assert re.search(rf"ina: rank {lost[0]} .*", errors)
    if number == signal.SIGSTOP:
        assert f"machine {machine}: it has not answered for 6 s" in errors


def test_the_first_ranks_machine_dies(here: Cluster) -> None:
    """The ranks are on other machines than `ina run` itself."""
    here.serve_fallback()
    run = here.run("h3:2,h4:2,h2:2", ["python", "-c", LOOP])
    all_going(run, 6)
    here.signal_machine("h3", signal.SIGKILL)
    status, _, errors = ended(run)
    assert status == 1
    for rank in range(2, 6):
        assert re.search(rf"\[{rank}\] hostlib\.errors\.PeerLost: .*lost rank 0", errors), errors


def test_a_rank_that_is_killed_is_named_on_all(here: Cluster) -> None:
    here.serve_fallback()
    die = "import os, hostlib as i; i.init(); i.rank() == 5 and os.kill(os.getpid(), 9); i.barrier()"
    status, _, errors = ended(here.run(HOSTS, ["python", "-c", die]))
    assert status == 1
    for rank in {*range(8)} - {5}:
        assert re.search(rf"\[{rank}\] hostlib\.errors\.PeerLost: .*lost rank .*5", errors), errors
    assert "rank 5 killed by SIGKILL" in errors


def test_ranks_end_with_the_ina_run_that_started_them(here: Cluster) -> None:
    """Also if it is killed; the lease removes its job, which the next run watches."""
    here.serve_fallback()
    run = here.run(HOSTS, ["python", "-c", LOOP], "--lease", "2")
    all_going(run, 8)
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    until(lambda: not _mentioning(LOOP))
    status, _, errors = ended(here.run(HOSTS, ["python", "-c", SUM], "--lease", "2"))
    assert status == 0, errors


def _mentioning(text: str) -> list[int]:
    """Return the processes with this text as an argument."""
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [process for process in found if text.encode() in arguments(process)]


def started(here: Cluster, ranks: int, code: str, own: Mapping[str, str]) -> list[subprocess.Popen[str]]:
    """Start a rank on each of the first machines, with the variables of mpirun."""
    meeting = {"INA_MEETING": f"{here.state.topology.ip('h1')}:29600"}
    return [
        here.start(
            f"h{rank + 1}", [sys.executable, "-uc", code], openmpi(rank, ranks, 0, 1) | meeting | dict(own)
        )
        for rank in range(ranks)
    ]


def test_a_machine_whose_cable_is_cut_is_named_by_ranks_of_any_launcher(here: Cluster) -> None:
    """No connection to it closes; its own ranks end, too."""
    here.serve_fallback()
    ranks = started(here, 3, LOOP, {})
    for rank in ranks:
        all_going(rank, 1)
    here.cable("h3", "down")
    try:
        found = [ended(rank) for rank in ranks]
    finally:
        here.cable("h3", "up")
    for status, _, errors in found[:2]:
        assert status == 1
        assert re.search("PeerLost: .*lost rank 2: its machine has not answered for 10 s", errors), errors
    status, _, errors = found[2]
    assert status == 1
    assert re.search(r"JobFault: .*the launcher at 10\.\S+ has not answered for 10 s|PeerTimeout", errors), (
        errors
    )


def test_a_job_whose_holder_is_killed_leaves_the_switches(here: Cluster) -> None:
    """The fallback server's machine watches its lease: nobody else is left who does."""
    here.serve_fallback()
    ranks = started(here, 2, LOOP, {"INA_OPTIONS": "--lease 6"})
    for rank in ranks:
        all_going(rank, 1)
    assert len(here.jobs()) == 1
    [holder] = here.mentioning("h1", "ina admit")
    os.kill(holder, signal.SIGKILL)
    for status, _, errors in map(ended, ranks):
        assert status == 1
        assert "JobFault" in errors, errors
    until(lambda: not here.jobs())


# --------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ("h1,h9", "machine h9 is not in the cluster file, which has h1, h2, h3, h4, p1"),
        ("h1,h1", "--hosts: machine 'h1' is given twice; want NAME:RANKS"),
        ("h1:0", "--hosts 'h1:0': want NAME, NAME:RANKS or NAME slots=RANKS"),
        ("", "--hosts '': want NAME"),
    ],
)
def test_machines_that_cannot_be_used_are_named(here: Cluster, hosts: str, said: str) -> None:
    status, output, errors = ended(here.run(hosts, ["true"]))
    assert (status, output) == (2, "")
    assert said in errors


def test_a_job_on_the_fallback_servers_machine_alone_is_refused(here: Cluster) -> None:
    status, _, errors = ended(here.run("p1,h1", ["true"]))
    assert status == 2
    assert "no machine of the cluster file without a worker of this job has the role fallback" in errors


def test_a_fallback_server_that_is_not_there_is_named(here: Cluster) -> None:
    status, _, errors = ended(here.run("h1,h2", ["true"]))
    assert status == 1
    assert "the fallback server on p1 (10.0.0.5:9560) does not answer: [Errno 111]" in errors
    assert "'ina fallback --serve' starts one there" in errors


def test_a_fallback_server_with_another_secret_is_named(here: Cluster) -> None:
    here.serve_fallback()
    command = [sys.executable, "-m", "ina", "run", "--hosts", "h1,h2", "--launch-with", here.template]
    run = here.start("h1", [*command, "--", "true"], {"INA_TOKEN": "another secret, as long"})
    status, _, errors = ended(run)
    assert status == 1
    assert (
        "the fallback server on p1 (10.0.0.5:9560) refuses this machine: its INA_TOKEN is another" in errors
    )


def test_a_machine_on_which_nothing_can_be_started_is_named(here: Cluster) -> None:
    here.serve_fallback()
    command = [sys.executable, "-m", "ina", "run", "--hosts", "h1,h2"]
    run = here.start(
        "h1", [*command, "--launch-with", "ip netns exec nowhere.{host} {command}", "--", "true"]
    )
    status, _, errors = ended(run)
    assert status == 1
    assert re.search(
        r"machine h1 has not started: its launch command ended with status 255: .*nowhere\.h1", errors
    )


def test_a_template_without_a_command_is_refused(here: Cluster) -> None:
    command = [sys.executable, "-m", "ina", "run", "--hosts", "h1,h2", "--launch-with", "ssh {host}"]
    status, _, errors = ended(here.start("h1", [*command, "--", "true"]))
    assert status == 2
    assert "--launch-with 'ssh {host}': want {host} or {address}, and {command}" in errors


def test_a_launcher_that_starts_too_few_ranks_is_named_on_all(here: Cluster) -> None:
    here.serve_fallback()
    variables = {"INA_MEETING": f"{here.state.topology.ip('h1')}:29600", "INA_MEETING_S": "3"}
    ranks = [
        here.start(f"h{rank + 1}", [sys.executable, "-c", SUM], openmpi(rank, 4, 0, 1) | variables)
        for rank in range(3)
    ]
    for status, _, errors in map(ended, ranks):
        assert status == 1
        assert "rank 3 has not come to INA_MEETING within 3 s, of 4 ranks" in errors


def test_a_rank_on_a_machine_that_is_not_in_the_file_is_named_on_all(here: Cluster) -> None:
    here.serve_fallback()
    variables = {"INA_MEETING": f"{here.state.topology.ip('h1')}:29600"}
    shorter = json.loads(here.file.read_text())
    shorter["server"] = [each for each in shorter["server"] if each["name"] != "h2"]
    shorter["link"] = [each for each in shorter["link"] if each["a"] != "h2"]
    file = here.file.with_name("shorter.json")
    file.write_text(json.dumps(shorter))
    ranks = [
        here.start(
            f"h{rank + 1}",
            [sys.executable, "-c", SUM],
            openmpi(rank, 2, 0, 1) | variables | {"INA_CLUSTER": str(file)},
        )
        for rank in range(2)
    ]
    for status, _, errors in map(ended, ranks):
        assert status == 1
        assert "machine h2, 10.0.0.2 is not in the cluster file, which has h1, h3, h4, p1" in errors


def test_an_mtu_that_is_too_small_is_named(here: Cluster) -> None:
    here.serve_fallback()
    here.ip("h2", "link", "set", "h2-eth0", "mtu", "150")
    try:
        status, _, errors = ended(here.run("h1,h2", ["python", "-c", SUM]))
    finally:
        here.ip("h2", "link", "set", "h2-eth0", "mtu", "1500")
    assert status == 1
    assert "[1] hostlib.errors.ConfigError: the MTU of h2-eth0 (10.0.0.2) is 150, and packets have" in errors
    assert re.search(r"\[0\] .*rank 1", errors), errors


def another_version(folder: Path) -> dict[str, str]:
    """Return the variables with which a process has another version of the package."""
    other = "import importlib.metadata as m; m.version = lambda name, of=m.version: of(name) + '.post9'"
    (folder / "sitecustomize.py").write_text(other)
    return {"PYTHONPATH": str(folder)}


def test_a_machine_with_another_version_is_named_before_any_rank_starts(
    here: Cluster, tmp_path: Path
) -> None:
    here.serve_fallback()
    variables = " ".join(f"{name}={text}" for name, text in another_version(tmp_path).items())
    enter = tmp_path / "enter"
    enter.write_text(f'[ "$1" = h1 ] || export {variables}\nexec sh {here.enter} "$@"\n')
    command = [sys.executable, "-m", "ina", "run", "--hosts", "h1,h2"]
    run = here.start("h1", [*command, "--launch-with", f"sh {enter} {{host}} {{command}}", "--", "true"])
    status, output, errors = ended(run)
    assert (status, output) == (1, ""), errors
    assert re.search(r"machine h2 has ina \S+\.post9 \(header 2\), this one \S+ \(header 2\)", errors), errors
    assert "install the same version on all" in errors


def test_ranks_of_another_version_are_named_on_all(here: Cluster, tmp_path: Path) -> None:
    here.serve_fallback()
    meeting = {"INA_MEETING": f"{here.state.topology.ip('h1')}:29600"}
    ranks = [
        here.start(
            f"h{rank + 1}",
            [sys.executable, "-c", SUM],
            openmpi(rank, 2, 0, 1) | meeting | (another_version(tmp_path) if rank else {}),
        )
        for rank in range(2)
    ]
    for status, _, errors in map(ended, ranks):
        assert status == 1
        assert re.search(r"rank 1 on h2 has ina \S+\.post9 \(header 2\), rank 0 on h1 has", errors), errors
