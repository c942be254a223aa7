"""What tests of the API share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.ina.service import bed as beds


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[beds.Bed]:
    with beds.serving(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a service that has no tokens, for all tests of a module that leave it as it is."""
    folder: Path = tmp_path_factory.mktemp("shared")
    with (
        beds.serving(folder) as made,
        httpx.Client(base_url=made.url, timeout=beds.TIMEOUT_S, trust_env=False) as client,
    ):
        yield client


@pytest.fixture
def http(bed: beds.Bed) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=bed.url, timeout=beds.TIMEOUT_S, trust_env=False) as client:
        yield client
