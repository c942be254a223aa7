"""Clusters that are divided into virtual clusters."""

from dataclasses import replace
from pathlib import Path

import pytest

from controller.policies.family import SimulationConfig
from controller.policies.scheduling import BadSpec, Submission
from controller.simulator.clusters import read_cluster
from controller.simulator.generate import generate
from controller.simulator.policy_run import make
from controller.vocabulary import Cluster, Server
from tests.controller.simulator.commands import schedule

CLUSTER = Cluster(
    (Server(gpus=4, name="a", vc="x"), Server(gpus=2, name="b", vc="y"), Server(gpus=4, name="c", vc="x"))
)


@pytest.mark.parametrize("policy", ["srsf", "muri-s", "las"])
def test_each_virtual_cluster_is_as_if_it_were_alone(policy: str) -> None:
    specs = generate(40, CLUSTER, longest_s=3000, load=2)
    config = SimulationConfig(CLUSTER)
    whole = make(policy, config).run(specs, CLUSTER, detail=True, verify=True)
    ends = {job.spec.name: job.finish_s for job in whole.jobs}
    assert len(ends) == 40
    for vc in "xy":
        part = CLUSTER.part(vc)
        mine = [spec for spec in specs if spec.vc == vc]
        alone = make(policy, SimulationConfig(part)).run(mine, part)
        assert {job.spec.name: job.finish_s for job in alone.jobs} == {
            spec.name: ends[spec.name] for spec in mine
        }
    assert whole.curves is not None
    assert max(whole.curves.gpus) <= CLUSTER.gpus


def test_a_job_has_to_be_of_a_virtual_cluster_and_fit_into_it() -> None:
    run = make("fifo", SimulationConfig(CLUSTER))
    with pytest.raises(BadSpec, match="'j' is of virtual cluster ''; the cluster is divided into x, y"):
        run.run([Submission("j", 0, 1, 10)], CLUSTER)
    with pytest.raises(BadSpec, match="'j' asks for 3 GPUs; the cluster has 2"):
        run.run([Submission("j", 0, 3, 10, vc="y")], CLUSTER)
    with pytest.raises(BadSpec, match="server 'b' is in no virtual cluster, but others are"):
        Cluster((CLUSTER.servers[0], replace(CLUSTER.servers[1], vc="")))


def test_virtual_clusters_come_from_the_file_of_servers(tmp_path: Path) -> None:
    path = tmp_path / "servers.csv"
    path.write_text("gpus,vc,count\n4,x,2\n2,y,1\n")
    assert [(node.gpus, node.vc) for node in read_cluster(path).servers] == [(4, "x"), (4, "x"), (2, "y")]
    ran = schedule(
        "simulate", "--generate", 20, "--cluster", path, "--policy", "srsf,tiresias", "--json",
        "--processes", 1,
    )  # fmt: skip
    assert ran.code == 0
    assert [metrics["jobs"] for metrics in ran.json["metrics"].values()] == [20, 20]
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("name,arrival_s,duration_s,gpus,vc\n1,0,10,1,x\n")
    ran = schedule("plan", "--jobs", jobs, "--cluster", path, "--policy", "srsf")
    assert ran.code == 2
    assert "2 virtual clusters; give the servers of one" in ran.complaint


def test_a_file_says_which_racks_servers_stand_in(tmp_path: Path) -> None:
    path = tmp_path / "racks.csv"
    path.write_text("gpus,rack,count\n4,a,2\n4,b,2\n")
    assert read_cluster(path).racks == (frozenset({0, 1}), frozenset({2, 3}))
