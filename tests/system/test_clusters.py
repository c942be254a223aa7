"""Ranks on four machines of two racks, found by name in a cluster file, with a fallback server on a fifth."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bmv2_topos.testbeds import netns
from controller.vocabulary.catalog import named
from controller.vocabulary.files import topology_document
from tests import effort
from tests.system.clusters import ANOTHER_VERSION, NETNS, Cluster, cluster
from tests.system.command import PATIENCE_S, ended, finish, succeed, until
from tests.system.controllers import Controller
from tests.system.test_machines import openmpi, slurm

pytestmark = NETNS

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


@pytest.fixture(autouse=True)
def nothing_is_left(here: Cluster) -> Iterator[None]:
    """Every test ends with switches that serve no job."""
    yield
    here.end_all()
    until(lambda: not here.jobs())


@pytest.fixture
def fallback_server(here: Cluster) -> None:
    """A machine of the cluster runs the fallback server."""
    here.serve_fallback()


def said_by(output: str) -> list[list[object]]:
    """Return what ranks printed by `SUM`, in their order."""
    return sorted(json.loads(text) for text in re.findall(r"\] (\[.*)", output))


def all_going(process: subprocess.Popen[str], ranks: int) -> None:
    """Wait until all ranks of `ina run` sum."""
    for _ in range(ranks):
        line = process.stdout.readline()
        assert "going" in line, (line, *process.communicate())


@pytest.mark.usefixtures("fallback_server")
@pytest.mark.parametrize("options", [("--preempt", "--numbers", "block16"), ("--slots", "0")])
def test_shared_slots_a_tree_and_ranks_summed_on_their_machines(
    here: Cluster, options: Sequence[str]
) -> None:
    output, _ = finish(here.run_patiently(HOSTS, ["python", "-c", SUM], *options))
    assert said_by(output) == [[rank, True, True, rank % 2 == 0] for rank in range(8)]
    if options == ("--slots", "0"):
        assert "fallback: results" in output


@pytest.mark.parametrize(
    ("hosts", "options"),
    [
        (HOSTS, ("--slots", "0")),
        (HOSTS, ("--slots", "4", "--preempt")),
        ("h2:1,h4:1", ("--numbers", "fixed")),
        ("h1:2,h2:1", ()),
    ],
)
def test_a_fallback_server_beside_a_worker_at_one_port(
    here: Cluster, hosts: str, options: Sequence[str]
) -> None:
    with here.serving_on("h2"):
        output, _ = finish(here.run_patiently(hosts, ["python", "-c", SUM], *options))
    size = sum(int(each[-1]) for each in hosts.split(","))
    assert [said[:3] for said in said_by(output)] == [[rank, True, True] for rank in range(size)]
    assert "fallback: results" in output


@pytest.mark.usefixtures("fallback_server")
def test_ranks_of_other_launchers_find_their_machine_by_name(here: Cluster) -> None:
    ranks = []
    for rank in range(8):
        node, local = divmod(rank, 2)
        variables = slurm(rank, 8, local, node, "2(x4)") | {
            "INA_MEETING": f"{here.state.topology.ip('h1')}:29600"
        }
        ranks.append(here.start(f"h{node + 1}", [sys.executable, "-c", SUM], variables))
    said = sorted(json.loads(output)[:3] for output in succeed(ranks))
    assert said == [[rank, True, True] for rank in range(8)]


# --------------------------------------------------------------------------- faults


@pytest.mark.parametrize("also_its_service", [False, True])
def test_a_fallback_server_that_is_killed_is_started_again_in_time(
    here: Cluster, also_its_service: bool
) -> None:
    service = here.serve_fallback()
    run = here.run_patiently(HOSTS, ["python", "-c", STEPS], "--slots", "0")
    all_going(run, 8)
    here.signal_machine("p1", signal.SIGKILL, but=[] if also_its_service else [service.pid])
    if also_its_service:
        service.wait()
        here.serve_fallback()
    output, _ = finish(run)
    assert output.count("all right") == 8


DIE = "import os, hostlib as i; i.init(); i.rank() == 5 and os.kill(os.getpid(), 9); i.barrier()"


@dataclass(frozen=True)
class Death:
    """What ends under a run, and what is said of it.

    Attributes:
        machine: Whose processes get the signal; "": a rank dies by itself.
        gone: The ranks that end with it.
        by_ranks: A regular expression for what each other rank says.
        by_run: One for what ``ina run`` says.
        hosts: Of the run, which may be on others than ``ina run`` itself.
    """

    machine: str
    gone: frozenset[int]
    by_ranks: str
    by_run: str
    number: signal.Signals = signal.SIGKILL
    hosts: str = HOSTS


P1 = r"the fallback server on p1 \(10\.0\.0\.5:9560\) has not answered for \d+ s"
DEATHS = {
    "a rank": Death("", frozenset({5}), "PeerLost: .*lost rank 5", "rank 5 killed by SIGKILL"),
    "the fallback server's machine": Death("p1", frozenset(), f"JobFault: .*{P1}", f"ina: {P1}"),
    # one in another rack dies, one in the first rank's hangs; with --thorough the other way round, too
    "a machine in another rack": Death("h3", frozenset({4, 5}), "PeerLost: .*lost rank [45]", "ina: rank 4 "),
    "a machine that hangs": Death(
        *("h2", frozenset({2, 3}), "PeerLost: .*lost rank [23]"),
        r"machine h2: it has not answered for 6 s[\s\S]*ina: rank 2 ",
        signal.SIGSTOP,
    ),
    "the first rank's machine": Death(
        "h3", frozenset({0, 1}), "PeerLost: .*lost rank [01]", "ina: ", hosts="h3:2,h4:2,h2:2"
    ),
}
if effort.THOROUGH:
    DEATHS |= {
        "a machine in the first rank's rack": replace(
            DEATHS["a machine that hangs"], by_run="ina: rank 2 ", number=signal.SIGKILL
        ),
        "a machine in another rack that hangs": replace(
            DEATHS["a machine in another rack"],
            by_run=r"machine h3: it has not answered for 6 s[\s\S]*ina: rank 4 ",
            number=signal.SIGSTOP,
        ),
    }


@pytest.mark.usefixtures("fallback_server")
@pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS)
def test_what_dies_or_hangs_is_named_on_all_ranks(here: Cluster, death: Death) -> None:
    run = here.run(death.hosts, ["python", "-c", LOOP if death.machine else DIE])
    size = 2 * death.hosts.count(":")
    if death.machine:
        all_going(run, size)
        here.signal_machine(death.machine, death.number)
    status, _, errors = ended(run, PATIENCE_S)
    assert status == 1
    for rank in {*range(size)} - death.gone:
        assert re.search(rf"\[{rank}\] hostlib\.errors\.{death.by_ranks}", errors), errors
    assert re.search(death.by_run, errors), errors


@pytest.mark.usefixtures("fallback_server")
def test_ranks_end_with_the_ina_run_that_started_them(here: Cluster) -> None:
    """Also if it is killed; the lease removes its job, which the next run watches."""
    run = here.run(HOSTS, ["python", "-c", LOOP], "--lease", "2")
    all_going(run, 8)
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate()
    until(lambda: not any(here.mentioning(machine, LOOP) for machine in here.holders))
    finish(here.run(HOSTS, ["python", "-c", SUM], "--lease", "2"))


def started(
    here: Cluster, ranks: int, code: str, own: Mapping[str, str], size: int = 0, last: Mapping[str, str] = {}
) -> list[subprocess.Popen[str]]:
    """Start a rank on each of the first machines, with the variables of mpirun; the `last` has more."""
    common = {"INA_MEETING": f"{here.state.topology.ip('h1')}:29600", **own}
    return [
        here.start(
            f"h{rank + 1}",
            [sys.executable, "-uc", code],
            openmpi(rank, size or ranks, 0, 1) | common | (last if rank == ranks - 1 else {}),
        )
        for rank in range(ranks)
    ]


@pytest.mark.usefixtures("fallback_server")
def test_a_job_whose_holder_is_killed_leaves_the_switches(here: Cluster) -> None:
    """The fallback server's machine watches its lease: nobody else is left who does."""
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


