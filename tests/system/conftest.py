"""Whole processes on real sockets: these tests run one after the other, beside all others, and first."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("system"))
    items.sort(key=lambda item: not item.path.is_relative_to(HERE))
