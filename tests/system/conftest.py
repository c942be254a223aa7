"""Whole processes on real sockets."""

from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from tests.system.clusters import Cluster, cluster
from tests.system.command import family
from tests.system.torch_group import Ranks


@pytest.fixture(autouse=True, scope="session")
def before_any_test() -> None:
    """Start what Python starts once and keeps for all processes to come: of no test, it ends with none."""
    resource_tracker.ensure_running()


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """End what a test has started with the test, also if it fails."""
    with family():
        yield


@pytest.fixture
def beds(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a folder of testbeds for a test alone; its path is short, as sockets are below it."""
    monkeypatch.setenv("INA_TESTBEDS", str(folder := tmp_path_factory.mktemp("beds")))
    return folder


@pytest.fixture(scope="module")
def here(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Make a cluster for all tests of a module, as its ``SHAPE`` says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INA_TESTBEDS", str(tmp_path_factory.mktemp("testbeds")))
        with cluster(tmp_path_factory.mktemp("cluster"), **getattr(request.module, "SHAPE", {})) as made:
            yield made


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """A process that has torch loaded."""
    with Ranks() as started:
        yield started