NOT_THERE = r"the fallback server on p1 \(10\.0\.0\.5:9560\) does not answer: \[Errno 111\]"
ANOTHER = r"the fallback server on p1 \(10\.0\.0\.5:9560\) refuses this machine: its INA_TOKEN differs"
NOWHERE = r"machine h1 has not started: its launch command ended with status 255: .*nowhere\.h1"
WRONG: list[tuple[str, str, str, int, str]] = [
    ("h1,h9", "", "", 2, "machine h9 is not in the cluster file, which has h1, h2, h3, h4, p1"),
    ("h1,h1", "", "", 2, "--hosts: machine 'h1' is given twice; want NAME:RANKS"),
    ("h1:0", "", "", 2, "--hosts 'h1:0': want NAME, NAME:RANKS or NAME slots=RANKS"),
    ("", "", "", 2, "--hosts '': want NAME"),
    ("p1,h1", "", "", 2, "no machine of the cluster file without a worker of this job has the role fallback"),
    ("h1,h2", "ssh {host}", "", 2, "--launch-with 'ssh {host}': want {host} or {address}, and {command}"),
    ("h1,h2", "", "", 1, f"{NOT_THERE}.*'ina fallback --serve' starts one there"),
    ("h1,h2", "", "another secret, as long", 1, ANOTHER),
    ("h1,h2", "ip netns exec nowhere.{host} {command}", "own", 1, NOWHERE),
]
"""Hosts, launch command and token ("": no fallback server, "own": the cluster's); status and what is said."""


