"""Clusters of machines for the service: what a file must say, which engines fit, and files read again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.policies.placement.flows import steady_state
from controller.policies.placement.policy import choose_fallback
from controller.vocabulary import BadSpec, Job, Topology, parse_topology
from controller.vocabulary.catalog import leaf_spine
from controller.vocabulary.files import check_job, topology_document
from controller.vocabulary.graphs import pinned
from ina.errors import BadRun, ServiceError
from ina.run.assembly import Files
from ina.run.client import Client, Refused
from ina.run.launch.engines import EngineChoice
from ina.run.policies import Policies
from ina.run.site import MachineSite, read_cluster
from tests.ina.run.bed import serving

LAB = """
[[switch]]
name = "s1"
p4runtime = "grpc://10.1.0.9:9559"

[[server]]
name = "n1"
switch = "s1"
port = 1
ip = "10.0.0.1"
mac = "02:00:00:00:00:01"

[[server]]
name = "n2"
switch = "s1"
port = 2
ip = "10.0.0.2"
mac = "02:00:00:00:00:02"
role = "fallback"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "lab.toml"
    path.write_text(text)
    return path


def test_a_file_says_where_all_is_reached(tmp_path: Path) -> None:
    found = read_cluster(written(tmp_path, LAB))
    assert found.server["n2"].fallback_port == 9560
    assert found.server["n1"].fallback_port == 0
    assert parse_topology(json.dumps(topology_document(found)), source="lab.json") == found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("p4runtime =", "# p4runtime ="), "lab.toml:2: switch 's1': p4runtime is missing: want grpc://"),
        (('mac = "02:00:00:00:00:02"', ""), "lab.toml:13: server 'n2': mac is missing: 'ina host'"),
        (('ip = "10.0.0.1"', ""), "lab.toml:6: server 'n1': ip is missing: 'ina host'"),
        (
            ("port = 2", ""),
            "lab.toml:13: server 'n2': port is missing: the port of switch 's1' that leads to",
        ),
        (('role = "fallback"', "gpus = 1"), "no server has the role fallback, or a fallback_port: want one"),
        (('name = "n1"', 'name = "n1"\nrole = "traffic"\ngpus = 0'), "no server has GPUs"),
        (("10.0.0.2", "10.0.0.1"), "server 'n2': ip is 10.0.0.1, already used by 'n1'"),
    ],
)
def test_a_file_that_leaves_something_out_is_refused(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    with pytest.raises(BadSpec) as refused:
        read_cluster(written(tmp_path, LAB.replace(*change)))
    assert said in str(refused.value)


def test_engines_fit_machines_or_testbeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = MachineSite(cluster=read_cluster(written(tmp_path, LAB)))
    monkeypatch.setenv("INA_TOKEN", "0123456789abcdef")
    site.check(EngineChoice("ssh"))
    site.check(EngineChoice("slurm"))
    with pytest.raises(ServiceError, match="'local' starts workers on the hosts of a testbed; with a"):
        site.check(EngineChoice("local"))
    monkeypatch.setenv("INA_TOKEN", "short")
    with pytest.raises(BadRun, match="INA_TOKEN has 5 characters"):
        site.check(EngineChoice("ssh"))
    with pytest.raises(ServiceError, match=r"launch_with .* want executor ssh"):
        EngineChoice("slurm", launch_with="rsh {host} {command}")


def serving_on(cluster: Topology, *names: str) -> Topology:
    """Return the cluster with fallback servers on these servers."""
    ports = dict.fromkeys(names, 9560)
    servers = (replace(each, fallback_port=ports.get(each.name, 0)) for each in cluster.servers)
    return replace(cluster, servers=tuple(servers))


def test_fallback_servers_are_where_the_file_has_them() -> None:
    bed = pinned(leaf_spine(2, 2, 2, servers=2))
    job = Job(name="a", workers=2, layers_bytes=(1000,), servers=("h1", "h3"))
    assert choose_fallback(steady_state(bed, []), job) == "p1"  # any is as good
    one = serving_on(bed, "p2")
    assert choose_fallback(steady_state(one, []), job) == "p2"
    with pytest.raises(BadSpec, match="fallback = 'h2': no fallback server runs there; want p2"):
        check_job(replace(job, fallback="h2"), one)
    check_job(replace(job, fallback="p2"), one)


def test_a_fallback_server_is_beside_a_worker_only_where_no_other_is_free() -> None:
    bed = serving_on(pinned(leaf_spine(2, 2, 2, servers=0)), "h1", "h4")
    job = Job(name="a", workers=2, layers_bytes=(1000,), servers=("h1", "h3"))
    assert choose_fallback(steady_state(bed, []), job) == "h4"
    assert choose_fallback(steady_state(bed, []), replace(job, servers=("h2", "h4"))) == "h1"
    assert choose_fallback(steady_state(bed, []), replace(job, servers=("h1", "h4"))) in ("h1", "h4")
    assert choose_fallback(steady_state(bed, []), replace(job, servers=("h1", "h1"))) == "h4"


def test_files_are_read_again_when_an_operator_asks(tmp_path: Path) -> None:
    lab = written(tmp_path, LAB)
    policies = tmp_path / "policies.toml"
    policies.write_text('scheduler = "srsf"\n')
    with (
        serving(tmp_path / "state", files=Files(lab, policies, Policies())) as bed,
        Client(bed.url) as client,
    ):
        assert client.reload()["policies"]["scheduler"] == "srsf"
        assert bed.daemon.ledger.topology == read_cluster(lab)

        def refused(change: Callable[[], Any]) -> str:
            change()
            with pytest.raises(Refused) as error:
                client.reload()
            assert error.value.status == 409
            return str(error.value)

        before: Topology = bed.daemon.ledger.topology
        text = refused(lambda: lab.write_text(LAB.replace("port = 2", "")))
        assert "nothing has changed: " in text
        assert "lab.toml:13: server 'n2': port is missing" in text
        lab.write_text(LAB.replace("10.0.0.2", "10.0.0.9"))
        text = refused(lambda: policies.write_text("scheduler = 3\n"))
        assert "policies.toml:1: scheduler = 3" in text
        assert bed.daemon.ledger.topology is before  # both files are read before anything changes


def test_a_controller_without_files_has_none_to_read(tmp_path: Path) -> None:
    neither = Files(None, None, Policies())
    for files, said in (
        (None, "neither --cluster nor --policies"),
        (neither, "neither --cluster nor --policies"),
    ):
        folder = tmp_path / ("none" if files is None else "neither")
        with (
            serving(folder, files=files) as bed,
            Client(bed.url) as client,
            pytest.raises(Refused, match=said),
        ):
            client.reload()
