"""The controller of a cluster file whose switches are BMv2: a job is placed there, and sums."""

from __future__ import annotations

from pathlib import Path

import pytest

from bmv2_topos.testbeds.netns import bmv2
from controller.vocabulary import read_topology
from tests.softswitch.namespaces import why_not
from tests.system.clusters import cluster
from tests.system.test_service_machines import Served, jobs_at

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.netns,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.skipif(bool(bmv2.missing()), reason=bmv2.missing()),
]


def test_a_job_sums_on_the_bmv2_switches_of_a_cluster_file(tmp_path: Path) -> None:
    """In two racks below a root: every sum is right (`marks.py`), and all three switches have the job."""
    with cluster(tmp_path, target="bmv2") as bed:
        bed.serve_fallback()
        served = Served.on(bed, tmp_path, "--target", "bmv2", "--lanes", "32")
        served.describe(read_topology(bed.file))
        served.start()
        served.submit("wide", "--until", tmp_path / "stop", workers=4)
        served.until(lambda: served.begun("wide"))
        there = {name: len(jobs_at(bed, name)) for name in ("s1", "s2", "s3")}
        assert there == {"s1": 1, "s2": 1, "s3": 1}, served.said()
        (tmp_path / "stop").touch()
        assert served.over("wide")["starts"] == 1, served.said()
        served.until(served.clean)
        served.end()
        assert not any(jobs_at(bed, name) for name in ("s1", "s2", "s3"))