@pytest.mark.parametrize(("hosts", "template", "token", "status", "said"), WRONG)
def test_what_cannot_be_used_is_named(
    here: Cluster, hosts: str, template: str, token: str, status: int, said: str
) -> None:
    if token:
        here.serve_fallback()
    else:
        here.end_all(also_served=True)
    command = [sys.executable, "-m", "ina", "run", "--hosts", hosts]
    command += ["--launch-with", template or here.template, "--", "true"]
    other = {"INA_TOKEN": token} if token not in ("", "own") else {}
    found, output, errors = ended(here.start("h1", command, other), PATIENCE_S)
    assert (found, output) == (status, "")
    assert re.search(said, errors, re.DOTALL) or said in errors, errors


ODD: dict[str, tuple[int, int, Mapping[str, str], Mapping[str, str], str]] = {
    "there are too few": (
        *(3, 4, {"INA_MEETING_S": "3"}, {}),
        "rank 3 has not connected within 3 s, of 4 ranks",
    ),
    "one is on a machine that is not in the file": (
        *(2, 2, {"INA_CLUSTER": "{folder}/shorter.json"}, {}),
        r"machine h2, 10\.0\.0\.2 is not in the cluster file, which has h1, h3, h4, p1",
    ),
    "one is of another version": (
        *(2, 2, {}, {"PYTHONPATH": "{folder}"}),
        r"rank 1 on h2 has ina \S+\.post9 \(header 2\), rank 0 on h1 has",
    ),
}
"""Ranks, their number by the launcher, variables of all and of the last; what each says."""


