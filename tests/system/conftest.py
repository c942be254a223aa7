"""Whole processes on real sockets: these tests run first, as they take longest."""

from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from tests.system.command import family

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
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
