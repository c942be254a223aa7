"""Ranks that somebody else starts on the servers of a controller's job, which has been admitted already."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bmv2_topos.testbeds import netns
from controller.vocabulary.files import topology_document
from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler
from tests.system.clusters import PATIENCE_S, Cluster, cluster, until
from tests.system.engines import Service
from tests.system.test_clusters import SUM

REASON = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"
pytestmark = [pytest.mark.netns, pytest.mark.skipif(bool(REASON), reason=REASON)]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INA_TESTBEDS", str(tmp_path_factory.mktemp("testbeds")))
        with cluster(tmp_path_factory.mktemp("cluster")) as made:
            yield made


def sums(here: Cluster, machines: tuple[str, str], given: str) -> list[tuple[int, str, str]]:
    """Return how two ranks on these machines have ended, and what they have written."""
    ranks = []
    for rank, machine in enumerate(machines):
        own = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "given"}
        own |= {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "INA_GIVEN": given}
        own |= {"INA_MEETING": f"{here.state.topology.ip(machines[0])}:29600", "INA_MEETING_S": "60"}
        ranks.append(here.start(machine, [sys.executable, "-c", SUM], own))
    outputs = [rank.communicate(timeout=PATIENCE_S) for rank in ranks]
    return [(rank.returncode, *said) for rank, said in zip(ranks, outputs, strict=True)]


def test_ranks_find_the_job_as_the_controller_has_admitted_it(here: Cluster, tmp_path: Path) -> None:
    """Whichever server has which rank; ranks on other servers are refused."""
    service = Service(here, tmp_path, {}, [])
    service.submit({"name": "a", "command": ["sleep", "1000"], "servers": ["h1", "h3"]})
    service.until(lambda: service.states()["a"] == "running")
    order = json.loads((tmp_path / "state" / "runs" / "0" / "run.json").read_text())
    engine = {"engine": "ray", "cluster": topology_document(netns.exported(here.state))}
    given = json.dumps(order | engine)

    ended = sums(here, ("h3", "h1"), given)
    assert [status for status, _, _ in ended] == [0, 0], ended
    said = [json.loads(output) for _, output, _ in ended]
    assert said == [[0, True, True, True], [1, True, True, True]]

    refused = sums(here, ("h1", "h2"), given)
    why = "the ranks are on h1, h2, but the controller has placed the job on h1, h3"
    assert all(status and why in errors for status, _, errors in refused), refused
    service.stop()
    until(lambda: len(here.jobs()) == 1, 60.0)  # it runs on without the controller