@pytest.mark.usefixtures("fallback_server")
@pytest.mark.parametrize(("ranks", "size", "own", "last", "said"), ODD.values(), ids=ODD)
def test_what_is_odd_about_ranks_of_other_launchers_is_named_on_all(
    here: Cluster,
    tmp_path: Path,
    ranks: int,
    size: int,
    own: Mapping[str, str],
    last: Mapping[str, str],
    said: str,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(ANOTHER_VERSION)
    shorter = json.loads(here.file.read_text())
    shorter["server"] = [each for each in shorter["server"] if each["name"] != "h2"]
    shorter["link"] = [each for each in shorter["link"] if each["a"] != "h2"]
    (tmp_path / "shorter.json").write_text(json.dumps(shorter))
    own, last = ({name: text.format(folder=tmp_path) for name, text in each.items()} for each in (own, last))
    for process in started(here, ranks, SUM, own, size, last):
        _, errors = finish(process, 1)
        assert re.search(said, errors), errors


@pytest.mark.usefixtures("fallback_server")
def test_an_mtu_that_is_too_small_is_named(here: Cluster) -> None:
    here.ip("h2", "link", "set", "h2-eth0", "mtu", "150")
    try:
        status, _, errors = ended(here.run("h1,h2", ["python", "-c", SUM]))
    finally:
        here.ip("h2", "link", "set", "h2-eth0", "mtu", "1500")
    assert status == 1
    assert "[1] hostlib.errors.ConfigError: the MTU of h2-eth0 (10.0.0.2) is 150, and packets have" in errors
    assert re.search(r"\[0\] .*rank 1", errors), errors


# --------------------------------------------------------------------------- links that lose packets


def test_sums_are_exact_where_every_link_loses_packets(tmp_path: Path) -> None:
    racks = named("two-racks:2")
    lossy = tuple(replace(each, loss=0.01) for each in racks.links)
    with cluster(tmp_path, shape=replace(racks, links=lossy)) as here, here.serving_on("h2"):
        for options in ((), ("--slots", "16")):
            output, _ = finish(here.run_patiently(HOSTS, ["python", "-c", STEPS], *options))
            assert output.count("all right") == 8
            assert re.search(r"fallback: reminders +│ +[1-9]", output), output  # packets were lost
            until(lambda: not here.jobs())


# --------------------------------------------------------------------------- jobs of a controller


def test_ranks_find_the_job_as_a_controller_has_admitted_it(here: Cluster, tmp_path: Path) -> None:
    """Somebody else starts them; whichever server has which rank; ranks on other servers are refused."""
    here.end_all(also_served=True)  # the controller starts its own fallback server there
    service = Controller.on(here, tmp_path)
    service.start()
    with service.client() as client:
        client.submit([{"name": "a", "workers": 2, "command": "sleep 1000", "servers": ["h1", "h3"]}])
    service.until(lambda: service.states()["a"] == "running")
    order = json.loads((service.state / "runs" / "0" / "run.json").read_text())
    engine = {"engine": "ray", "cluster": topology_document(netns.cluster_topology(here.state))}
    given = json.dumps(order | engine)

    def sums(*machines: str) -> list[tuple[int, str, str]]:
        """Return how two ranks on these machines have ended."""
        own = {"INA_MEETING": f"{here.state.topology.ip(machines[0])}:29600", "INA_MEETING_S": "60"}
        own |= {"INA_GIVEN": given}
        command = [sys.executable, "-c", SUM]
        ranks = [here.start(at, command, openmpi(rank, 2, 0, 1) | own) for rank, at in enumerate(machines)]
        return [ended(rank, PATIENCE_S) for rank in ranks]

    found = sums("h3", "h1")
    assert [status for status, _, _ in found] == [0, 0], found
    assert [json.loads(output) for _, output, _ in found] == [[rank, True, True, True] for rank in (0, 1)]
    refused = sums("h1", "h2")
    why = "the ranks are on h1, h2, but the controller has placed the job on h1, h3"
    assert all(status and why in errors for status, _, errors in refused), refused
    service.end()
    until(lambda: len(here.jobs()) == 1)  # it runs on without the controller
    service.start()
    service.cancel("a")
    service.until(service.clean)
    service.end()
