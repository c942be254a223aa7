"""Whole processes on real sockets: these tests run one after the other, beside all others, and first."""

from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from tests.system.command import family

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("system"))
    items.sort(key=lambda item: not item.path.is_relative_to(HERE))


@pytest.fixture(autouse=True, scope="session")
def before_any_test() -> None:
    """Start what Python starts once and keeps for all processes to come: of no test, it ends with none."""
    resource_tracker.ensure_running()


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """End what a test has started with the test, also if it fails."""
    with family():
        yield
