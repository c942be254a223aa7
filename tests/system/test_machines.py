"""Ranks on two machines that a launcher has started: two network namespaces, and a switch between them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bmv2_topos.testbeds.netns.forwarding import SWITCH_IP
from controller.vocabulary.catalog import named
from tests.extras import needs
from tests.system.clusters import NETNS, Cluster
from tests.system.command import ends, succeed

pytestmark = NETNS
SHAPE = {"program": "exclusive", "shape": named("single-switch:2")}
SUM = """
import json, numpy as np, hostlib as ina
ina.init()
total = ina.allreduce(np.arange(5, dtype=np.int32) + ina.rank())
packets = ina.statistics()["packets_sent"]
print(json.dumps([ina.rank(), ina.size(), total.tolist(), packets > 0, ina.current().job > 0]))
ina.shutdown()
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


def host(here: Cluster, name: str) -> str:
    """Return what ``--host`` has to say of a machine."""
    topology = here.state.topology
    return f"--host {topology.port_to('s1', name)}={topology.ip(name)}/{topology.mac(name)}"


def start(
    here: Cluster, machine: int, command: Sequence[str], own: Mapping[str, str]
) -> subprocess.Popen[str]:
    """Start Python on one of the two machines, where no cluster file says how they are connected."""
    hosts = " ".join(host(here, name) for name in ("h1", "h2"))
    variables = {
        "INA_SWITCH": f"unix:{here.state.socket('s1')}",
        "INA_OPTIONS": f"{hosts} --switch-ip {SWITCH_IP} --lanes 32 --slots 64",
        "INA_MEETING": f"{here.state.topology.ip('h1')}:29600",
        "GLOO_SOCKET_IFNAME": f"h{machine + 1}-eth0",
    }
    alone = ["env", "-u", "INA_CLUSTER", sys.executable, *command]
    return here.start(f"h{machine + 1}", alone, variables | own)


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


def test_ranks_of_mpirun_on_two_machines_are_summed_there_first(here: Cluster) -> None:
    """Ranks 0 and 2 are on one machine, 1 on the other; one rank of each has packets."""
    places = [(0, 0, 0, 2), (1, 1, 0, 1), (2, 0, 1, 2)]
    ranks = [start(here, host, ["-c", SUM], openmpi(rank, 3, *local)) for rank, host, *local in places]
    total = [3 * i + 3 for i in range(5)]
    assert answers(ranks) == [
        [0, 3, total, True, True],
        [1, 3, total, True, True],
        [2, 3, total, False, True],
    ]


def test_several_ranks_on_a_machine_of_several_have_to_be_summed_there(here: Cluster) -> None:
    places = [(0, 0, 0), (1, 0, 1), (2, 1, 0)]
    ranks = [
        start(here, host, ["-c", SUM], {**slurm(rank, 3, local, host, "2,1"), "INA_HIERARCHICAL": "0"})
        for rank, host, local in places
    ]
    for status, _, errors in ends(ranks):
        assert status == 1
        assert "INA_HIERARCHICAL is 0, but one of several machines has several ranks" in errors


def test_a_rank_with_another_token_is_not_heard(here: Cluster) -> None:
    """It gets nothing, and the rank in whose name it comes is not held up."""
    forged = start(here, 1, ["-c", SUM], {**openmpi(1, 2, 0, 1), "INA_TOKEN": "another secret, as long"})
    right = [start(here, rank, ["-c", SUM], openmpi(rank, 2, 0, 1)) for rank in range(2)]
    assert [each[2] for each in answers(right)] == [[1, 3, 5, 7, 9]] * 2
    [(status, output, errors)] = ends([forged])
    assert (status, output) == (1, "")
    assert "RendezvousError: rank 1: refused by rank 0: its INA_TOKEN differs" in errors


def test_what_cannot_be_admitted_is_told_to_all_machines(here: Cluster) -> None:
    wrong = {"INA_OPTIONS": f"{host(here, 'h1')} --lanes 32"}
    first, other = ends([start(here, rank, ["-c", SUM], openmpi(rank, 2, 0, 1) | wrong) for rank in range(2)])
    assert "--host: the ranks are on 2 machines, but 1 are given" in first[2]
    assert "rank 1: rank 0 could not admit the job: 'ina admit' ended" in other[2]


@needs("torch")
def test_horovod_of_mpirun_on_two_machines(here: Cluster, tmp_path: Path) -> None:
    answers = {"ANSWERS": str(tmp_path)}
    places = [divmod(rank, 2) for rank in range(4)]
    succeed(
        [
            start(here, machine, ["-c", HOROVOD], openmpi(rank, 4, local, 2) | answers)
            for rank, (machine, local) in enumerate(places)
        ]
    )
    for rank, (machine, local) in enumerate(places):
        assert json.loads((tmp_path / str(rank)).read_text()) == {
            "places": [4, local, 2, machine, 2],
            "weight": [[1.5, 1.5]],  # 3 from rank 3, less the mean of 0 to 3
            "sum": [15.0] * 3,
            "half": [4.0] * 3,
            "max": [3],
            "gathered": [0, 1, 2, 3],
            "object": {"of": 2},
            "packets": local == 0,
        }
