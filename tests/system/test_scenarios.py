"""The scenarios that come along, as processes, on all runners that this machine has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from bmv2_topos.scenarios import shipped
from bmv2_topos.testbeds.netns import bmv2
from tests.system.clusters import NETNS, NO_NAMESPACES
from tests.system.command import here, report

NO_MININET = NO_NAMESPACES or ("" if shutil.which("mnexec") else "no Mininet: apt-get install mininet")
NO_BMV2 = NO_MININET or bmv2.missing()
MININET = [pytest.mark.netns, pytest.mark.skipif(bool(NO_MININET), reason=NO_MININET)]
BMV2 = [pytest.mark.netns, pytest.mark.bmv2, pytest.mark.skipif(bool(NO_BMV2), reason=NO_BMV2)]

ALL = sorted(shipped())  # and in virtual time: tests/bmv2_topos/test_scenarios.py
LOSSLESS = [name for name in ALL if name != "lossy-link"]  # BMv2 loses nothing by itself
RUNS = [
    pytest.param("loopback", "embedded", ALL, id="loopback"),
    pytest.param("netns", "embedded", ALL, id="netns", marks=NETNS),
    pytest.param("mininet", "embedded", ALL, id="mininet", marks=MININET),
    pytest.param("mininet", "bmv2", LOSSLESS, id="bmv2", marks=BMV2),
]


@pytest.mark.parametrize(("runner", "target", "names"), RUNS)
def test_the_same_scenarios_pass(runner: str, target: str, names: list[str], beds: Path) -> None:
    found = report("scenario", "run", *names, "--runner", runner, "--target", target)
    assert found["metrics"]["scenarios"] == len(names)
    assert all(check["good"] for each in found["jobs"].values() for check in each["checks"])
    assert [path for path in beds.glob("*") if path.is_dir()] == []


def test_a_check_that_fails_fails_the_command(tmp_path: Path) -> None:
    text = shipped()["straggler"].read_text().replace("least = 0.04", "least = 100")
    (tmp_path / "slow.toml").write_text(text)
    done = here("scenario", "run", tmp_path / "slow.toml")
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert "slow: checks have failed" in done.stderr
    assert here("scenario", "run", tmp_path / "none.toml").returncode == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may make namespaces")
def test_without_root_namespaces_are_refused_and_loopback_named() -> None:
    done = here("scenario", "run", "straggler", "--runner", "netns")
    assert done.returncode == 1
    assert "network namespaces need root" in done.stderr
    assert "loopback" in done.stderr
