"""Ranks on two machines that a launcher has started: two network namespaces, and a switch between them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from controller import connect
from controller.switches import forwarding
from ina.runtime.switch_process import EmbeddedSwitch
from tests.softswitch.namespaces import Namespace, hosts, why_not
from tests.softswitch.script_program import have_compiler
from tests.system.command import ROOT, TORCHRUN, ends, succeed

REASON = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"
pytestmark = [pytest.mark.netns, pytest.mark.skipif(bool(REASON), reason=REASON)]

SWITCH_IP = "10.77.0.254"
TOKEN = "a secret of both machines"
SUM = """
import json, numpy as np, hostlib as ina
ina.init()
total = ina.allreduce(np.arange(5, dtype=np.int32) + ina.rank())
packets = ina.statistics()["packets_sent"]
print(json.dumps([ina.rank(), ina.size(), total.tolist(), packets > 0, ina.current().job > 0]))
ina.shutdown()
"""
TRAIN = """
import json, os, torch, torch.distributed as dist, hostlib, hostlib.torch
dist.init_process_group("ina")
value = torch.full((1000,), float(dist.get_rank() + 1))
dist.all_reduce(value)
packets = hostlib.statistics()["packets_sent"]
said = [dist.get_rank(), value.unique().tolist(), hostlib.torch.paths(), packets > 0]
open(os.environ["ANSWERS"] + f"/{dist.get_rank()}", "w").write(json.dumps(said))
dist.destroy_process_group()
"""
HOROVOD = """
import json, os, torch, torch.distributed as dist, hostlib, hostlib.horovod as hvd
hvd.init()
rank = hvd.rank()
places = [hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
model = torch.nn.Linear(2, 1, bias=False)
model.weight.data.fill_(rank)
hvd.broadcast_parameters(model.state_dict(), root_rank=3)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 1.0), model.named_parameters())
model(torch.full((1, 2), float(rank))).sum().backward()
optimizer.step()
said = {
    "places": places,
    "weight": model.weight.tolist(),
    "sum": hvd.allreduce(torch.full((3,), 2.0**rank), op=hvd.Sum).tolist(),
    "half": hvd.allreduce(torch.ones(3), op=hvd.Sum, compression=hvd.Compression.fp16).tolist(),
    "max": hvd.allreduce(torch.tensor([rank]), op=hvd.Max).tolist(),
    "gathered": hvd.allgather(torch.tensor([[rank]])).flatten().tolist(),
    "object": hvd.broadcast_object({"of": rank}, root_rank=2),
    "packets": hostlib.statistics()["packets_sent"] > 0,
}
open(os.environ["ANSWERS"] + f"/{rank}", "w").write(json.dumps(said))
hvd.shutdown()
"""


@dataclass(frozen=True)
class Bed:
    """Two machines; the first also reaches the switch's P4Runtime."""

    machines: Sequence[Namespace]
    switch: str

    @property
    def variables(self) -> dict[str, str]:
        """Return what is set on both for ranks."""
        places = [f"--host {port}={host.ip}/{host.mac}" for port, host in enumerate(self.machines, 1)]
        return {
            "INA_SWITCH": self.switch,
            "INA_OPTIONS": " ".join([*places, f"--switch-ip {SWITCH_IP} --lanes 32 --slots 64"]),
            "INA_TOKEN": TOKEN,
            "INA_MEETING": f"{self.machines[0].ip}:29600",
            "OMP_NUM_THREADS": "1",
        }

    def start(
        self, machine: int, command: Sequence[str], variables: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        """Start a command on a machine, with the interpreter of these tests."""
        inside = ("ip", "netns", "exec", self.machines[machine].name, sys.executable)
        return subprocess.Popen(
            [*inside, *command],
            cwd=ROOT,
            env={**os.environ, **self.variables, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with hosts(2) as made, contextlib.ExitStack() as stack:
        own = stack.enter_context(_management(made[0]))
        ports = [f"--port={port}=veth:{host.switch_interface}" for port, host in enumerate(made, 1)]
        options = ["--program=exclusive", "--lanes=32", *ports]
        switch = stack.enter_context(EmbeddedSwitch(options, p4runtime=f"{own}:0"))
        with connect(switch.address) as controller:
            controller.install(
                [
                    forwarding.flood_group(1000, [1, 2]),
                    forwarding.broadcast(1000),
                    *(forwarding.bridge(host.mac, port) for port, host in enumerate(made, 1)),
                ]
            )
        yield Bed(made, f"grpc://{switch.address}")


@contextlib.contextmanager
def _management(host: Namespace) -> Iterator[str]:
    """Connect a host with the switch's machine; give the switch's address there.

    The machine is this one, where other test processes have such links, too: each has a network of its own.
    """
    network = IPv4Address("10.78.0.0") + 4 * (os.getpid() % 2**14)
    ours, theirs = f"ina{os.getpid() % 100000}m0", f"ina{os.getpid() % 100000}m1"
    commands = (
        f"link add {ours} type veth peer name {theirs} netns {host.name}",
        f"address add {network + 1}/30 dev {ours}",
        f"link set {ours} up",
        f"-n {host.name} address add {network + 2}/30 dev {theirs}",
        f"-n {host.name} link set {theirs} up",
    )
    try:
        for command in commands:
            subprocess.run(["ip", *command.split()], check=True)
        yield str(network + 1)
    finally:
        subprocess.run(["ip", "link", "delete", ours], capture_output=True)


def openmpi(rank: int, size: int, local: int, locals_: int) -> dict[str, str]:
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(locals_),
        "PMIX_NAMESPACE": "4711",
    }


def slurm(rank: int, size: int, local: int, node: int, tasks: str) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": "99",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": str(size),
        "SLURM_LOCALID": str(local),
        "SLURM_NODEID": str(node),
        "SLURM_TASKS_PER_NODE": tasks,
    }


def answers(ranks: Sequence[subprocess.Popen[str]]) -> list[list[object]]:
    return sorted(map(json.loads, succeed(ranks)))


def test_ranks_of_mpirun_on_two_machines_are_summed_there_first(bed: Bed) -> None:
    """Ranks 0 and 2 are on one machine, 1 on the other; one rank of each has packets."""
    places = [(0, 0, 0, 2), (1, 1, 0, 1), (2, 0, 1, 2)]
    ranks = [bed.start(host, ["-c", SUM], openmpi(rank, 3, *local)) for rank, host, *local in places]
    total = [3 * i + 3 for i in range(5)]
    assert answers(ranks) == [
        [0, 3, total, True, True],
        [1, 3, total, True, True],
        [2, 3, total, False, True],
    ]


def test_ranks_of_srun_on_two_machines(bed: Bed) -> None:
    ranks = [bed.start(rank, ["-c", SUM], slurm(rank, 2, 0, rank, "1(x2)")) for rank in range(2)]
    assert answers(ranks) == [[rank, 2, [1, 3, 5, 7, 9], True, True] for rank in range(2)]


def test_several_ranks_on_a_machine_of_several_have_to_be_summed_there(bed: Bed) -> None:
    places = [(0, 0, 0), (1, 0, 1), (2, 1, 0)]
    ranks = [
        bed.start(host, ["-c", SUM], {**slurm(rank, 3, local, host, "2,1"), "INA_HIERARCHICAL": "0"})
        for rank, host, local in places
    ]
    for status, _, errors in ends(ranks):
        assert status == 1
        assert "INA_HIERARCHICAL is 0, and a machine of several has several ranks" in errors


def test_a_rank_with_another_token_is_not_heard(bed: Bed) -> None:
    """It gets nothing, and the rank in whose name it comes is not held up."""
    forged = bed.start(1, ["-c", SUM], {**openmpi(1, 2, 0, 1), "INA_TOKEN": "another secret, as long"})
    right = [bed.start(rank, ["-c", SUM], openmpi(rank, 2, 0, 1)) for rank in range(2)]
    assert [each[2] for each in answers(right)] == [[1, 3, 5, 7, 9]] * 2
    [(status, output, errors)] = ends([forged])
    assert (status, output) == (1, "")
    assert "RendezvousError: rank 1: rank 0 is gone" in errors or "nobody listens" in errors


def test_what_cannot_be_admitted_is_told_to_all_machines(bed: Bed) -> None:
    wrong = {"INA_OPTIONS": f"--host 1={bed.machines[0].ip}/{bed.machines[0].mac} --lanes 32"}
    first, other = ends([bed.start(rank, ["-c", SUM], openmpi(rank, 2, 0, 1) | wrong) for rank in range(2)])
    assert "--host: the ranks are on 2 machines, but 1 are given" in first[2]
    assert "rank 1: rank 0 could not have the job admitted: 'ina admit' ended" in other[2]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_horovod_of_mpirun_on_two_machines(bed: Bed, tmp_path: Path) -> None:
    ranks = []
    for rank in range(4):
        host, local = divmod(rank, 2)
        interface = bed.machines[host].switch_interface.replace("s", "h")
        variables = {"GLOO_SOCKET_IFNAME": interface, "ANSWERS": str(tmp_path)}
        ranks.append(bed.start(host, ["-c", HOROVOD], openmpi(rank, 4, local, 2) | variables))
    succeed(ranks)
    for rank in range(4):
        host, local = divmod(rank, 2)
        assert json.loads((tmp_path / str(rank)).read_text()) == {
            "places": [4, local, 2, host, 2],
            "weight": [[1.5, 1.5]],  # 3 from rank 3, less the mean of 0 to 3
            "sum": [15.0] * 3,
            "half": [4.0] * 3,
            "max": [3],
            "gathered": [0, 1, 2, 3],
            "object": {"of": 2},
            "packets": local == 0,
        }


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_torchrun_on_two_machines(bed: Bed, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    (tmp_path / "answers").mkdir()
    launch = [*TORCHRUN[1:], "--nnodes", "2", "--nproc-per-node", "2"]
    launch += ["--master-addr", bed.machines[0].ip, "--master-port", "29601"]
    agents = []
    for node, host in enumerate(bed.machines):
        interface = host.switch_interface.replace("s", "h")
        variables = {"GLOO_SOCKET_IFNAME": interface, "ANSWERS": str(tmp_path / "answers")}
        agents.append(bed.start(node, [*launch, "--node-rank", str(node), str(script)], variables))
    succeed(agents)
    said = [json.loads((tmp_path / "answers" / str(rank)).read_text()) for rank in range(4)]
    path = {"allreduce sum float32": {"switch": 1}}
    assert said == [[rank, [10.0], path, rank in (0, 2)] for rank in range(4)]
